"""Span of queries on a component: an orthonormal basis of the space of their rows.

On a component the rows of a query are products of small integers, one factor per attribute, over
the combinations of groups. Independent rows are selected exactly, modulo a prime and in order, and
orthonormalized (Gram-Schmidt). So the basis depends on the processor only in its last digits, and
estimates in these coordinates can be read on another machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import reduce

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
    """Return an orthonormal basis of the rows of queries on a component, float64[groups, D].

    Args:
      queries: Queries that the atoms fit and that are not zero on the component.
      atoms: Per attribute, int64[n_i]: the atom of each level.
      within: Per attribute, whether the component lies within its atoms.
      most: Largest allowed number of columns.

    Raises:
      SchemaError: The basis has more columns.
    """
    outside = [axis for axis, inside in enumerate(within) if not inside]
    sizes = [np.bincount(atoms[axis]) for axis in outside]
    scale = 1.0 / np.sqrt(_product(sizes).astype(np.float64))
    kept = np.zeros((0, len(scale)), np.int64)
    for query in queries:
        factors = [_rows(query.factors[axis], atoms[axis]) for axis in outside]
        products = map(_product, itertools.product(*factors))
        while some := list(
            itertools.islice(products, len(scale))
        ):  # in parts: there may be very many
            kept = independent_rows(np.vstack([kept, *some]))
            if len(kept) > most:
                raise SchemaError(
                    "estimates",
                    "the completely measured queries distinguish too many groups of cells",
                    got=f"more than {most} combinations",
                    want=f"at most {most}",
                    remedy="measure fewer recodes, prefixes or ranges",
                )
    if len(kept) == len(scale):
        return np.eye(len(scale))
    basis, triangle = np.linalg.qr((kept * scale).T)
    return np.asarray(basis * np.where(np.diag(triangle) < 0, -1.0, 1.0))


def _product(parts: Sequence[IntArray]) -> IntArray:
    """Return the Kronecker product of integer vectors, int64."""
    return np.asarray(reduce(np.kron, parts, np.ones(1, np.int64)), np.int64)


def _rows(factor: Factor, codes: IntArray) -> list[IntArray]:
    """Return the distinct nonzero rows of a factor, summed over the levels of every atom."""
    rows = factor.matrix @ indicators(codes)
    return [row for row in np.unique(rows, axis=0) if row.any()]
