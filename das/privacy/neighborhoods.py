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

Where no neighbors are left, data sets further apart may still agree: two records that swap their
places keep every count that is held above them. The distance of the nearest ones is k of the
theorem of Gong & Meng (`das.privacy.conditioning`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from das.arrays import BoolArray, IntArray
from das.privacy.semantics import Change
from das.queries.sensitivity import Neighbors

_MOST_CELLS = 100  # in two leaves and with two signs, 80,000 pairs of them are compared


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
      is_weighted: Whether the labels are what each cell counts in one sum. Otherwise each label has
        a sum of its own, of the cells that count.
    """

    name: str
    deepest: int
    labels: IntArray
    uncounted: BoolArray
    is_exact: bool = True
    is_weighted: bool = False


@dataclass(frozen=True)
class Distance:
    """How far apart the nearest two data sets are that agree on all exact sums.

    Attributes:
      records: Records to change, or to add and remove; None if no two data sets agree.
      is_least: Whether no two are nearer. Otherwise it is only known that none are below this.
    """

    records: int | None
    is_least: bool = True


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

    def distance(self, neighbors: Neighbors) -> Distance:
        """How far apart the nearest two data sets are that agree on all exact sums.

        Limits, and where a list of places matters, are left aside: far from its limits a data set
        has the neighbors that exact sums leave. So where they bind, the nearest may be further.

        Args:
          neighbors: BOUNDED counts changed records, UNBOUNDED added and removed ones.
        """
        is_bounded = neighbors is Neighbors.BOUNDED
        cells = np.flatnonzero(self._possible)
        if not is_bounded and self._movable(-1).any():
            return Distance(1)
        if self.record().comparable is not Comparable.NONE:
            return Distance(1 if is_bounded else 2)
        # From here on no single record may change or move.
        most = 2 if is_bounded else 4
        last = [one for one in self._exact if one.deepest == self._leaf]
        swaps = self._leaf > 0 and _repeats([one.labels[cells] for one in last], len(cells))
        whole = [one.labels[cells] for one in last if not one.is_weighted]
        if (
            not swaps
            and not any(one.is_weighted for one in last)
            and not _repeats(whole, len(cells))
        ):
            return Distance(None)  # the count of each cell in each leaf is published
        if len(cells) > _MOST_CELLS:
            return Distance(most, is_least=is_bounded) if swaps else Distance(2, is_least=False)
        signatures = _signatures(self._exact, cells, self._leaf, is_bounded=is_bounded)
        for count in (4,) if is_bounded else (2, 3, 4):
            if _has_sum(signatures, count):
                return Distance(count // 2 if is_bounded else count)
        return Distance(most + 1, is_least=False)

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


def _repeats(labels: Sequence[IntArray], n: int) -> bool:
    """Whether two of n entries have the same labels."""
    return len(np.unique(_combined(labels, n))) < n


def _signatures(
    held: Sequence[Held], cells: IntArray, leaf: int, *, is_bounded: bool
) -> list[tuple[int, ...]]:
    """What one record of each cell adds to each sum, in two leaves of one parent.

    Args:
      held: Exact sums.
      cells: Cells that may hold records.
      leaf: Position of the leaf geolevel; at 0 there is one leaf.
      is_bounded: Whether the number of records is kept as well.
    """
    shared, own = [np.full(len(cells), int(is_bounded))], list[IntArray]()
    for one in held:
        labels = one.labels[cells]
        columns = own if one.deepest == leaf else shared
        if one.is_weighted:
            columns.append(labels)
            continue
        for label in np.unique(labels):
            columns.append(((labels == label) & ~one.uncounted[cells]).astype(np.int64))
    here = np.column_stack([*shared, *own])
    there = np.zeros_like(here[:, len(shared) :])
    if leaf:
        kept, moved = np.split(here, [len(shared)], axis=1)
        here = np.vstack([np.hstack([kept, moved, there]), np.hstack([kept, there, moved])])
    return [tuple(row) for row in here.tolist()]


def _has_sum(rows: Sequence[tuple[int, ...]], count: int) -> bool:
    """Whether so many signatures, added or taken away, sum to zero without cancelling out.

    Args:
      rows: The signatures. No two are equal, and no fewer of them sum to zero so.
      count: 2, 3 or 4.
    """
    negative = [tuple(-value for value in row) for row in rows]
    if count == 2:
        return not set(rows).isdisjoint(negative)
    signed = [*enumerate(rows), *enumerate(negative)]
    found = {row for _, row in signed} if count == 3 else set()
    for position, (index, row) in enumerate(signed):
        for other, second in signed[position:]:
            if other == index and second != row:
                continue  # one is added, the same taken away
            total = tuple(a + b for a, b in zip(row, second, strict=True))
            if total in found:
                return True
            if count == 4:  # two pairs with one sum: the difference is zero
                found.add(total)
    return False
