"""Facilities: public counts of facilities by type, and bounds on the persons in one facility."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from das.arrays import BoolArray, IntArray, run_starts
from das.errors import ConfigError, SchemaError
from das.histograms import Histograms
from das.privacy.neighborhoods import Held
from das.queries.query import Query, is_refinement
from invariants.conflict import Statement
from invariants.constraint import Constraint, QueryConstraint, statements_of
from invariants.exact import Invariant, invariants_at
from invariants.leaves import MANY, Leaves
from invariants.quarters import LivingQuarters


@dataclass(frozen=True, eq=False)
class Types:
    """Partition of the cells of a schema into types, which need not be a query.

    Attributes:
      name: Name in messages.
      codes: int64[n], the type of each cell; every type has some.
      size: Number of types, t.
    """

    name: str
    codes: IntArray
    size: int

    @property
    def n_cells(self) -> int:
        """Return N, the number of cells."""
        return len(self.codes)

    def first_cells(self, positions: IntArray) -> IntArray:
        """Return int64[p]: the first cell of each given type, numbered from 0."""
        return np.asarray(np.unique(self.codes, return_index=True)[1][positions], np.int64)

    def rows_of(self, cells: IntArray) -> IntArray:
        """Return int64[k]: the type of each given cell."""
        return np.asarray(self.codes[cells], np.int64)


@dataclass(frozen=True, eq=False)
class Facilities(QueryConstraint):
    """Facility counts by type, published exactly at a geolevel.

    A geounit with f_i facilities of type i can have f_i least_i to f_i most_i persons of that type.
    A type that is not counted can have any number.

    Attributes:
      query: Persons by type, t answers.
      geolevels: Geolevels at which the bounds of persons hold, root first; facilities are counted
        at the last.
      least: int64[t], fewest persons of one facility.
      most: int64[t], most persons of one facility.
      is_counted: bool[t], types whose facilities are counted.
    """

    kind: ClassVar[str] = "facilities"
    note: ClassVar[str] = (
        "Facility counts are public; counts of persons must be possible with them."
    )
    is_single: ClassVar[bool] = True

    query: Query
    geolevels: tuple[str, ...]
    least: IntArray
    most: IntArray
    is_counted: BoolArray

    @property
    def title(self) -> str:
        """Return the name of the facilities in errors and files of public counts."""
        return f"facilities {self.query.name}"

    def broken(self, counts: Histograms, given: IntArray) -> BoolArray:
        """Return bool[G]: geounits with more or fewer persons of a type than facilities allow."""
        boxes, persons = self.boxes(given), self.query.answer(counts)
        return np.asarray(((persons < boxes.least) | (persons > boxes.most)).any(1), np.bool_)

    def statements(self, cells: IntArray, given: IntArray) -> Iterator[Statement]:
        """Yield the bounds that the numbers of facilities put on the persons of each type."""
        boxes = self.boxes(given[None])
        return statements_of(self.title, self.query, boxes.least[0], boxes.most[0], cells)

    def held(self, cells: IntArray) -> list[Held]:
        """Return facts on persons by type: bounded, or fixed where `least` equals `most`."""
        types, deepest = self.query.rows_of(cells), len(self.geolevels) - 1
        limited = self.is_counted | (self.least > 0)
        if not limited.any():
            return []
        name = f"facilities by {self.query.name} in every {self.geolevel}"
        labels = np.where(limited[types], types, -1)
        facts = [Held(name, deepest, labels, ~limited[types], is_exact=False)]
        for kind in np.flatnonzero(self.is_counted & (self.least == self.most)):
            is_kind = types == kind
            name = f"{self.query.name} {self.query.labels()[kind]} in every {self.geolevel}"
            facts.append(Held(name, deepest, is_kind.astype(np.int64), ~is_kind))
        return facts

    @property
    def types(self) -> tuple[str, ...]:
        """Return the types whose facilities are counted."""
        return tuple(np.array(self.counted)[self.is_counted].tolist())

    def check(self, others: Sequence[Constraint], invariants: Sequence[Constraint]) -> None:
        """Check the facilities against exact queries and living quarters.

        Raises:
          SchemaError: As in `check_facilities`.
          ConfigError: Living quarters are counted at a coarser geolevel.
        """
        check_facilities(self, [exact for exact in invariants if isinstance(exact, Invariant)])
        for quarters in others:
            if isinstance(quarters, LivingQuarters) and self.geolevel not in quarters.geolevels:
                raise ConfigError(
                    quarters.title,
                    "are counted at a coarser geolevel than facilities",
                    got=quarters.geolevel,
                    want=f"{self.geolevel}, or a finer one",
                )

    def boxes(self, counts: IntArray) -> Leaves:
        """Return bounds of persons by type, one row per geounit, without bounds of the total.

        Args:
          counts: int64[G, t] facilities; 0 for types that are not counted.
        """
        least = counts * self.least
        most = np.where(self.is_counted, counts * self.most, MANY)
        return Leaves(least, most, least.sum(1), most.sum(1))


def binding_totals(leaf: str, invariants: Sequence[Invariant], geolevel: str) -> Query | None:
    """Return the finest invariant at a geolevel, if its answers are not exact one geolevel down.

    Such totals restrict the types at this geolevel. Totals that are exact further down already
    restrict the leaves, at the geolevel `leaf`.

    Args:
      leaf: Name of the leaf geolevel.
      invariants: The exact queries of the plan.
      geolevel: The geolevel in question.
    """
    exact = invariants_at(invariants, geolevel)
    if not exact:
        return None
    finest = exact[-1]
    return finest.query if geolevel in (leaf, finest.geolevel) else None


def check_facilities(facilities: Facilities, invariants: Sequence[Invariant]) -> None:
    """Check that implied constraints describe exactly which counts the leaves can have.

    They do if two conditions hold at each geolevel. The exact totals are sums of types, or the
    types are sums of the exact totals. A finer query of sums of types is exact as far down as a
    coarser one. Otherwise two families of sums cross, and integers may be infeasible although all
    bounds on types hold.

    Raises:
      SchemaError: An invariant crosses the types, or stops above a coarser one.
    """
    name, types = facilities.query.name, facilities.query
    shared = [i for i in invariants if set(i.geolevels) & set(facilities.geolevels)]
    for query in (invariant.query for invariant in shared):
        if not (is_refinement(types, query) or is_refinement(query, types)):
            raise SchemaError(
                f"facilities {name}", "crosses an invariant", got=query.name, want="nested"
            )
    sums = [i for i in shared if is_refinement(types, i.query)]
    for coarse in sums:
        for fine in sums:
            finer = fine.query.size > coarse.query.size and fine.query.size < types.size
            deep = len(set(facilities.geolevels) & set(coarse.geolevels))
            if finer and len(set(facilities.geolevels) & set(fine.geolevels)) < deep:
                raise SchemaError(
                    f"invariant {fine.query.name}",
                    f"must be exact as far down as {coarse.query.name}, which is coarser, because "
                    f"both are sums of the facilities {name}",
                    got=fine.geolevels[-1],
                    want=coarse.geolevels[-1],
                )


def coefficients_by_type(query: Query, types: Query) -> tuple[IntArray, IntArray]:
    """Return int64[m, t], the smallest and the largest coefficient of each answer in each type.

    A coefficient is a product of entries of factors, and the cells of a type are a product of sets
    of levels. So both are products of those of each attribute, and no cell is listed.

    Args:
      query: A query without negative coefficients, m answers.
      types: Partition of the cells into t types.
    """
    ends = np.ones((2, 1, 1), np.int64)
    for factor, kinds in zip(query.factors, types.factors, strict=True):
        order = np.argsort(kinds.codes, kind="stable")
        columns, starts = factor.matrix[:, order], run_starts(kinds.codes[order])
        sides = [end.reduceat(columns, starts, axis=1) for end in (np.minimum, np.maximum)]
        ends = np.stack([np.kron(end, side) for end, side in zip(ends, sides, strict=True)])
    return ends[0], ends[1]


def groups_of(types: Query | Types, totals: Query | Types) -> IntArray:
    """Return int64[t]: the answer of a coarser partition that counts each type."""
    return totals.rows_of(types.first_cells(np.arange(types.size)))
