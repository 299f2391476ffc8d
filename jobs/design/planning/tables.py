"""The tables of a plan as values, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from jobs.design.planning.covariances import CovarianceRow
from jobs.design.planning.equity import ComparedGroup, GroupError, GroupRow
from jobs.design.planning.errors import PredictedRow
from jobs.design.planning.summary import (
    LevelShape,
    OptimizedSummary,
    PlanSummary,
    ShareRow,
)
from jobs.pipeline.config.models.equity import Comparison
from jobs.pipeline.documents.manifest import Attacks
from jobs.pipeline.report import text
from jobs.pipeline.report.budget import (
    Spending,
    attacks_table,
    measured_table,
    statements_table,
    strata_table,
)
from jobs.pipeline.report.table import (
    EMPTY,
    Cell,
    Column,
    Table,
    known_number,
    label,
    number,
    shaded,
    tilted,
)

HEADINGS = {"own": "own measurements", "full": "all measurements of the tree"}


def spending_of(summary: PlanSummary) -> Spending:
    """What the budget of a plan is spent on."""
    return Spending(
        summary.privacy, summary.budget, summary.levels, summary.records, summary.strata
    )


def plan_tables(summary: PlanSummary) -> list[Table]:
    """Every table of a plan, in the order in which a terminal shows them."""
    tables = [statements_table(summary.statements, summary.privacy.definition)]
    if summary.strata:
        tables.append(strata_table(spending_of(summary)))
    attacks = attacks_of_summary(summary)
    if attacks:
        tables.append(attacks_table(attacks, summary.privacy.mu_gdp))
    if summary.geography is not None:
        tables.append(geography_table(summary.geography))
    has_list = summary.geography is not None
    tables.append(measured_table(spending_of(summary), counted=has_list))
    if summary.predicted:
        tables.append(predicted_table(summary.predicted, summary.records))
    if summary.groups is not None:
        tables.append(groups_table(summary.groups, summary.records))
    if summary.optimized is not None:
        tables += optimized_tables(summary.optimized, summary.records)
    if summary.covariances is not None:
        tables.append(covariance_table(summary.covariances, summary.records))
    return tables


def covariance_table(rows: Sequence[CovarianceRow], records: str) -> Table:
    """Covariances and correlations of pairs of answers, by geolevel."""
    body = []
    for row in rows:
        cells = [label(row.geolevel), label(f"{row.query}: {row.answer}")]
        cells.append(label(f"{row.other_query}: {row.other_answer}"))
        for found in (row.own, row.full):
            cells += [number(found.covariance, text.decimal), number(found.correlation, _ratio)]
        body.append(cells)
    columns = [Column(title, numeric=False) for title in ("Geolevel", "Answer", "Other answer")]
    for source in ("own", "whole tree"):
        columns += [Column("Covariance", hint=source), Column("Correlation", hint=source)]
    return Table(
        "covariances",
        f"Predicted covariances of estimates, in {records} squared",
        columns,
        body,
        "Of linear estimates, before nonnegativity and rounding, averaged over the geounits of the "
        "geolevel: from the geounit's own measurements, and from those of the whole tree.",
    )


def _ratio(value: float | None) -> str:
    return "exact" if value is None else f"{value:+.3f}"


def attacks_of_summary(summary: PlanSummary) -> list[Attacks]:
    """Bounds on attacks that a plan has, the looser first."""
    found = [summary.privacy.attacks, summary.by_noise and summary.by_noise.attacks]
    return [attacks for attacks in found if attacks]


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
    tables = [_change_table(optimized, records), _share_table(optimized.shares)]
    if optimized.groups is not None:
        tables.insert(0, _group_change_table(optimized.groups, records))
    return tables


def groups_table(rows: Sequence[GroupRow], records: str) -> Table:
    """Predicted errors of groups by geolevel."""
    has_targets = any(row.target is not None for row in rows)
    body = []
    for row in rows:
        cells = [label(row.name), label(row.geolevel), known_number(row.persons)]
        for error in (row.own, row.full):
            cells += [number(error.rmse, text.decimal), _relative(error)]
        if has_targets:
            cells.append(known_number(row.target, _in_unit(row)))
            cells += [known_number(error.rho_needed) for error in (row.own, row.full)]
        body.append(cells)
    columns = [*_group_columns()]
    for source in ("own", "whole tree"):
        columns += [Column("RMSE", hint=source), Column("Relative")]
    if has_targets:
        columns.append(Column("Target"))
        columns += [Column(f"{text.RHO} needed", hint=source) for source in ("own", "whole tree")]
    return Table("groups", f"Predicted error of groups, in {records}", columns, body, _note(rows))


_WORST = "*"
_GROUPS = (
    "Relative errors are over the persons that an answer counts in a typical geounit, by public "
    "sizes."
)


def _note(rows: Sequence[GroupRow]) -> str:
    note = f"{_GROUPS} The largest of its kind is marked with {_WORST}."
    if len({row.query for row in rows}) > 1:
        note += " Groups of different queries overlap: everybody is in one of each."
    return note


def _group_columns() -> tuple[Column, ...]:
    return (
        Column("Group", numeric=False),
        Column("Geolevel", numeric=False),
        Column("Size", hint="typical"),
    )


def _group_change_table(rows: Sequence[ComparedGroup], records: str) -> Table:
    body = []
    for row in rows:
        cells = [label(row.name), label(row.geolevel), known_number(row.persons)]
        for old, new in ((row.before.own, row.own), (row.before.full, row.full)):
            cells += [number(old.rmse, text.decimal), number(new.rmse, text.decimal)]
            cells.append(_relative(new))
        body.append(cells)
    columns = [*_group_columns()]
    for source in ("own", "whole tree"):
        columns += [Column("RMSE", hint=source), Column("RMSE", hint="optimized")]
        columns.append(Column("Relative", hint="optimized"))
    caption = f"Predicted error of groups with the optimized allocation, in {records}"
    return Table("optimized-groups", caption, columns, body, _note(rows))


def _relative(error: GroupError) -> Cell:
    shown = EMPTY if error.relative is None else text.percent(error.relative)
    mark = f" {_WORST}" if error.is_worst else ""
    return Cell(f"{shown}{mark}", error.relative, heat=1.0 if error.is_worst else None)


def _in_unit(row: GroupRow) -> Callable[[float], str]:
    return text.percent if row.compared is Comparison.RELATIVE else text.decimal


def given_up(optimized: OptimizedSummary) -> str:
    """What tables lose by an optimized allocation, as a sentence."""
    worse = [row for row in optimized.predicted if row.given_up >= 5e-4]  # less reads as 0.0 %
    worse.sort(key=lambda row: -row.given_up)
    source = HEADINGS[optimized.information]
    if not worse:
        return f"gives nothing up: no table is less accurate at any geolevel, from {source}"
    named = [f"{row.table} at {row.geolevel} {text.percent(row.given_up)}" for row in worse]
    return f"gives up, in root mean squared error from {source}: {', '.join(named)}"


def _change_table(optimized: OptimizedSummary, records: str) -> Table:
    rows = optimized.predicted
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
        f"Root mean squared errors (RMSE) with {optimized.compared_with}, and the optimized. It "
        f"{given_up(optimized)}.",
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
