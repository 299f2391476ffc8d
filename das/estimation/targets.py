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
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from das.errors import SolverError
from das.estimation.coordinates import Coordinates
from das.estimation.model import gram_matrices
from das.estimation.tree_pass import Moments
from das.queries.query import Query

FloatArray = npt.NDArray[np.float64]

_NULL = 1e-12  # eigenvalues of a covariance below this times the largest are zero


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
    coordinates: Coordinates, queries: Sequence[Query], subtree: Moments
) -> SubtreeTargets:
    """Express subtree estimates as answers and weights of queries.

    Args:
      coordinates: Of the whole space.
      queries: Queries that the coordinates were made for: those of the geolevel and of all below,
        `detailed` among them.
      subtree: Estimates and covariances of G geounits, from the tree's upward pass.

    Raises:
      SolverError: The weights cannot be found.
    """
    weights, misfit = fit_weights(coordinates, queries, subtree.matrices)
    answers = tuple(coordinates.answer(query, subtree.values) for query in queries)
    return SubtreeTargets(tuple(queries), answers, weights[subtree.kind], misfit[subtree.kind])


def fit_weights(
    coordinates: Coordinates, queries: Sequence[Query], covariances: Sequence[FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """Return float64[K, Q] weights and float64[K] misfit for K covariances."""
    from scipy.optimize import nnls

    grams = gram_matrices(coordinates, queries)
    n_kinds = len(covariances[0])
    weights, misfit = np.zeros((n_kinds, len(queries))), np.zeros(n_kinds)
    for kind in range(n_kinds):
        columns, wanted = [], []
        for gram, covariance, width in zip(grams, covariances, coordinates.widths, strict=True):
            root = _root(covariance[kind])
            share = np.sqrt(width)
            columns.append(share * (root.T @ gram @ root).reshape(len(queries), -1))
            wanted.append(share * np.eye(root.shape[1]).ravel())
        matrix, right = np.concatenate(columns, axis=1).T, np.concatenate(wanted)
        scale = np.linalg.norm(matrix, axis=0)
        scale[scale == 0] = 1.0
        try:
            found, residual = nnls(matrix / scale, right)
        except RuntimeError as error:
            raise SolverError("targets", "no weights were found", got=error) from None
        weights[kind] = found / scale
        misfit[kind] = residual / max(1.0, float(np.linalg.norm(right)))
    return weights, misfit


def _root(covariance: FloatArray) -> FloatArray:
    """float64[D, k]: T with T T' = S and k its rank."""
    values, vectors = np.linalg.eigh(covariance)
    kept = values > _NULL * max(float(values.max(initial=0.0)), np.finfo(float).tiny)
    return np.asarray(vectors[:, kept] * np.sqrt(values[kept]))
