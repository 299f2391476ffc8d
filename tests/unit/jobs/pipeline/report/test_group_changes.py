"""Which groups a solution serves better or worse than the release."""

from __future__ import annotations

from dataclasses import replace

from jobs.pipeline.documents.evaluation import Evaluation
from jobs.pipeline.report.groups import changes_section
from jobs.pipeline.report.plots import Figure
from jobs.pipeline.report.table import EMPTY, Table
from tests.unit.jobs.pipeline.report.report_samples import evaluation, evaluation_document, made


def times(f: float, m: float, everybody: float = 1.0) -> Evaluation:
    """The sample evaluation with other errors of its two groups, and of everybody."""
    document = evaluation_document()
    for row in document["parity"]:
        row["everybody"] *= everybody
        for group, factor in zip(row["by_group"], (f, m), strict=True):
            group["relative"] = group["relative"] and group["relative"] * factor
    return made(Evaluation, document)


def rows(section) -> list[list[str]]:
    (table,) = [block for block in section.blocks if isinstance(block, Table)]
    return [[cell.text for cell in row] for row in table.rows]


def test_changes_are_in_percent_of_the_errors_of_the_release():
    section = changes_section(evaluation(), times(0.5, 1.25, 1.1))
    found = rows(section)
    assert [row[0] for row in found] == ["everybody", "f", "m"]
    # There is no error at the nation, so no change of it.
    assert found[0][2:] == [EMPTY, "+10.0 %", "+10.0 %"]
    assert found[1][2:] == [EMPTY, "\N{MINUS SIGN}50.0 %", "\N{MINUS SIGN}50.0 %"]
    assert found[2][2:] == [EMPTY, "+25.0 %", "+25.0 %"]
    assert "smaller for 1 of 2 groups and larger for 1" in section.lead
    assert "f (sex) \N{MINUS SIGN}50.0 %, m (sex) +25.0 %" in section.lead
    assert any(isinstance(block, Figure) for block in section.blocks)


def test_nothing_changes_against_itself():
    section = changes_section(evaluation(), evaluation())
    assert {cell for row in rows(section) for cell in row[2:]} == {EMPTY, "0 %"}
    assert "smaller for 0 of 2 groups and larger for 0" in section.lead


def test_groups_that_only_one_of_them_has_are_left_out():
    other = evaluation()
    renamed = tuple(replace(row, groups="age") for row in other.parity)
    section = changes_section(evaluation(), replace(other, parity=renamed))
    assert not section.blocks
    assert "Extremes" not in section.lead
