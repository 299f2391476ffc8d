"""Subtree estimates as targets of the node problem: answers and weights of queries.

The node problem takes, per child, answers y_q and weights w_q with information
sum_q w_q Q_q'Q_q. The subtree of a geounit gives an estimate z with covariance S. With y_q = Q_q z
the unconstrained optimum is z for any weights. The weights decide only how far the constraints move
it. They are the nonnegative least-squares fit of the relative information,

    sum over components of R || S^{1/2} (sum_q w_q Q_q'Q_q) S^{1/2} - I ||_F^2 ,

with I on the subspace that invariants leave open. If the children of every family below have equal
subtrees, B^+ is the information of one child over their number. Information then adds up query by
query, and the fit is exact. With unequal children, the precision of a component is a harmonic mean
of sums of weights, which the fit only approximates. An exact expression can need negative weights,
which would make the problem nonconvex. `misfit` measures the error of the fit.

Invariants fix a subspace without variance, where a weight would be 0/0. So the root of a covariance
is taken on a basis of the open subspace. A query that invariants answer gets no weight: it is an
equality of the node problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from das.arrays import FloatArray
from das.errors import SolverError
from das.queries.query import Query, is_answered_by
from das.tree.model import GeolevelTerms, gram_matrices
from das.tree.passes import Moments, range_basis

# Least relative information of any direction under the fitted weights: 1 for an exact fit. A
# smaller value would leave the direction to rounding. Default, not measured.
_LEAST_KNOWN = 1e-3

# Information of a query below this share of the largest is rounding, which leaves about 1e-16, of a
# query whose answers are exact. A floor under its weight would divide by it.
_ROUNDING = 1e-11


@dataclass(frozen=True, eq=False)
class SubtreeTargets:
    """Targets of the node problem for G geounits, from their subtrees.

    Attributes:
      queries: Q queries, whose answers and weights replace the subtree estimates.
      answers: Per query, float64[G, m], its answers in each geounit.
      weights: float64[G, Q], nonnegative: the weight of each query in each geounit.
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
      queries: Queries that the coordinates fit, of the geolevel and of all below. The queries of
        the geolevel have full column rank.
      subtree: Estimates and covariances of G geounits from the upward pass. The covariances are
        definite on the subspace that invariants leave open.

    Returns:
      The targets. Weights are 0 for queries that the invariants answer. The weighted information is
      positive definite on the open subspace.

    Raises:
      SolverError: The weights cannot be found.
    """
    is_open = [not any(is_answered_by(known, query) for known in terms.exact) for query in queries]
    weighted = [query for query, open_ in zip(queries, is_open, strict=True) if open_]
    grams = gram_matrices(terms.coordinates, weighted)
    n_kinds = len(subtree.matrices[0])
    weights, misfit = np.zeros((n_kinds, len(queries))), np.zeros(n_kinds)
    for kind in range(n_kinds):
        relative, has_zeros = [], False
        for gram, covariance, unknown in zip(grams, subtree.matrices, terms.unknown, strict=True):
            space = unknown if terms.types is None else range_basis(covariance[kind])
            has_zeros |= space.shape[1] < unknown.shape[1]
            root = _root(covariance[kind], space)
            relative.append(root.T @ gram @ root)
        weights[kind, is_open], misfit[kind] = _fit(
            relative, terms.coordinates.widths, every=has_zeros
        )
    answers = tuple(terms.coordinates.answer(query, subtree.values) for query in queries)
    return SubtreeTargets(tuple(queries), answers, weights[subtree.kind], misfit[subtree.kind])


def _fit(
    relative: Sequence[FloatArray], widths: Sequence[int], *, every: bool
) -> tuple[FloatArray, float]:
    """Fit weights so that the weighted sum of relative informations is near the identity.

    Args:
      relative: Per component, float64[Q, D, D], the information of each query relative to the
        subtree.
      widths: Multiplicity of each component.
      every: Whether all queries get some weight. Where some cells are publicly zero, queries that
        differ in these cells alone are equal here, but the node problem has those cells.
    """
    n = len(relative[0])
    columns, wanted = [], []
    for part, width in zip(relative, widths, strict=True):
        share, size = np.sqrt(width), part.shape[1]
        columns.append(share * part.reshape(n, size**2))
        wanted.append(share * np.eye(size).ravel())
    matrix, right = np.concatenate(columns, axis=1).T, np.concatenate(wanted)
    if not right.size:  # invariants, and public zeros if `every`, fix every cell
        return np.full(n, float(every)), 0.0
    scale = np.linalg.norm(matrix, axis=0)
    is_exact = scale <= _ROUNDING * scale.max()  # answered by invariants and public zeros together
    matrix[:, is_exact], scale[is_exact] = 0.0, 1.0
    weights = _nonnegative(matrix / scale, right) / scale
    sums = (np.tensordot(weights, part, 1) for part in relative if part.shape[1])
    if every or min(float(np.linalg.eigvalsh(part)[0]) for part in sums) < _LEAST_KNOWN:
        # With unequal children the fit can drop a query that full column rank needs. Every query
        # then keeps some weight: the information of all queries has full rank.
        floor = _LEAST_KNOWN / scale * np.linalg.norm(right)
        weights = floor + _nonnegative(matrix / scale, right - matrix @ floor) / scale
    off = float(np.linalg.norm(matrix @ weights - right))
    return weights, off / max(1.0, float(np.linalg.norm(right)))


def _nonnegative(matrix: FloatArray, right: FloatArray) -> FloatArray:
    from scipy.optimize import nnls

    if not matrix.shape[1]:  # all queries are on-demand; nnls would free memory twice
        return np.zeros(0)
    try:
        return np.asarray(nnls(matrix, right)[0], np.float64)
    except RuntimeError as error:
        raise SolverError("targets", "no nonnegative weights were found", got=error) from None


def _root(covariance: FloatArray, unknown: FloatArray) -> FloatArray:
    """Return a root T of the covariance S: T T' = S on the columns of `unknown`, float64[D, k].

    The covariance S is definite there. Eigenvalues below rounding are raised to it.

    Args:
      covariance: S, float64[D, D].
      unknown: float64[D, k], orthonormal.
    """
    values, vectors = np.linalg.eigh(unknown.T @ covariance @ unknown)
    least = np.finfo(float).eps * float(values.max(initial=0.0))
    return np.asarray(unknown @ (vectors * np.sqrt(np.maximum(values, least))))
