"""How the error depends on size: of the geounit, of the true count; and its distribution.

Confidential, as `jobs.pipeline.report.comparison`.
"""

from __future__ import annotations

from jobs.pipeline.report import text
from jobs.pipeline.report.comparison import Comparison, bias_table, bin_values
from jobs.pipeline.report.page import Block, Row, Section
from jobs.pipeline.report.plots import Figure, Panel, bar_panels, line_panels, share_bars
from jobs.pipeline.report.table import Cell, Column, Table, known, labels, numbers
from jobs.pipeline.report.text import words

_CLASSES = ("0", "1", "2", "3 to 4", "5 to 9", "10 to 19", "20 to 49", "50 or more")
_SHORT = {" to ": "\N{EN DASH}", " or more": "+", ",000": "k", "9,999": "10k"}


def size_section(comparison: Comparison) -> Section:
    """Error by true population of the geounit."""
    queries = [q for q in ("total", "detailed") if q in comparison.queries]
    roles = dict(zip(queries, ("released", "third"), strict=False))
    means = {query: _by_size(comparison, query) for query in queries}
    bins = next(iter(means.values()), ([], []))[0]
    panels = [
        Panel(
            words(level),
            [_short(label) for label in bins],
            {roles[q]: [row[index] for row in values] for q, (_, values) in means.items()},
        )
        for index, level in enumerate(comparison.levels)
    ]
    blocks: list[Block] = []
    if bins:
        label = f"Mean sum of absolute errors per geounit, in {comparison.records}"
        svg = line_panels("size", panels, label)
        caption = (
            "Mean sum of absolute errors per geounit, by geolevel (panel) and true population of "
            "the geounit. A gap means that no geounit has this size."
        )
        meaning = {"total": "total", "detailed": "all cells together"}
        legend = [(roles[q], meaning[q]) for q in queries]
        blocks.append(Figure("size", svg, caption, legend))
        blocks.append(_size_table(comparison))
    return Section("size", "Error by size of geounit", _size_lead(comparison), blocks)


def _size_lead(comparison: Comparison) -> str:
    lead = "The noise does not depend on how large a geounit is; what solving makes of it does."
    leaf = comparison.levels[-1]
    filled = [row for row in comparison.result(leaf, "total").by_size if row.mae is not None]
    if len(filled) < 2:
        return lead
    first, last = filled[0], filled[-1]
    return (
        f"{lead} At {words(leaf)}, the total of geounits with {first.bin} "
        f"{comparison.records} is off by {text.decimal(first.mae)} on average, that of geounits "
        f"with {last.bin} by {text.decimal(last.mae)}."
    )


def _by_size(comparison: Comparison, query: str) -> tuple[list[str], list[list[float | None]]]:
    bins, values = bin_values(comparison, query, "by_size", "mae")
    width = [comparison.value(level, query, "size") for level in comparison.levels]
    return bins, [
        [None if v is None or m is None else v * m for v, m in zip(row, width, strict=True)]
        for row in values
    ]


def _size_table(comparison: Comparison) -> Table:
    totals, cells = (
        [
            (level, order, one)
            for level in comparison.levels
            for order, one in enumerate(comparison.result(level, query).by_size)
            if one.geounits
        ]
        for query in ("total", "detailed")
    )
    sizes = [Cell(one.bin, order) for _, order, one in totals]
    columns = [
        labels("Geolevel", (level for level, *_ in totals)),
        Column(comparison.records.capitalize(), False, "in the geounit", sizes),
        numbers("Geounits", (one.geounits for *_, one in totals)),
    ]
    for rows, of, exact in ((totals, "total", "total"), (cells, "one cell", "cells")):
        columns += [
            numbers("MAE", (one.mae for *_, one in rows), text.decimal, of),
            numbers("Bias", (one.bias for *_, one in rows), text.signed, of),
            numbers("Exact", (one.exact for *_, one in rows), text.percent, exact),
        ]
    return Table.of("size-table", "Error by geolevel and size of geounit", columns)


def bias_section(comparison: Comparison) -> Section:
    """Mean error by size of geounit and by true count."""
    query = "detailed" if "detailed" in comparison.queries else "total"
    bins, values = bin_values(comparison, query, "by_true", "bias")
    panels = [
        Panel(
            words(level),
            [_short(label) for label in bins],
            {"released": [row[index] for row in values]},
        )
        for index, level in enumerate(comparison.levels)
    ]
    blocks: list[Block] = []
    if bins:
        svg = bar_panels("bias", panels, f"Mean error of one cell, in {comparison.records}")
        caption = (
            "Mean of released minus true, by geolevel (panel, each on its own scale) and true "
            "count of the cell. Above zero: counted too many. A dash means that no cell has "
            "this count."
        )
        legend = [("above", "too many"), ("below", "too few")]
        blocks.append(Figure("bias", svg, caption, legend))
    kinds = (
        (query, "by_true", "Bias of one cell by true count"),
        ("total", "by_size", "Bias of the total by size of geounit"),
    )
    tables = [
        bias_table(comparison, asked, kind, caption)
        for asked, kind, caption in kinds
        if bin_values(comparison, asked, kind, "bias")[0]
    ]
    if tables:
        blocks.append(Row(tables))
    return Section("bias", "Bias", _bias_lead(comparison, query), blocks)


def _bias_lead(comparison: Comparison, query: str) -> str:
    lead = (
        "Released counts cannot be negative, so noise pushes cells that are truly zero upward, "
        "and where totals hold, larger cells pay for it."
    )
    leaf = comparison.levels[-1]
    filled = [row for row in comparison.result(leaf, query).by_true if row.bias is not None]
    if len(filled) < 2:
        return lead
    first, last = filled[0], filled[-1]
    return (
        f"{lead} At {words(leaf)}, cells with a true count of {first.bin} move by "
        f"{text.signed(first.bias)} on average, those of {last.bin} by {text.signed(last.bias)}."
    )


def distribution_section(comparison: Comparison) -> Section:
    """Distribution of the absolute error by geolevel."""
    queries = [q for q in ("total", "detailed") if q in comparison.queries]
    rows = {
        words(level): [comparison.result(level, q).distribution for q in queries]
        for level in comparison.levels
    }
    blocks: list[Block] = []
    if queries and rows:
        heading = {"total": "Total", "detailed": "Detailed cells"}
        svg = share_bars("distribution", [heading[q] for q in queries], rows)
        caption = (
            f"Share of answers by absolute error in {comparison.records}; numbers are percent. "
            "Answers that are zero in truth and in the release are left out."
        )
        legend = [(f"step-{index}", label) for index, label in enumerate(_CLASSES)]
        blocks.append(Figure("distribution", svg, caption, legend))
        blocks.append(_distribution_table(comparison))
    lead = (
        "How often an answer is exactly right, off by one, by two, and so on. Averages hide this: "
        "a small mean error can be many small errors or few large ones."
    )
    return Section("distribution", "Distribution of the error", lead, blocks)


def _distribution_table(comparison: Comparison) -> Table:
    keys = [(level, query) for query in comparison.queries for level in comparison.levels]
    results = [comparison.result(*key) for key in keys]
    columns = [
        labels("Query", (query for _, query in keys)),
        labels("Geolevel", (level for level, _ in keys)),
        numbers("Answers", (result.live for result in results), hint="not 0 in both"),
    ]
    for place, title in enumerate(_CLASSES):
        shares = (one.distribution[place] if one.distribution else None for one in results)
        columns.append(known(title, shares, text.percent, comparison.records))
    return Table.of("distribution-table", "Share of answers by absolute error", columns)


def _short(label: str) -> str:
    """A bin label that fits under a bar."""
    if label == "1,000 to 9,999":
        return "1k\N{EN DASH}9k"
    for long, short in _SHORT.items():
        label = label.replace(long, short)
    return label
