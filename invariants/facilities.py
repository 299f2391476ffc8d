"""Facilities: how many of each type a geounit has, exactly, and how many persons each may hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from das.arrays import BoolArray, IntArray
from das.errors import ConfigError, SchemaError
from das.histograms import Histograms
from das.privacy.neighborhoods import Held
from das.queries.query import Query, is_refinement
from das.schema import Schema
from invariants.conflict import Statement
from invariants.exact import Invariant, invariants_at
from invariants.leaves import MANY, Leaves
from invariants.limit import Limit, statements_of
from invariants.quarters import LivingQuarters


@dataclass(frozen=True, eq=False)
class Types:
    """A partition of the cells of a schema into types that no query need name.

    Attributes:
      name: What a message calls it.
      codes: int64[n], the type of each cell; every type has some.
      size: Number of types, t.
    """

    name: str
    codes: IntArray
    size: int

    @property
    def n_cells(self) -> int:
        """N."""
        return len(self.codes)

    def first_cells(self, positions: IntArray) -> IntArray:
        """int64[p]: the first cell of some types."""
        return np.asarray(np.unique(self.codes, return_index=True)[1][positions], np.int64)

    def rows_of(self, cells: IntArray) -> IntArray:
        """int64[k]: the type of each of some cells."""
        return np.asarray(self.codes[cells], np.int64)


@dataclass(frozen=True, eq=False)
class Facilities(Limit):
    """Facility counts by type, published exactly at a geolevel.

    A geounit with f_i facilities of type i holds f_i least_i to f_i most_i persons of that type. A
    type that is not counted holds any number.

    Attributes:
      query: Persons by type, t answers.
      geolevels: Geolevels whose geounits must be able to hold what is assigned to them, root first;
        facilities are counted at the last.
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
        """What errors and files of given counts call them."""
        return f"facilities {self.query.name}"

    @property
    def counted(self) -> tuple[str, ...]:
        """All types; facilities of those that are not counted are 0."""
        return tuple(self.query.labels())

    @property
    def queries(self) -> tuple[Query, ...]:
        """Persons by type."""
        return (self.query,)

    def broken(self, counts: Histograms, given: IntArray) -> BoolArray:
        """bool[G]: geounits with more or fewer persons of a type than facilities hold."""
        boxes, persons = self.boxes(given), self.query.answer(counts)
        return np.asarray(((persons < boxes.least) | (persons > boxes.most)).any(1), np.bool_)

    def statements(self, cells: IntArray, given: IntArray) -> Iterator[Statement]:
        """How many persons of each type facilities hold."""
        boxes = self.boxes(given[None])
        return statements_of(self.title, self.query, boxes.least[0], boxes.most[0], cells)

    def held(self, cells: IntArray) -> list[Held]:
        """Persons by type: within limits, or fixed where a facility holds one number of them."""
        types, deepest = self.query.rows_of(cells), len(self.geolevels) - 1
        limited = self.is_counted | (self.least > 0)
        if not limited.any():
            return []
        name = f"facilities by {self.query.name} in every {self.geolevel}"
        labels = np.where(limited[types], types, -1)
        held = [Held(name, deepest, labels, ~limited[types], is_exact=False)]
        for kind in np.flatnonzero(self.is_counted & (self.least == self.most)):
            is_kind = types == kind
            called = f"{self.query.name} {self.query.labels()[kind]} in every {self.geolevel}"
            held.append(Held(called, deepest, is_kind.astype(np.int64), ~is_kind))
        return held

    def described(self, schema: Schema) -> str:
        """The name of the query."""
        return self.query.name

    @property
    def types(self) -> tuple[str, ...]:
        """The types whose facilities are counted."""
        return tuple(name for name, own in zip(self.counted, self.is_counted, strict=True) if own)

    def check(self, others: Sequence[Limit], invariants: Sequence[Limit]) -> None:
        """Check them against exact queries and living quarters.

        Raises:
          SchemaError: As in `check_facilities`.
          ConfigError: Living quarters are counted at a coarser geolevel.
        """
        check_facilities(self, [one for one in invariants if isinstance(one, Invariant)])
        for quarters in others:
            if isinstance(quarters, LivingQuarters) and self.geolevel not in quarters.geolevels:
                raise ConfigError(
                    quarters.title,
                    "are counted at a coarser geolevel than facilities",
                    got=quarters.geolevel,
                    want=f"{self.geolevel}, or a finer one",
                )

    def boxes(self, counts: IntArray) -> Leaves:
        """One row per geounit, totals free.

        Args:
          counts: int64[G, t] facilities; 0 for types that are not counted.
        """
        least = counts * self.least
        most = np.where(self.is_counted, counts * self.most, MANY)
        return Leaves(least, most, least.sum(1), most.sum(1))


def binding_totals(leaf: str, invariants: Sequence[Invariant], geolevel: str) -> Query | None:
    """Return the finest invariant at a geolevel, if its answers are not exact one geolevel down.

    These are the totals that bind types there, which have bounds at the geolevel `leaf`; those that
    are exact further down already bind the leaves.
    """
    held = invariants_at(invariants, geolevel)
    if not held:
        return None
    last = held[-1].geolevels.index(geolevel) == len(held[-1].geolevels) - 1
    return held[-1].query if geolevel == leaf or last else None


def check_facilities(facilities: Facilities, invariants: Sequence[Invariant]) -> None:
    """Check that implied constraints describe exactly what can be assigned to the leaves.

    They do if at each geolevel the exact totals are sums of types or tell types apart, and a finer
    query of sums of types is exact as far down as a coarser one. Otherwise two families of sums
    cross, and integers may contradict each other in ways that no bounds on types show.

    Raises:
      SchemaError: An invariant crosses the types, or stops above a coarser one.
    """
    name, types = facilities.query.name, facilities.query
    shared = [i for i in invariants if set(i.geolevels) & set(facilities.geolevels)]
    for one in shared:
        if not (is_refinement(types, one.query) or is_refinement(one.query, types)):
            raise SchemaError(
                f"facilities {name}", "crosses an invariant", got=one.query.name, want="nested"
            )
    sums = [i for i in shared if is_refinement(types, i.query)]
    for coarse in sums:
        for fine in sums:
            finer = fine.query.size > coarse.query.size and fine.query.size < types.size
            deep = len(set(facilities.geolevels) & set(coarse.geolevels))
            if finer and len(set(facilities.geolevels) & set(fine.geolevels)) < deep:
                raise SchemaError(
                    f"invariant {fine.query.name}",
                    f"must be exact as far down as {coarse.query.name}, because facilities "
                    f"{name} are counted below",
                    got=fine.geolevels[-1],
                    want=coarse.geolevels[-1],
                )


def groups_of(types: Query | Types, totals: Query | Types) -> IntArray:
    """int64[t]: the answer of a coarser partition in which each type counts."""
    return totals.rows_of(types.first_cells(np.arange(types.size)))
