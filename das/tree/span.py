"""What queries see of a component: an orthonormal basis of the space of their rows.

On a component the rows of a query are products of small integers, one factor per attribute, over
the combinations of groups. Which of all rows are independent is decided exactly, modulo a prime, in
their order; the basis is that of Gram and Schmidt on those. So it does not hang on how a processor
adds up, but in its last digits: what was estimated in these coordinates on one machine is read on
another.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from das.arrays import FloatArray, IntArray
from das.errors import SchemaError
from das.queries.column_rank import independent_rows
from das.queries.factor import Factor
from das.queries.query import Query
from das.tree.components import indicators


def span_of(
    queries: Sequence[Query], atoms: Sequence[IntArray], within: Sequence[bool], most: int
) -> FloatArray:
    """Orthonormal basis of the rows of queries on a component, float64[groups, D].

    Args:
      queries: Those that are not zero on it; the atoms fit them.
      atoms: Per attribute, int64[n_i]: the atom of each level.
      within: Per attribute, whether the component lies within its atoms.
      most: Most columns.

    Raises:
      SchemaError: There are more.
    """
    outside = [axis for axis, inside in enumerate(within) if not inside]
    sizes = [np.bincount(atoms[axis]) for axis in outside]
    scale = 1.0 / np.sqrt(_product(sizes).astype(np.float64))
    kept = np.zeros((0, len(scale)), np.int64)
    for query in queries:
        factors = [_rows(query.factors[axis], atoms[axis]) for axis in outside]
        products = map(_product, itertools.product(*factors))
        while some := list(itertools.islice(products, len(scale))):  # all may be very many
            kept = independent_rows(np.vstack([kept, *some]))
            if len(kept) > most:
                raise SchemaError(
                    "estimates",
                    "the queries that are measured completely tell too many groups of cells apart",
                    got=f"more than {most} combinations",
                    want=f"at most {most}",
                    remedy="measure fewer recodes, prefixes or ranges",
                )
    if len(kept) == len(scale):
        return np.eye(len(scale))
    basis, triangle = np.linalg.qr((kept * scale).T)
    return np.asarray(basis * np.where(np.diag(triangle) < 0, -1.0, 1.0))


def _product(parts: Sequence[IntArray]) -> IntArray:
    """int64: the Kronecker product of vectors."""
    out = np.ones(1, np.int64)
    for part in parts:
        out = np.kron(out, part).astype(np.int64)
    return out


def _rows(factor: Factor, codes: IntArray) -> list[IntArray]:
    """Rows of a factor that differ, int64[atoms] each: sums over the levels of every atom."""
    rows = factor.matrix @ indicators(codes)
    return [row for row in np.unique(rows, axis=0) if row.any()]
