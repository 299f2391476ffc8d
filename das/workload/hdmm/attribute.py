"""AttributeStrategy: measured rows of one attribute, optimal or of p-identity form."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from das.arrays import FloatArray
from das.workload.one_dimensional import count_rank, minimize_total_variance
from das.workload.workload import AttributeWorkload

_MOST_ITERATIONS = 2000


@dataclass(frozen=True, eq=False)
class AttributeStrategy:
    """Measured rows A of one attribute and a least-squares inverse.

    Attributes:
      rows: A, float64[m, n], columns of squared norm at most 1.
      decoder: A^+, float64[n, m]; W A^+ A = W for the workload W it was made for.
      cell_weights: float64[n], dual weights to start a similar problem with, if known.
    """

    rows: FloatArray
    decoder: FloatArray
    cell_weights: FloatArray | None = None

    @cached_property
    def total_variance(self) -> float:
        """|1^T A^+|^2, the variance of the sum of all levels at noise variance 1."""
        return float((self.decoder.sum(axis=0) ** 2).sum())

    def variance(self, gram: FloatArray) -> float:
        """Return tr(G A^+ A^+^T), the total variance of answers with Gram matrix G."""
        return float(np.einsum("ij,ij->", gram @ self.decoder, self.decoder))


AttributeSolver = Callable[[AttributeWorkload, float, AttributeStrategy | None], AttributeStrategy]
"""Minimizes tr((G + c 11^T) (A^T A)^-) for an attribute and c; may start from a given strategy."""


def solve_exactly(
    attribute: AttributeWorkload, total_weight: float, start: AttributeStrategy | None = None
) -> AttributeStrategy:
    """Find the best rows among all matrices, proven to one in a million."""
    best = minimize_total_variance(
        attribute.gram + total_weight,
        rank=count_rank(attribute.gram),
        start=None if start is None else start.cell_weights,
    )
    return AttributeStrategy(best.factor.T, best.inverse, best.cell_weights)


def p_identity_solver(n_extra_rows: int) -> AttributeSolver:
    """Make a solver for p-identity strategies A = [I; Theta] D.

    Theta is float64[p, n], and the diagonal D gives all columns unit L2 norm. With
    M = I + Theta^T Theta and E = D^-1 = diag(M)^.5 the objective is tr(E G E M^-1); M is inverted
    in p dimensions. L-BFGS descends from blocks of consecutive levels and from the first
    eigenvectors of G, and the better end is returned. `solve_exactly` is never worse; these
    strategies keep every single level among their rows.

    Args:
      n_extra_rows: p >= 1.
    """

    def solve(
        attribute: AttributeWorkload, total_weight: float, start: AttributeStrategy | None = None
    ) -> AttributeStrategy:
        from scipy.optimize import minimize

        gram = attribute.gram + total_weight
        n = attribute.size
        found = [
            minimize(
                lambda flat: evaluate_p_identity(gram, flat.reshape(-1, n)),
                theta.ravel(),
                jac=True,
                method="L-BFGS-B",
                options={"maxiter": _MOST_ITERATIONS, "maxcor": 20},
            )
            for theta in _list_starts(gram, n_extra_rows)
        ]
        theta = min(found, key=lambda end: float(end.fun)).x.reshape(-1, n)
        stacked = np.concatenate([np.eye(n), theta])
        rows = stacked / np.sqrt((stacked**2).sum(axis=0))
        return AttributeStrategy(rows, np.linalg.pinv(rows))

    return solve


def evaluate_p_identity(gram: FloatArray, theta: FloatArray) -> tuple[float, FloatArray]:
    """Return tr(G (A^T A)^-1) of the p-identity strategy and its gradient in Theta, ravelled."""
    p, n = theta.shape
    covariance = np.eye(n) - theta.T @ np.linalg.solve(np.eye(p) + theta @ theta.T, theta)
    lengths = np.sqrt(1 + (theta**2).sum(axis=0))
    scaled = lengths[:, None] * gram * lengths
    half = scaled @ covariance
    by_length = (gram * covariance) @ lengths
    gradient = 2 * theta * (by_length / lengths) - 2 * (theta @ covariance) @ half
    return float(np.trace(half)), gradient.ravel()


def _list_starts(gram: FloatArray, n_extra_rows: int) -> list[FloatArray]:
    n = len(gram)
    blocks = (np.arange(n) * n_extra_rows // n == np.arange(n_extra_rows)[:, None]) * 1.0
    vectors = np.linalg.eigh(gram)[1][:, ::-1][:, :n_extra_rows].T * math.sqrt(n)
    missing = np.zeros((n_extra_rows - len(vectors), n))
    return [blocks, np.concatenate([vectors, missing])]


def measure_total(size: int) -> AttributeStrategy:
    """One row of ones, for an attribute nobody asks about."""
    return AttributeStrategy(np.ones((1, size)), np.full((size, 1), 1 / size))
