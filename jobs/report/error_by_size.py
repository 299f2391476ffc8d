"""How the error depends on size: of the geounit, of the true count; and its distribution.

Confidential, as `jobs.report.comparison`.
"""

from __future__ import annotations

from jobs.report import text
from jobs.report.comparison import Comparison, bias_table, bin_values
from jobs.report.page import Block, FigureBlock, Row, Section, TableBlock
from jobs.report.plots import Figure, Panel, bar_panels, line_panels, share_bars
from jobs.report.table import EMPTY, Cell, Column, Table, label, number
from jobs.report.text import words

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
        blocks.append(FigureBlock(Figure("size", svg, caption, legend)))
        blocks.append(TableBlock(_size_table(comparison)))
    return Section("size", "Error by size of geounit", _size_lead(comparison), blocks)


def _size_lead(comparison: Comparison) -> str:
    lead = "The noise does not depend on how large a geounit is; what solving makes of it does."
    leaf = comparison.levels[-1]
    known = [row for row in comparison.result(leaf, "total").by_size if row.mae is not None]
    if len(known) < 2:
        return lead
    first, last = known[0], known[-1]
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
    columns = [
        Column("Geolevel", numeric=False),
        Column(comparison.records.capitalize(), hint="in the geounit", numeric=False),
        Column("Geounits"),
        Column("MAE", hint="total"),
        Column("Bias", hint="total"),
        Column("Exact", hint="total"),
        Column("MAE", hint="one cell"),
        Column("Bias", hint="one cell"),
        Column("Exact", hint="cells"),
    ]
    body = []
    for level in comparison.levels:
        totals = comparison.result(level, "total").by_size
        cells = comparison.result(level, "detailed").by_size
        for order, (total, cell) in enumerate(zip(totals, cells, strict=True)):
            if not total.geounits:
                continue
            row = [label(level), Cell(total.bin, order), number(total.geounits)]
            for means in (total, cell):
                row.append(number(means.mae, text.decimal))
                row.append(number(means.bias, text.signed))
                row.append(number(means.exact, text.percent))
            body.append(row)
    return Table("size-table", "Error by geolevel and size of geounit", columns, body)


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
        blocks.append(FigureBlock(Figure("bias", svg, caption, legend)))
    kinds = (
        (query, "by_true", "Bias of one cell by true count"),
        ("total", "by_size", "Bias of the total by size of geounit"),
    )
    tables = [
        TableBlock(bias_table(comparison, asked, kind, caption))
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
    known = [row for row in comparison.result(leaf, query).by_true if row.bias is not None]
    if len(known) < 2:
        return lead
    first, last = known[0], known[-1]
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
        blocks.append(FigureBlock(Figure("distribution", svg, caption, legend)))
        blocks.append(TableBlock(_distribution_table(comparison)))
    lead = (
        "How often an answer is exactly right, off by one, by two, and so on. Averages hide this: "
        "a small mean error can be many small errors or few large ones."
    )
    return Section("distribution", "Distribution of the error", lead, blocks)


def _distribution_table(comparison: Comparison) -> Table:
    columns = [
        Column("Query", numeric=False),
        Column("Geolevel", numeric=False),
        Column("Answers", hint="not 0 in both"),
        *(Column(label, hint=comparison.records) for label in _CLASSES),
    ]
    body = []
    for query in comparison.queries:
        for level in comparison.levels:
            result = comparison.result(level, query)
            shares = [number(share, text.percent) for share in result.distribution]
            cells = shares or [Cell(EMPTY)] * len(_CLASSES)
            start = [label(query), label(level), number(result.live)]
            body.append([*start, *cells])
    return Table("distribution-table", "Share of answers by absolute error", columns, body)


def _short(label: str) -> str:
    """A bin label that fits under a bar."""
    if label == "1,000 to 9,999":
        return "1k\N{EN DASH}9k"
    for long, short in _SHORT.items():
        label = label.replace(long, short)
    return label
