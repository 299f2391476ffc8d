"""The cost of every pair of neighbors, from dense matrices and in fractions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from das.queries.query import Query
from das.queries.sensitivity import Neighbors


@dataclass(frozen=True)
class PairCosts:
    """Worst zCDP costs of a geolevel of several geounits, exact.

    Attributes:
      added: One record added.
      moved: One record moved to another geounit and changed at will.
      changed: One record changed within its geounit.
      attributes: The same for one attribute alone.
    """

    added: Fraction
    moved: Fraction
    changed: Fraction
    attributes: tuple[Fraction, ...]

    def of(self, neighbors: Neighbors) -> Fraction:
        if neighbors is Neighbors.UNBOUNDED:
            return self.added
        return max(self.moved, self.changed)


def pair_costs(queries: Sequence[Query], sigma_sq: Sequence[Fraction]) -> PairCosts:
    """Try all cells j, k and both places; noise of different queries is independent."""
    sizes = [factor.matrix.shape[1] for factor in queries[0].factors]
    cells = np.arange(queries[0].n_cells)
    form = np.zeros((len(cells), len(cells)), object)
    for query, variance in zip(queries, sigma_sq, strict=True):
        columns = query.columns(cells).astype(object)
        form = form + columns.T @ columns * (1 / (2 * variance))
    added = np.diag(form)
    changed = added[:, None] + added[None, :] - 2 * form
    levels = np.array(np.unravel_index(cells, sizes))
    alone = []
    for axis in range(len(sizes)):
        others = np.delete(levels, axis, axis=0)
        equal = (others[:, :, None] == others[:, None, :]).all(axis=0)
        alone.append(max(changed[equal]))
    worst = max(added)
    return PairCosts(worst, worst + worst, max(changed.ravel()), tuple(alone))
