"""The stages: what sees the truth stands where it may, and the documentation lists what runs."""

from __future__ import annotations

import re
from functools import partial

from jobs.pipeline.run import EVALUATING, MEASURING, SOLVING, STAGES
from tests.checkout import ROOT


def module_of(function: object) -> str:
    """Where a stage's function was written, whatever it was given."""
    return (function.func if isinstance(function, partial) else function).__module__


def test_what_sees_the_truth_stands_in_its_room():
    """The import contract `firewall` then proves that the others cannot."""
    room = "jobs.pipeline.confidential."
    wrong = [s.name for s in STAGES if s.sees_truth != module_of(s.function).startswith(room)]
    assert wrong == []


def test_every_stage_is_of_one_part_of_a_run():
    assert (*MEASURING, *SOLVING, *EVALUATING) == tuple(stage.name for stage in STAGES)
    truthful = {stage.name for stage in STAGES if stage.sees_truth}
    assert not truthful & set(SOLVING)


def test_the_table_of_stages_is_what_runs():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = text.split("| Stage | Module |", 1)[1].split("\n\n", 1)[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    assert [(row[0], row[-1]) for row in rows] == [
        (stage.name, "yes" if stage.sees_truth else "no") for stage in STAGES
    ]
    modules = [name for row in rows for name in re.findall(r"`([^`]+)`", row[1])]
    assert [name for name in modules if not (ROOT / name).exists()] == []
