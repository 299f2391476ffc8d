"""Errors by group of records and geolevel: for which groups the release is worse.

The internal report compares with the truth; the public report has expected errors of the manifest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.pipeline.documents.evaluation import Evaluation, ParityResult
from jobs.pipeline.documents.manifest import Manifest
from jobs.pipeline.language import prose, tr
from jobs.pipeline.report import text
from jobs.pipeline.report.page import Block, Prose, Section
from jobs.pipeline.report.plots import DotRow, Figure, dot_rows
from jobs.pipeline.report.table import (
    Cell,
    Column,
    Table,
    gridded,
    label,
    labels,
    name,
    number,
    numbers,
    shaded,
)
from jobs.pipeline.report.text import words

_MOST_DRAWN = 8  # groups of a query in the figure, those with the largest errors
_MOST_FIGURED = 5  # queries in the figure
_MOST_ROWS = 300  # rows of the long table, some 100 kB of the page


@dataclass(frozen=True)
class Groups:
    """Errors of the totals of population groups, or of types of geounits.

    Attributes:
      name: Query whose answers are the groups, or geolevel with types.
      labels: Labels of the groups.
      sizes: Number of records of each group.
      floor: Relative errors are stated for groups of at least this number of records.
      levels: Geolevels.
      relative: Per geolevel, the error per record of each group; None below the floor.
      everybody: Per geolevel, the error per record of the whole population; None below the floor.
    """

    name: str
    labels: Sequence[str]
    sizes: Sequence[int]
    floor: int
    levels: Sequence[str]
    relative: Sequence[Sequence[float | None]]
    everybody: Sequence[float | None]

    @property
    def drawn(self) -> list[int]:
        """Return indices of the groups with the largest errors at the last geolevel, in order."""
        known = {i: value for i, value in enumerate(self.relative[-1]) if value is not None}
        return sorted(known, key=lambda index: -known[index])[:_MOST_DRAWN]

    @property
    def by_group(self) -> list[Sequence[float | None]]:
        """Return errors by geolevel, of the whole population and then of each group."""
        return [self.everybody, *zip(*self.relative, strict=True)]

    def columns(self, sizes: str, cells: Sequence[Sequence[Cell]]) -> list[Column]:
        """Return columns of the whole population and each group: sizes, and cells by geolevel."""
        return [
            Column(tr("Group"), False, cells=[name(tr("everybody")), *map(label, self.labels)]),
            numbers(sizes, [sum(self.sizes), *self.sizes], hint=tr("in all")),
            *gridded(map(words, self.levels), cells),
        ]

    def along(self, levels: Sequence[str], values: Sequence[float | None]) -> list[float | None]:
        """Return the values of one group by geolevel of a page, in percent; None where missing."""
        known = dict(zip(self.levels, values, strict=True))
        shown = (known.get(level) for level in levels)
        return [None if value is None else 100 * value for value in shown]


def groups_section(evaluation: Evaluation, records: str) -> Section:
    """Show for which groups the release is worse: a figure, and tables by group and by table.

    Args:
      evaluation: Evaluation of the release.
      records: Name of the records, such as persons or units.
    """
    caption = prose("groups.caption", records=records, reading=_reading())
    blocks = group_blocks(groups_of(evaluation), evaluation.levels, caption, "true")
    if evaluation.parity:
        blocks.append(_parity_table(evaluation))
        blocks.append(_group_table(evaluation, records))
        blocks.append(Prose("groups.html.j2", {"records": records}))
    lead = _lead(evaluation, records)
    return Section("groups", "For whom the release is worse", lead, blocks)


def expected_section(manifest: Manifest) -> Section:
    """Show for which groups the release is expected to be worse, from public numbers alone."""
    listed = []
    for groups in manifest.expected_groups:
        relative = [
            [
                l1 / size if size >= groups.floor else None
                for l1, size in zip(level.l1, groups.released, strict=True)
            ]
            for level in groups.levels
        ]
        levels = [level.geolevel for level in groups.levels]
        everybody = [level.everybody for level in groups.levels]
        sizes = groups.released
        listed.append(
            Groups(groups.groups, groups.labels, sizes, groups.floor, levels, relative, everybody)
        )
    caption = prose("expected.caption", records=manifest.records, reading=_reading())
    blocks = group_blocks(listed, manifest.levels, caption, "released")
    if listed:
        blocks.append(_expected_table(manifest))
    return Section("groups", tr("For whom errors are larger"), prose("expected.lead"), blocks)


def _reading() -> str:
    return prose("groups.reading", groups=_MOST_DRAWN)


def group_blocks(
    listed: Sequence[Groups], levels: Sequence[str], caption: str, kind: str
) -> list[Block]:
    """Return a figure of all groups and the whole population, and a table per query.

    Args:
      listed: Groups and their errors, one entry per query.
      levels: Geolevels of the page, the root first.
      caption: Caption of the figure.
      kind: Kind of the counts that are the sizes of groups: `true` or `released`.
    """
    compared = [one for one in listed if len(one.drawn) > 1][:_MOST_FIGURED]
    rows = [
        DotRow(
            words(one.labels[index]),
            one.along(levels, [of_level[index] for of_level in one.relative]),
            one.along(levels, one.everybody),
            "" if row else words(one.name),
        )
        for one in compared
        for row, index in enumerate(one.drawn)
    ]
    blocks: list[Block] = [_grid(index, one, kind) for index, one in enumerate(listed)]
    if rows:
        dots = dot_rows("groups", [*map(words, levels)], rows)
        legend = [("released", tr("group")), ("raw", tr("everybody"))]
        blocks.insert(0, Figure("groups", dots, caption, legend))
    return blocks


def groups_of(evaluation: Evaluation) -> list[Groups]:
    """Return the groups whose totals were compared, in the order of the evaluation."""
    return [
        Groups(
            name,
            [group.group for group in results[-1].by_group],
            [group.persons for group in results[-1].by_group],
            results[-1].floor,
            [result.geolevel for result in results],
            [[group.relative for group in result.by_group] for result in results],
            [result.everybody for result in results],
        )
        for name, results in _compared(evaluation).items()
    ]


def _compared(evaluation: Evaluation) -> dict[str, list[ParityResult]]:
    """Map groups to comparisons of their totals by geolevel, in the order of the evaluation."""
    compared: dict[str, list[ParityResult]] = {}
    for result in evaluation.parity:
        if result.table == "total":
            compared.setdefault(result.groups, []).append(result)
    return compared


def _lead(evaluation: Evaluation, records: str) -> str:
    lead = prose("groups.lead")
    worst = [
        (group.to_everybody, group, results[-1])
        for results in _compared(evaluation).values()
        for group in results[-1].by_group
        if group.to_everybody is not None
    ]
    if not worst:
        return lead
    times, group, result = max(worst, key=lambda row: row[0])
    return (
        f"{lead} At {words(result.geolevel)}, the sum of the errors of {words(group.group)} "
        f"({words(result.groups)}) is {text.percent(group.relative or 0.0)} of its "
        f"{text.integer(group.persons)} {records}, {text.decimal(times)} times what it is for "
        f"everybody, {text.percent(result.everybody or 0.0)}: no group is further from it."
    )


def _grid(index: int, one: Groups, kind: str) -> Table:
    """Tabulate relative errors of the groups of a query by geolevel."""
    shades = shaded(one.by_group, text.fine_percent, logarithmic=True)
    note = prose("groups.note", floor=one.floor)
    columns = one.columns(tr(kind.capitalize()), shades)
    caption = tr("Errors by {query}", query=words(one.name))
    return Table.of(f"groups-{index}", caption, columns, note)


def _expected_table(manifest: Manifest) -> Table:
    rows = [(one, level) for one in manifest.expected_groups for level in one.levels]
    sizes = [dict(zip(one.labels, one.released, strict=True)) for one, _ in rows]
    errors = [dict(zip(one.labels, level.l1, strict=True)) for one, level in rows]
    relative = (
        l1[level.worst] / size[level.worst] if level.worst else None
        for (_, level), l1, size in zip(rows, errors, sizes, strict=True)
    )
    columns = [
        labels(tr("Groups"), (one.groups for one, _ in rows)),
        labels(tr("Geolevel"), (level.geolevel for _, level in rows)),
        numbers(
            tr("Everybody"),
            (level.everybody for _, level in rows),
            text.fine_percent,
            tr("relative"),
        ),
        labels(tr("Worst"), (level.worst or "" for _, level in rows), tr("group")),
        numbers(tr("Worst"), relative, text.fine_percent, tr("relative")),
        numbers("k", (level.k for _, level in rows), hint=tr("groups")),
        numbers(
            tr("Parity"), (level.parity for _, level in rows), text.decimal, tr("error, expected")
        ),
        numbers(tr("Parity / k"), (level.parity_mean for _, level in rows), text.decimal),
    ]
    return Table.of("parity", tr("Expected parity by groups and geolevel"), columns, tr(_PARITY))


_PARITY = (
    "Relative: the sum of |error| in the group, as a share of the group. Parity error: the "
    "relative errors of the k groups that reach the floor, and that of everybody times its "
    "weight, 1/k by default. It grows with k; parity / k does not."
)


def _parity_table(evaluation: Evaluation) -> Table:
    rows = evaluation.parity
    worst = [next((g for g in row.by_group if g.group == row.worst), None) for row in rows]
    relative = (None if group is None else group.relative for group in worst)
    times = (None if group is None else group.to_everybody for group in worst)
    noise = [
        name("exact") if row.exact else number(row.expected_rmse, text.decimal) for row in rows
    ]
    columns = [
        labels("Groups", (row.groups for row in rows)),
        labels("Table", (row.table for row in rows)),
        labels("Geolevel", (row.geolevel for row in rows)),
        numbers("Everybody", (row.everybody for row in rows), text.fine_percent, "relative"),
        labels("Worst", (row.worst or "" for row in rows), "group"),
        numbers("Worst", relative, text.fine_percent, "relative"),
        numbers("Times", times, text.decimal, "everybody"),
        Column("Noise", hint="expected RMSE", cells=noise),
        numbers("k", (row.k for row in rows), hint="groups"),
        numbers("Parity", (row.parity for row in rows), text.decimal, "error"),
        numbers("Parity / k", (row.parity_mean for row in rows), text.decimal),
    ]
    note = f"{_PARITY} Exact: published so by an invariant."
    return Table.of("parity", "Parity by groups, table and geolevel", columns, note)


def _group_table(evaluation: Evaluation, records: str) -> Table:
    rows = [(result, group) for result in evaluation.parity for group in result.by_group]
    rows.sort(key=lambda row: -(row[1].relative or 0.0))
    shown = rows[:_MOST_ROWS]
    groups = [group for _, group in shown]
    net = (group.released - group.persons for group in groups)
    columns = [
        labels("Groups", (result.groups for result, _ in shown)),
        labels("Group", (group.group for group in groups)),
        labels("Table", (result.table for result, _ in shown)),
        labels("Geolevel", (result.geolevel for result, _ in shown)),
        numbers(records.capitalize(), (group.persons for group in groups), hint="true"),
        numbers("Relative", (group.relative for group in groups), text.fine_percent, "error"),
        numbers("Times", (group.to_everybody for group in groups), text.decimal, "everybody"),
        numbers("MAE", (group.mae for group in groups), text.decimal, "one answer"),
        numbers("RMSE", (group.rmse for group in groups), text.decimal, "one answer"),
        numbers("Bias", (group.bias for group in groups), text.signed, "mean error"),
        numbers("Net", net, text.signed_integer, "of the group"),
        numbers("Largest", (group.max for group in groups), hint="|error|"),
    ]
    note = "Answers of geounits where nobody is of the group count, too."
    if len(rows) > _MOST_ROWS:
        note += prose("groups.more", most_rows=_MOST_ROWS, rows=text.integer(len(rows)))
    return Table.of("group-table", "Every statistic by group", columns, note)
