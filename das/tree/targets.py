"""Subtree information as weights on queries: what the node problem can take as targets.

The node problem wants, per child, answers y_q and weights w_q with information
sum_q w_q Q_q'Q_q. The subtree of a geounit gives an estimate z with covariance S. With y_q = Q_q z
the unconstrained optimum is z whatever the weights are; they say only how strongly the constraints
may move it. The weights are the best nonnegative ones in least squares of relative information,

    sum over components of R || S^{1/2} (sum_q w_q Q_q'Q_q) S^{1/2} - I ||_F^2 ,

I on what invariants leave open. If in every family below all children have equal subtrees, then
B^+ is the information of one child divided by their number, information adds up query by query,
and the fit is exact. Where children are unequal, the precision of a component is a harmonic mean
of sums of weights, which sums of weights meet only nearly; an exact expression may need negative
weights, and with these the problem would not be convex. `misfit` says how nearly.

What invariants fix has no variance, and a weight on it would be 0/0. So the root of a covariance is
taken on a basis of what they leave open, which has full rank there, and a query that they answer
gets no weight: in the node problem it is an equality.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from das.arrays import FloatArray
from das.errors import SolverError
from das.queries.query import Query, is_answered_by
from das.tree.model import GeolevelTerms, gram_matrices
from das.tree.passes import Moments

# Relative information of the direction that the fitted weights know least: 1 where they fit, and
# below this they would leave the direction to rounding.
_LEAST_KNOWN = 1e-3


@dataclass(frozen=True, eq=False)
class SubtreeTargets:
    """Targets of G geounits from their subtrees.

    Attributes:
      queries: Q queries.
      answers: Per query, float64[G, m].
      weights: float64[G, Q], nonnegative.
      misfit: float64[G], root mean square of the relative error of the information; 0 if exact.
    """

    queries: tuple[Query, ...]
    answers: tuple[FloatArray, ...]
    weights: FloatArray
    misfit: FloatArray


def subtree_targets(
    terms: GeolevelTerms, queries: Sequence[Query], subtree: Moments
) -> SubtreeTargets:
    """Express subtree estimates as answers and weights of queries.

    Args:
      terms: The geolevel, with coordinates of the whole space.
      queries: Queries that the coordinates were made for: those of the geolevel and of all below;
        those of the geolevel have full column rank.
      subtree: Estimates and covariances of G geounits, from the tree's upward pass; the covariances
        are definite on what invariants leave open.

    Returns:
      The targets; weights are 0 for queries that the invariants answer, and positive definite
      together on what these leave open.

    Raises:
      SolverError: The weights cannot be found.
    """
    is_open = [not any(is_answered_by(known, query) for known in terms.exact) for query in queries]
    asked = [query for query, open_ in zip(queries, is_open, strict=True) if open_]
    grams = gram_matrices(terms.coordinates, asked)
    n_kinds = len(subtree.matrices[0])
    weights, misfit = np.zeros((n_kinds, len(queries))), np.zeros(n_kinds)
    for kind in range(n_kinds):
        relative = []
        for gram, covariance, unknown in zip(grams, subtree.matrices, terms.unknown, strict=True):
            root = _root(covariance[kind], unknown)
            relative.append(root.T @ gram @ root)
        weights[kind, is_open], misfit[kind] = _fit(relative, terms.coordinates.widths)
    answers = tuple(terms.coordinates.answer(query, subtree.values) for query in queries)
    return SubtreeTargets(tuple(queries), answers, weights[subtree.kind], misfit[subtree.kind])


def _fit(relative: Sequence[FloatArray], widths: Sequence[int]) -> tuple[FloatArray, float]:
    """Weights and misfit for relative informations, per component float64[Q, D, D]."""
    n = len(relative[0])
    columns, wanted = [], []
    for part, width in zip(relative, widths, strict=True):
        share, size = np.sqrt(width), part.shape[1]
        columns.append(share * part.reshape(n, size**2))
        wanted.append(share * np.eye(size).ravel())
    matrix, right = np.concatenate(columns, axis=1).T, np.concatenate(wanted)
    if not right.size:  # invariants fix every cell
        return np.zeros(n), 0.0
    scale = np.linalg.norm(matrix, axis=0)
    scale[scale == 0] = 1.0
    found = _nonnegative(matrix / scale, right) / scale
    if _least_known(relative, found) < _LEAST_KNOWN:
        # Unequal children can ask for negative weights of a query without which full column rank
        # is lost. Every query then keeps some weight: the information of all has full rank.
        floor = _LEAST_KNOWN / scale * np.linalg.norm(right)
        found = floor + _nonnegative(matrix / scale, right - matrix @ floor) / scale
    off = float(np.linalg.norm(matrix @ found - right))
    return found, off / max(1.0, float(np.linalg.norm(right)))


def _nonnegative(matrix: FloatArray, right: FloatArray) -> FloatArray:
    from scipy.optimize import nnls

    if not matrix.shape[1]:  # all queries are drawn on demand; nnls frees memory twice then
        return np.zeros(0)
    try:
        return np.asarray(nnls(matrix, right)[0], np.float64)
    except RuntimeError as error:
        raise SolverError("targets", "no weights were found", got=error) from None


def _least_known(relative: Sequence[FloatArray], weights: FloatArray) -> float:
    """The smallest eigenvalue of the relative information of weighted queries."""
    sums = [np.tensordot(weights, part, 1) for part in relative if part.shape[1]]
    return min(float(np.linalg.eigvalsh(one)[0]) for one in sums)


def _root(covariance: FloatArray, unknown: FloatArray) -> FloatArray:
    """float64[D, k]: T with T T' = S, for a covariance on the columns of `unknown` float64[D, k].

    The covariance is definite on them; a smaller eigenvalue than rounding leaves is raised to that.
    """
    values, vectors = np.linalg.eigh(unknown.T @ covariance @ unknown)
    least = np.finfo(float).eps * float(values.max(initial=0.0))
    return np.asarray(unknown @ (vectors * np.sqrt(np.maximum(values, least))))
