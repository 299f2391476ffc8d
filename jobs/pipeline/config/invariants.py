"""What the section `invariants` of a run file means: exact queries, and limits of other kinds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from das.arrays import BoolArray
from das.errors import ConfigError, SchemaError
from das.queries.query import Query, parse_query
from das.schema import Schema
from invariants.constraints import Limits
from invariants.exact import Invariant, check_invariants
from invariants.facilities import Facilities, check_facilities
from invariants.linear import LinearRow, cells_in, levels_in
from invariants.quarters import NAME, LivingQuarters
from invariants.zeros import StructuralZeros
from jobs.pipeline.config.mistakes import at
from jobs.pipeline.config.models.invariants import (
    AnyInvariant,
    FacilitiesConfig,
    InvariantConfig,
    LivingQuartersConfig,
    PublicTable,
    RowConfig,
    ZeroConfig,
)

MOST_CELLS_OF_ROWS = 4_000_000
"""Of a schema with linear rows, 32 MB a row in every process."""
_LEAST, _MOST = 1, 99_999  # persons of one facility


def exact_queries(
    entries: Sequence[AnyInvariant], schema: Schema, spine: Sequence[str]
) -> tuple[Invariant, ...]:
    """The exact queries among the invariants, checked.

    Raises:
      SchemaError, ConfigError: One is unknown, or two cross; or the table of one lacks answers.
    """
    invariants = []
    for index, entry in enumerate(entries):
        if not isinstance(entry, InvariantConfig) or entry.released is not None:
            continue
        invariant = Invariant.build(schema, spine, entry.query, entry.geolevel)
        if entry.table is not None:
            with at(str(index)):
                check_answers(invariant.query, entry.table)
        invariants.append(invariant)
    check_invariants(invariants)
    return tuple(invariants)


def bound_queries(
    entries: Sequence[AnyInvariant],
    schema: Schema,
    spine: Sequence[str],
    invariants: Sequence[Invariant],
) -> tuple[Invariant, ...]:
    """The queries among the invariants whose answers were released before, checked.

    Args:
      entries: The section.
      schema: Attributes and cells.
      spine: Geolevels, root first.
      invariants: The exact queries.

    Raises:
      SchemaError: One is unknown or no partition, or crosses another or an exact one.
      ConfigError: The table of one lacks answers; or facilities or bounded rows stand beside it,
        which nothing shows to be possible with the counts of a release.
    """
    bound = []
    for index, entry in enumerate(entries):
        if not isinstance(entry, InvariantConfig) or entry.released is None:
            continue
        one = Invariant.build(schema, spine, entry.query, entry.geolevel)
        if not one.query.is_partition:
            raise SchemaError(f"{index}: query {one.query.name}", "is no partition of the records")
        if entry.released.table is not None:
            with at(str(index)):
                check_answers(one.query, entry.released.table)
        bound.append(one)
    check_invariants([*invariants, *bound])
    other = next((e for e in entries if isinstance(e, FacilitiesConfig | RowConfig)), None)
    if bound and other is not None:
        raise ConfigError(
            f"query {bound[0].query.name}",
            "is bound to an earlier release, and beside it stand facilities or rows, with which "
            "the counts of that release may be impossible",
            want="exact queries, living quarters and structural zeros",
            remedy="leave one of them out",
        )
    return tuple(bound)


def check_answers(query: Query, table: PublicTable) -> None:
    """Check that a published table has a column for every answer of a query.

    Raises:
      ConfigError: An answer is missing or unknown.
    """
    if sorted(table.columns) != sorted(query.labels()):
        raise ConfigError(
            "table.columns",
            f"must name every answer of {query.name}",
            got=list(table.columns),
            want=query.labels(),
        )


def limits_of(
    entries: Sequence[AnyInvariant],
    schema: Schema,
    spine: Sequence[str],
    invariants: Sequence[Invariant],
    exact: Callable[[str, str, str], Query],
) -> Limits:
    """The other invariants, checked.

    Args:
      entries: The section.
      schema: Attributes and cells.
      spine: Geolevels, root first.
      invariants: The exact queries.
      exact: Gives the exact query of a product, by the names of product, query and geolevel.

    Raises:
      SchemaError, ConfigError: One cannot be used; the message says which.
    """
    facilities, quarters = None, None
    boxes: list[tuple[BoolArray, ...]] = []
    rows: list[LinearRow] = []
    for index, entry in enumerate(entries):
        if isinstance(entry, FacilitiesConfig):
            if facilities is not None:
                raise ConfigError(f"{index}.facilities", "are stated twice")
            with at(str(index)):
                facilities = _facilities(entry, schema, spine, exact)
        elif isinstance(entry, LivingQuartersConfig):
            if quarters is not None:
                raise ConfigError(f"{index}.living_quarters", "are stated twice")
            with at(str(index)):
                quarters = _quarters(entry, spine, exact)
        elif isinstance(entry, ZeroConfig):
            with at(str(index)):
                boxes.append(levels_in(schema, entry.zero, "zero"))
        elif isinstance(entry, RowConfig):
            with at(str(index)):
                row = _row(entry, schema, spine)
            if row.name in {*(r.name for r in rows), *(i.query.name for i in invariants)}:
                raise ConfigError(f"{index}.name", "is used twice", got=row.name)
            rows.append(row)
    zeros = StructuralZeros(schema.shape, tuple(boxes)) if boxes else None
    if zeros is not None and len(zeros) == schema.size:
        raise SchemaError("zero", "leaves no cell in which somebody can be")
    if facilities is not None:
        check_facilities(facilities, invariants)
        if quarters is not None and facilities.geolevel not in quarters.geolevels:
            raise ConfigError(
                NAME,
                "are counted at a coarser geolevel than facilities",
                got=quarters.geolevel,
                want=f"{facilities.geolevel}, or a finer one",
            )
    bound = bound_queries(entries, schema, spine, invariants)
    return Limits(facilities, zeros, tuple(rows), quarters, bound)


def _down_to(spine: Sequence[str], geolevel: str) -> tuple[str, ...]:
    if geolevel not in spine:
        raise SchemaError("geolevel", "is unknown", got=geolevel, want=list(spine))
    return tuple(spine[: list(spine).index(geolevel) + 1])


def _facilities(
    entry: FacilitiesConfig,
    schema: Schema,
    spine: Sequence[str],
    exact: Callable[[str, str, str], Query],
) -> Facilities:
    query = parse_query(schema, entry.facilities)
    if not query.is_partition:
        raise SchemaError(f"facilities {query.name}", "must count every person as one type")
    types = query.labels()
    if entry.exact is not None:
        query_of_others = exact(entry.exact.product, entry.exact.query, entry.geolevel)
        counted = [label for label in query_of_others.labels() if label in types]
    else:
        counted = list(entry.table.columns) if entry.table is not None else []
    for key, names in (
        ("table.columns", counted),
        ("at_least", entry.at_least),
        ("at_most", entry.at_most),
    ):
        unknown = [name for name in names if name not in types]
        if unknown:
            raise SchemaError(key, "names an unknown type", got=unknown, want=f"some of {types}")
    if not counted:
        raise SchemaError("exact", "has no level that is a type", want=f"some of {types}")
    least = np.array([entry.at_least.get(name, _LEAST) for name in types], np.int64)
    most = np.array([entry.at_most.get(name, _MOST) for name in types], np.int64)
    if (least > most).any():
        name = types[int(np.argmax(least > most))]
        raise SchemaError(f"at_least.{name}", "is above at_most", got=entry.at_least.get(name, 1))
    geolevels = _down_to(spine, entry.geolevel)
    return Facilities(query, geolevels, least, most, np.isin(types, counted))


def _quarters(
    entry: LivingQuartersConfig, spine: Sequence[str], exact: Callable[[str, str, str], Query]
) -> LivingQuarters:
    if entry.exact is not None:
        counted = exact(entry.exact.product, entry.exact.query, entry.geolevel).labels()
    else:
        counted = list(entry.table.columns) if entry.table is not None else []
    unknown = [name for name in entry.living_quarters if name not in counted]
    if unknown:
        raise SchemaError(
            "living_quarters", "names what is not counted", got=unknown, want=f"some of {counted}"
        )
    if not counted:
        raise SchemaError("table.columns", "counts nothing")
    geolevels = _down_to(spine, entry.geolevel)
    return LivingQuarters(tuple(counted), np.isin(counted, entry.living_quarters), geolevels)


def refuse_many_cells(schema: Schema, row: str) -> None:
    """Refuse a row of a schema of so many cells that their coefficients fill the memory.

    Raises:
      SchemaError: It has more than 4,000,000.
    """
    if schema.size > MOST_CELLS_OF_ROWS:
        raise SchemaError(
            row,
            "keeps a coefficient for every cell",
            got=f"{schema.size} cells",
            want=f"at most {MOST_CELLS_OF_ROWS}",
            remedy="leave it out; structural zeros and exact queries take schemas of any size",
        )


def _row(entry: RowConfig, schema: Schema, spine: Sequence[str]) -> LinearRow:
    refuse_many_cells(schema, f"row {entry.name}")
    coefficients = np.zeros(schema.size, np.int64)
    for part in entry.row:
        coefficients += part.coefficient * cells_in(schema, part.cells, f"row {entry.name}")
    if not coefficients.any():
        raise SchemaError(f"row {entry.name}", "counts nobody")
    low, high = entry.at_least, entry.at_most
    if low is not None and high is not None and low > high:
        raise SchemaError(f"row {entry.name}", "has at_least above at_most", got=low)
    return LinearRow(entry.name, coefficients, _down_to(spine, entry.geolevel), low, high)
