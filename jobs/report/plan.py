"""Plan report: budget and predicted errors as tables and plots, before any data is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jobs.neighborhoods import FROM_DATA, geounits_from_data
from jobs.report import text
from jobs.report.budget import (
    MOST_PANELS,
    budget_section,
    level_grid,
    noise_section,
    statements_table,
)
from jobs.report.headline import words
from jobs.report.page import FigureBlock, Page, Section, TableBlock, Tile
from jobs.report.plots import Figure, Panel, line_panels
from jobs.report.render import render
from jobs.report.table import Column, Table, name, number, tilted
from jobs.storage.files import replace_file
from jobs.storage.modes import READABLE

_SUMMARY = (
    "What will be measured where, and how large the error of every table will be. Computed from "
    "the budget and the public list of geounits alone; no data was read."
)
_LINEAR = (
    "The errors are those of the best unbiased linear estimate. Nonnegativity and rounding come "
    "after it: they make small counts more accurate than this on average, and biased."
)
_HEADINGS = {"own": "own measurements", "full": "all measurements of the tree"}


def write_plan_report(summary: Mapping[str, Any], out: Path) -> None:
    """Write a summary of `jobs.planning.terminal.plan_summary` as one self-contained HTML file.

    Args:
      summary: With `optimized`, also the allocation found and its errors.
      out: The file; replaced at once.

    Raises:
      OutputError: It cannot be written.
    """
    levels = list(summary["geography"])
    manifest = {
        **summary,
        "geography": [{"geolevel": level, **row} for level, row in summary["geography"].items()],
    }
    sections = [
        Section("shape", "Geography", "The geounits among which counts add up.", [_shape(summary)]),
        budget_section(manifest),
        noise_section(manifest),
    ]
    if summary["predicted"]:
        sections.insert(0, _predicted_section(summary["predicted"], levels))
    if "optimized" in summary:
        sections.insert(1, _optimized_section(summary["optimized"], levels))
    privacy = summary["privacy"]
    lead = f"What a change of one record costs. {privacy['neighborhood']['in_words']}".strip()
    if summary["geounits_source"] == FROM_DATA:
        lead += f" Exact: {geounits_from_data(summary['leaf'])}."
    sections.append(Section("privacy", "Privacy", lead, [TableBlock(statements_table(manifest))]))
    tiles = [
        Tile("Geounits", text.integer(summary["geography"][levels[-1]]["geounits"]), levels[-1]),
        Tile("Tables", text.integer(len(_tables(summary["predicted"]))), "with predicted errors"),
        Tile(text.EPSILON, text.upward(privacy.get("epsilon")), f"{privacy['total']} granted"),
    ]
    facts = [("Configuration", summary["configuration_digest"][:16])]
    page = Page("Plan", summary["name"], _SUMMARY, facts, [], tiles, sections)
    replace_file(out, render("page.html.j2", {"page": page}), mode=READABLE)


def _tables(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["table"] for row in rows))


def _grid(
    rows: Sequence[Mapping[str, Any]], levels: Sequence[str], kind: str, key: str = "rmse"
) -> list[list[float | None]]:
    held = {(row["table"], row["geolevel"]): row[kind][key] for row in rows}
    return [[held[table, level] for level in levels] for table in _tables(rows)]


def _predicted_section(rows: Sequence[Mapping[str, Any]], levels: Sequence[str]) -> Section:
    tables = _tables(rows)
    own, full = _grid(rows, levels, "own"), _grid(rows, levels, "full")
    shown = list(zip(tables, own, full, strict=True))[:MOST_PANELS]
    panels = [
        Panel(words(table), [words(level) for level in levels], {"raw": a, "released": b})
        for table, a, b in shown
    ]
    svg = line_panels("predicted", panels, "Root mean squared error of one answer, in persons")
    caption = (
        "Predicted root mean squared error by table (panel) and geolevel, on one logarithmic "
        "scale with zero. Zero means that an invariant gives the table exactly."
    )
    legend = [("raw", _HEADINGS["own"]), ("released", _HEADINGS["full"])]
    blocks: list[TableBlock | FigureBlock] = [
        FigureBlock(Figure("predicted", svg, caption, legend))
    ]
    for kind, heading in _HEADINGS.items():
        for key, what in (
            ("rmse", "Root mean squared error"),
            ("half_width_90", "90 % half width"),
            ("worst_rmse", "Root mean squared error in the worst geounit"),
        ):
            values = _grid(rows, levels, kind, key)
            caption = f"{what} of one answer from {heading}, in persons"
            blocks.append(
                TableBlock(level_grid(f"{kind}-{key}", caption, values, (tables, levels)))
            )
    return Section("predicted", "Predicted errors", _LINEAR, blocks)


def _optimized_section(optimized: Mapping[str, Any], levels: Sequence[str]) -> Section:
    rows = optimized["predicted"]
    tables = _tables(rows)
    blocks: list[TableBlock | FigureBlock] = []
    for kind, heading in _HEADINGS.items():
        before = _grid([row["before"] for row in rows], levels, kind)
        after = _grid(rows, levels, kind)
        panels = [
            Panel(words(table), [words(level) for level in levels], {"raw": a, "released": b})
            for table, a, b in list(zip(tables, before, after, strict=True))[:MOST_PANELS]
        ]
        key = f"optimized-{kind}"
        svg = line_panels(key, panels, "Root mean squared error of one answer, in persons")
        caption = f"Errors from {heading}, before and with the optimized allocation."
        legend = [("raw", "allocation of the run file"), ("released", "optimized")]
        blocks.append(FigureBlock(Figure(key, svg, caption, legend)))
        change = [
            [b / a - 1 if a and b is not None else None for a, b in zip(old, new, strict=True)]
            for old, new in zip(before, after, strict=True)
        ]
        body = [
            [name(words(table)), *cells]
            for table, cells in zip(tables, tilted(change, _signed_percent), strict=True)
        ]
        columns = [Column("Table", numeric=False), *(Column(words(level)) for level in levels)]
        caption = f"Change of the root mean squared error from {heading}"
        blocks.append(TableBlock(Table(f"{key}-change", caption, columns, body)))
    blocks.append(TableBlock(_shares(optimized["shares"])))
    return Section("optimized", "Optimized allocation", f"{optimized['source']}.", blocks)


def _signed_percent(value: float | None) -> str:
    return text.NOT_RECORDED if value is None else f"{100 * value:+.1f} %"


def _shares(rows: Sequence[Mapping[str, Any]]) -> Table:
    body = [
        [
            name(words(row["geolevel"])),
            number(text.ratio(row["level_share"]), text.fine_percent),
            name(words(row["query"])),
            number(text.ratio(row["share"]), text.fine_percent),
        ]
        for row in rows
    ]
    columns = [
        Column("Geolevel", numeric=False),
        Column("Share", hint=f"of {text.RHO}"),
        Column("Query", numeric=False),
        Column("Share", hint="of the geolevel"),
    ]
    return Table("optimized-shares", "Optimized shares", columns, body)


def _shape(summary: Mapping[str, Any]) -> TableBlock:
    body = [
        [
            name(words(level)),
            number(row["geounits"]),
            number(row["only_children"]),
            number(row["largest_family"]),
            number(row["mean_family"], text.decimal),
        ]
        for level, row in summary["geography"].items()
    ]
    titles = ("Geounits", "Only children", "Largest family", "Mean family")
    columns = [Column("Geolevel", numeric=False), *(Column(title) for title in titles)]
    return TableBlock(Table("shape", "Geounits per geolevel", columns, body))
