"""Parts of a survey are drawn once, and the adversary cannot make them be drawn again."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from das.definition import Definition
from das.errors import LedgerError, SpentError, VerificationError
from das.queries.sensitivity import Neighbors
from jobs.pipeline.folder.spending import Part, Spending
from jobs.pipeline.storage.dataset import publish
from jobs.survey.confidential.measure import measure_part
from jobs.survey.confidential.read import read_survey
from jobs.survey.folder import begin_ledger, spending_of
from jobs.survey.manifest import _check_costs
from jobs.survey.measurements import read_sums, sum_rows, write_part
from jobs.survey.plan import SurveyPlan, load_survey
from tests.builders.survey import write_survey


def begun(folder: Path) -> tuple[SurveyPlan, Spending, Part]:
    """A seeded survey with its ledger, and the part that is the mean of ages."""
    seeded = {"source": "seeded_not_for_release", "seed": 1}
    plan = load_survey(write_survey(folder, privacy__randomness=seeded))
    begin_ledger(plan)
    spending = spending_of(plan, "")
    return plan, spending, spending.parts[1]


def test_what_was_measured_and_lost_is_not_drawn_again(tmp_path):
    plan, spending, age = begun(tmp_path)
    measure_part(plan, age, lambda: read_survey(plan), spending)
    measure_part(plan, age, lambda: pytest.fail("read again"), spending)
    kept = tmp_path / "kept"
    shutil.move(age.dataset, kept)
    with pytest.raises(LedgerError, match="restore them from a backup"):
        measure_part(plan, age, lambda: read_survey(plan), spending)
    shutil.move(kept, age.dataset)
    measure_part(plan, age, lambda: pytest.fail("read again"), spending)


def test_an_error_after_a_draw_shows_no_value(tmp_path, monkeypatch):
    plan, spending, age = begun(tmp_path)

    def fails(*arguments: object) -> None:
        raise ValueError(f"bad answers {arguments}")

    monkeypatch.setattr("jobs.survey.confidential.measure.part_rows", fails)
    with pytest.raises(SpentError, match="failed after noise was drawn") as caught:
        measure_part(plan, age, lambda: read_survey(plan), spending)
    assert "bad answers" not in str(caught.value)
    assert caught.value.__context__ is None


def test_what_costs_more_than_was_planned_is_not_published(tmp_path, monkeypatch):
    plan, spending, age = begun(tmp_path)
    more = plan.costs[age.name] + 1
    monkeypatch.setattr("jobs.survey.confidential.measure.part_cost", lambda *_: more)
    with pytest.raises(SpentError, match="failed after noise was drawn"):
        measure_part(plan, age, lambda: read_survey(plan), spending)
    assert not age.dataset.exists()


def test_sums_with_less_noise_than_the_ledger_states_are_found(tmp_path):
    plan, spending, age = begun(tmp_path)
    measure_part(plan, age, lambda: read_survey(plan), spending)
    assert _check_costs(plan) == plan.costs[age.name]
    (*before, [last]) = read_sums(age.dataset)
    quiet = replace(last, mechanism=type(last.mechanism)(last.mechanism.parameter / 2))
    names = plan.part(age.name).strata.names
    table, facts = sum_rows([*before, [quiet]], names, Definition.ZCDP, Neighbors.BOUNDED)
    shutil.rmtree(age.dataset)
    publish(age.dataset, [write_part(age.dataset, table)], facts)
    with pytest.raises(
        VerificationError, match="age: states a cost that differs from that of the noise"
    ):
        _check_costs(plan)
