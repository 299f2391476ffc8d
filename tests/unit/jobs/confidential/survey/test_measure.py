"""Parts of a survey are drawn once, and the adversary cannot make them be drawn again."""

from __future__ import annotations

import shutil

import pytest

from das.errors import LedgerError
from jobs.confidential.survey.measure import measure_part
from jobs.confidential.survey.read import read_survey
from jobs.survey.ledger import start_ledger
from jobs.survey.measurements import part_folder
from jobs.survey.plan import load_survey
from tests.builders.survey import write_survey


def test_what_was_measured_and_lost_is_not_drawn_again(tmp_path):
    seeded = {"source": "seeded_not_for_release", "seed": 1}
    plan = load_survey(write_survey(tmp_path, privacy__randomness=seeded))
    start_ledger(plan.release.ledger, {"total": "4"}, plan.costs)
    measure_part(plan, "age", lambda: read_survey(plan), None)
    measure_part(plan, "age", lambda: pytest.fail("read again"), None)
    kept = tmp_path / "kept"
    shutil.move(part_folder(plan.release, "age"), kept)
    with pytest.raises(LedgerError, match="restore them from a backup"):
        measure_part(plan, "age", lambda: read_survey(plan), None)
    shutil.move(kept, part_folder(plan.release, "age"))
    measure_part(plan, "age", lambda: pytest.fail("read again"), None)
