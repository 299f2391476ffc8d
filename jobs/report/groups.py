"""For whom the release is worse: errors by group of records and geolevel, from the evaluation.

Confidential, as `jobs.report.comparison`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from jobs.documents.evaluation import Evaluation, GroupError, ParityResult
from jobs.report import text
from jobs.report.page import Block, FigureBlock, Prose, Section, TableBlock
from jobs.report.plots import DotRow, Figure, dot_rows
from jobs.report.table import EMPTY, Cell, Column, Table, label, name, number, shaded
from jobs.report.text import words

_MOST_DRAWN = 8  # groups of a query in the figure, those with the largest errors
_MOST_FIGURED = 5  # queries in the figure
_MOST_ROWS = 300  # rows of the long table, some 100 kB of the page


@dataclass(frozen=True)
class Groups:
    """What the evaluation says of the groups of one query, or of types of areas.

    Attributes:
      name: What the groups are.
      at: Geolevel to the totals of the groups there.
    """

    name: str
    at: Mapping[str, ParityResult]

    @property
    def finest(self) -> ParityResult:
        """Their totals at the last geolevel that has them."""
        return [*self.at.values()][-1]

    @property
    def drawn(self) -> list[str]:
        """The groups that reach the floor, and have the largest errors at the last geolevel."""
        order = sorted(
            (g for g in self.finest.by_group if g.relative is not None),
            key=lambda group: -(group.relative or 0.0),
        )
        return [group.group for group in islice(order, _MOST_DRAWN)]

    def errors(self, group: str) -> dict[str, GroupError]:
        """Geolevel to the errors of a group."""
        return {
            level: next(one for one in result.by_group if one.group == group)
            for level, result in self.at.items()
        }


def groups_section(evaluation: Evaluation, records: str) -> Section:
    """For whom the release is worse: figure, and tables by group and by table.

    Args:
      evaluation: Of the release.
      records: What is counted: persons or units.
    """
    levels, listed = evaluation.levels, _listed(evaluation)
    blocks: list[Block] = []
    drawn = [one for one in listed if len(one.drawn) > 1][:_MOST_FIGURED]
    if drawn:
        rows = [row for one in drawn for row in _dots(one, levels)]
        svg = dot_rows("groups", [words(level) for level in levels], rows)
        caption = (
            "Sum of the absolute errors of the group's total over all geounits of a geolevel, in "
            f"percent of the group: of {records} in the group, how many are counted too many or "
            "too few. A logarithmic scale; no dot means no error. The short line is everybody, "
            f"without groups. At most {_MOST_DRAWN} groups of a query are drawn, those with the "
            "largest errors."
        )
        legend = [("released", "group"), ("raw", "everybody")]
        blocks.append(FigureBlock(Figure("groups", svg, caption, legend)))
    blocks += [TableBlock(_grid(index, one, levels)) for index, one in enumerate(listed)]
    if evaluation.parity:
        blocks.append(TableBlock(_parity_table(evaluation)))
        blocks.append(TableBlock(_group_table(evaluation, records)))
        blocks.append(Prose("groups.html.j2", {"records": records}))
    return Section("groups", "For whom the release is worse", _lead(listed, records), blocks)


def _listed(evaluation: Evaluation) -> list[Groups]:
    """The groups whose totals were compared, in the order of the evaluation."""
    found: dict[str, dict[str, ParityResult]] = {}
    for result in evaluation.parity:
        if result.table == "total":
            found.setdefault(result.groups, {})[result.geolevel] = result
    return [Groups(name, at) for name, at in found.items()]


def _lead(listed: Sequence[Groups], records: str) -> str:
    lead = (
        "The same noise weighs more on the few than on the many, and counts that cannot be "
        "negative lean to one side. Each group's number is compared with the truth in every "
        "geounit."
    )
    worst = [
        (group.to_everybody, group, one)
        for one in listed
        for group in one.finest.by_group
        if group.to_everybody is not None
    ]
    if not worst:
        return lead
    times, group, one = max(worst, key=lambda found: found[0])
    return (
        f"{lead} At {words(one.finest.geolevel)}, the sum of the errors of "
        f"{words(group.group)} ({words(one.name)}) is {text.percent(group.relative)} of its "
        f"{text.integer(group.persons)} {records}, {text.decimal(times)} times what it is for "
        f"everybody, {text.percent(one.finest.everybody)}: no group is further from it."
    )


def _dots(one: Groups, levels: Sequence[str]) -> list[DotRow]:
    """A row of the figure for each drawn group."""
    everybody = [one.at[level].everybody if level in one.at else None for level in levels]
    rows = []
    for index, group in enumerate(one.drawn):
        errors = one.errors(group)
        values = [errors[level].relative if level in errors else None for level in levels]
        heading = words(one.name) if index == 0 else ""
        rows.append(DotRow(words(group), _percent(values), _percent(everybody), heading))
    return rows


def _percent(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else 100 * value for value in values]


def _grid(index: int, one: Groups, levels: Sequence[str]) -> Table:
    """Relative errors of the groups of a query by geolevel."""
    there = [level for level in levels if level in one.at]
    groups = [group.group for group in one.finest.by_group]
    by_level = {level: {g.group: g for g in one.at[level].by_group} for level in there}
    values = [[one.at[level].everybody for level in there]]
    values += [[by_level[level][group].relative for level in there] for group in groups]
    shades = shaded(values, text.fine_percent, logarithmic=True)
    persons = [sum(g.persons for g in one.finest.by_group)]
    persons += [g.persons for g in one.finest.by_group]
    body = [
        [name("everybody") if row == 0 else label(groups[row - 1]), number(persons[row]), *shade]
        for row, shade in enumerate(shades)
    ]
    columns = [Column("Group", numeric=False), Column("True", hint="in all")]
    columns += [Column(words(level)) for level in there]
    note = (
        "Sum of |error| of the total over all geounits, as a share of the group. Without a value "
        f"where the group has fewer than {one.finest.floor}."
    )
    return Table(f"groups-{index}", f"Errors by {words(one.name)}", columns, body, note)


def _parity_table(evaluation: Evaluation) -> Table:
    columns = [
        *(Column(title, numeric=False) for title in ("Groups", "Table", "Geolevel")),
        Column("Everybody", hint="relative"),
        Column("Worst", numeric=False, hint="group"),
        Column("Worst", hint="relative"),
        Column("Times", hint="everybody"),
        Column("Noise", hint="expected RMSE"),
        Column("k", hint="groups"),
        Column("Parity", hint="error"),
        Column("Parity / k"),
    ]
    body = []
    for result in evaluation.parity:
        worst = next((g for g in result.by_group if g.group == result.worst), None)
        body.append(
            [
                label(result.groups),
                label(result.table),
                label(result.geolevel),
                _known(result.everybody, text.fine_percent),
                label(result.worst or ""),
                _known(worst.relative if worst else None, text.fine_percent),
                _known(worst.to_everybody if worst else None),
                _known(result.expected_rmse),
                number(result.k),
                _known(result.parity),
                _known(result.parity_mean),
            ]
        )
    note = (
        "Relative: the sum of |error| of the table in the group, as a share of the group. Parity "
        "error: the relative errors of the k groups that reach the floor, and that of everybody "
        "times its weight, 1/k unless the run file says another. It grows with k; parity / k does "
        "not."
    )
    return Table("parity", "Parity by groups, table and geolevel", columns, body, note)


def _known(value: float | None, show: Callable[[float | None], str] = text.decimal) -> Cell:
    """A number; a dash where there is none, as of a group below the floor."""
    return Cell(EMPTY) if value is None else number(value, show)


def _group_table(evaluation: Evaluation, records: str) -> Table:
    columns = [
        *(Column(title, numeric=False) for title in ("Groups", "Group", "Table", "Geolevel")),
        Column(records.capitalize(), hint="true"),
        Column("Relative", hint="error"),
        Column("Times", hint="everybody"),
        Column("MAE", hint="one answer"),
        Column("RMSE", hint="one answer"),
        Column("Bias", hint="mean error"),
        Column("Net", hint="of the group"),
        Column("Largest", hint="|error|"),
    ]
    rows = [(result, group) for result in evaluation.parity for group in result.by_group]
    rows.sort(key=lambda row: -(row[1].relative or 0.0))
    body = [
        [
            label(result.groups),
            label(group.group),
            label(result.table),
            label(result.geolevel),
            number(group.persons),
            _known(group.relative, text.fine_percent),
            _known(group.to_everybody),
            number(group.mae, text.decimal),
            number(group.rmse, text.decimal),
            number(group.bias, text.signed),
            number(group.released - group.persons, text.signed_integer),
            number(group.max),
        ]
        for result, group in rows[:_MOST_ROWS]
    ]
    note = "Answers of geounits where nobody is of the group count, too."
    if len(rows) > _MOST_ROWS:
        note += (
            f" The {_MOST_ROWS} largest relative errors of {text.integer(len(rows))} rows; all are "
            "in evaluation.json."
        )
    return Table("group-table", "Every statistic by group", columns, body, note)
