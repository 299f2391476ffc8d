"""Public bounds of true answers, from counts of facilities and bounds of linear rows.

A facility holds some persons at least, and a bounded row lies between its bounds. Every possible
truth keeps these bounds. So an interval that covers the truth with some probability covers it at
least as often after intersection with them. An empty intersection becomes the nearest bound.
Estimates do not use the bounds, because they would not be linear or unbiased.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from das.arrays import IntArray, ObjectArray
from das.queries.query import Query
from invariants.facilities import coefficients_by_type
from invariants.leaves import NO_LIMIT, bounds_of_answers
from invariants.linear import answer_of_row
from jobs.pipeline.plan import Plan
from jobs.pipeline.release.level import LevelReader
from jobs.pipeline.storage.layout import ReleaseLayout

Bounds = tuple[IntArray, IntArray]
"""Fewest and most, int64[G, m] each: bounds of m true answers in G geounits."""


@dataclass(frozen=True, eq=False)
class PublicBounds:
    """Public bounds in the geounits of one geolevel.

    Attributes:
      plan: The plan.
      release: The release, or a replicate of it.
      geolevel: The geolevel; geounits off the spine have no bounds but 0.
    """

    plan: Plan
    release: ReleaseLayout
    geolevel: str

    @cached_property
    def _reader(self) -> LevelReader | None:
        """Open the implied constraints; None if they are not public before solving."""
        limits, levels = self.plan.limits, self.plan.spine.levels
        if limits.depends_on_other_products or self.geolevel not in levels:
            return None
        return LevelReader(self.plan, self.release, levels.index(self.geolevel))

    def of(self, query: Query, codes: ObjectArray) -> Bounds:
        """Return the bounds of the answers of a query.

        Args:
          query: Any query. Answers that can be negative have no bounds.
          codes: object[G], exactly the geounits of a range, ascending.

        Returns:
          The bounds; 0 and `NO_LIMIT` where nothing else is public.

        Raises:
          OutputError: The implied constraints cannot be read, or lack a geounit.
        """
        least = np.zeros((len(codes), query.size), np.int64)
        most = np.full_like(least, NO_LIMIT)
        if query.is_signed:
            return -most, most
        limits = None if self._reader is None else self._reader.limits(codes)
        if limits is None or self._reader is None:
            return least, most
        facilities = self.plan.limits.facilities
        if limits.leaves is not None and facilities is not None:
            ends = coefficients_by_type(query, facilities.query)
            least, most = bounds_of_answers(limits.leaves, *ends)
        for column, row in enumerate(self._reader.level.bounded_rows):
            answer = answer_of_row(row, query)
            if answer is not None:
                np.maximum(least[:, answer], limits.row_least[:, column], out=least[:, answer])
                np.minimum(most[:, answer], limits.row_most[:, column], out=most[:, answer])
        return least, most
