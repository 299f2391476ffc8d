"""Support of the root: the cells that may be live given solved coarser counts."""

from __future__ import annotations

import numpy as np

from das.arrays import IntArray
from das.queries.query import Query
from invariants.zeros import StructuralZeros
from jobs.pipeline.plan import Plan
from jobs.pipeline.release.problems import Support
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.storage.histograms import sparse_arrays
from jobs.pipeline.storage.layout import ReleaseLayout


def live_answers(
    query: Query, positions: IntArray, zeros: StructuralZeros | None
) -> tuple[IntArray, IntArray]:
    """Select answers of a partition query that count a cell other than structural zeros.

    Args:
      query: The query.
      positions: int64[p], positions of answers, ascending.
      zeros: Structural zeros; None if there are none.

    Returns:
      int64[k] of the positions, and int64[k], one possible cell of each; memory is O(p).
    """
    if zeros is None:
        return positions, query.first_cells(positions)
    cells = zeros.first_outside(query, positions)
    return positions[cells >= 0], cells[cells >= 0]


def read_support(plan: Plan, release: ReleaseLayout) -> Support:
    """Read the published support of the root.

    Raises:
      OutputError: The support is not published.
    """
    dataset, query = Dataset.open(release.support(plan.levels[0].name)), plan.support[-1]
    rows = [dataset.read(part.low, part.high) for part in dataset.parts if part.rows]
    positions, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
    if rows:
        _, _, positions, counts = sparse_arrays(rows[0])
    cells = query.cells_of(positions)
    if plan.limits.zeros is not None:
        cells = cells[~plan.limits.zeros.holds(cells)]
    return Support(cells, (query, counts[None]))
