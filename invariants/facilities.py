"""Facilities: how many of each type a geounit has, exactly, and how many persons each may hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from das.arrays import BoolArray, IntArray
from das.errors import SchemaError
from das.queries.query import Query, is_refinement
from invariants.exact import Invariant, invariants_at
from invariants.leaves import MANY, Leaves


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
class Facilities:
    """Facility counts by type, published exactly at a geolevel.

    A geounit with f_i facilities of type i holds f_i least_i to f_i most_i persons of that type. A
    type that is not counted holds any number.

    Attributes:
      query: Persons by type, t answers.
      geolevels: Geolevels whose geounits must be able to hold what is assigned to them, root first;
        facilities are counted at the last.
      least: int64[t], fewest persons of one facility.
      most: int64[t], most persons of one facility.
      counted: bool[t], types whose facilities are counted.
    """

    query: Query
    geolevels: tuple[str, ...]
    least: IntArray
    most: IntArray
    counted: BoolArray

    @property
    def geolevel(self) -> str:
        """Where facilities are counted."""
        return self.geolevels[-1]

    def boxes(self, counts: IntArray) -> Leaves:
        """One row per geounit, totals free.

        Args:
          counts: int64[G, t] facilities; 0 for types that are not counted.
        """
        least = counts * self.least
        most = np.where(self.counted, counts * self.most, MANY)
        return Leaves(least, most, least.sum(1), most.sum(1))

    def totals_at(self, invariants: Sequence[Invariant], geolevel: str) -> Query | None:
        """The finest invariant at a geolevel, if its answers are not exact one geolevel down.

        These are the totals that bind the types here; those that are exact further down already
        bind the leaves.
        """
        return binding_totals(self.geolevel, invariants, geolevel)


def binding_totals(leaf: str, invariants: Sequence[Invariant], geolevel: str) -> Query | None:
    """As `Facilities.totals_at`, of types that are bounded at the geolevel `leaf`."""
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
