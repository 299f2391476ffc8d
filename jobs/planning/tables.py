"""The tables of a plan as values, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jobs.planning.errors import PredictedRow
from jobs.planning.summary import (
    ComparedRow,
    LevelShape,
    OptimizedSummary,
    PlanSummary,
    ShareRow,
)
from jobs.report import text
from jobs.report.budget import Spending, measured_table, statements_table
from jobs.report.table import Cell, Column, Table, label, number, shaded, tilted

HEADINGS = {"own": "own measurements", "full": "all measurements of the tree"}


def spending_of(summary: PlanSummary) -> Spending:
    """What the budget of a plan is spent on."""
    return Spending(summary.privacy, summary.budget, summary.levels, summary.records)


def plan_tables(summary: PlanSummary) -> list[Table]:
    """Every table of a plan, in the order in which a terminal shows them."""
    tables = [statements_table(summary.statements, summary.privacy.definition)]
    if summary.geography is not None:
        tables.append(geography_table(summary.geography))
    tables.append(measured_table(spending_of(summary)))
    if summary.predicted:
        tables.append(predicted_table(summary.predicted, summary.records))
    if summary.optimized is not None:
        tables += optimized_tables(summary.optimized, summary.records)
    return tables


def geography_table(geography: Mapping[str, LevelShape]) -> Table:
    """Geounits by geolevel."""
    body = [
        [
            label(level),
            number(shape.geounits),
            number(shape.only_children),
            number(shape.largest_family),
            number(shape.mean_family, text.decimal),
        ]
        for level, shape in geography.items()
    ]
    titles = ("Geounits", "Only children", "Largest family", "Mean family")
    columns = [Column("Geolevel", numeric=False), *(Column(title) for title in titles)]
    return Table("shape", "Geounits per geolevel", columns, body)


def predicted_table(predicted: Sequence[PredictedRow], records: str) -> Table:
    """Predicted errors by table and geolevel, shaded by their logarithms."""
    numbers = shaded(
        [
            [
                value
                for errors in (row.own, row.full)
                for value in (errors.rmse, errors.half_width_90, errors.worst_rmse)
            ]
            for row in predicted
        ],
        text.decimal,
        logarithmic=True,
    )
    body = [
        [label(row.table), label(row.geolevel), *cells]
        for row, cells in zip(predicted, numbers, strict=True)
    ]
    columns = [Column("Table", numeric=False), Column("Geolevel", numeric=False)]
    for source in ("own", "whole tree"):
        columns += [Column("RMSE", hint=source), Column("9 in 10", hint="within ±")]
        columns.append(Column("RMSE", hint="worst geounit"))
    return Table(
        "predicted-table",
        f"Predicted error of one answer, in {records}",
        columns,
        body,
        "Root mean squared errors (RMSE) of linear estimates, before nonnegativity and rounding: "
        "from the geounit's own measurements, and from those of the whole tree.",
    )


def optimized_tables(optimized: OptimizedSummary, records: str) -> list[Table]:
    """Errors before and with an optimized allocation, and its shares."""
    return [_change_table(optimized.predicted, records), _share_table(optimized.shares)]


def _change_table(rows: Sequence[ComparedRow], records: str) -> Table:
    pairs = [
        [(row.before.own.rmse, row.own.rmse), (row.before.full.rmse, row.full.rmse)] for row in rows
    ]
    changes = tilted(
        [[new / old - 1 if old else None for old, new in row] for row in pairs], _signed_percent
    )
    body = []
    for row, numbers, changed in zip(rows, pairs, changes, strict=True):
        cells: list[Cell] = [label(row.table), label(row.geolevel)]
        for (old, new), change in zip(numbers, changed, strict=True):
            cells += [number(old, text.decimal), number(new, text.decimal), change]
        body.append(cells)
    columns = [Column("Table", numeric=False), Column("Geolevel", numeric=False)]
    for source in ("own", "whole tree"):
        columns += [Column("RMSE", hint=source), Column("RMSE", hint="optimized"), Column("Change")]
    return Table(
        "optimized-change",
        f"Predicted error with the optimized allocation, at the same budget, in {records}",
        columns,
        body,
        "Root mean squared errors (RMSE) with the allocation of the run file, and the optimized.",
    )


def _signed_percent(value: float | None) -> str:
    return text.NOT_RECORDED if value is None else f"{100 * value:+.1f} %"


def _share_table(shares: Sequence[ShareRow]) -> Table:
    body = [
        [
            label(row.geolevel),
            Cell(row.level_share, text.ratio(row.level_share), code=True),
            label(row.query),
            Cell(row.share, text.ratio(row.share), code=True),
        ]
        for row in shares
    ]
    columns = [
        Column("Geolevel", numeric=False),
        Column("Share", hint=f"of {text.RHO}"),
        Column("Query", numeric=False),
        Column("Share", hint="of the geolevel"),
    ]
    return Table("optimized-shares", "Optimized shares", columns, body)
