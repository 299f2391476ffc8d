"""Optimal strategies for the workload of a single attribute, with a bound that proves it.

A strategy is V = S^T S for a matrix S of measured rows with noise of variance 1. Its privacy cost
is max_j V_jj, here at most 1. It answers W with variances diag(W V^- W^T), which depend on V alone.

Minimal total variance and its dual, with G = W^T W:

    min { tr(G V^-) : diag V <= 1 }  =  max { tr((D^.5 G D^.5)^.5)^2 : D >= 0 diagonal, tr D = 1 }.

At a saddle point V = D^-.5 (D^.5 G D^.5)^.5 D^-.5, the fixed point of D_j <- D_j V_jj / T with the
trace T. Every iterate D gives the bound T^2 and the feasible strategy V / max_j V_jj.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from das.arrays import FloatArray
from das.errors import SolverError
from das.workload.workload import AttributeWorkload

# Defaults, not measured.
DEFAULT_GAP = 1e-6

_MOST_ROUNDS = 5000
# The map contracts for steps below 4, because V moves like D^-.5; 2 is the Newton step of a
# diagonal problem.
_STEP = 2.0
_LEAST_WEIGHT = 1e-14
_LEAST_RATIO = 1e-4
_MEMORY = 6


@dataclass(frozen=True, eq=False)
class OneDimensionalStrategy:
    """Strategy V = F F^T for one attribute, with privacy cost at most 1.

    Attributes:
      factor: F, float64[n, r], r the rank of the workload; F^T are the rows to measure.
      inverse: H, float64[n, r], with F^T H = I; W H reconstructs W from the rows F^T.
      value: The objective of this V: total or largest variance at privacy cost 1.
      bound: No strategy of privacy cost 1 has an objective below this.
      cell_weights: D, float64[n], the dual point; a start for similar workloads.
    """

    factor: FloatArray
    inverse: FloatArray
    value: float
    bound: float
    cell_weights: FloatArray

    @property
    def gram(self) -> FloatArray:
        """Return the Gram matrix V of the strategy, float64[n, n], with diagonal at most 1."""
        return self.factor @ self.factor.T


def count_rank(gram: FloatArray) -> int:
    """Return the numerical rank of a Gram matrix."""
    eigenvalues = np.linalg.eigvalsh(gram)
    return int((eigenvalues > eigenvalues[-1] * len(gram) * 1e-14).sum())


def minimize_total_variance(
    gram: FloatArray,
    *,
    rank: int | None = None,
    gap: float = DEFAULT_GAP,
    start: FloatArray | None = None,
) -> OneDimensionalStrategy:
    """Find the strategy of least total variance tr(G V^-) at privacy cost 1.

    Args:
      gram: G = W^T W, float64[n, n], positive semidefinite, singular or not.
      rank: Rank of G, if known.
      gap: Relative distance to the optimum to be proven.
      start: Dual weights float64[n] to begin with, from a similar problem.

    Returns:
      The strategy; `value` is tr(G V^-).

    Raises:
      SolverError: The gap was not reached.

    References:
      Yuan, Yang, Zhang & Hao, Convex optimization for linear query processing under approximate
      differential privacy, KDD 2016 (the primal problem).

    >>> best = minimize_total_variance(np.array([[2.0, 1.0], [1.0, 1.0]]))
    >>> round(best.value, 4), best.value / best.bound < 1 + 1e-6
    (2.618, True)
    """
    rank = count_rank(gram) if rank is None else rank
    start = np.full(len(gram), 1 / len(gram)) if start is None else start
    return _minimize(lambda _: gram, None, start, len(gram), rank, gap)


def weigh_total(
    workload: AttributeWorkload,
    total_weight: float,
    *,
    gap: float = DEFAULT_GAP,
    start: FloatArray | None = None,
) -> OneDimensionalStrategy:
    """Return the strategy V(c) = argmin tr((G + c 11^T) V^-), c = total_weight >= 0.

    Args:
      workload: The workload of one attribute, with Gram matrix G.
      total_weight: c, the weight of the total query, at least 0.
      gap: Relative distance to the optimum to be proven.
      start: Cell weights float64[n] that start the search; None for equal weights.
    """
    rank = count_rank(workload.gram)
    return minimize_total_variance(workload.gram + total_weight, rank=rank, gap=gap, start=start)


def minimize_largest_variance(
    workload: AttributeWorkload, *, gap: float = 1e-4
) -> OneDimensionalStrategy:
    """Find the strategy of least largest variance max_i (W V^- W^T)_ii at privacy cost 1.

    The optimum is the squared factorization norm gamma_2(W)^2; its dual has weights on the rows
    too: max tr((D^.5 W^T L W D^.5)^.5)^2 over D, L >= 0 diagonal with trace 1.

    Args:
      workload: The base matrix W.
      gap: Relative distance to the optimum to be proven.

    Returns:
      The strategy; `value` is the largest variance.

    Raises:
      SolverError: The gap was not reached.

    References:
      Edmonds, Nikolov & Ullman, The power of factorization mechanisms in local and central
      differential privacy, STOC 2020.

    >>> best = minimize_largest_variance(AttributeWorkload.prefix("age", 10))
    >>> bool(2.4 < best.bound <= best.value < 2.6)
    True
    """
    n, rank = workload.size, count_rank(workload.gram)
    start = np.concatenate([np.full(n, 1 / n), np.full(workload.n_rows, 1 / workload.n_rows)])

    def gram(row_logs: FloatArray) -> FloatArray:
        return workload.weighted_gram(_normalize(row_logs))

    return _minimize(gram, workload.row_forms, start, n, rank, gap)


def _minimize(
    gram: Callable[[FloatArray], FloatArray],
    variances: Callable[[FloatArray], FloatArray] | None,
    start: FloatArray,
    n: int,
    rank: int,
    gap: float,
) -> OneDimensionalStrategy:
    """Maximize the dual over weights of the n levels and, for single answers, of the rows.

    Args:
      gram: G for logarithms of the weights of the rows.
      variances: The variance of every row for a covariance V^-; None for the total variance.
      start: Weights of levels, then of rows.
      n: Number of levels.
      rank: Rank of G.
      gap: Relative distance to the optimum to be proven.

    Raises:
      SolverError: The gap was not reached.
    """
    best: OneDimensionalStrategy | None = None
    bound = 0.0

    def step(logs: FloatArray) -> tuple[FloatArray, bool, float]:
        nonlocal best, bound
        weights = _normalize(logs[:n])
        roots, vectors = _root(gram(logs[n:]), weights, rank)
        half, trace = np.sqrt(weights)[:, None], float(roots.sum())
        ratios = diagonal = (vectors**2 @ roots) / weights
        largest, objective = float(diagonal.max()), trace
        if variances is not None:
            inverse = half * vectors / np.sqrt(roots)
            of_rows = variances(inverse @ inverse.T)
            ratios, objective = np.concatenate([diagonal, of_rows]), float(of_rows.max())
        bound = max(bound, trace**2)
        value = largest * objective
        if best is None or value < best.value:
            # V = D^-.5 Q diag(roots) Q^T D^-.5 / largest; no matrix is inverted.
            scale = np.sqrt(roots / largest)
            factor, inverse = vectors * scale / half, half * vectors / scale
            best = OneDimensionalStrategy(factor, inverse, value, 0.0, weights)
        # Levels and rows without effect would have a slope of minus infinity.
        slope = np.log(np.maximum(ratios / trace, _LEAST_RATIO))
        return slope, best.value <= bound * (1 + gap), trace

    _climb(step, start)
    value = math.inf if best is None else best.value
    if best is None or value > bound * (1 + gap):
        raise not_proven("one-dimensional strategy", value, bound, gap)
    return replace(best, bound=bound)


def not_proven(where: str, value: float, bound: float, gap: float) -> SolverError:
    """Build the error for a value that exceeds its lower bound by more than a relative gap."""
    return SolverError(
        where,
        "was not proven optimal",
        got=f"{value:.8g} against the bound {bound:.8g}",
        want=f"a relative gap of {gap:g}",
        remedy="allow a larger gap",
    )


def _normalize(logs: FloatArray) -> FloatArray:
    weights = np.exp(logs - logs.max())
    weights = np.maximum(weights / weights.sum(), _LEAST_WEIGHT)
    return np.asarray(weights / weights.sum())


def _root(gram: FloatArray, weights: FloatArray, rank: int) -> tuple[FloatArray, FloatArray]:
    """Return eigenvalues float64[r] and vectors float64[n, r] of (D^.5 G D^.5)^.5.

    Args:
      gram: G, float64[n, n].
      weights: Diagonal of D, float64[n].
      rank: r, the rank of G.
    """
    half = np.sqrt(weights)
    squares, vectors = np.linalg.eigh(half[:, None] * gram * half)
    floor = squares[-1] * 1e-30
    return np.sqrt(np.maximum(squares[-rank:], floor)), vectors[:, -rank:]


def _climb(step: Callable[[FloatArray], tuple[FloatArray, bool, float]], start: FloatArray) -> None:
    """Iterate logs <- logs + _STEP slope with Anderson extrapolation until step() reports the end.

    The extrapolation is dropped whenever the dual objective falls. The plain contraction then
    ensures convergence.
    """
    logs = np.log(np.maximum(start, _LEAST_WEIGHT))
    slope, done, height = step(logs)
    past: deque[tuple[FloatArray, FloatArray]] = deque(maxlen=_MEMORY)
    for _ in range(_MOST_ROUNDS):
        if done:
            return
        past.append((logs, slope))
        proposal = _extrapolate(past)
        new_slope, done, new_height = step(proposal)
        if not done and len(past) > 1 and new_height < height * (1 - 1e-9):
            past.clear()
            past.append((logs, slope))
            proposal = logs + _STEP * slope
            new_slope, done, new_height = step(proposal)
        logs, slope, height = proposal, new_slope, new_height


def _extrapolate(past: deque[tuple[FloatArray, FloatArray]]) -> FloatArray:
    points = np.array([point for point, _ in past])
    slopes = np.array([slope for _, slope in past]) * _STEP
    plain = points[-1] + slopes[-1]
    if len(past) == 1:
        return np.asarray(plain)
    steps, bends = np.diff(points, axis=0), np.diff(slopes, axis=0)
    normal = bends @ bends.T
    normal += np.eye(len(normal)) * np.trace(normal) * 1e-12
    mix = np.linalg.solve(normal, bends @ slopes[-1])
    return np.asarray(plain - mix @ (steps + bends))
