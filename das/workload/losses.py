"""What a plan minimizes: convex functions of the variances of the marginals.

Every loss here is convex, grows with every variance, and is homogeneous: it doubles where all
variances do, as they do at half the privacy cost. So a plan that is best at one cost is best at
any, and plans are made at cost 1. By convexity a loss is never below its tangent, a weighted sum of
variances; the least weighted sum has a closed form, so every minimum comes with a proof.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from das.arrays import FloatArray
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

LARGEST_GAP = 1e-4
MOST_POWER = 64
"""The largest power of a mean; beyond it the mean is the largest of its numbers within a few
percent, which is another loss."""


@dataclass(frozen=True)
class PowerMean:
    """(sum_A w_A v_A^p / sum_A w_A)^(1/p) of the mean variances v_A, with importances w_A.

    Between the weighted mean (p = 1) and the largest (p to infinity).

    Attributes:
      power: p, 1 <= p <= MOST_POWER.

    Raises:
      SchemaError: Below 1 it is not convex; above MOST_POWER numbers are lost.
    """

    power: float

    def __post_init__(self) -> None:
        if not 1.0 <= self.power:
            raise SchemaError(
                "loss, power of the mean",
                "makes the loss not convex",
                got=self.power,
                want="at least 1",
                remedy="1 is the weighted mean of variances; larger powers heed the worst more",
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
        """The mean of float64[marginals] and its gradient; weights sum to 1.

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
    """The largest of several weighted means of variances, such as one per group of users.

    Any convex, growing and homogeneous loss is the limit of such ones.

    Attributes:
      importances: float64[K, marginals], nonnegative; of the mean variance of each marginal.

    Raises:
      SchemaError: A number is negative or not finite, or a mean or a marginal has no positive one.
    """

    importances: FloatArray

    def __post_init__(self) -> None:
        given = np.array(self.importances, np.float64)
        given.flags.writeable = False
        object.__setattr__(self, "importances", given)
        if given.ndim != 2 or not len(given) or not (np.isfinite(given) & (given >= 0)).all():
            raise SchemaError(
                "loss, weights of means", "cannot be used", want="nonnegative numbers"
            )
        if not given.any(axis=1).all() or not given.any(axis=0).all():
            raise SchemaError(
                "loss, weights of means",
                "leave something out",
                want="a positive weight in every mean, and for every table in some mean",
                remedy="give each table of the workload a small weight in one of the means",
            )


@dataclass(frozen=True, eq=False)
class LargestRatio:
    """The largest variance of any answer over the limit of its marginal.

    Attributes:
      limits: float64[marginals], positive.

    Raises:
      SchemaError: A limit is not positive and finite.
    """

    limits: FloatArray

    def __post_init__(self) -> None:
        limits = np.array(self.limits, np.float64)
        limits.flags.writeable = False
        object.__setattr__(self, "limits", limits)
        if limits.ndim != 1 or not (np.isfinite(limits) & (limits > 0)).all():
            raise SchemaError("loss, limits", "cannot be used", want="positive numbers")


Loss = LossKind | PowerMean | WorstMean | LargestRatio


def is_of_largest(loss: Loss) -> bool:
    """Whether single answers count and not the means of marginals."""
    return loss is LossKind.LARGEST_VARIANCE or isinstance(loss, LargestRatio)


def importances(workload: Workload) -> FloatArray:
    """float64[marginals]: how much the mean variance of each counts, w_A m_A.

    Raises:
      SchemaError: A marginal has none.
    """
    found = workload.weights * workload.sizes
    if not (found > 0).all():
        raise SchemaError(
            "loss",
            "needs a positive weight for every table",
            remedy="leave tables of weight 0 out, or use the loss sum_of_variances",
        )
    return np.asarray(found)


def loss_of(loss: Loss, workload: Workload, strategy: StrategyRows) -> float:
    """The loss of a strategy as it is scaled."""
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
      loss: What to minimize.
      workload: Marginals with weights.
      bases: One per attribute.
      neighbors: Where a record is changed, the noise for the sum of variances is chosen for that.

    Returns:
      The plan, its loss and a bound on that of any other noise for these bases (for changed records
      the loss itself, proven elsewhere); and float64[marginals], the importances whose weighted sum
      of mean variances touches the loss at the plan. For losses of single answers they are those of
      the workload.

    Raises:
      SchemaError: The loss does not fit the workload.
      SolverError: The optimum was not proven.
    """
    given = workload.weights * workload.sizes
    if isinstance(loss, PowerMean):
        weights = importances(workload)
        weights = weights / weights.sum()
        found = minimize_loss(workload, bases, lambda variances: loss.of(variances, weights))
        return found, loss.of(found.plan.average_variances(), weights)[1]
    if isinstance(loss, WorstMean):
        return minimize_worst_sum(workload, bases, loss.importances)
    if loss is LossKind.SUM_OF_VARIANCES:
        is_change = neighbors is Neighbors.BOUNDED
        plan = (minimize_noise_for_changes if is_change else minimize_noise)(workload, bases)
        value = loss_of(loss, workload, plan)
        return CertifiedPlan(plan, value, value), given
    limits = loss.limits if isinstance(loss, LargestRatio) else None
    return minimize_largest_variance(workload, bases, limits=limits, gap=LARGEST_GAP), given


def lower_sums(loss: Loss, workload: Workload) -> tuple[Workload, ...]:
    """Workloads whose weighted sums of variances the loss is never below.

    The loss is at least the mean over all answers, in whose terms it is the largest one, and a mean
    of powers is at least the mean.
    """
    if loss is LossKind.SUM_OF_VARIANCES:
        return (workload,)
    if is_of_largest(loss):
        limits = loss.limits if isinstance(loss, LargestRatio) else np.ones(len(workload.sizes))
        rows = [1.0 / (limits * workload.sizes.sum())]
    elif isinstance(loss, WorstMean):
        rows = list(loss.importances / workload.sizes)
    else:
        weights = importances(workload)
        rows = [workload.weights / weights.sum()]
    return tuple(replace(workload, weights=row, weighting=None) for row in rows)
