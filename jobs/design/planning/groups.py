"""Population groups whose errors are planned: definition, public sizes, targets and limits.

No confidential data are read: sizes come from a public file. Without sizes errors are in persons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

import numpy as np

from das.arrays import FloatArray, IntArray
from das.errors import ConfigError, DasError, InputError
from das.queries.query import Query, groups_of, parse_query, restricted
from jobs.design.planning.allocation import TableNumbers, table_numbers
from jobs.design.planning.errors import by_geolevel, query_at
from jobs.pipeline.config.files import read_model
from jobs.pipeline.config.mistakes import refuse_off_spine, refuse_unknown
from jobs.pipeline.config.models.groups import Comparison, GroupsFile
from jobs.pipeline.plan import Plan


@dataclass(frozen=True, eq=False)
class GroupTable:
    """Table restricted to a group.

    Attributes:
      query: Partition query that defines the groups.
      group: Label of the group among the answers of the query.
      table: Name of the table.
      restricted: The table as a query that counts this group only.
      compared: Geolevel to the unit in which errors of groups are compared.
    """

    query: str
    group: str
    table: str
    restricted: Query
    compared: Mapping[str, Comparison]

    @property
    def name(self) -> str:
        """Return the name of the group, and of the table unless it is the total."""
        whose = f"{self.query} = {self.group}"
        return whose if self.table == "total" else f"{self.table} of {whose}"


PublicSizes = Mapping[tuple[str, str, str], float]
"""(query, group, geolevel) to persons in a typical geounit; an empty geolevel: in all geounits."""


@dataclass(frozen=True, eq=False)
class GroupGoal:
    """Objective for the errors of groups.

    Attributes:
      rows: The T tables of groups.
      targets: float64[T, L], largest accepted errors in the unit of the comparison; infinite for
        none.
      sizes: Public numbers of persons by (query, group, geolevel); None if unknown.
      floor: Least persons in a typical geounit for which relative errors count.
      others: Largest factor by which errors of other tables may grow; infinite for no limit.
      limits: Largest accepted root mean squared errors of tables, in persons.
    """

    rows: tuple[GroupTable, ...]
    targets: FloatArray
    sizes: PublicSizes | None
    floor: float
    others: float
    limits: TableNumbers

    @property
    def has_targets(self) -> bool:
        """Return whether there are targets; without any, the largest error is minimized."""
        return bool(np.isfinite(self.targets).any())

    def persons(self, levels: tuple[str, ...], geounits: IntArray) -> FloatArray:
        """Return the number of persons of each population group in a typical geounit.

        Args:
          levels: Names of the geolevels.
          geounits: int64[L], number of geounits of each geolevel.

        Returns:
          float64[T, L], a row per table in `rows`: the public size of its group at the geolevel.
          If only the size over all geounits is public, it is divided by the number of geounits.
          NaN if no size is public.
        """
        out = np.full((len(self.rows), len(levels)), np.nan)
        if self.sizes is None:
            return out
        for index, row in enumerate(self.rows):
            whole = self.sizes.get((row.query, row.group, ""), np.nan)
            for level, name in enumerate(levels):
                shared = whole / geounits[level]
                out[index, level] = self.sizes.get((row.query, row.group, name), shared)
        return out


def read_groups(plan: Plan, path: Path) -> GroupGoal:
    """Read a file of groups.

    Raises:
      ConfigError: A key, geolevel or group is unknown, or sizes are missing.
      SchemaError: A query does not fit the schema, or is no partition.
      InputError: The file of sizes cannot be used.
    """
    file = read_model(path, GroupsFile)
    tables = [partition_at(plan, text, f"{path}: tables") for text in file.tables]
    rows: list[GroupTable] = []
    known: dict[str, Query] = {}
    for text, given in file.groups.items():
        where = f"{path}: groups.{text}"
        groups = partition_at(plan, text, where)
        if groups.name in known:
            raise ConfigError(where, "names a query twice", got=groups.name)
        known[groups.name] = groups
        compared = by_geolevel(plan, where, given)
        for table in tables:
            for label, group in zip(groups.labels(), groups_of(plan.schema, groups), strict=True):
                inside = restricted(table, group)
                rows.append(GroupTable(groups.name, label, table.name, inside, compared))
    sizes = None
    if file.sizes is not None:
        sizes = read_sizes(plan, path.parent / file.sizes, known)
    group_goal = GroupGoal(
        tuple(rows),
        _targets(path, plan, file, known, rows),
        sizes,
        file.floor or 0.0,
        np.inf if file.others is None else file.others,
        table_numbers(plan, f"{path}: limits.", file.limits or {}, np.inf, partition_at),
    )
    _require_sizes(path, file, group_goal)
    return group_goal


def read_sizes(plan: Plan, path: Path, groups: Mapping[str, Query]) -> PublicSizes:
    """Read public sizes of groups: columns query, group, persons and optionally geolevel.

    A row without a geolevel counts the persons of all geounits.

    Raises:
      InputError: The file cannot be read, or a row has an unknown group or geolevel, is repeated,
        or has a number of persons that is not positive.
    """
    from jobs.pipeline.input.files import Table, plan_chunks, read_chunk

    table = Table(path, ("query", "group", "persons"))
    chunks = plan_chunks(table)
    if any("geolevel" in chunk.header for chunk in chunks):
        table = Table(path, (*table.columns, "geolevel"))
    labels = {name: set(query.labels()) for name, query in groups.items()}
    levels, sizes = plan.spine.levels, dict[tuple[str, str, str], float]()
    for batch in (batch for chunk in chunks for batch in read_chunk(chunk, table)):
        for index, row in enumerate(batch.table.to_pylist()):
            where, query = batch.where(index), _name_in(plan, str(row["query"]))
            group, level = str(row["group"]), str(row.get("geolevel") or "")
            if query not in labels:
                continue  # the file can hold sizes for other files of groups
            if group not in labels[query]:
                want = f"one of {sorted(labels[query])}"
                raise InputError(where, f"names no group of {query}", got=group, want=want)
            refuse_off_spine(where, [level], levels, plan.census_spine.levels)
            if level and level not in levels:
                want = f"one of {list(levels)}, or nothing for all geounits together"
                raise InputError(where, "names an unknown geolevel", got=level, want=want)
            if (query, group, level) in sizes:
                raise InputError(where, "names a group twice", got=group)
            sizes[query, group, level] = _persons(where, row["persons"])
    return sizes


def _persons(where: str, given: object) -> float:
    try:
        persons = float(str(given))
    except ValueError:
        persons = np.nan
    if not (np.isfinite(persons) and persons > 0):
        raise InputError(
            where,
            "needs a positive number of persons",
            got=given,
            remedy="compare the errors of an empty group as absolute",
        )
    return persons


def _name_in(plan: Plan, text: str) -> str:
    """Return the canonical name of a query; any other text unchanged."""
    try:
        return parse_query(plan.schema, text).name
    except DasError:
        return text


def partition_at(plan: Plan, text: object, where: str) -> Query:
    """Parse a query that counts every person once; errors name its location.

    Raises:
      ConfigError: The query counts some persons several times, or not at all.
      SchemaError: The text is no query on the schema.
    """
    query = query_at(plan, text, where)
    if not query.is_partition:
        raise ConfigError(
            where, "must be a query that counts every person in exactly one answer", got=query.name
        )
    return query


def _targets(
    path: Path, plan: Plan, file: GroupsFile, known: Mapping[str, Query], rows: list[GroupTable]
) -> FloatArray:
    levels = plan.spine.levels
    out = np.full((len(rows), len(levels)), np.inf)
    if file.targets is None:
        return out
    if file.others is not None or file.limits is not None:
        raise ConfigError(str(path), "takes targets, or others and limits, not both")
    for text, groups in file.targets.items():
        where = f"{path}: targets.{text}"
        query = partition_at(plan, text, where).name
        refuse_unknown(where, "is not among the groups", [query], known)
        labels = known[query].labels()
        for group, given in groups.items():
            refuse_unknown(where, "names an unknown group", [group], labels)
            for name, target in by_geolevel(plan, f"{where}.{group}", given).items():
                is_of_group = [(row.query, row.group) == (query, group) for row in rows]
                if any(name not in row.compared for row in compress(rows, is_of_group)):
                    raise ConfigError(
                        f"{where}.{group}.{name}",
                        "has a target, but no kind of error (relative or absolute)",
                        remedy=f"name {name} for {query} in groups",
                    )
                out[is_of_group, levels.index(name)] = target
    return out


def _require_sizes(path: Path, file: GroupsFile, group_goal: GroupGoal) -> None:
    relative = [
        (row.query, row.group, name)
        for row in group_goal.rows
        for name, kind in row.compared.items()
        if kind is Comparison.RELATIVE
    ]
    if relative and group_goal.sizes is None:
        raise ConfigError(
            str(path),
            "compares relative errors, which needs public sizes of the groups",
            want="sizes: a CSV file with columns query, group, persons",
            remedy="name one under sizes, or compare the groups as absolute",
        )
    known = group_goal.sizes or {}
    missing = {
        f"{query} = {group}"
        for query, group, name in relative
        if not {(query, group, name), (query, group, "")} & known.keys()
    }
    if missing:
        raise ConfigError(
            f"{path}: sizes",
            "lack groups whose relative errors are compared",
            got=f"no row in {file.sizes} for {sorted(missing)}",
            remedy="add their public numbers of persons",
        )
