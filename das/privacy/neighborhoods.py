r"""Effect of invariants on a privacy statement: which neighbors agree on all invariants.

A privacy statement bounds how well two neighboring data sets can be distinguished. Only data sets
that agree on all invariants are compared, since the invariants distinguish all others. If every
change of a kind breaks an invariant, no two data sets are left, and the statement is empty.

A change moves a record from one cell and leaf to another, or adds a record. Leaves g, g' have a
deepest geolevel c whose geounit contains both. The geounits of c and of all coarser geolevels
contain the record before and after; geounits of finer geolevels lose or gain it. So an invariant
sum with coefficient a(j) of cell j at geolevels l keeps its values if

- a(j) = a(k) for every l at or above c, and a(j) = a(k) = 0 for every l below c, for a change from
  (g, j) to (g', k);
- a(j) = 0, for an added or removed record.

Both conditions are computed over all cells that may hold records. The result holds for every
geography in which each geolevel but the last has a geounit with two children or more.

If no neighbors agree, data sets further apart may still agree: two records that swap their leaves
keep every invariant count above the leaves. The distance of the nearest such data sets is k of the
theorem of Gong & Meng (`das.privacy.conditioning`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from das.arrays import BoolArray, IntArray
from das.privacy.semantics import Change
from das.queries.sensitivity import Neighbors

_MOST_CELLS = 100  # the search compares 80,000 pairs: two leaves, two signs; default, not measured


class Comparable(StrEnum):
    """Which neighbors agree on all invariants."""

    ALL = "all"
    SOME = "some"
    NONE = "none"


@dataclass(frozen=True, eq=False)
class Held:
    """Sums that an invariant publishes in every geounit of some geolevels.

    Attributes:
      name: Name of the invariant in reports.
      deepest: Position of the finest geolevel with the sums, 0 for the root; all coarser geolevels
        have them too.
      labels: int64[n]; two cells have the same label if and only if they have the same coefficients
        in all sums.
      uncounted: bool[n], cells with coefficient 0 in every sum.
      is_exact: Whether the sums are equalities. Otherwise they are inequalities, and whether a
        change breaks them depends on the data.
      is_weighted: Whether there is one sum and the labels are its coefficients. Otherwise there is
        one sum per label, over the counted cells of this label.
    """

    name: str
    deepest: int
    labels: IntArray
    uncounted: BoolArray
    is_exact: bool = True
    is_weighted: bool = False


@dataclass(frozen=True)
class Distance:
    """Distance of the nearest two data sets that agree on all exact sums.

    Attributes:
      records: Number of records to change, or to add and remove; None if no two data sets agree.
      is_least: Whether the distance is exact. Otherwise it is a lower bound.
    """

    records: int | None
    is_least: bool = True


@dataclass(frozen=True)
class Neighborhood:
    """The neighbors of one kind of change that agree on all invariants.

    Attributes:
      change: The kind of change; None for a record that is added or removed.
      name: The attribute or geolevel; empty otherwise.
      comparable: Whether all, some or none of the neighbors agree on all invariants.
      limited_by: Names of the invariants that exclude some of the neighbors.
      stays_in: The geolevel whose geounits no record may leave, if exact sums exclude a move that
        the change allows; empty otherwise.
    """

    change: Change | None
    name: str
    comparable: Comparable
    limited_by: tuple[str, ...] = ()
    stays_in: str = ""


@dataclass(frozen=True, eq=False)
class Invariance:
    """All invariants of a run.

    Attributes:
      spine: Names of geolevels, root first.
      attributes: Names of attributes; the last one varies fastest over cells.
      shape: Number of levels of each attribute.
      held: Invariant sums, which neighboring data sets share.
      possible: bool[n], cells that may hold records; None for all cells.
      zeros: Name of the impossible cells in reports.
      places: Name in reports of a published list of the geounits that have records; empty if the
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
        """Return the neighborhood of a record that is added or removed."""
        may = self._possible
        limits = [sums.name for sums in self.held if not sums.uncounted[may].all()]
        return self._neighborhood(
            None, "", bool(self._movable(-1).any()), [*limits, *self._zeros(), *self._listed]
        )

    def record(self) -> Neighborhood:
        """Return the neighborhood of a record that changes in any way, its leaf included."""
        cells = np.flatnonzero(self._possible)
        swaps = _repeats([sums.labels[cells] for sums in self._exact], len(cells))
        moves = self._leaf > 0 and bool(self._movable(self._leaf - 1).any())
        limits = [
            sums.name
            for sums in self.held
            if len(np.unique(sums.labels[cells])) > 1
            or (sums.deepest > 0 and not sums.uncounted[cells].all())
        ]
        limits = [*limits, *self._zeros(), *(self._listed if self._leaf else [])]
        stays = self.spine[self._bound(0)] if self._bound(0) else ""
        return self._neighborhood(Change.RECORD, "", swaps or moves, limits, stays)

    def household(self, persons: int) -> Neighborhood:
        """Return the neighborhood of a household whose records all change in any way.

        Args:
          persons: Number of records of the household, at most.
        """
        one, nearest = self.record(), self.distance(Neighbors.BOUNDED).records
        comparable = one.comparable
        if comparable is Comparable.NONE and nearest is not None and nearest <= persons:
            comparable = Comparable.SOME
        return replace(one, change=Change.HOUSEHOLD, name=str(persons), comparable=comparable)

    def distance(self, neighbors: Neighbors) -> Distance:
        """Return the distance of the nearest two data sets that agree on all exact sums.

        Inequalities and the published list of geounits are ignored. For a data set at which an
        inequality is tight, the nearest one may be further.

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
        last = [sums for sums in self._exact if sums.deepest == self._leaf]
        repeats = _repeats([sums.labels[cells] for sums in last], len(cells))
        swaps = self._leaf > 0 and repeats
        if not repeats and not any(sums.is_weighted for sums in last):
            return Distance(None)  # the count of each cell in each leaf is published
        if len(cells) > _MOST_CELLS:
            return Distance(most, is_least=is_bounded) if swaps else Distance(2, is_least=False)
        signatures = _signatures(self._exact, cells, self._leaf, is_bounded=is_bounded)
        for count in (4,) if is_bounded else (2, 3, 4):
            if _has_sum(signatures, count):
                return Distance(count // 2 if is_bounded else count)
        return Distance(most + 1, is_least=False)

    def attribute(self, name: str) -> Neighborhood:
        """Return the neighborhood of a record that changes one attribute and keeps its leaf."""
        axis = list(self.attributes).index(name)
        if self.shape[axis] == 1:  # there is nothing to change
            return Neighborhood(Change.ATTRIBUTE, name, Comparable.ALL)
        may = self._lines(self._possible, axis)
        limits = [s.name for s in self.held if not _is_constant(self._lines(s.labels, axis), may)]
        if (may.any(axis=1) & ~may.all(axis=1)).any():
            limits += self._zeros()
        whole = _combined([sums.labels for sums in self._exact], may.size)
        lines = np.sort(np.where(may, self._lines(whole, axis), -1 - np.arange(self.shape[axis])))
        some = bool(((lines[:, 1:] == lines[:, :-1]) & (lines[:, 1:] >= 0)).any())
        return self._neighborhood(Change.ATTRIBUTE, name, some, limits)

    def within(self, geolevel: str) -> Neighborhood:
        """Return the neighborhood of a record that only moves within a geounit of a geolevel."""
        level = list(self.spine).index(geolevel)
        may = self._possible
        limits = [s.name for s in self.held if s.deepest > level and not s.uncounted[may].all()]
        bound = self._bound(level)
        stays = self.spine[bound] if bound > level else ""
        some = bool(self._movable(self._leaf - 1).any())
        return self._neighborhood(Change.WITHIN, geolevel, some, [*limits, *self._listed], stays)

    def all(self) -> tuple[Neighborhood, ...]:
        """Return one neighborhood per statement, in the order of `das.privacy.semantics`."""
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
        return [sums for sums in self.held if sums.is_exact]

    @property
    def _listed(self) -> list[str]:
        return [self.places] if self.places else []

    def _zeros(self) -> list[str]:
        return [] if self._possible.all() else [self.zeros]

    def _movable(self, level: int) -> BoolArray:
        """Mark the cells whose records may move within a geounit of a geolevel, bool[n].

        At level -1, return the cells whose records may be added or removed.
        """
        out = self._possible.copy()
        for sums in self._exact:
            if sums.deepest > level:
                out &= sums.uncounted
        return out

    def _bound(self, level: int) -> int:
        """Return the coarsest geolevel within which every record may move; `level` or a finer one.

        Geolevels are numbered from 0, the root.
        """
        full = self._possible.sum()
        return next(at for at in range(level, self._leaf + 1) if self._movable(at).sum() == full)

    def _lines(self, values: npt.NDArray[np.generic], axis: int) -> npt.NDArray[np.generic]:
        """Arrange values of cells with one column per level of attribute `axis`, from 0."""
        moved = np.moveaxis(values.reshape(self.shape), axis, -1)
        return moved.reshape(-1, self.shape[axis])

    def _neighborhood(
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
            exact = {sums.name for sums in self._exact}
            limits = [limit for limit in limits if limit in exact] or limits
        return Neighborhood(change, name, comparable, tuple(dict.fromkeys(limits)), stays_in)


def _combined(labels: Sequence[IntArray], n: int) -> IntArray:
    """Number n entries by their combination of labels, from 0, int64[n]."""
    out = np.zeros(n, np.int64)
    for values in labels:
        dense = np.unique(values, return_inverse=True)[1].astype(np.int64)
        pairs = out * (dense.max(initial=0) + 1) + dense
        out = np.unique(pairs, return_inverse=True)[1].astype(np.int64)
    return out


def _is_constant(lines: npt.NDArray[np.generic], may: npt.NDArray[np.generic]) -> bool:
    """Return whether the possible cells of every line have the same label."""
    values = lines.astype(np.int64)
    least = np.where(may, values, np.iinfo(np.int64).max).min(axis=1)
    most = np.where(may, values, np.iinfo(np.int64).min).max(axis=1)
    return bool((least >= most).all())


def _repeats(labels: Sequence[IntArray], n: int) -> bool:
    """Return whether two of n entries have the same labels."""
    return len(np.unique(_combined(labels, n))) < n


def _signatures(
    held: Sequence[Held], cells: IntArray, leaf: int, *, is_bounded: bool
) -> list[tuple[int, ...]]:
    """Return the contribution of one record of each cell to each sum, in two sibling leaves.

    Args:
      held: Exact sums.
      cells: Cells that may hold records.
      leaf: Position of the leaf geolevel; at 0 there is one leaf.
      is_bounded: Whether the number of records is also invariant.
    """
    shared, of_leaf = [np.full(len(cells), int(is_bounded))], list[IntArray]()
    for sums in held:
        labels = sums.labels[cells]
        columns = of_leaf if sums.deepest == leaf else shared
        if sums.is_weighted:
            columns.append(labels)
            continue
        for label in np.unique(labels):
            columns.append(((labels == label) & ~sums.uncounted[cells]).astype(np.int64))
    here = np.column_stack([*shared, *of_leaf])
    there = np.zeros_like(here[:, len(shared) :])
    if leaf:
        kept, moved = np.split(here, [len(shared)], axis=1)
        here = np.vstack([np.hstack([kept, moved, there]), np.hstack([kept, there, moved])])
    return [tuple(row) for row in here.tolist()]


def _has_sum(rows: Sequence[tuple[int, ...]], count: int) -> bool:
    """Return whether `count` signatures, each with a sign, sum to zero without trivial pairs.

    Args:
      rows: The signatures, all different. No smaller number of them sums to zero.
      count: Number of rows in a sum: 2, 3 or 4.
    """
    negative = [tuple(-value for value in row) for row in rows]
    if count == 2:
        return not set(rows).isdisjoint(negative)
    signed = [*enumerate(rows), *enumerate(negative)]
    sums = {row for _, row in signed} if count == 3 else set()
    for position, (index, row) in enumerate(signed):
        for other, second in signed[position:]:
            if other == index and second != row:
                continue  # a signature and its negative cancel trivially
            total = tuple(a + b for a, b in zip(row, second, strict=True))
            if total in sums:
                return True
            if count == 4:  # two pairs with the same sum: their difference is zero
                sums.add(total)
    return False
