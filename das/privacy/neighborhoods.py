r"""What invariants leave of a privacy statement: which neighbors are left to compare.

A statement bounds how well two neighboring data sets can be told apart. Only data sets that keep
all invariants are compared, since the invariants themselves tell any others apart. An invariant
that every change of a kind breaks leaves no two such data sets, and the statement says nothing.

A change takes a record from one cell and place and puts it into another, or adds one. Leaves g, g'
have a deepest geolevel c whose geounit holds both; the geounits of c and of all coarser geolevels
hold the record before and after, those of finer ones lose or gain it. So a sum with coefficient
a(j) of cell j that is held at geolevels l keeps its values if

- a(j) = a(k) for every l at or above c, and a(j) = a(k) = 0 for every l below c, for a change from
  (g, j) to (g', k);
- a(j) = 0, for an added or removed record.

Both are decided by computation over all cells that may hold records, for every geography in which
each geolevel but the last has a geounit of two children or more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from das.arrays import BoolArray, IntArray
from das.privacy.semantics import Change


class Comparable(StrEnum):
    """Which neighbors agree on all invariants."""

    ALL = "all"
    SOME = "some"
    NONE = "none"


@dataclass(frozen=True, eq=False)
class Held:
    """Sums that both of two compared data sets must keep in every geounit of some geolevels.

    Attributes:
      name: What a reader calls it.
      deepest: Position of the finest geolevel at which it holds, 0 for the root; it holds at all
        coarser ones too.
      labels: int64[n]; cells of one label count alike in every sum, and cells of different labels
        do not.
      uncounted: bool[n], cells that count in no sum.
      is_exact: Whether the sums may not change at all. Otherwise they may change within limits,
        and whether they do depends on the data.
    """

    name: str
    deepest: int
    labels: IntArray
    uncounted: BoolArray
    is_exact: bool = True


@dataclass(frozen=True)
class Neighborhood:
    """What is left to compare for one kind of change.

    Attributes:
      change: The kind; None for a record that is added or removed.
      name: The attribute or geolevel; empty otherwise.
      comparable: How many of the neighbors agree on all invariants.
      limited_by: Names of what does not leave all of them.
      stays_in: The geolevel whose geounits no record may leave, if exact sums keep some record from
        a move that the change allows; empty otherwise.
    """

    change: Change | None
    name: str
    comparable: Comparable
    limited_by: tuple[str, ...] = ()
    stays_in: str = ""


@dataclass(frozen=True, eq=False)
class Invariance:
    """All that two compared data sets must have in common.

    Attributes:
      spine: Names of geolevels, root first.
      attributes: Names of attributes, in the order of the cells' digits, the last fastest.
      shape: Number of levels of each.
      held: Sums.
      possible: bool[n], cells that may hold records; None for all.
      zeros: What a reader calls the cells that may not.
      places: What a reader calls a published list of the places that have records; empty if the
        list does not depend on the records.
    """

    spine: Sequence[str]
    attributes: Sequence[str]
    shape: tuple[int, ...]
    held: Sequence[Held]
    possible: BoolArray | None = None
    zeros: str = "structural zeros"
    places: str = ""

    def added(self) -> Neighborhood:
        """A record that is added or removed."""
        may = self._possible
        limits = [one.name for one in self.held if not one.uncounted[may].all()]
        return self._found(
            None, "", bool(self._movable(-1).any()), [*limits, *self._zeros(), *self._listed]
        )

    def record(self) -> Neighborhood:
        """A record that changes in any way, place included."""
        cells = np.flatnonzero(self._possible)
        combined = _combined([one.labels[cells] for one in self._exact], len(cells))
        swaps = len(cells) > len(np.unique(combined))
        moves = self._leaf > 0 and bool(self._movable(self._leaf - 1).any())
        limits = [
            one.name
            for one in self.held
            if len(np.unique(one.labels[cells])) > 1
            or (one.deepest > 0 and not one.uncounted[cells].all())
        ]
        limits = [*limits, *self._zeros(), *(self._listed if self._leaf else [])]
        stays = self.spine[self._bound(0)] if self._bound(0) else ""
        return self._found(Change.RECORD, "", swaps or moves, limits, stays)

    def attribute(self, name: str) -> Neighborhood:
        """A record that changes one attribute and keeps its place."""
        axis = list(self.attributes).index(name)
        if self.shape[axis] == 1:  # there is nothing to change
            return Neighborhood(Change.ATTRIBUTE, name, Comparable.ALL)
        may = self._lines(self._possible, axis)
        limits = [o.name for o in self.held if not _alike(self._lines(o.labels, axis), may)]
        if (may.any(axis=1) & ~may.all(axis=1)).any():
            limits += self._zeros()
        whole = _combined([one.labels for one in self._exact], may.size)
        lines = np.sort(np.where(may, self._lines(whole, axis), -1 - np.arange(self.shape[axis])))
        some = bool(((lines[:, 1:] == lines[:, :-1]) & (lines[:, 1:] >= 0)).any())
        return self._found(Change.ATTRIBUTE, name, some, limits)

    def within(self, geolevel: str) -> Neighborhood:
        """A record that keeps its attributes and moves within a geounit of a geolevel."""
        level = list(self.spine).index(geolevel)
        may = self._possible
        limits = [
            one.name for one in self.held if one.deepest > level and not one.uncounted[may].all()
        ]
        bound = self._bound(level)
        stays = self.spine[bound] if bound > level else ""
        some = bool(self._movable(self._leaf - 1).any())
        return self._found(Change.WITHIN, geolevel, some, [*limits, *self._listed], stays)

    def all(self) -> tuple[Neighborhood, ...]:
        """Record, attributes, geolevels from the last but one to the root, as `statements`."""
        return (
            self.record(),
            *(self.attribute(name) for name in self.attributes),
            *(self.within(name) for name in list(self.spine)[-2::-1]),
        )

    @property
    def _leaf(self) -> int:
        return len(self.spine) - 1

    @property
    def _possible(self) -> BoolArray:
        n = int(np.prod(self.shape, dtype=np.int64))
        return np.ones(n, np.bool_) if self.possible is None else self.possible

    @property
    def _exact(self) -> list[Held]:
        return [one for one in self.held if one.is_exact]

    @property
    def _listed(self) -> list[str]:
        return [self.places] if self.places else []

    def _zeros(self) -> list[str]:
        return [] if self._possible.all() else [self.zeros]

    def _movable(self, level: int) -> BoolArray:
        """bool[n]: cells whose records may move between leaves of one geounit of a geolevel.

        At -1 those whose records may also come and go.
        """
        out = self._possible.copy()
        for one in self._exact:
            if one.deepest > level:
                out &= one.uncounted
        return out

    def _bound(self, level: int) -> int:
        """The coarsest geolevel, from `level` down, within which every record may move."""
        full = self._possible.sum()
        return next(at for at in range(level, self._leaf + 1) if self._movable(at).sum() == full)

    def _lines(self, values: npt.NDArray[np.generic], axis: int) -> npt.NDArray[np.generic]:
        """One row per combination of the other attributes, one column per level of this."""
        moved = np.moveaxis(values.reshape(self.shape), axis, -1)
        return moved.reshape(-1, self.shape[axis])

    def _found(
        self,
        change: Change | None,
        name: str,
        some: bool,
        limits: Sequence[str],
        stays_in: str = "",
    ) -> Neighborhood:
        comparable = Comparable.SOME if limits else Comparable.ALL
        if not some:
            comparable, stays_in = Comparable.NONE, ""
            exact = {one.name for one in self._exact}
            limits = [one for one in limits if one in exact] or limits
        return Neighborhood(change, name, comparable, tuple(dict.fromkeys(limits)), stays_in)


def _combined(labels: Sequence[IntArray], n: int) -> IntArray:
    """int64[n], from 0: equal where all labels are equal."""
    out = np.zeros(n, np.int64)
    for one in labels:
        own = np.unique(one, return_inverse=True)[1].astype(np.int64)
        out = np.unique(out * (own.max(initial=0) + 1) + own, return_inverse=True)[1].astype(
            np.int64
        )
    return out


def _alike(lines: npt.NDArray[np.generic], may: npt.NDArray[np.generic]) -> bool:
    """Whether the possible cells of every line have one label."""
    values = lines.astype(np.int64)
    least = np.where(may, values, np.iinfo(np.int64).max).min(axis=1)
    most = np.where(may, values, np.iinfo(np.int64).min).max(axis=1)
    return bool((least >= most).all())
