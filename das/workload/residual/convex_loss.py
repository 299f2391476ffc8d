"""Noise for convex losses of the variances, and for the largest variance.

With fixed bases, variances are linear in the noise x, and the privacy cost is sum_S p_S / x_S. So
all problems are convex. Each result has a lower bound from the dual, in which the best noise for
weights y has a closed form: min { y^T A x : sum p/x <= 1 } = (sum sqrt(p A^T y))^2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from das.arrays import FloatArray
from das.errors import SchemaError
from das.workload.one_dimensional import not_proven
from das.workload.residual.answer_rows import AnswerRows
from das.workload.residual.bases import AttributeBasis
from das.workload.residual.plan import ResidualPlan
from das.workload.workload import Workload

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Loss = Callable[[FloatArray], tuple[float, FloatArray]]

# Defaults, not measured.
_GAP = 1e-6  # relative distance to the optimum to be proven
_MOST_ITERATIONS = 3000
_MOST_RESTARTS = 6
_MOST_ROW_ROUNDS = 100
_MOST_NEWTON_ROWS = 1500
_LEAST = 1e-300


@dataclass(frozen=True, eq=False)
class CertifiedPlan:
    """Plan with its loss and a lower bound.

    Attributes:
      plan: The plan.
      loss: The loss of the plan.
      bound: No noise at the same cost and with the same bases has a smaller loss.
    """

    plan: ResidualPlan
    loss: float
    bound: float


def minimize_largest_variance(
    workload: Workload,
    bases: tuple[AttributeBasis, ...],
    *,
    limits: FloatArray | None = None,
    gap: float = _GAP,
) -> CertifiedPlan:
    """Choose the noise whose largest variance, over all answers of all marginals, is least.

    Args:
      workload: The marginals; their weights are not used.
      bases: One per attribute.
      limits: float64[marginals], positive; the loss is the largest variance / limit. Default 1.
      gap: Relative distance to the optimum to be proven.

    Returns:
      The plan, its largest (relative) variance, and the bound.

    Raises:
      SchemaError: There is not one positive limit per marginal.
      SolverError: The gap was not reached.

    References:
      He, Xiao, Toksoz, Ding, Zhang & Kifer, ResidualPlanner+, Section 7.5 (the primal problem).
    """
    scale = 1 / check_limits(workload, limits)
    rows = AnswerRows.build(workload, bases)
    residuals = rows.incidence.residuals
    costs = residuals.product(np.array([basis.cell_cost for basis in bases]))
    noise = best = costs * residuals.size
    value, bound = np.inf, 0.0
    chosen, weights = np.zeros(0, np.int64), np.zeros(0)
    # Answers join the problem when they are the largest of their marginal.
    for _ in range(_MOST_ROW_ROUNDS):
        largest, where = rows.find_largest(noise)
        largest = largest * scale
        if largest.max() < value:
            value, best = float(largest.max()), noise
        if value <= bound * (1 + gap):
            break
        violated = where[largest > bound * (1 + gap / 4)]
        new = np.setdiff1d(violated, chosen, assume_unique=True)
        if not len(new):
            break
        # New answers start with a tenth of the mean weight.
        joined = np.concatenate([weights, np.full(len(new), 0.1 / max(1, len(chosen)))])
        chosen = np.concatenate([chosen, new])
        order = np.argsort(chosen)
        chosen, weights = chosen[order], joined[order]
        owners = np.searchsorted(rows.starts, chosen, side="right") - 1
        matrix = rows.matrix(chosen)
        matrix.data *= np.repeat(scale[owners], np.diff(matrix.indptr))
        noise, weights, floor = _balance(matrix, costs, weights, gap / 4)
        bound = max(bound, floor)
    if value > bound * (1 + gap):
        raise not_proven("largest variance", value, bound, gap)
    return CertifiedPlan(ResidualPlan(workload, bases, residuals, best), value, bound)


def minimize_loss(
    workload: Workload, bases: tuple[AttributeBasis, ...], loss: Loss
) -> CertifiedPlan:
    """Choose the noise that minimizes a convex loss of the average variances of the marginals.

    Args:
      workload: The marginals; their weights are not used.
      bases: One per attribute.
      loss: A convex function of float64[marginals], the average variances of the marginals. It
        returns the loss and its gradient, which must be nonnegative.

    Returns:
      The plan, its loss and the bound, which is valid if the loss is convex with exact gradients.

    Raises:
      SchemaError: The gradient has a negative entry or does not fit.
      SolverError: The distance to the optimum was not proven to be below 1e-6 of the loss.
    """
    draft, matrix = _mean_variances(workload, bases)
    transposed, costs = matrix.T.tocsr(), draft.set_costs
    best, best_loss, bound = draft.noise, np.inf, -np.inf

    def evaluate(logs: FloatArray) -> tuple[float, FloatArray]:
        nonlocal best, best_loss, bound
        shares = np.exp(logs - logs.max())
        shares /= shares.sum()
        noise = costs / np.maximum(shares, _LEAST)
        variances = matrix @ noise
        value, gradient = loss(variances)
        if not (np.isfinite(gradient) & (gradient >= 0)).all():
            raise SchemaError(
                "convex loss",
                "has a gradient that cannot be used",
                got=gradient.min(),
                want="nonnegative entries: less variance is never worse",
            )
        adjoint = transposed @ gradient
        # The tangent bounds a convex loss from below; its minimum has a closed form.
        floor = np.sqrt(costs * adjoint).sum() ** 2
        bound = max(bound, float(value - gradient @ variances + floor))
        if value < best_loss:
            best, best_loss = noise, float(value)
        slope = -adjoint * noise
        return float(value), slope - shares * slope.sum()

    _descend(evaluate, lambda: best_loss - bound <= _GAP * abs(best_loss), np.log(np.sqrt(costs)))
    if best_loss - bound > _GAP * abs(best_loss):
        raise not_proven("convex loss", best_loss, bound, _GAP)
    return CertifiedPlan(replace(draft, noise=best), best_loss, bound)


def minimize_worst_sum(
    workload: Workload, bases: tuple[AttributeBasis, ...], importances: FloatArray
) -> tuple[CertifiedPlan, FloatArray]:
    """Choose the noise that minimizes the largest of several weighted sums of mean variances.

    Args:
      workload: The marginals; their weights are not used.
      bases: One per attribute.
      importances: float64[K, marginals], nonnegative; every marginal has a positive one.

    Returns:
      The plan, its largest sum and the bound. Then float64[marginals], the mixture of the rows
      whose weighted sum the plan minimizes.

    Raises:
      SchemaError: The rows do not fit the workload.
      SolverError: The relative distance to the optimum was not proven to be below 1e-6.
    """
    from scipy.sparse import csr_array

    if importances.shape[1:] != (workload.marginals.size,):
        raise SchemaError(
            "weights of sums", "do not fit the workload", got=f"shape {importances.shape}"
        )
    draft, matrix = _mean_variances(workload, bases)
    sums = csr_array(importances @ matrix)
    noise, weights, bound = _balance(sums, draft.set_costs, np.ones(len(importances)), _GAP)
    value = float((sums @ noise).max())
    if value > bound * (1 + _GAP):
        raise not_proven("largest sum of variances", value, bound, _GAP)
    return CertifiedPlan(replace(draft, noise=noise), value, bound), weights @ importances


def _mean_variances(
    workload: Workload, bases: tuple[AttributeBasis, ...]
) -> tuple[ResidualPlan, csr_array]:
    """Build a plan of noise 1 and the matrix that maps noise to mean variances of marginals."""
    closure = workload.marginals.closure()
    draft = ResidualPlan(workload, bases, closure, np.ones(closure.size))
    n_rows = np.array([attribute.n_rows for attribute in workload.attributes])
    matrix = draft.incidence.matrix(
        np.array([basis.pivot_variance for basis in bases]) / n_rows,
        np.array([basis.residual_variance for basis in bases]) / n_rows,
    )
    return draft, matrix


def _balance(
    matrix: csr_array, costs: FloatArray, start: FloatArray, gap: float
) -> tuple[FloatArray, FloatArray, float]:
    """Minimize max(A x) subject to sum p/x <= 1; return noise, dual weights and lower bound.

    The dual maximizes (sum sqrt(p A^T y))^2 / sum y, concave in y >= 0. With y = z^2 it has no
    constraints, and weights of inactive answers can become 0.

    Args:
      matrix: A, nonnegative, sparse float64[variances, sets].
      costs: p, float64[sets], privacy cost of each set at noise variance 1.
      start: float64[variances], dual weights y to start from.
      gap: Relative distance of value and bound at which the search stops.
    """
    transposed = matrix.T.tocsr()
    noise, value, bound, best = np.ones(len(costs)), np.inf, 0.0, start

    def evaluate(root: FloatArray) -> tuple[float, FloatArray]:
        nonlocal noise, value, bound, best
        weights = root**2
        adjoint = np.maximum(transposed @ weights, _LEAST)
        height, total = float(np.sqrt(costs * adjoint).sum()), float(weights.sum())
        relative = np.sqrt(costs / adjoint)
        variances = matrix @ relative
        if height**2 / total > bound:
            bound, best = height**2 / total, weights / total
        if height * variances.max() < value:
            value, noise = float(height * variances.max()), height * relative
        slope = (1 / total - variances / height) * root
        return float(np.log(total) / 2 - np.log(height)), slope

    _descend(evaluate, lambda: value <= bound * (1 + gap), np.sqrt(start))
    if value > bound * (1 + gap) and len(start) <= _MOST_NEWTON_ROWS:
        # If the optimal weights are not unique, the objective is flat at rounding level.
        for weights in _follow_barrier(matrix, costs, best):
            evaluate(np.sqrt(weights))
            if value <= bound * (1 + gap):
                break
    return noise, best, bound


def _follow_barrier(
    matrix: csr_array, costs: FloatArray, start: FloatArray
) -> Iterator[FloatArray]:
    """Yield unfinished weights y of sum 1, after two Newton steps for each barrier mu, falling.

    The steps minimize -sum sqrt(p A^T y) - mu sum log y. The caller stops at a proven optimum.

    At the minimum for mu, answers of large weight have equal variances up to mu / y. The matrix of
    each step is positive definite even if the optimal weights are not unique.
    """
    rows = matrix.toarray()
    count = len(start)
    weights = 0.9 * start / start.sum() + 0.1 / count
    scale = float(np.sqrt(costs * (weights @ rows)).sum())
    for barrier in np.geomspace(1e-2, 1e-14, 49) / count:
        for _ in range(2):
            adjoint = np.maximum(weights @ rows, _LEAST)
            slope = -rows @ np.sqrt(costs / adjoint) / (2 * scale) - barrier / weights
            bend = rows * (costs**0.25 * adjoint**-0.75 / (2 * np.sqrt(scale)))
            curvature = bend @ bend.T + np.diag(barrier / weights**2)
            solved = np.linalg.solve(curvature, np.column_stack([slope, np.ones(count)]))
            step = solved[:, 1] * (solved[:, 0].sum() / solved[:, 1].sum()) - solved[:, 0]
            length = min(1.0, 0.9 / max(1e-300, float((-step / weights).max())))
            weights = weights + length * step
            weights /= weights.sum()
        yield weights


def _descend(
    evaluate: Callable[[FloatArray], tuple[float, FloatArray]],
    is_proven: Callable[[], bool],
    start: FloatArray,
) -> None:
    """Run L-BFGS until `is_proven`; restarts discard old curvature."""
    from scipy.optimize import minimize

    def stop_when_proven(_: FloatArray) -> None:
        if is_proven():
            raise StopIteration

    point = start
    for _ in range(_MOST_RESTARTS):
        result = minimize(
            evaluate,
            point,
            jac=True,
            method="L-BFGS-B",
            callback=stop_when_proven,
            options={
                "maxiter": _MOST_ITERATIONS,
                "maxfun": 4 * _MOST_ITERATIONS,
                "maxcor": 20,
                "ftol": 0.0,
                "gtol": 0.0,
            },
        )
        if is_proven() or np.array_equal(result.x, point):
            return
        point = result.x


def check_limits(workload: Workload, limits: FloatArray | None) -> FloatArray:
    """Return positive limits of variances, float64[marginals].

    Args:
      workload: The workload.
      limits: The limit of each marginal; None for 1 everywhere.

    Raises:
      SchemaError: There is not one positive limit per marginal.
    """
    if limits is None:
        return np.ones(workload.marginals.size)
    limits = np.asarray(limits, np.float64)
    if limits.shape != (workload.marginals.size,) or not (limits > 0).all():
        raise SchemaError(
            "variance limits",
            "do not fit the workload",
            want=f"{workload.marginals.size} positive numbers",
        )
    return limits
