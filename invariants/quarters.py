"""Living quarters: how many housing units and facilities a geounit has, exactly.

Where there are none, nobody lives. That is no prior but a public fact about the place: it is
imposed on the counts as any invariant is, and the input is checked against it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from das.arrays import BoolArray, IntArray

NAME = "living quarters"  # in errors, manifests and files of given counts


@dataclass(frozen=True, eq=False)
class LivingQuarters:
    """What living quarters are counted, and where.

    Attributes:
      kinds: m names of what is counted, such as housing units and facilities.
      is_housing: bool[m], kinds that are housing units.
      geolevels: Geolevels at which the counts are known, root first: counted at the last, and
        added up above.
    """

    kinds: tuple[str, ...]
    is_housing: BoolArray
    geolevels: tuple[str, ...]

    @property
    def geolevel(self) -> str:
        """Where they are counted."""
        return self.geolevels[-1]

    def housing_units(self, counts: IntArray) -> IntArray:
        """int64[G] housing units, from int64[G, m] counts of every kind."""
        return np.asarray(counts[:, self.is_housing].sum(1), np.int64)

    def facilities(self, counts: IntArray) -> IntArray:
        """int64[G] living quarters that are no housing units, from int64[G, m] counts."""
        return np.asarray(counts[:, ~self.is_housing].sum(1), np.int64)


def without_quarters(counts: IntArray) -> BoolArray:
    """bool[G]: geounits in which nobody can live, from int64[G, m] counts of every kind."""
    return np.asarray(~counts.any(1), np.bool_)
