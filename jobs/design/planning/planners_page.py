"""Comparison of planners as tables for a terminal and as a page with plots."""

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
    "more noise than others. Computed from schema and budget alone; no data were read."
)
_ONE_GEOUNIT = (
    "Errors of linear unbiased estimates from the measurements of one geounit, before "
    "nonnegativity and rounding."
)
_MEANINGS = {
    "ink": "total (square)",
    "released": "1 attribute (circle)",
    "raw": "2 attributes (triangle)",
    "third": "3 attributes (diamond)",
    "muted": "more (circle)",
}
_ROLES = (*_MEANINGS,)
_NAMES = {
    "run": "this run",
    "residual_planner": "ResidualPlanner",
    "residual_planner_plus": "ResidualPlanner+",
    "orp": "oblique planner",
    "hdmm": "HDMM",
}


def method_table(summary: PlannerComparison) -> Table:
    """Return quantiles of the standard errors, one row per method."""
    methods = summary.methods
    errors = [[*vars(method.answers).values(), method.rmse] for method in methods]
    cells = shaded(errors, text.decimal, logarithmic=True)
    titles = ("Least", "Tenth", "Median", "Ninetieth", "Largest", "RMSE")
    columns = [
        labels("Method", [_NAMES[method.method] for method in methods]),
        labels("Minimizes", [method.objective for method in methods]),
        *gridded(titles, cells),
        numbers("Ratio", [method.ratio for method in methods], text.decimal, "largest : least"),
    ]
    return Table.of(
        "methods",
        f"Standard errors of all answers of all tables, in {summary.records}",
        columns,
        "Quantiles over answers: one in ten has at most the tenth. RMSE: root mean square. Sums "
        "add up variances: mean variances of tables (equal weight per table), the same times the "
        "root of the number of answers, or variances of all answers. Power mean: over tables.",
    )


def table_table(summary: PlannerComparison) -> Table:
    """Return the root mean square of the standard errors of each table under every method."""
    first = summary.methods[0].by_table
    errors = [[m.by_table[row].rmse for m in summary.methods] for row in range(len(first))]
    cells = shaded(errors, text.decimal, logarithmic=True)
    columns = [
        labels("Table", [each.table for each in first]),
        numbers("Answers", [each.answers for each in first]),
    ]
    for method, errors_of in zip(summary.methods, zip(*cells, strict=True), strict=True):
        columns.append(Column(_NAMES[method.method], hint=method.objective, cells=errors_of))
    caption = f"Root mean square of the standard errors of each table, in {summary.records}"
    return Table.of("tables", caption, columns)


def print_planners(summary: PlannerComparison, *, as_json: bool) -> None:
    """Print the comparison as JSON, or as a table with the planners left out."""
    if as_json:
        typer.echo(json.dumps(json_of(summary), indent=1))
        return
    console = result_console()
    console.print(
        Text(printable(summary.name), "bold"),
        printable(f" {summary.geolevel}, rho {summary.rho}: {summary.workload}"),
    )
    console.print(terminal_table(method_table(summary)))
    for skipped in summary.skipped:
        console.print(printable(f"left out: {skipped.method}: {skipped.reason}"))


def write_planners_page(summary: PlannerComparison, out: Path) -> None:
    """Write the comparison as one self-contained HTML file.

    Args:
      summary: The comparison, with at least one method.
      out: The file; replaced atomically.

    Raises:
      OutputError: The file cannot be written.
    """
    drawn = [method for method in summary.methods if method.answers.largest > 0]
    sections = [_cells(drawn, summary), _spread(drawn, summary)]
    sections.append(Section("tables", "Tables", _ONE_GEOUNIT, [table_table(summary)]))
    ratios = [method.ratio for method in summary.methods if method.ratio is not None]
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
    facts += [("Left out", f"{skipped.method}: {skipped.reason}") for skipped in summary.skipped]
    title, records = "Comparison of planners", summary.records
    page = Page(title, summary.name, _SUMMARY, facts, [], tiles, sections, records)
    write_report(page, out, mode=READABLE)


def _cells(drawn: Sequence[MethodSpread], summary: PlannerComparison) -> Section:
    """Plot errors of cells against sizes of tables, one panel per method."""
    panels = []
    drawn_roles = set[str]()
    for method in drawn:
        series: dict[str, list[tuple[float, float]]] = {}
        for table in method.by_table:
            role = _ROLES[min(table.attributes, len(_ROLES) - 1)]
            drawn_roles.add(role)
            if table.rmse > 0:
                series.setdefault(role, []).append((table.answers, table.rmse))
        panels.append(MarkPanel(_title(method), series))
    up = f"Standard error of an answer, in {summary.records}"
    legend = [(role, meaning) for role, meaning in _MEANINGS.items() if role in drawn_roles]
    caption = (
        "Every mark is a table: number of answers, and root mean square of their standard errors. "
        "On a horizontal line all cells have equal errors."
    )
    svg = mark_panels("cells", panels, "Answers of the table", up)
    blocks: list[Block] = [Figure("cells", svg, caption, legend)]
    lead = (
        "Minimizing the sum over all answers favors large tables, which have most answers. "
        "Minimizing the largest variance makes variances equal where possible. " + _ONE_GEOUNIT
    )
    return Section("cells", "Small and large tables", lead, blocks)


def _spread(drawn: Sequence[MethodSpread], summary: PlannerComparison) -> Section:
    rows = {_title(method): [*map(_positive, (method.answers, method.tables))] for method in drawn}
    titles = (f"of answers, in {summary.records}", "of tables, root mean square")
    caption = (
        "Standard errors from the least to the largest (line), the middle four fifths (bar) and "
        "the median (mark). Left: over answers; right: over tables."
    )
    legend = [("released", "least to largest"), ("raw", "median")]
    figure = Figure("spread", range_rows("spread", titles, rows), caption, legend)
    blocks: list[Block] = [figure, method_table(summary)]
    return Section("spread", "Spread of errors by method", "", blocks)


def _title(method: MethodSpread) -> str:
    return f"{_NAMES[method.method]}: {method.objective}"


def _positive(quantiles: Quantiles) -> list[float]:
    """Replace zeros, which a logarithmic axis cannot show, by the least positive quantile."""
    values = [*vars(quantiles).values()]
    least = min(value for value in values if value > 0)
    return [max(value, least) for value in values]
