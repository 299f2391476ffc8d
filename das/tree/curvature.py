"""Least curvature of the least-squares objective of measured queries.

Full column rank is decided exactly (`das.queries.column_rank`). Solvers work with floats and also
need a curvature well above rounding.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from das.errors import SchemaError
from das.queries.factor import Factor
from das.queries.query import Query
from das.tree.components import SpineComponents


def least_eigenvalue(queries: Sequence[Query], weights: Sequence[float]) -> float:
    """Return a lower bound of the smallest eigenvalue of sum_q w_q Q_q' Q_q / max column^2.

    The bound is exact up to rounding if the queries fit components of at most 256 rows
    (`SpineComponents`). Otherwise it comes from one query of full rank, or from all products of
    the factors of every attribute; it is 0 if there are none.

    Args:
      queries: Queries over one schema.
      weights: Positive, one per query.
    """
    scaled = [
        weight / math.prod(_longest_sq(factor) for factor in query.factors)
        for query, weight in zip(queries, weights, strict=True)
    ]
    try:
        components = SpineComponents.of_queries(queries)
    except SchemaError:
        return _product_bound(queries, scaled)
    grams = [components.grams(query) for query in queries]
    least = math.inf
    for index in range(len(components.sizes)):
        total = sum(weight * gram[index] for weight, gram in zip(scaled, grams, strict=True))
        least = min(least, float(np.linalg.eigvalsh(total)[0]))
    return max(least, 0.0)


def _product_bound(queries: Sequence[Query], scaled: Sequence[float]) -> float:
    """Bound the eigenvalue by Kronecker products, whose eigenvalues are products of factors'."""
    bounds = [
        weight * math.prod(_least_of([factor]) for factor in query.factors)
        for query, weight in zip(queries, scaled, strict=True)
    ]
    keys = [tuple(factor.key for factor in query.factors) for query in queries]
    choices = [dict.fromkeys(column) for column in zip(*keys, strict=True)]
    weight_of = dict(zip(keys, scaled, strict=True))
    grid = math.prod(len(choice) for choice in choices)
    if grid == len(weight_of) and all(key in weight_of for key in itertools.product(*choices)):
        parts = [
            {key: query.factors[axis] for key, query in zip(column, queries, strict=True)}
            for axis, column in enumerate(zip(*keys, strict=True))
        ]
        sizes = {
            key: math.prod(_longest_sq(factor) for factor in query.factors)
            for key, query in zip(keys, queries, strict=True)
        }
        least = min(weight * sizes[key] for key, weight in weight_of.items())
        bounds.append(least * math.prod(_least_of(list(part.values())) for part in parts))
    return max(bounds, default=0.0)


def _least_of(factors: Sequence[Factor]) -> float:
    """Return the smallest eigenvalue of sum F'F / max column^2 over an attribute's factors."""
    gram = sum(factor.gram / _longest_sq(factor) for factor in factors)
    return max(0.0, float(np.linalg.eigvalsh(gram)[0]))


def _longest_sq(factor: Factor) -> float:
    return float(factor.gram.diagonal().max())
