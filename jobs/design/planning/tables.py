"""Tables of a plan, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter

from jobs.design.planning.covariances import CovarianceRow
from jobs.design.planning.errors import PredictedRow
from jobs.design.planning.group_errors import GroupError, GroupRow
from jobs.design.planning.summary import LevelShape, OptimizedSummary, PlanSummary, ShareRow
from jobs.pipeline.config.models.groups import Comparison
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
    fractions,
    labels,
    number,
    numbers,
    shaded,
    tilted,
)

HEADINGS = {"own": "own measurements", "full": "all measurements of the tree"}
_SOURCES = {"own": "own", "full": "whole tree"}


def spending_of(summary: PlanSummary) -> Spending:
    """Return the planned spending of the budget, for tables."""
    return Spending(
        summary.privacy, summary.budget, summary.levels, summary.records, summary.strata
    )


def plan_tables(summary: PlanSummary) -> list[Table]:
    """List all tables of a plan, in the order of the terminal."""
    tables = [statements_table(summary.statements, summary.privacy.definition)]
    spending = spending_of(summary)
    if summary.strata:
        tables.append(strata_table(spending))
    attacks = attacks_of_summary(summary)
    if attacks:
        tables.append(attacks_table(attacks, summary.privacy.mu_gdp))
    if summary.geography is not None:
        tables.append(geography_table(summary.geography))
    tables.append(measured_table(spending, counted=summary.geography is not None))
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
    """Tabulate covariances and correlations of pairs of answers by geolevel."""
    columns = [
        labels("Geolevel", [row.geolevel for row in rows]),
        labels("Answer", [f"{row.query}: {row.answer}" for row in rows]),
        labels("Other answer", [f"{row.other_query}: {row.other_answer}" for row in rows]),
    ]
    for kind, source in _SOURCES.items():
        covariances = map(attrgetter(f"{kind}.covariance"), rows)
        ratios = map(attrgetter(f"{kind}.correlation"), rows)
        columns.append(numbers("Covariance", covariances, text.decimal, source))
        columns.append(numbers("Correlation", ratios, "{:+.3f}".format, source))
    return Table.of(
        "covariances",
        f"Predicted covariances of estimates, in {records} squared",
        columns,
        "Covariances of linear estimates before nonnegativity and rounding, averaged over the "
        "geounits of a geolevel: from the measurements of the geounit alone, and of the whole "
        "tree.",
    )


def attacks_of_summary(summary: PlanSummary) -> list[Attacks]:
    """List the bounds on attacks in a summary, the looser one first."""
    bounds = [summary.privacy.attacks, summary.by_noise and summary.by_noise.attacks]
    return [attacks for attacks in bounds if attacks]


def geography_table(geography: Mapping[str, LevelShape]) -> Table:
    """Tabulate geounits by geolevel."""
    shapes = geography.values()
    columns = [
        labels("Geolevel", geography),
        numbers("Geounits", [shape.geounits for shape in shapes]),
        numbers("Only children", [shape.only_children for shape in shapes]),
        numbers("Largest family", [shape.largest_family for shape in shapes]),
        numbers("Mean family", [shape.mean_family for shape in shapes], text.decimal),
    ]
    return Table.of("shape", "Geounits per geolevel", columns)


def predicted_table(predicted: Sequence[PredictedRow], records: str) -> Table:
    """Tabulate predicted errors by table and geolevel, shaded on a logarithmic scale."""
    errors = [[*vars(row.own).values(), *vars(row.full).values()] for row in predicted]
    columns = _tables_and_geolevels(predicted)
    titles = [
        column
        for source in _SOURCES.values()
        for column in (("RMSE", source), ("9 in 10", "within ±"), ("RMSE", "worst geounit"))
    ]
    cells = shaded(errors, text.decimal, logarithmic=True)
    for index, (title, hint) in enumerate(titles):
        columns.append(Column(title, hint=hint, cells=[row[index] for row in cells]))
    return Table.of(
        "predicted-table",
        f"Predicted error of one answer, in {records}",
        columns,
        "Root mean squared errors (RMSE) of linear estimates before nonnegativity and rounding: "
        "from the measurements of the geounit alone, and of the whole tree.",
    )


def _tables_and_geolevels(rows: Sequence[PredictedRow]) -> list[Column]:
    return [
        labels("Table", [row.table for row in rows]),
        labels("Geolevel", [row.geolevel for row in rows]),
    ]


def optimized_tables(optimized: OptimizedSummary, records: str) -> list[Table]:
    """Tabulate errors before and with an optimized allocation, and its shares."""
    tables = [_change_table(optimized, records), _share_table(optimized.shares)]
    if optimized.groups is not None:
        caption = f"Predicted error of groups with the optimized allocation, in {records}"
        table = _groups_table("optimized-groups", caption, optimized.groups, is_optimized=True)
        tables.insert(0, table)
    return tables


_WORST = "*"


def groups_table(rows: Sequence[GroupRow], records: str) -> Table:
    """Tabulate predicted errors of groups by geolevel."""
    return _groups_table("groups", f"Predicted error of groups, in {records}", rows)


def _groups_table(
    key: str, caption: str, rows: Sequence[GroupRow], *, is_optimized: bool = False
) -> Table:
    columns = [
        labels("Group", [row.name for row in rows]),
        labels("Geolevel", [row.geolevel for row in rows]),
        numbers("Size", [row.persons for row in rows], text.decimal, "typical"),
    ]
    hint = "optimized" if is_optimized else ""
    for kind, source in _SOURCES.items():
        if is_optimized:
            columns.append(_errors(f"before.{kind}.rmse", rows, source))
        columns.append(_errors(f"{kind}.rmse", rows, hint or source))
        columns.append(_relative(hint, [*map(attrgetter(kind), rows)]))
    if not is_optimized and any(row.target is not None for row in rows):
        columns.append(Column("Target", cells=[*map(_target, rows)]))
        for kind, source in _SOURCES.items():
            needed = map(attrgetter(f"{kind}.rho_needed"), rows)
            columns.append(numbers(f"{text.RHO} needed", needed, text.decimal, source))
    note = (
        "Relative errors are divided by the persons that an answer counts in a typical geounit, "
        f"from public sizes. {_WORST} marks the largest error of each comparison."
    )
    if len({row.query for row in rows}) > 1:
        note += " Groups of different queries overlap: every person is in one group of each query."
    return Table.of(key, caption, columns, note)


def _errors(path: str, rows: Sequence[object], hint: str) -> Column:
    """Return a column of root mean squared errors, attributes of rows such as `own.rmse`."""
    return numbers("RMSE", map(attrgetter(path), rows), text.decimal, hint)


def _relative(hint: str, errors: Sequence[GroupError]) -> Column:
    """Return a column of relative errors, with the worst of each comparison marked."""
    cells = []
    for error in errors:
        shown = EMPTY if error.relative is None else text.percent(error.relative)
        mark, heat = (f" {_WORST}", 1.0) if error.is_worst else ("", None)
        cells.append(Cell(f"{shown}{mark}", error.relative, heat=heat))
    return Column("Relative", hint=hint, cells=cells)


def _target(row: GroupRow) -> Cell:
    is_relative = row.compared is Comparison.RELATIVE
    return number(row.target, text.percent if is_relative else text.decimal)


def given_up(optimized: OptimizedSummary) -> str:
    """Describe in one sentence which tables become less accurate under an optimized allocation."""
    # Smaller growth prints as 0.0 %.
    worse = [row for row in optimized.predicted if row.given_up >= 5e-4]
    worse.sort(key=lambda row: -row.given_up)
    source = HEADINGS[optimized.information]
    if not worse:
        return f"makes no table less accurate at any geolevel, with {source}"
    named = [f"{row.table} at {row.geolevel} {text.percent(row.given_up)}" for row in worse]
    return f"increases root mean squared errors, with {source}: {', '.join(named)}"


def _change_table(optimized: OptimizedSummary, records: str) -> Table:
    rows = optimized.predicted
    columns = _tables_and_geolevels(rows)
    pairs = [map(attrgetter(f"before.{kind}.rmse", f"{kind}.rmse"), rows) for kind in _SOURCES]
    changes = tilted(
        [[new / old - 1 if old else None for old, new in of_kind] for of_kind in pairs],
        lambda share: f"{100 * share:+.1f} %",
    )
    for (kind, source), changed in zip(_SOURCES.items(), changes, strict=True):
        columns.append(_errors(f"before.{kind}.rmse", rows, source))
        columns.append(_errors(f"{kind}.rmse", rows, "optimized"))
        columns.append(Column("Change", cells=changed))
    return Table.of(
        "optimized-change",
        f"Predicted error with the optimized allocation, at the same budget, in {records}",
        columns,
        f"Root mean squared errors (RMSE) with {optimized.compared_with}, and with the optimized "
        f"one. It {given_up(optimized)}.",
    )


def _share_table(shares: Sequence[ShareRow]) -> Table:
    columns = [
        labels("Geolevel", [row.geolevel for row in shares]),
        fractions("Share", [row.level_share for row in shares], f"of {text.RHO}", numeric=True),
        labels("Query", [row.query for row in shares]),
        fractions("Share", [row.share for row in shares], "of the geolevel", numeric=True),
    ]
    return Table.of("optimized-shares", "Optimized shares", columns)
