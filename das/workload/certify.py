"""certify(): the errors of a plan for a workload, and lower bounds for all plans.

Runs do not call this: they need only the strategy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

import numpy as np

from das.arrays import FloatArray
from das.errors import SolverError
from das.queries.sensitivity import Neighbors
from das.workload.bounds import (
    MOST_CELLS,
    minimize_largest_over_all_strategies,
    minimize_over_all_strategies,
    separate_bound,
    separate_variance_bound,
    svd_bound,
)
from das.workload.choices import LossKind
from das.workload.hdmm.marginals import MarginalsStrategy
from das.workload.losses import Loss, best_noise, lower_sums
from das.workload.plan import WorkloadPlan
from das.workload.residual.bases import per_matrix, uniform_basis
from das.workload.residual.plan import ResidualPlan
from das.workload.variances import StrategyRows, list_average_variances
from das.workload.workload import Workload

DENSE_CELLS = 256
"""Most cells for which the optimum over all strategies is computed by default."""

_SVD_CELLS = 1024  # default, not measured
_DENSE_GAP = 2e-3  # default, not measured


class Bound(StrEnum):
    """A lower bound on the loss of every matrix mechanism at privacy cost 1."""

    SINGULAR_VALUES = "singular_values"  # the sum of the singular values of all answers
    EACH_MARGINAL = "each_marginal"  # every marginal alone
    ALL_STRATEGIES = "all_strategies"  # the dual over all cells, for weighted sums
    PLAIN_COUNTS = "plain_counts"  # the dual over residual noise, where ResidualPlanner is optimal


@dataclass(frozen=True, eq=False)
class Certificate:
    """Errors of a plan, and lower bounds.

    Attributes:
      plan: The plan.
      average_variances: float64[marginals], mean variance of the answers of each marginal at cost 1
        for the plan's neighbors.
      privacy_cost: Cost of one added record, summed over the rows of the strategy; at most 1.
      bounds: Lower bounds that could be computed, in the unit of the plan's loss.
    """

    plan: WorkloadPlan
    average_variances: FloatArray
    privacy_cost: float
    bounds: Mapping[Bound, float]

    @property
    def root_mean_square_error(self) -> float:
        """Return sqrt(mean variance of all answers), at privacy cost 1."""
        sizes = self.plan.workload.sizes
        return float(np.sqrt((self.average_variances * sizes).sum() / sizes.sum()))

    @property
    def best_bound(self) -> float:
        """Return the largest bound: no mechanism of this privacy cost has a smaller loss."""
        return max(self.bounds.values())

    @property
    def distance(self) -> float:
        """Return sqrt(loss / best_bound) - 1: the most by which errors exceed the optimum."""
        return math.sqrt(self.plan.loss / self.best_bound) - 1


def certify(plan: WorkloadPlan, dense_cells: int = DENSE_CELLS) -> Certificate:
    """Compute the errors of a plan from its rows, and lower bounds for its privacy cost.

    Args:
      plan: The plan.
      dense_cells: Most cells for which the optimum over all strategies is computed as a bound; it
        takes a minute at 1000 cells.

    Returns:
      The certificate, without bounds that take too long to prove.

    Raises:
      SolverError: A solver stopped without a proof.

    >>> from das.workload.plan import plan_workload
    >>> from das.workload.workload import AttributeWorkload
    >>> age, sex = AttributeWorkload.prefix("age", 8), AttributeWorkload.identity("sex", 2)
    >>> certificate = certify(plan_workload(Workload.k_way((age, sex), range(3))))
    >>> 0 <= certificate.distance < 0.001, sorted(certificate.bounds)[0].value
    (True, 'all_strategies')
    """
    # Every mechanism pays at least twice as much for a move as for an added record.
    least_cost = 1.0 if plan.neighbors is Neighbors.UNBOUNDED else 2.0
    bounds = _list_bounds(plan.workload, plan.kind, dense_cells)
    return Certificate(
        plan,
        list_average_variances(plan.strategy) * plan.cost,
        _measure_cost(plan.strategy),
        MappingProxyType({name: bound * least_cost for name, bound in bounds.items()}),
    )


def _measure_cost(strategy: StrategyRows) -> float:
    """Return the privacy cost of the rows: sum of squared sensitivity / noise variance."""
    if isinstance(strategy, ResidualPlan):
        return strategy.privacy_cost
    if isinstance(strategy, MarginalsStrategy):
        return float(strategy.shares.sum())
    products = zip(strategy.shares, strategy.products, strict=True)
    return float(sum(share * product.largest_column() for share, product in products))


def _list_bounds(workload: Workload, loss: Loss, dense_cells: int) -> dict[Bound, float]:
    """Compute the bounds that are feasible for this domain."""
    cells = math.prod(attribute.size for attribute in workload.attributes)
    out: dict[Bound, float] = {}
    sums = lower_sums(loss, workload)
    total = loss is LossKind.SUM_OF_VARIANCES
    largest = loss is LossKind.LARGEST_VARIANCE
    out[Bound.EACH_MARGINAL] = (
        separate_variance_bound(workload) if largest else max(map(separate_bound, sums))
    )
    if workload.is_plain or cells <= _SVD_CELLS:
        out[Bound.SINGULAR_VALUES] = max(map(svd_bound, sums))
    if cells <= min(dense_cells, MOST_CELLS):
        minimize = minimize_largest_over_all_strategies if largest else minimize_over_all_strategies
        # Without a proof the other bounds suffice.
        with suppress(SolverError):
            out[Bound.ALL_STRATEGIES] = max(minimize(w, gap=_DENSE_GAP).bound for w in sums)
    if workload.is_plain and not total:
        bases = per_matrix(workload, uniform_basis)
        out[Bound.PLAIN_COUNTS] = best_noise(loss, workload, bases, Neighbors.UNBOUNDED)[0].bound
    return out
