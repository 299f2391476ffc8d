"""Living quarters: how many housing units and facilities a geounit has, exactly.

Geounits without living quarters have no persons. This is a public fact, not a prior: it is imposed
on the counts as any invariant is, and the input is checked against it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from das.arrays import BoolArray, IntArray
from das.errors import InputError
from das.histograms import Histograms
from das.privacy.neighborhoods import Held
from das.schema import Schema
from invariants.conflict import Statement
from invariants.constraint import Constraint


@dataclass(frozen=True, eq=False)
class LivingQuarters(Constraint):
    """Kinds of living quarters, and the geolevels at which they are counted.

    Attributes:
      kinds: m names of kinds of living quarters, such as housing units and facilities.
      is_housing: bool[m], kinds that are housing units.
      geolevels: Geolevels at which the counts are known, root first: counted at the last, and
        added up at coarser ones.
    """

    kind: ClassVar[str] = "living quarters"
    note: ClassVar[str] = (
        "Counts of living quarters are public. Geounits without any have no persons."
    )
    is_single: ClassVar[bool] = True
    is_compatible_with_releases: ClassVar[bool] = True

    kinds: tuple[str, ...]
    is_housing: BoolArray
    geolevels: tuple[str, ...]

    @property
    def counted(self) -> tuple[str, ...]:
        """Return the kinds of living quarters."""
        return self.kinds

    def broken(self, counts: Histograms, given: IntArray) -> BoolArray:
        """Return bool[G]: geounits with persons and without living quarters."""
        return np.asarray(without_quarters(given) & (np.diff(counts.offsets) > 0), np.bool_)

    def statements(self, cells: IntArray, given: IntArray) -> Iterator[Statement]:
        """Yield the statement that geounits without living quarters have no persons."""
        yield Statement(self.title, np.ones(len(cells), np.int64), 0, np.inf if given.any() else 0)

    def held(self, cells: IntArray) -> list[Held]:
        """Return that the total may be above 0, but not its value."""
        name, total = f"{self.title} in every {self.geolevel}", np.zeros(len(cells), np.int64)
        ignored = np.zeros(len(cells), np.bool_)
        return [Held(name, len(self.geolevels) - 1, total, ignored, is_exact=False)]

    def described(self, schema: Schema) -> str:
        """Return the meaning of the constraint."""
        return "nobody without them"

    @property
    def types(self) -> tuple[str, ...]:
        """Return the kinds of living quarters."""
        return self.kinds

    def check_given(self, counts: IntArray) -> None:
        """Check that some geounit has living quarters.

        Raises:
          InputError: No geounit has living quarters.
        """
        if not counts.any():
            raise InputError(
                f"table of {self.title}",
                "counts none in any geounit, so that no geounit could have persons",
            )

    def housing_units(self, counts: IntArray) -> IntArray:
        """Return int64[G] housing units, from int64[G, m] counts of all kinds."""
        return np.asarray(counts[:, self.is_housing].sum(1), np.int64)

    def facilities(self, counts: IntArray) -> IntArray:
        """Return int64[G] living quarters other than housing units, from int64[G, m] counts."""
        return np.asarray(counts[:, ~self.is_housing].sum(1), np.int64)


def without_quarters(counts: IntArray) -> BoolArray:
    """Return bool[G]: geounits without living quarters, from int64[G, m] counts of all kinds."""
    return np.asarray(~counts.any(1), np.bool_)
