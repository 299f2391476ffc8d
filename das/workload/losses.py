"""Losses of plans: convex functions of the variances of the marginals.

Every loss is convex, increasing in every variance, and homogeneous: doubling all variances doubles
the loss. Variances double at half the privacy cost. So a plan that is optimal at one cost is
optimal at any, and plans are made at cost 1. A convex loss is never below its tangent, a weighted
sum of variances. The least weighted sum has a closed form, which proves every minimum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from das.arrays import FloatArray, read_only
from das.errors import SchemaError
from das.queries.sensitivity import Neighbors
from das.workload.choices import LossKind
from das.workload.residual.bases import AttributeBasis
from das.workload.residual.bounded_noise import minimize_noise_for_changes
from das.workload.residual.convex_loss import (
    CertifiedPlan,
    minimize_largest_variance,
    minimize_loss,
    minimize_worst_sum,
)
from das.workload.residual.plan import ResidualPlan
from das.workload.residual.total_variance import minimize_noise
from das.workload.variances import (
    StrategyRows,
    list_average_variances,
    list_largest_variances,
)
from das.workload.workload import Workload

LARGEST_GAP = 1e-4  # relative distance to the optimum; default, not measured
MOST_POWER = 64
"""Largest power of a mean; above it the mean is within a few percent of the largest number."""


@dataclass(frozen=True)
class PowerMean:
    """(sum_A w_A v_A^p / sum_A w_A)^(1/p) of the mean variances v_A, with importances w_A.

    Between the weighted mean (p = 1) and the largest (p to infinity).

    Attributes:
      power: p, 1 <= p <= MOST_POWER.

    Raises:
      SchemaError: The power is below 1 (not convex) or above MOST_POWER.
    """

    power: float

    def __post_init__(self) -> None:
        if not 1.0 <= self.power:
            raise SchemaError(
                "loss, power of the mean",
                "makes the loss not convex",
                got=self.power,
                want="at least 1",
                remedy="1 is the weighted mean of variances; larger powers weigh the largest more",
            )
        if self.power > MOST_POWER:
            raise SchemaError(
                "loss, power of the mean",
                "is too large",
                got=self.power,
                want=f"at most {MOST_POWER}",
                remedy="use the loss largest_variance",
            )

    def of(self, variances: FloatArray, weights: FloatArray) -> tuple[float, FloatArray]:
        """Return the power mean of variances and its gradient, float64[marginals].

        Args:
          variances: float64[marginals], the mean variance of each marginal.
          weights: float64[marginals], weights that sum to 1.

        >>> value, gradient = PowerMean(2.0).of(np.array([1.0, 7.0]), np.array([0.5, 0.5]))
        >>> round(value, 12), gradient.round(12).tolist()
        (5.0, [0.1, 0.7])
        """
        largest = float(variances.max())
        relative = variances / largest  # powers of large numbers would overflow
        mean = float(weights @ relative**self.power) ** (1.0 / self.power)
        return largest * mean, weights * (relative / mean) ** (self.power - 1.0)


@dataclass(frozen=True, eq=False)
class WorstMean:
    """Largest of several weighted means of variances, such as one per group of users.

    Any convex, increasing and homogeneous loss is a limit of such losses.

    Attributes:
      importances: float64[K, marginals], nonnegative weights of the marginals' mean variances.

    Raises:
      SchemaError: A weight is negative or not finite, or a row or column has no positive weight.
    """

    importances: FloatArray

    def __post_init__(self) -> None:
        given, where = read_only(self.importances), "loss, weights of means"
        object.__setattr__(self, "importances", given)
        if given.ndim != 2 or not len(given) or not (np.isfinite(given) & (given >= 0)).all():
            raise SchemaError(where, "cannot be used", want="nonnegative numbers")
        if not given.any(axis=1).all() or not given.any(axis=0).all():
            raise SchemaError(
                where,
                "have a mean or a table without a positive weight",
                want="a positive weight in every mean, and for every table in some mean",
                remedy="give each table of the workload a small weight in one of the means",
            )


@dataclass(frozen=True, eq=False)
class LargestRatio:
    """Largest ratio of an answer's variance to the limit of its marginal.

    Attributes:
      limits: float64[marginals], positive.

    Raises:
      SchemaError: A limit is not positive and finite.
    """

    limits: FloatArray

    def __post_init__(self) -> None:
        limits = read_only(self.limits)
        object.__setattr__(self, "limits", limits)
        if limits.ndim != 1 or not (np.isfinite(limits) & (limits > 0)).all():
            raise SchemaError("loss, limits", "cannot be used", want="positive numbers")


Loss = LossKind | PowerMean | WorstMean | LargestRatio


def is_of_single_answers(loss: Loss) -> bool:
    """Test whether a loss depends on single answers, not on means of marginals."""
    return loss is LossKind.LARGEST_VARIANCE or isinstance(loss, LargestRatio)


def importances(workload: Workload) -> FloatArray:
    """Return the weight w_A m_A of the mean variance of each marginal, float64[marginals].

    Raises:
      SchemaError: A marginal has weight 0.
    """
    weights = workload.weights * workload.sizes
    if not (weights > 0).all():
        raise SchemaError(
            "loss",
            "needs a positive weight for every table",
            remedy="remove tables of weight 0 from the workload, or use the loss sum_of_variances",
        )
    return np.asarray(weights)


def evaluate_loss(loss: Loss, workload: Workload, strategy: StrategyRows) -> float:
    """Compute the loss of a strategy without rescaling its noise."""
    if isinstance(loss, PowerMean):
        weights = importances(workload)
        variances = list_average_variances(strategy)
        is_answered = bool(np.isfinite(variances).all())
        return loss.of(variances, weights / weights.sum())[0] if is_answered else np.inf
    if isinstance(loss, WorstMean):
        return float((loss.importances @ list_average_variances(strategy)).max())
    if isinstance(loss, LargestRatio):
        return float((list_largest_variances(strategy) / loss.limits).max())
    if loss is LossKind.LARGEST_VARIANCE:
        return float(list_largest_variances(strategy).max())
    if isinstance(strategy, ResidualPlan):
        return float(workload.weights @ strategy.total_variances())
    return strategy.error


def best_noise(
    loss: Loss, workload: Workload, bases: tuple[AttributeBasis, ...], neighbors: Neighbors
) -> tuple[CertifiedPlan, FloatArray]:
    """Choose the noise of least loss for given bases, at privacy cost 1 of one added record.

    Args:
      loss: The loss to minimize.
      workload: Marginals with weights.
      bases: One per attribute.
      neighbors: With bounded neighbors, the noise for a sum of variances minimizes the cost of a
        changed record.

    Returns:
      The plan, its loss and a lower bound for any noise with these bases. For bounded neighbors the
      bound is the loss itself, proven by `minimize_noise_for_changes`. Then float64[marginals]: the
      weights of mean variances in the tangent of the loss at the plan. For losses of single answers
      these are the weights of the workload.

    Raises:
      SchemaError: The loss does not fit the workload.
      SolverError: The optimum was not proven.
    """
    given = workload.weights * workload.sizes
    if isinstance(loss, PowerMean):
        weights = importances(workload)
        weights = weights / weights.sum()
        certified = minimize_loss(workload, bases, lambda variances: loss.of(variances, weights))
        return certified, loss.of(certified.plan.average_variances(), weights)[1]
    if isinstance(loss, WorstMean):
        return minimize_worst_sum(workload, bases, loss.importances)
    if loss is LossKind.SUM_OF_VARIANCES:
        is_change = neighbors is Neighbors.BOUNDED
        plan = (minimize_noise_for_changes if is_change else minimize_noise)(workload, bases)
        value = evaluate_loss(loss, workload, plan)
        return CertifiedPlan(plan, value, value), given
    limits = loss.limits if isinstance(loss, LargestRatio) else None
    return minimize_largest_variance(workload, bases, limits=limits, gap=LARGEST_GAP), given


def lower_sums(loss: Loss, workload: Workload) -> tuple[Workload, ...]:
    """Return workloads whose weighted sums of variances are lower bounds of the loss.

    A largest variance is at least the mean over all answers. A power mean is at least the mean.
    """
    if loss is LossKind.SUM_OF_VARIANCES:
        return (workload,)
    if is_of_single_answers(loss):
        limits = loss.limits if isinstance(loss, LargestRatio) else np.ones(len(workload.sizes))
        rows = [1.0 / (limits * workload.sizes.sum())]
    elif isinstance(loss, WorstMean):
        rows = list(loss.importances / workload.sizes)
    else:
        weights = importances(workload)
        rows = [workload.weights / weights.sum()]
    return tuple(replace(workload, weights=row, weighting=None) for row in rows)
