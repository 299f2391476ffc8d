"""Bounds of counts by type in the leaves below a geounit: the source of implied constraints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from das.arrays import IntArray, joined_ranges, run_starts
from das.errors import InfeasibleError

NO_LIMIT = 2**62  # of a linear row: `most` without upper bound, and -`least` without lower bound
MANY = 10**11  # more persons than there are; sums over all leaves of a nation fit in 63 bits


@dataclass(frozen=True, eq=False)
class Leaves:
    """Bounds of counts by type in the leaves below one geounit; similar leaves are added up.

    Counts s in N^t by type can be assigned to the leaves iff some z in N^(R x t) has
    least <= z <= most, low <= sum_i z[:, i] <= high and sum_R z = s.

    Attributes:
      least: int64[R, t], fewest persons of each type.
      most: int64[R, t], most persons of each type; 0 where the leaves have no such facility.
      low: int64[R], fewest persons in total.
      high: int64[R], most persons in total.
    """

    least: IntArray
    most: IntArray
    low: IntArray
    high: IntArray

    @property
    def n_rows(self) -> int:
        """Return R, the number of rows."""
        return len(self.low)

    @property
    def n_types(self) -> int:
        """Return t, the number of types."""
        return int(self.least.shape[1])

    def rows(self, chosen: slice | IntArray) -> Leaves:
        """Return the chosen rows."""
        return _by_field(lambda column: column[chosen], self)

    def nobody_in(self, rows: npt.NDArray[np.bool_]) -> Leaves:
        """Return the bounds with empty rows; an empty row that needs persons becomes infeasible.

        Args:
          rows: bool[R], rows without persons.
        """
        most = np.where(rows[:, None], 0, self.most)
        return Leaves(self.least, most, self.low, np.where(rows, 0, self.high))


@dataclass(frozen=True, eq=False)
class LeavesTable:
    """Bounds of the leaves of many geounits, one geounit after another.

    Attributes:
      offsets: int64[G + 1]; geounit g has the rows offsets[g]:offsets[g + 1].
      leaves: The rows of all geounits, end to end.
    """

    offsets: IntArray
    leaves: Leaves

    @property
    def n_geounits(self) -> int:
        """Return G, the number of geounits."""
        return len(self.offsets) - 1

    def of(self, geounit: int) -> Leaves:
        """Return the rows of geounit number `geounit`, from 0."""
        return self.leaves.rows(slice(self.offsets[geounit], self.offsets[geounit + 1]))

    def take(self, geounits: IntArray) -> LeavesTable:
        """Return the rows of the given geounits, numbered from 0, in the order given."""
        sizes = np.diff(self.offsets)[geounits]
        _, rows = joined_ranges(self.offsets[geounits], sizes)
        return LeavesTable(np.concatenate(([0], np.cumsum(sizes))), self.leaves.rows(rows))

    def owners(self) -> IntArray:
        """Return int64[R]: the geounit of each row."""
        return np.repeat(np.arange(self.n_geounits), np.diff(self.offsets))


def stack(parts: Sequence[Leaves]) -> Leaves:
    """Concatenate the rows of several geounits."""
    return _by_field(lambda *columns: np.concatenate(columns), *parts)


def _by_field(function: Callable[..., IntArray], *leaves: Leaves) -> Leaves:
    fields = ("least", "most", "low", "high")
    return Leaves(*(function(*(getattr(part, field) for part in leaves)) for field in fields))


def empty_rows(leaves: Leaves) -> npt.NDArray[np.bool_]:
    """Return bool[R]: rows that no counts fit."""
    least, most = leaves.least.sum(1), leaves.most.sum(1)
    crossed = (leaves.least > leaves.most).any(1) | (leaves.low > leaves.high)
    return np.asarray(crossed | (least > leaves.high) | (most < leaves.low), np.bool_)


def tighten(leaves: Leaves) -> Leaves:
    """Replace each bound by the tightest bound that allows the same counts.

    Within one row, type i attains max(least_i, low - sum_{j != i} most_j) and
    min(most_i, high - sum_{j != i} least_j), and all types together likewise.

    Raises:
      InfeasibleError: A row fits no counts.
    """
    empty = np.flatnonzero(empty_rows(leaves))
    if len(empty):
        raise InfeasibleError("leaves", f"no counts fit row {empty[0]} ({len(empty)} such)")
    least, most = leaves.least, leaves.most
    fewest, largest = least.sum(1), most.sum(1)
    return Leaves(
        np.maximum(least, leaves.low[:, None] - (largest[:, None] - most)),
        np.minimum(most, leaves.high[:, None] - (fewest[:, None] - least)),
        np.maximum(leaves.low, fewest),
        np.minimum(leaves.high, largest),
    )


def add_up(leaves: Leaves, owners: IntArray, n_owners: int) -> LeavesTable:
    """Add up rows of each owner where the sum of the rows allows the same counts.

    The counts that fit a row are the integers between two set functions, for every set S of types

        lower(S) = max(least(S), low - most(not S)),   upper(S) = min(most(S), high - least(not S)).

    The counts that can be assigned to several rows are those between the sums of these functions
    (`invariants.implied`). So rows may be added up iff for every S the same sides of max and min
    are attained: then the max of the sums is the sum of the max. Tightened rows have three kinds:

    - boxes, whose totals follow from the types (low = least(all), high = most(all)), attain
      least(S) and most(S) always; all boxes of an owner are added up;
    - open rows, where one type may have all persons that the others need not
      (most_i = high - sum_{j != i} least_j for every type i with most_i > 0), attain `low` for S
      containing all their types, least(S) otherwise, 0 for S without any, and high - least(not S)
      otherwise; open rows of the same types are added up;
    - any other row, where a maximum per facility restricts the counts, stays separate.

    Sums of boxes are boxes and sums of open rows are open, so adding up in stages gives the same
    rows as adding up at once.

    Args:
      leaves: The rows to add up.
      owners: int64[R], owner of each row, such as its geounit or parent.
      n_owners: Number of owners.

    Returns:
      The tightened rows of each owner in order of their kind.

    Raises:
      InfeasibleError: A row fits no counts.

    References:
      Frank & Tardos, Generalized Polymatroids and Submodular Flows, Mathematical Programming 42,
      1988: sums of integral generalized polymatroids.
    """
    tight = tighten(leaves)
    kinds = _kinds(tight)
    order = np.lexsort((kinds, owners))
    starts = run_starts(owners[order], kinds[order])
    summed = tight.rows(order)
    if len(starts):
        summed = _by_field(lambda column: np.add.reduceat(column, starts), summed)
    return LeavesTable(np.searchsorted(owners[order][starts], np.arange(n_owners + 1)), summed)


def bounds_of_answers(
    table: LeavesTable, smallest: IntArray, largest: IntArray
) -> tuple[IntArray, IntArray]:
    """Return two int64[G, m], lower and upper bounds of m answers in each of G geounits.

    A row has least_i to most_i persons of type i, and low to high persons in all. Each person adds
    at least the smallest coefficient of the type to an answer, and at most the largest.

    Args:
      table: The leaves below each geounit; every geounit has some.
      smallest: int64[m, t], smallest coefficient of each answer in the cells of each type, >= 0.
      largest: int64[m, t], largest coefficient.
    """
    rows, starts = table.leaves, table.offsets[:-1]
    least = np.maximum(rows.least @ smallest.T, np.outer(rows.low, smallest.min(1)))
    most, high = np.minimum(rows.most, MANY), np.minimum(rows.high, MANY)
    most = np.minimum(most @ largest.T, np.outer(high, largest.max(1)))
    return np.add.reduceat(least, starts), np.add.reduceat(most, starts)


def _kinds(tight: Leaves) -> IntArray:
    """Return int64[R]: rows of equal kind may be added up."""
    fewest = tight.least.sum(1)
    box = (tight.low == fewest) & (tight.high == tight.most.sum(1))
    present = tight.most > 0
    reach = tight.high[:, None] - (fewest[:, None] - tight.least)
    is_open = ((tight.most == reach) | ~present).all(1)
    patterns, kinds = np.unique(np.packbits(present, axis=1), axis=0, return_inverse=True)
    separate = len(patterns) + 1 + np.arange(tight.n_rows)
    return np.asarray(np.where(box, 0, np.where(is_open, kinds.ravel() + 1, separate)), np.int64)


def limit_totals(table: LeavesTable, groups: IntArray, totals: IntArray) -> LeavesTable:
    """Fix the persons in each group of types of every geounit, given rows that are boxes.

    The box of a geounit is split into one row per group, since the groups share no type.

    Args:
      table: One box per geounit.
      groups: int64[t], group of each type, 0..e-1.
      totals: int64[G, e], the persons of each group in each geounit.

    Raises:
      InfeasibleError: A geounit has several rows. Totals that are exact further down have split
        them already, and no other totals can be imposed exactly.
    """
    if (np.diff(table.offsets) != 1).any():
        raise InfeasibleError("leaves", "totals cannot be imposed on rows that have totals")
    box = table.leaves
    n_groups = totals.shape[1]
    inside = groups[None, :] == np.arange(n_groups)[:, None]
    split = Leaves(
        np.where(inside, box.least[:, None, :], 0).reshape(-1, box.n_types),
        np.where(inside, box.most[:, None, :], 0).reshape(-1, box.n_types),
        totals.ravel(),
        totals.ravel(),
    )
    return add_up(split, np.repeat(np.arange(table.n_geounits), n_groups), table.n_geounits)
