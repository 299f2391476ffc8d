"""Estimates of any set of blocks from the files of a release; reads only what the area cuts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from das.arrays import BoolArray, IntArray
from das.errors import InputError
from das.queries.query import Query
from das.tree.area import CutChild, Share, estimate_share, share_of_family
from das.tree.coordinates import Coordinates
from das.tree.passes import Moments, sum_below
from jobs.release.estimate import LevelEstimator
from jobs.release.evidence import LevelRange, RangeAnswers, select_moments
from jobs.storage.dataset import Dataset
from jobs.storage.estimates import read_moments
from jobs.tasks.batches import all_geounits

_WINDOW_NUMBERS = 10_000_000  # numbers read at once


@dataclass(frozen=True, eq=False)
class AreaEstimator:
    """Estimates queries in any area.

    Attributes:
      estimator: The finished estimate stage of a release.
      queries: Any queries.
    """

    estimator: LevelEstimator
    queries: tuple[Query, ...]

    @cached_property
    def coordinates(self) -> Coordinates:
        """The components that the queries touch."""
        return self.estimator.coordinates.touched_by(self.queries)

    @cached_property
    def geounits(self) -> tuple[LevelRange, ...]:
        """All geounits of every geolevel."""
        one = self.estimator
        return tuple(
            LevelRange.read(one.release, name, all_geounits(level))
            for level, name in enumerate(one.plan.spine.levels)
        )

    def geounit(self, code: str) -> Moments:
        """Estimate a geounit of any geolevel.

        Raises:
          InputError: There is no such geounit.
        """
        for level, rows in enumerate(self.geounits):
            spot = int(np.searchsorted(rows.codes, code))
            if spot < len(rows.codes) and rows.codes[spot] == code:
                return self._on_spine(level, spot)
        raise InputError("estimate", "has no such geounit", got=code)

    def blocks(self, codes: Sequence[str]) -> Moments:
        """Estimate a set of leaves.

        Args:
          codes: Geocodes of geounits of the last geolevel, in any order; repeated ones count once.

        Raises:
          InputError: The set is empty, or one of them does not exist.
        """
        leaves = self.geounits[-1].codes
        wanted = np.unique(np.asarray(codes, object))
        inside = np.isin(leaves, wanted)
        if not len(wanted) or inside.sum() != len(wanted):
            raise InputError(
                "estimate, area",
                "is not a set of geounits of the last geolevel",
                got=f"{len(wanted) - int(inside.sum())} unknown of {len(wanted)}",
            )
        whole, touched = self._marks(inside)
        level = max(index for index, marks in enumerate(touched) if marks.sum() == 1)
        spot = int(np.flatnonzero(touched[level])[0])
        holder = self._on_spine(level, spot)
        if whole[level][spot]:
            return holder
        shares: dict[int, Share] = {}
        for above in range(self.estimator.leaf - 1, level - 1, -1):
            shares = self._shares(above, touched[above] & ~whole[above], whole[above + 1], shares)
        return estimate_share(shares[spot], holder)

    def _marks(self, inside: BoolArray) -> tuple[list[BoolArray], list[BoolArray]]:
        """Per geolevel, which geounits lie in the area, and which hold some of it."""
        whole, touched = [inside], [inside]
        for rows in self.geounits[:0:-1]:
            touched.insert(0, np.logical_or.reduceat(touched[0], rows.starts))
            whole.insert(0, np.logical_and.reduceat(whole[0], rows.starts))
        return whole, touched

    def _shares(
        self, level: int, is_cut: BoolArray, is_whole: BoolArray, below: dict[int, Share]
    ) -> dict[int, Share]:
        """Shares of the cut geounits of a geolevel, by position, from those one geolevel down."""
        children = self.geounits[level + 1]
        bounds = np.append(children.starts, len(children.codes))
        unknown = self.estimator.terms[level + 1].restricted(self.coordinates).unknown
        shares = {}
        for parents in self._windows(np.flatnonzero(is_cut), bounds, level + 1):
            first = int(bounds[parents[0]])
            rows = children.slice(first, int(bounds[parents[-1] + 1]))
            messages = self._messages(rows)
            for parent in parents.tolist():
                mine = np.arange(bounds[parent], bounds[parent + 1])
                if len(mine) == 1:  # what is cut in an only child is cut in its parent
                    shares[parent] = below[int(mine[0])]
                    continue
                family = messages.take(mine - first)
                sums = sum_below(
                    family, np.zeros(1, np.int64), np.zeros(len(mine), np.bool_), unknown
                )
                cut = [
                    CutChild(
                        below[int(child)],
                        tuple(part[spot] for part in family.values),
                        tuple(part[family.kind[spot]] for part in family.matrices),
                    )
                    for spot, child in enumerate(mine)
                    if int(child) in below
                ]
                shares[parent] = share_of_family(
                    family, is_whole=is_whole[mine], cut=cut, below=sums
                )
        return shares

    def _windows(self, parents: IntArray, bounds: IntArray, level: int) -> Iterator[IntArray]:
        """Runs of cut parents whose children are read together."""
        most = max(1, _WINDOW_NUMBERS // self.estimator.numbers(level))
        start = 0
        for stop in range(1, len(parents) + 1):
            last = stop == len(parents)
            if last or bounds[parents[stop] + 1] - bounds[parents[start]] > most:
                yield parents[start:stop]
                start = stop

    def _messages(self, rows: LevelRange) -> Moments:
        """Subtree estimates of whole families on the components of the queries."""
        one = self.estimator
        name = one.plan.levels[rows.level].name
        if rows.level == one.leaf:
            answers = RangeAnswers.read(one.release, name, one.terms[rows.level], rows)
            return one.leaf_messages(one.leaf_terms(self.coordinates), rows, answers)
        found = read_moments(Dataset.open(one.layout.subtree(name)), one.coordinates, rows.codes)
        return select_moments(self.coordinates, one.coordinates, found)

    def _on_spine(self, level: int, spot: int) -> Moments:
        """One row: the estimate of a geounit from all answers, and its covariance alone."""
        one, rows = self.estimator, self.geounits[level]
        name = one.plan.levels[level].name
        if level < one.leaf:
            dataset = one.layout.whole(name)
            found = read_moments(
                Dataset.open(dataset), one.coordinates, rows.codes[spot : spot + 1]
            )
            return select_moments(self.coordinates, one.coordinates, found)
        family = np.flatnonzero(rows.parents == rows.parents[spot])
        alike = rows.slice(int(family[0]), int(family[-1]) + 1)
        answers = RangeAnswers.read(one.release, name, one.terms[level], alike)
        terms = one.leaf_terms(self.coordinates)
        found = one.leaf_estimates(terms, alike, answers, one.above_leaves(terms, alike))
        row = found.take(np.array([spot - int(family[0])]))
        matrices = tuple(part[row.kind] for part in row.matrices)
        return Moments(row.values, matrices, np.zeros(1, np.int64))
