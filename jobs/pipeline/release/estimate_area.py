"""Estimates of any set of blocks from the files of a release; reads only what the area cuts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

import numpy as np

from das.arrays import BoolArray, Geocodes, IntArray
from das.errors import InputError, SchemaError
from das.queries.query import Query, is_answered_by
from das.tree.area import CutChild, Share, estimate_share, share_of_family
from das.tree.coordinates import Coordinates
from das.tree.model import GeolevelTerms
from das.tree.passes import Moments, sum_below
from jobs.pipeline.plan import why_no_estimates, without_estimates
from jobs.pipeline.release.estimate import LevelEstimator
from jobs.pipeline.release.level import LevelRange, LevelReader
from jobs.pipeline.storage.dataset import LAST
from jobs.pipeline.tasks.batches import Batch, all_geounits

_WINDOW_NUMBERS = 10_000_000  # numbers read at once
_MOST_BETWEEN = 256  # geounits that are read though no cut family has them: a tract or two
_MOST_AT_ONCE = 512  # geounits whose estimates are read together: a row group or so


@dataclass(frozen=True, eq=False)
class AreaEstimator:
    """Estimates queries in any area.

    Attributes:
      estimator: The finished estimate stage of a release.
      queries: Any queries.
      within: First and last prefix of the leaves that areas may have, each that of whole geounits
        of one geolevel; an area lies below one of these. Nothing of other leaves is read.
    """

    estimator: LevelEstimator
    queries: tuple[Query, ...]
    within: tuple[str, str] = ("", "")

    @cached_property
    def coordinates(self) -> Coordinates:
        """The components that the queries touch."""
        return self.estimator.coordinates.touched_by(self.queries)

    def _refuse_unknown(self, level: int) -> None:
        """Refuse queries that have no estimates at a geolevel, as may be with lazy queries.

        Raises:
          SchemaError: One does not follow from what is measured completely.
        """
        plan = self.estimator.plan
        unknown = without_estimates(plan, [query.name for query in self.queries])
        for query in self.queries:
            if plan.levels[level].name not in unknown.get(query.name, ()):
                continue
            complete = [one.name for one in plan.levels[level].complete]
            lazy = sorted(plan.levels[level].lazy, key=lambda one: one.size)
            enough = next((one.name for one in lazy if is_answered_by(one, query)), None)
            why = why_no_estimates(plan)
            raise SchemaError(
                f"estimate, query {query.name}, geolevel {plan.levels[level].name}",
                "does not follow from the queries that are measured completely there and above"
                + (f": {why}" if why else ""),
                got=f"follows from {enough}, which is lazy" if enough else None,
                want=f"a query that follows from {', '.join(complete)}" if complete else None,
                remedy="name another query; a run that does not list what it needs among "
                "privacy.lazy_queries has estimates of it",
            )

    @cache  # noqa: B019 - an estimator lives as long as its command
    def geounits(self, level: int) -> LevelRange:
        """All geounits of a geolevel, as far as areas may have some."""
        batch, (low, high) = all_geounits(level), self.within
        if self.estimator.plan.spine.digits[level] >= len(low):
            batch = Batch(level, low, high + LAST, 0)
        return self._reader(level).rows(batch)

    @cache  # noqa: B019
    def _bounds(self, level: int) -> IntArray:
        """int64[U + 1]: where the children of each geounit above begin, and the end."""
        rows = self.geounits(level)
        return np.append(rows.starts, len(rows.codes))

    @cached_property
    def _leaf_codes(self) -> Geocodes:
        """bytes[G] geocodes of all leaves."""
        return self.geounits(self.estimator.leaf).codes.astype(np.bytes_)

    @cache  # noqa: B019
    def _reader(self, level: int) -> LevelReader:
        """Reads a geolevel; areas in the order of their geocodes share row groups."""
        return self.estimator.reader(level)

    @cache  # noqa: B019
    def _terms(self, level: int) -> GeolevelTerms:
        """Queries of a geolevel on the components that the queries touch."""
        return self.estimator.terms[level].restricted(self.coordinates)

    def geounit(self, code: str) -> Moments:
        """Estimate a geounit of any geolevel.

        Raises:
          InputError: There is no such geounit.
          SchemaError: A query has no estimates at its geolevel.
        """
        for level in range(self.estimator.leaf + 1):
            rows = self.geounits(level)
            spot = int(np.searchsorted(rows.codes, code))
            if spot < len(rows.codes) and rows.codes[spot] == code:
                self._refuse_unknown(level)
                return self._on_spine(level, spot)
        raise InputError("estimate", "has no such geounit", got=code)

    def blocks(self, codes: Sequence[str] | Geocodes) -> Moments:
        """Estimate a set of leaves.

        Args:
          codes: Geocodes of geounits of the last geolevel, in any order; repeated ones count once.

        Raises:
          InputError: The set is empty, or one of them does not exist.
          SchemaError: A query has no estimates at the last geolevel.
        """
        self._refuse_unknown(self.estimator.leaf)
        leaves = self._leaf_codes
        found = np.asarray(codes)
        if found.dtype.kind != "S":
            found = np.char.encode(found.astype(np.str_), "ascii", "replace")  # ? is in no geocode
        wanted = np.unique(found)
        spots = np.searchsorted(leaves, wanted)
        known = leaves[np.minimum(spots, len(leaves) - 1)] == wanted
        if not len(wanted) or not known.all():
            raise InputError(
                "estimate, area",
                "is not a set of geounits of the last geolevel",
                got=f"{len(wanted) - int(known.sum())} unknown of {len(wanted)}",
            )
        touched, whole = self._held(spots)
        level = max(index for index, held in enumerate(touched) if len(held) == 1)
        spot = int(touched[level][0])
        holder = self._on_spine(level, spot)
        if whole[level][0]:
            return holder
        shares: dict[int, Share] = {}
        for above in range(self.estimator.leaf - 1, level - 1, -1):
            cut, inside = touched[above][~whole[above]], touched[above + 1][whole[above + 1]]
            shares = self._shares(above, cut, inside, shares)
        return estimate_share(shares[spot], holder)

    def _held(self, spots: IntArray) -> tuple[list[IntArray], list[BoolArray]]:
        """Per geolevel, positions of the geounits that hold some of the area, and which lie in it.

        Takes time by the size of the area, not by that of the nation it lies in.
        """
        touched, whole = [spots], [np.ones(len(spots), np.bool_)]
        for level in range(self.estimator.leaf, 0, -1):
            bounds = self._bounds(level)
            above = np.searchsorted(bounds, touched[0], side="right") - 1
            parents, family = np.unique(above, return_inverse=True)
            inside = np.bincount(family.reshape(-1), whole[0], len(parents))
            touched.insert(0, parents)
            whole.insert(0, inside == bounds[parents + 1] - bounds[parents])
        return touched, whole

    def _shares(
        self, level: int, cut_parents: IntArray, inside: IntArray, below: dict[int, Share]
    ) -> dict[int, Share]:
        """Shares of the cut geounits of a geolevel, by position, from those one geolevel down.

        `inside` are the positions of the children that lie in the area, sorted.
        """
        children = self.geounits(level + 1)
        bounds = self._bounds(level + 1)
        reader, terms = self._reader(level + 1), self._terms(level + 1)
        shares = {}
        for parents in self._windows(cut_parents, bounds, level + 1):
            first = int(bounds[parents[0]])
            rows = children.slice(first, int(bounds[parents[-1] + 1]))
            messages = reader.subtree(rows, terms)
            for parent in parents.tolist():
                mine = np.arange(bounds[parent], bounds[parent + 1])
                if len(mine) == 1:  # what is cut in an only child is cut in its parent
                    shares[parent] = below[int(mine[0])]
                    continue
                family = messages.take(mine - first)
                sums = sum_below(
                    family, np.zeros(1, np.int64), np.zeros(len(mine), np.bool_), terms.shared
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
                    family, is_whole=np.isin(mine, inside, assume_unique=True), cut=cut, below=sums
                )
        return shares

    def _windows(self, parents: IntArray, bounds: IntArray, level: int) -> Iterator[IntArray]:
        """Runs of cut parents whose children are read together, with those of few others."""
        most = max(1, _WINDOW_NUMBERS // self._reader(level).numbers)
        start = 0
        for stop in range(1, len(parents) + 1):
            last = stop == len(parents)
            if (
                last
                or bounds[parents[stop] + 1] - bounds[parents[start]] > most
                or bounds[parents[stop]] - bounds[parents[stop - 1] + 1] > _MOST_BETWEEN
            ):
                yield parents[start:stop]
                start = stop

    def _on_spine(self, level: int, spot: int) -> Moments:
        """One row: the estimate of a geounit from all answers, and its covariance alone."""
        one, rows = self.estimator, self.geounits(level)
        if level < one.leaf:
            most = max(1, min(_MOST_AT_ONCE, _WINDOW_NUMBERS // one.coordinates.size))
            row = self._window(level, spot // most * most, most).take(np.array([spot % most]))
            return _alone(row)
        family = np.flatnonzero(rows.parents == rows.parents[spot])
        alike = rows.slice(int(family[0]), int(family[-1]) + 1)
        reader, terms = self._reader(level), self._terms(level)
        found = reader.estimates(alike, reader.above(alike, terms), terms)
        return _alone(found.take(np.array([spot - int(family[0])])))

    @lru_cache(maxsize=8)  # noqa: B019 - areas in the order of their geocodes share them
    def _window(self, level: int, start: int, size: int) -> Moments:
        """Estimates of a run of geounits above the leaves, from all answers."""
        codes = self.geounits(level).codes[start : start + size]
        return self._reader(level).whole(codes, self._terms(level))


def _alone(row: Moments) -> Moments:
    """One row with the matrices of its own kind alone."""
    matrices = tuple(part[row.kind] for part in row.matrices)
    return Moments(row.values, matrices, np.zeros(1, np.int64))
