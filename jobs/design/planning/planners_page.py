"""Errors of cells by method as tables for a terminal, and as a page with pictures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import typer
from rich.text import Text

from jobs.design.planning.planners import MethodSpread, PlannerComparison, Quantiles
from jobs.pipeline.documents.document import json_of
from jobs.pipeline.printable import printable, result_console
from jobs.pipeline.report import text
from jobs.pipeline.report.console import terminal_table
from jobs.pipeline.report.page import Block, Page, Section, Tile, write_report
from jobs.pipeline.report.plots import Figure, MarkPanel, mark_panels, range_rows
from jobs.pipeline.report.table import Column, Table, gridded, labels, numbers, shaded
from jobs.pipeline.report.text import words
from jobs.pipeline.storage.files import READABLE

_SUMMARY = (
    "The same tables, planned by every method at the privacy cost of one geolevel: which cells get "
    "more noise than others. Computed from schema and budget alone; no data was read."
)
_OWN = (
    "Errors are those of unbiased linear estimates of one geounit from its own measurements, "
    "before nonnegativity and rounding."
)
_ROLES = ("ink", "released", "raw", "third", "muted")
_MEANINGS = (
    "total (square)",
    "1 attribute (circle)",
    "2 attributes (triangle)",
    "3 attributes (diamond)",
    "more (circle)",
)
_NAMES = {
    "run": "this run",
    "residual_planner": "ResidualPlanner",
    "residual_planner_plus": "ResidualPlanner+",
    "orp": "oblique planner",
    "hdmm": "HDMM",
}


def method_table(summary: PlannerComparison) -> Table:
    """A row per method: the smallest, middle and largest standard errors of its answers."""
    methods = summary.methods
    errors = [[*vars(one.answers).values(), one.rmse] for one in methods]
    cells = shaded(errors, text.decimal, logarithmic=True)
    titles = ("Least", "Tenth", "Median", "Ninetieth", "Largest", "RMSE")
    columns = [
        labels("Method", [_NAMES[one.method] for one in methods]),
        labels("Minimizes", [one.objective for one in methods]),
        *gridded(titles, cells),
        numbers("Ratio", [one.ratio for one in methods], _ratio, "largest : least"),
    ]
    return Table.of(
        "methods",
        f"Standard errors of all answers of all tables, in {summary.records}",
        columns,
        "Quantiles over answers: one in ten has at most the tenth. RMSE: root mean square. Sums "
        "are of variances: of the mean variance of every table (tables alike), of these times the "
        "root of the number of answers, or of all answers. Power mean: of the tables.",
    )


def _ratio(value: float | None) -> str:
    return "exact" if value is None else text.decimal(value)


def table_table(summary: PlannerComparison) -> Table:
    """A row per table: the root mean square of its standard errors under every method."""
    first = summary.methods[0].by_table
    errors = [[one.by_table[row].rmse for one in summary.methods] for row in range(len(first))]
    cells = shaded(errors, text.decimal, logarithmic=True)
    columns = [
        labels("Table", [each.table for each in first]),
        numbers("Answers", [each.answers for each in first]),
    ]
    for place, one in enumerate(summary.methods):
        own = [row[place] for row in cells]
        columns.append(Column(_NAMES[one.method], hint=one.objective, cells=own))
    caption = f"Root mean square of the standard errors of each table, in {summary.records}"
    return Table.of("tables", caption, columns)


def print_planners(summary: PlannerComparison, *, as_json: bool) -> None:
    """Print errors of cells by method as JSON, or as a table with what was left out."""
    if as_json:
        typer.echo(json.dumps(json_of(summary), indent=1))
        return
    console = result_console()
    console.print(
        Text(printable(summary.name), "bold"),
        printable(f" {summary.geolevel}, rho {summary.rho}: {summary.workload}"),
    )
    console.print(terminal_table(method_table(summary)))
    for one in summary.skipped:
        console.print(printable(f"left out: {one.method}: {one.reason}"))


def write_planners_page(summary: PlannerComparison, out: Path) -> None:
    """Write one self-contained HTML file.

    Args:
      summary: At least one method.
      out: The file; replaced at once.

    Raises:
      OutputError: It cannot be written.
    """
    drawn = [one for one in summary.methods if one.answers.largest > 0]
    sections = [_cells(drawn, summary), _spread(drawn, summary)]
    sections.append(Section("tables", "Tables", _OWN, [table_table(summary)]))
    ratios = [one.ratio for one in summary.methods if one.ratio is not None]
    tiles = [
        Tile("Tables", text.integer(len(summary.methods[0].by_table)), summary.workload),
        Tile(
            "Budget of a geounit",
            f"{text.RHO} {text.decimal(text.ratio(summary.rho))}",
            f"{words(summary.geolevel)}, {summary.neighbors} neighbors",
        ),
    ]
    if ratios:
        detail = f"to {text.decimal(max(ratios))}, by method"
        tiles.append(Tile("Largest : least error", text.decimal(min(ratios)), detail))
    facts = [("Schema", summary.schema), ("Geolevel", summary.geolevel)]
    facts += [("Left out", f"{one.method}: {one.reason}") for one in summary.skipped]
    page = Page(
        "Comparison of planners",
        summary.name,
        _SUMMARY,
        facts,
        [],
        tiles,
        sections,
        summary.records,
    )
    write_report(page, out, mode=READABLE)


def _cells(drawn: Sequence[MethodSpread], summary: PlannerComparison) -> Section:
    """Figures 1 to 3 of the reference, a panel per method: error of a cell by size of its table."""
    panels = []
    for one in drawn:
        series: dict[str, list[tuple[float, float]]] = {}
        for table in one.by_table:
            if table.rmse > 0:
                role = _ROLES[min(table.attributes, len(_ROLES) - 1)]
                series.setdefault(role, []).append((table.answers, table.rmse))
        panels.append(MarkPanel(f"{_NAMES[one.method]}: {one.objective}", series))
    up = f"Standard error of an answer, in {summary.records}"
    orders = {table.attributes for one in drawn for table in one.by_table}
    legend = [
        (role, meaning)
        for place, (role, meaning) in enumerate(zip(_ROLES, _MEANINGS, strict=True))
        if place in orders or (place == len(_ROLES) - 1 and max(orders) > place)
    ]
    caption = (
        "Every mark is a table: how many answers it has, and their standard error (root mean "
        "square). A level line of marks treats all cells alike."
    )
    svg = mark_panels("cells", panels, "Answers of the table", up)
    blocks: list[Block] = [Figure("cells", svg, caption, legend)]
    lead = (
        "Minimizing the sum over all answers favors large tables, which have most of them; the "
        "largest variance is least where all are equal. " + _OWN
    )
    return Section("cells", "Small and large tables", lead, blocks)


def _spread(drawn: Sequence[MethodSpread], summary: PlannerComparison) -> Section:
    rows = {
        f"{_NAMES[one.method]}: {one.objective}": [*map(_positive, (one.answers, one.tables))]
        for one in drawn
    }
    titles = (f"of answers, in {summary.records}", "of tables, root mean square")
    caption = (
        "Standard errors from the least to the largest (line), the middle four fifths (bar) and "
        "the median (mark). Left every answer counts once, right every table."
    )
    legend = [("released", "least to largest"), ("raw", "median")]
    figure = Figure("spread", range_rows("spread", titles, rows), caption, legend)
    blocks: list[Block] = [figure, method_table(summary)]
    return Section("spread", "Spread of errors by method", "", blocks)


def _positive(quantiles: Quantiles) -> list[float]:
    """For a logarithmic axis, which has no place for what an invariant gives exactly."""
    values = [*vars(quantiles).values()]
    least = min(value for value in values if value > 0)
    return [max(value, least) for value in values]
