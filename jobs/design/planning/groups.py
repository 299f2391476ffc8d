"""Groups whose errors are planned: which there are, how large in public, and what is asked.

Nothing here reads confidential data: sizes are those of a public file, and without one errors of
groups are in persons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from das.arrays import FloatArray, IntArray
from das.errors import ConfigError, DasError, InputError
from das.queries.query import Query, groups_of, parse_query, restricted
from jobs.pipeline.config.files import read_model
from jobs.pipeline.config.mistakes import refuse_off_spine
from jobs.pipeline.config.models.equity import Comparison, EquityFile
from jobs.pipeline.plan import Plan

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class GroupTable:
    """A table restricted to a group.

    Attributes:
      query: The partition query whose answer the group is.
      group: Label of that answer.
      table: Name of the table.
      restricted: What it counts in the group.
      compared: How its errors are compared with those of other groups, by geolevel.
    """

    query: str
    group: str
    table: str
    restricted: Query
    compared: Mapping[str, Comparison]

    @property
    def name(self) -> str:
        """The group, and the table if it is not the total."""
        whose = f"{self.query} = {self.group}"
        return whose if self.table == "total" else f"{self.table} of {whose}"


@dataclass(frozen=True, eq=False)
class PublicSizes:
    """Persons of groups, as a public file says.

    Attributes:
      everywhere: (query, group) to persons in all geounits together.
      typical: (query, group, geolevel) to persons in a typical geounit.
    """

    everywhere: Mapping[tuple[str, str], float]
    typical: Mapping[tuple[str, str, str], float]


@dataclass(frozen=True, eq=False)
class Equity:
    """What is asked of the errors of groups.

    Attributes:
      rows: Tables of groups, T of them.
      targets: float64[T, L], largest accepted errors in the unit in which the row is compared;
        infinite for none.
      sizes: Public sizes.
      floor: Relative errors count from so many persons in a typical geounit.
      others: Largest growth of the errors of other tables; infinite if any.
      limited: Tables with limits, and float64[tables, L] of root mean squared errors.
    """

    rows: tuple[GroupTable, ...]
    targets: FloatArray
    sizes: PublicSizes | None
    floor: float
    others: float
    limited: tuple[tuple[Query, ...], FloatArray]

    @property
    def has_targets(self) -> bool:
        """Whether targets are to be met with the least rho, or the largest error made least."""
        return bool(np.isfinite(self.targets).any())

    def persons(self, levels: tuple[str, ...], geounits: IntArray) -> FloatArray:
        """float64[T, L]: persons of each group in a typical geounit; not a number if unknown.

        Args:
          levels: Names of the geolevels.
          geounits: int64[L], how many each has.
        """
        out = np.full((len(self.rows), len(levels)), np.nan)
        if self.sizes is None:
            return out
        for index, row in enumerate(self.rows):
            whole = self.sizes.everywhere.get((row.query, row.group))
            for level, name in enumerate(levels):
                typical = self.sizes.typical.get((row.query, row.group, name))
                if typical is not None:
                    out[index, level] = typical
                elif whole is not None:
                    out[index, level] = whole / geounits[level]
        return out


def read_equity(plan: Plan, path: Path) -> Equity:
    """Read a file of groups.

    Raises:
      ConfigError: It cannot be used: an unknown key, geolevel or group, sizes that are missing.
      SchemaError: A query is not one of the schema, or not a partition.
      InputError: The file of sizes cannot be used.
    """
    file = read_model(path, EquityFile)
    tables = [_partition(plan, text, f"{path}: tables") for text in file.tables]
    rows: list[GroupTable] = []
    known: dict[str, Query] = {}
    for text, given in file.groups.items():
        where = f"{path}: groups.{text}"
        groups = _partition(plan, text, where)
        if groups.name in known:
            raise ConfigError(where, "names a query twice", got=groups.name)
        known[groups.name] = groups
        compared = _per_level(where, given, plan)
        for table in tables:
            for label, group in zip(groups.labels(), groups_of(plan.schema, groups), strict=True):
                inside = restricted(table, group)
                rows.append(GroupTable(groups.name, label, table.name, inside, compared))
    sizes = None
    if file.sizes is not None:
        sizes = read_sizes(plan, path.parent / file.sizes, known)
    equity = Equity(
        tuple(rows),
        _targets(path, plan, file, known, rows),
        sizes,
        file.floor or 0.0,
        np.inf if file.others is None else file.others,
        _limits(path, plan, file),
    )
    _require_sizes(path, file, equity)
    return equity


def read_sizes(plan: Plan, path: Path, groups: Mapping[str, Query]) -> PublicSizes:
    """Read public sizes of groups: columns query, group, persons and perhaps geolevel.

    A row without a geolevel counts the persons of all geounits together.

    Raises:
      InputError: The file cannot be read, or a row names no group or geolevel, comes twice, or has
        a number of persons that is not positive.
    """
    from jobs.pipeline.input.files import Table, plan_chunks, read_chunk

    table = Table(path, ("query", "group", "persons"))
    chunks = plan_chunks(table)
    if any("geolevel" in chunk.header for chunk in chunks):
        table = Table(path, (*table.columns, "geolevel"))
    labels = {name: set(query.labels()) for name, query in groups.items()}
    everywhere: dict[tuple[str, str], float] = {}
    typical: dict[tuple[str, str, str], float] = {}
    for chunk in chunks:
        for batch in read_chunk(chunk, table):
            for index, row in enumerate(batch.table.to_pylist()):
                query = _name_in(plan, str(row["query"]))
                group, level = str(row["group"]), str(row.get("geolevel") or "")
                if query not in labels:
                    continue  # a file of sizes may serve other files of groups
                if group not in labels[query]:
                    raise InputError(
                        batch.where(index),
                        f"names no group of {query}",
                        got=group,
                        want=f"one of {sorted(labels[query])}",
                    )
                refuse_off_spine(
                    batch.where(index), [level], plan.spine.levels, plan.census_spine.levels
                )
                if level and level not in plan.spine.levels:
                    raise InputError(
                        batch.where(index),
                        "names an unknown geolevel",
                        got=level,
                        want=f"one of {list(plan.spine.levels)}, or nothing for the whole",
                    )
                persons = _persons(batch.where(index), row["persons"])
                seen = (query, group, level) in typical if level else (query, group) in everywhere
                if seen:
                    raise InputError(batch.where(index), "names a group twice", got=group)
                if level:
                    typical[query, group, level] = persons
                else:
                    everywhere[query, group] = persons
    return PublicSizes(everywhere, typical)


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
            remedy="compare the errors of a group that nobody is in as absolute",
        )
    return persons


def _name_in(plan: Plan, text: str) -> str:
    """The canonical name of a query, or the text where it is none."""
    try:
        return parse_query(plan.schema, text).name
    except DasError:
        return text


def _partition(plan: Plan, text: str, where: str) -> Query:
    try:
        query = parse_query(plan.schema, text)
    except DasError as error:
        raise type(error)(
            f"{where}: {error.where}", error.what, got=error.got, want=error.want
        ) from None
    if not query.is_partition:
        raise ConfigError(
            where, "must be a query that counts every person in exactly one answer", got=query.name
        )
    return query


def _per_level(where: str, given: T | dict[str, T], plan: Plan) -> dict[str, T]:
    """What is given by geolevel; one value stands for all of them."""
    levels = plan.spine.levels
    if not isinstance(given, dict):
        return dict.fromkeys(levels, given)
    refuse_off_spine(where, given, levels, plan.census_spine.levels)
    unknown = [name for name in given if name not in levels]
    if unknown:
        raise ConfigError(where, "names an unknown geolevel", got=unknown, want=list(levels))
    return given


def _targets(
    path: Path,
    plan: Plan,
    file: EquityFile,
    known: Mapping[str, Query],
    rows: list[GroupTable],
) -> FloatArray:
    levels = plan.spine.levels
    out = np.full((len(rows), len(levels)), np.inf)
    if file.targets is None:
        return out
    if file.others is not None or file.limits is not None:
        raise ConfigError(str(path), "takes targets, or others and limits, not both")
    for text, groups in file.targets.items():
        where = f"{path}: targets.{text}"
        query = _partition(plan, text, where).name
        if query not in known:
            raise ConfigError(where, "is not among the groups", got=query, want=list(known))
        labels = known[query].labels()
        for group, given in groups.items():
            if group not in labels:
                raise ConfigError(where, "names an unknown group", got=group, want=labels)
            for name, target in _per_level(f"{where}.{group}", given, plan).items():
                for index, row in enumerate(rows):
                    if (row.query, row.group) == (query, group):
                        if name not in row.compared:
                            raise ConfigError(
                                f"{where}.{group}.{name}",
                                "needs to know whether the error is relative or absolute",
                                remedy=f"name {name} for {query} in groups",
                            )
                        out[index, levels.index(name)] = target
    return out


def _limits(path: Path, plan: Plan, file: EquityFile) -> tuple[tuple[Query, ...], FloatArray]:
    levels = plan.spine.levels
    tables: dict[str, Query] = {}
    numbers: list[list[float]] = []
    for text, given in (file.limits or {}).items():
        where = f"{path}: limits.{text}"
        table = _partition(plan, text, where)
        if table.name in tables:
            raise ConfigError(where, "names a table twice", got=table.name)
        tables[table.name] = table
        per_level = _per_level(where, given, plan)
        numbers.append([per_level.get(name, np.inf) for name in levels])
    return tuple(tables.values()), np.array(numbers).reshape(len(tables), len(levels))


def _require_sizes(path: Path, file: EquityFile, equity: Equity) -> None:
    relative = [row for row in equity.rows if Comparison.RELATIVE in row.compared.values()]
    if not relative:
        return
    if equity.sizes is None:
        raise ConfigError(
            str(path),
            "compares relative errors, which needs public sizes of the groups",
            want="sizes: a CSV file with columns query, group, persons",
            remedy="name one under sizes, or compare the groups as absolute",
        )
    missing = [
        f"{row.query} = {row.group}"
        for row in relative
        for name, kind in row.compared.items()
        if kind is Comparison.RELATIVE
        and (row.query, row.group) not in equity.sizes.everywhere
        and (row.query, row.group, name) not in equity.sizes.typical
    ]
    if missing:
        raise ConfigError(
            f"{path}: sizes",
            "lack groups whose relative errors are compared",
            got=f"no row in {file.sizes} for {sorted(set(missing))}",
            remedy="add their public numbers of persons",
        )
