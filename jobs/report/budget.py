"""Budget: what was measured, what it cost, and how much noise that means. Public."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from jobs.report import text
from jobs.report.headline import Manifest, is_pure, noise_kinds, part, records, rows, unit, words
from jobs.report.noise import expected_rmse, level_order
from jobs.report.page import FigureBlock, Section, TableBlock
from jobs.report.plots import Figure, Panel, line_panels
from jobs.report.table import EMPTY, Cell, Column, Table, name, number, shaded

MOST_PANELS = 16


def budget_section(manifest: Manifest) -> Section:
    """Shares of the budget and the full list of measured queries."""
    lead = (
        "Every record lies on one path from the root to a leaf, and the costs along any such path "
        f"add up to exactly {unit(manifest)}. A query with a larger share has less noise."
    )
    return Section(
        "budget",
        "Privacy budget",
        lead,
        [TableBlock(_share_table(manifest)), TableBlock(_measured_table(manifest))],
    )


def noise_section(manifest: Manifest) -> Section:
    """Expected error of raw noisy answers."""
    expected = expected_rmse(manifest)
    levels = level_order(manifest)
    queries = query_order(manifest)
    title = " or ".join(one.title for one in noise_kinds(manifest)) or "random"
    lead = (
        "The noise has a known distribution: each noisy answer is the true answer plus a "
        f"{title} variable with mean zero and the standard deviation below, whatever "
        "the true answer is."
    )
    panels = [
        Panel(words(q), [words(v) for v in levels], {"raw": [expected.get((v, q)) for v in levels]})
        for q in queries[:MOST_PANELS]
    ]
    blocks: list[TableBlock | FigureBlock] = []
    if expected:
        label = f"Standard deviation of one noisy answer, in {records(manifest)}"
        svg = line_panels("noise", panels, label)
        caption = (
            "Standard deviation of one raw noisy answer, by query (panel) and geolevel, on one "
            "logarithmic scale. A gap means that the query is not measured there."
        )
        legend = [("raw", "noisy answer")]
        blocks.append(FigureBlock(Figure("noise", svg, caption, legend)))
    blocks.append(
        TableBlock(
            level_grid(
                "noise-grid",
                f"Standard deviation of one raw noisy answer, in {records(manifest)}",
                [[expected.get((v, q)) for v in levels] for q in queries],
                (queries, levels),
            )
        )
    )
    return Section("noise", "Noise in the measurements", lead, blocks)


def account_table(
    account: Manifest,
    key: str = "account",
    caption: str = "Budgets granted for the same people",
    note: str = "Losses of several products about the same people add up.",
) -> Table:
    """Several budgets, and what they add up to.

    Args:
      account: As `jobs.storage.account.account_document` makes it.
      key: Unique on the page.
      caption: What the budgets have in common.
      note: A line under the table.
    """
    grants = [
        [name(row.get("product")), name(row.get("grant")), *_loss(row)]
        for row in rows(account, "grants")
    ]
    composed = [
        [name("all together"), Cell(EMPTY), *_loss(row)] for row in rows(account, "composed")
    ]
    columns = [
        Column("Product", numeric=False),
        Column("Grant", numeric=False),
        Column("Budget", hint="exact", numeric=False),
        Column("Neighbors", numeric=False),
        Column(text.EPSILON, hint="at δ, rounded up"),
        Column("δ"),
    ]
    return Table(
        key,
        caption,
        columns,
        [*grants, *(composed if len(grants) > 1 else [])],
        note,
    )


def statements_table(manifest: Manifest) -> Table:
    """What smaller changes of a record cost."""
    letter = unit(manifest)
    both = [] if letter == text.EPSILON else ["epsilon", "epsilon_simple"]
    body = []
    limited = any(row.get("in_words") for row in rows(manifest, "statements"))
    for row in rows(manifest, "statements"):
        is_void = row.get("comparable") == "none"
        loss = Cell(EMPTY) if is_void else _exact(row.get("total"))
        changed = {
            "record": "anything in the record",
            "attribute": f"only {words(row.get('name'))}",
            "within": f"only the place, within one {words(row.get('name'))}",
        }.get(str(row.get("change")), text.NOT_RECORDED)
        epsilons = [
            Cell(EMPTY) if is_void else Cell(text.upward(row.get(key)), row.get(key))
            for key in both
        ]
        limits = [Cell(str(row.get("in_words") or ""))] if limited else []
        body.append([name(changed), loss, *epsilons, *limits])
    columns = [
        Column("The two data sets differ in", numeric=False),
        Column(letter, hint="exact"),
        *([Column(text.EPSILON, hint="best formula")] if both else []),
        *([Column(text.EPSILON, hint="textbook formula")] if both else []),
        *([Column("Limited by what is exact", numeric=False)] if limited else []),
    ]
    return Table(
        "statements",
        "Loss when one record changes in part",
        columns,
        body,
        "A change that most measured queries do not see costs less than a change of the whole "
        "record. Both formulas hold at the same \N{GREEK SMALL LETTER DELTA}, rounded up.",
    )


def _exact(total: object) -> Cell:
    """A loss as the exact fraction that it is, sorted by its value."""
    value = text.ratio(None if total is None else str(total))
    return Cell(text.NOT_RECORDED if total is None else str(total), value, code=True)


def _loss(row: Manifest) -> list[Cell]:
    pure = is_pure(row)
    total, delta = text.ratio(row.get("total")), text.ratio(row.get("delta"))
    letter = text.EPSILON if pure else text.RHO
    return [
        Cell(f"{letter} = {row.get('total') or text.NOT_RECORDED}", total, code=True),
        name(row.get("neighbors")),
        Cell(text.upward(row.get("epsilon")), row.get("epsilon")),
        Cell("0" if pure else text.small(row.get("delta")), 0.0 if pure else delta),
    ]


def query_order(manifest: Manifest) -> list[str]:
    """Measured queries, fewest answers first."""
    size: dict[str, int] = {}
    for row in rows(manifest, "budget"):
        if row.get("query") is not None:
            size.setdefault(str(row["query"]), int(row.get("answers") or 0))
    return sorted(size, key=lambda query: size[query])


def level_grid(
    key: str,
    caption: str,
    values: Sequence[Sequence[float | None]],
    axes: tuple[Sequence[str], Sequence[str]],
    note: str = "",
) -> Table:
    """A table of queries by geolevels, shaded by the logarithm of the value.

    Args:
      key: Unique on the page.
      caption: What it shows.
      values: One row per query, one value per geolevel.
      axes: (queries, geolevels).
      note: A line under it.
    """
    grid = shaded(values, text.decimal, logarithmic=True)
    body = [[name(words(query)), *row] for query, row in zip(axes[0], grid, strict=True)]
    columns = [Column("Query", numeric=False), *(Column(words(level)) for level in axes[1])]
    return Table(key, caption, columns, body, note)


def _share_table(manifest: Manifest) -> Table:
    """Share of the budget by query and geolevel; per geolevel, the class with most geounits."""
    main: dict[str, Mapping[str, Any]] = {}
    for row in rows(manifest, "budget"):
        level = str(row.get("geolevel"))
        if level not in main or (row.get("geounits") or 0) > (main[level].get("geounits") or 0):
            main[level] = row
    ends = {level: row.get("chain_end") or level for level, row in main.items()}
    share = {
        (str(row.get("geolevel")), str(row.get("query"))): _share(manifest, row)
        for row in rows(manifest, "budget")
        if (row.get("chain_end") or row.get("geolevel")) == ends.get(str(row.get("geolevel")))
    }
    levels = [level for level in level_order(manifest) if level in main]
    queries = query_order(manifest)
    values = [[share.get((level, query)) for level in levels] for query in queries]
    body = [
        [name(words(query)), *row]
        for query, row in zip(queries, shaded(values, text.fine_percent), strict=True)
    ]
    body.append([name("all queries"), *(_sum(column) for column in zip(*values, strict=True))])
    headings = [
        Column(words(v) if ends[v] == v else f"{words(v)} to {words(ends[v])}") for v in levels
    ]
    return Table(
        "budget-shares",
        f"Share of {unit(manifest)} by query and geolevel",
        [Column("Query", numeric=False), *headings],
        body if queries else [],
        "Ordinary geounits. An only child equals its parent, so it is not measured again: the "
        "topmost geounit of such a chain is measured with the shares of the whole chain.",
    )


def _sum(values: Sequence[float | None]) -> Cell:
    total = sum(v for v in values if v is not None)
    return Cell(text.fine_percent(total), total)


def _share(manifest: Manifest, row: Manifest) -> float | None:
    """The part of the budget that a row of it costs."""
    whole, cost = text.ratio(part(manifest, "privacy").get("total")), text.ratio(row.get("cost"))
    if whole and cost is not None:
        return cost / whole
    level, query = text.ratio(row.get("level_share")), text.ratio(row.get("share"))
    return None if level is None or query is None else level * query


def _measured_table(manifest: Manifest) -> Table:
    symbols = " or ".join(one.symbol for one in noise_kinds(manifest)) or "Parameter"
    columns = [
        Column("Query", numeric=False),
        Column("Geolevel", numeric=False),
        Column("Down to", numeric=False, hint="only children"),
        Column("Share", hint=f"of {unit(manifest)}"),
        Column(unit(manifest), hint="exact", numeric=False),
        Column(symbols, hint="exact parameter", numeric=False),
        Column("Std. dev.", hint=records(manifest)),
        Column("9 in 10", hint="within ±"),
        Column("Answers", hint="per geounit"),
        Column("Geounits"),
    ]
    body = []
    for row in rows(manifest, "budget"):
        end, level = row.get("chain_end"), row.get("geolevel")
        variance, parameter = row.get("variance"), row.get("parameter")
        deviation = None if variance is None else math.sqrt(variance)
        cost = text.ratio(row.get("cost"))
        body.append(
            [
                name(None if row.get("query") is None else words(row["query"])),
                name(None if level is None else words(level)),
                Cell(EMPTY) if end in (None, level) else name(words(end)),
                number(_share(manifest, row), text.fine_percent),
                Cell(str(row.get("cost") or text.NOT_RECORDED), cost, code=True),
                Cell(str(parameter or text.NOT_RECORDED), text.ratio(parameter), code=True),
                number(deviation, text.decimal),
                number(None if deviation is None else 1.645 * deviation, text.decimal),
                number(row.get("answers")),
                number(row.get("geounits")),
            ]
        )
    note = (
        "Std. dev. is that of one noisy answer. About 9 in 10 noisy answers lie within 1.645 "
        "standard deviations of the truth."
    )
    if any(row.get("charged") == "together" for row in rows(manifest, "budget")):
        note = f"{note} {text.TOGETHER}"
    return Table("budget-table", "Every measured query", columns, body, note)
