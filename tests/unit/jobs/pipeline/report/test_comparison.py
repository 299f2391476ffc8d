"""Sections about errors: every number of the evaluation where it belongs, and words that follow."""

from __future__ import annotations

import pytest

from jobs.pipeline.documents.evaluation import Evaluation
from jobs.pipeline.report.internal import (
    Comparison,
    bias_section,
    bias_table,
    changed_section,
    distribution_section,
    error_section,
    kept_tile,
    size_section,
)
from jobs.pipeline.report.page import Row
from jobs.pipeline.report.plots import Figure
from jobs.pipeline.report.table import Table
from tests.unit.jobs.pipeline.report.report_samples import (
    CANARY,
    LEVELS,
    QUERIES,
    evaluation,
    evaluation_document,
    made,
    manifest,
)


def compared(change=lambda row: None, **of_manifest) -> Comparison:
    document = evaluation_document()
    for row in document["results"]:
        change(row)
    return Comparison.build(manifest(**of_manifest), made(Evaluation, document))


def tables(section) -> dict:
    blocks = [b for one in section.blocks for b in (one.blocks if isinstance(one, Row) else [one])]
    return {block.key: block for block in blocks if isinstance(block, Table)}


def texts(table) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


def test_results_are_found_by_geolevel_and_query() -> None:
    comparison = compared()
    first = evaluation().results[0]
    assert comparison.results["nation", "total"] == first
    grid = tables(error_section(comparison))["error-released"]
    assert len(grid.rows) == len(QUERIES)
    assert all(len(row) == 1 + len(LEVELS) for row in grid.rows)


def test_noise_is_that_of_the_manifest() -> None:
    assert compared().noise["block", "sex"] == 2.5
    assert compared(budget=[]).noise == {}


def test_errors_have_their_figure_and_every_geolevel_is_in_the_tables() -> None:
    comparison = compared()
    assert sum(isinstance(block, Figure) for block in error_section(comparison).blocks) == 1
    rows = texts(tables(size_section(comparison))["size-table"])
    assert {row[0] for row in rows} == set(LEVELS)
    assert [row[1] for row in rows[:3]] == ["0", "1 to 9", "10 to 99"]


def test_sizes_without_geounits_are_left_out() -> None:
    def empty(row):
        row["by_size"][0]["geounits"] = 0

    rows = texts(tables(size_section(compared(empty)))["size-table"])
    assert "0" not in {row[1] for row in rows}


def test_means_of_bins_are_bins_by_geolevels() -> None:
    rows = bias_table(compared(), "sex", "by_true", "").rows
    assert [row[0].text for row in rows] == ["0", "1", "2 to 4"]
    assert rows[1][3].sort == compared().results["block", "sex"].by_true[1].bias
    assert all(cell.sort >= CANARY for row in rows for cell in row[1:])


@pytest.mark.parametrize("kind", ["by_size", "by_true"])
def test_leads_say_numbers_only_where_two_bins_have_some(kind) -> None:
    def alone(row):
        for each in row[kind][1:]:
            each |= dict.fromkeys(("mae", "rmse", "bias", "max", "exact"))

    section = {"by_size": size_section, "by_true": bias_section}[kind]
    assert "At block" in section(compared()).lead
    assert "At block" not in section(compared(alone)).lead


def test_shares_of_no_answers_are_dashes() -> None:
    def none(row):
        row |= {"distribution": [], "live": 0}

    table = tables(distribution_section(compared(none)))["distribution-table"]
    assert texts(table)[0][3:] == ["\N{EN DASH}"] * 8


def test_the_most_changed_geounits_come_first() -> None:
    table = tables(changed_section(compared()))["changed-total"]
    changes = [row[4].sort for row in table.rows]
    assert changes == sorted(changes, reverse=True)
    assert {row[0].text.split("-")[0] for row in table.rows} == set(LEVELS)


def test_pairs_that_solving_made_better_are_counted() -> None:
    def good(row):
        row["rmse"] = 2.0 if row["query"] == "total" else 3.0

    assert "For 3 of 9 measured pairs" in error_section(compared(good)).lead
    assert "measured pairs" not in error_section(compared(good, budget=[])).lead


@pytest.mark.parametrize(
    ("invariants", "value", "verdict"),
    [
        ([], "0 of 0", "none stated"),
        ([("total", ["nation"])], "1 of 1", "checked against the truth"),
        ([("total", ["nation", "block"])], "0 of 1", "1 BROKEN OR UNSEEN"),
        ([("unheard", ["nation"])], "0 of 1", "1 BROKEN OR UNSEEN"),
        ([("total", ["nation"]), ("sex", ["block"])], "1 of 2", "1 BROKEN OR UNSEEN"),
    ],
)
def test_invariants_are_kept_where_the_largest_error_is_none(invariants, value, verdict) -> None:
    stated = [{"query": query, "geolevels": levels} for query, levels in invariants]
    comparison = compared()
    tile = kept_tile(manifest(invariants=stated), comparison)
    assert (tile.value, tile.detail) == (value, verdict)
