"""plan_workload: the entry point to all planners of a single geolevel.

A plan is made at privacy cost 1 (zCDP rho 1/2, Gaussian DP mu 1) for the neighbors of the budget.
At cost c, all variances and their bounds are divided by c. A strategy is scaled so that one added
record costs at most 1. With bounded neighbors, its noise is multiplied by the cost of the worst
change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType

import numpy as np

from das.arrays import FloatArray, IntArray
from das.definition import Definition
from das.errors import BudgetError, SchemaError
from das.mechanisms.mechanism import Mechanism
from das.mechanisms.registry import choose_mechanism
from das.mechanisms.wide import MOST_SIGMA_SQ
from das.queries.joint_sensitivity import GramSum
from das.queries.query import Query
from das.queries.sensitivity import Neighbors, l1_sensitivity
from das.workload.choices import LossKind, Method
from das.workload.hdmm.integer import DEFAULT_SCALE, IntegerStrategy, round_to_integers
from das.workload.hdmm.marginals import MarginalsStrategy
from das.workload.hdmm.strategies import HdmmStrategy, KroneckerStrategy, list_hdmm
from das.workload.losses import (
    LARGEST_GAP,
    LargestRatio,
    Loss,
    best_noise,
    evaluate_loss,
    is_of_single_answers,
)
from das.workload.pure import PurePlan
from das.workload.residual.bases import (
    AttributeBasis,
    orthogonal_basis,
    per_matrix,
    projected_basis,
    projected_largest_basis,
    split_off_total,
    uniform_basis,
)
from das.workload.residual.bounded_noise import change_cost
from das.workload.residual.integer_plan import MOST_COEFFICIENT, ExactMeasurement
from das.workload.residual.integer_plan import measure_exactly as measure_residuals_exactly
from das.workload.residual.oblique_largest import plan_oblique_largest
from das.workload.residual.plan import ResidualPlan
from das.workload.residual.reconstruction import (
    DEFAULT_BYTES,
    ResidualAnswers,
    reconstruct,
    refuse_large_marginal,
)
from das.workload.residual.total_variance import choose_oblique_bases
from das.workload.variances import StrategyRows
from das.workload.workload import BaseKind, Workload

MOST_ANSWERS = 1 << 28
"""Most noisy answers a plan may measure, 2 GB of integers."""

# HDMM visits every attribute of every marginal many times. Defaults, not measured.
_MOST_HDMM_WORK = 100_000
_MOST_REWEIGHTINGS = 8
_SETTLED = 1e-5  # relative change of the loss at which reweighting ends
# Losses that differ by less than the solvers' accuracy count as equal; the first plan is taken.
_EQUAL = 1e-6


@dataclass(frozen=True, eq=False)
class ExactQuery:
    """Integer query with its part of the joint privacy cost.

    Attributes:
      query: A query over the attributes of the workload.
      sensitivity: Sensitivity that scales the noise, exact: squared L2, or L1 under pure epsilon.
      rho: The query's part of the joint cost of all queries, exact: rho or epsilon.
      definition: Privacy definition of the cost.
    """

    query: Query
    sensitivity: Fraction
    rho: Fraction
    definition: Definition = Definition.ZCDP

    @property
    def mechanism(self) -> Mechanism:
        """Return the noise of this cost, for example sigma_sq = sensitivity / (2 rho)."""
        noise = choose_mechanism(self.definition)
        return noise.costing(self.definition, self.rho, self.sensitivity)


@dataclass(frozen=True, eq=False)
class ExactPlan:
    """Plan as integer queries with a joint privacy cost.

    Attributes:
      workload: The marginals to answer.
      rho: The joint cost of all queries: zCDP rho, or epsilon of a `PurePlan`.
      neighbors: The neighboring relation of rho.
      measurement: The integer rows, and the reconstruction of answers.
    """

    workload: Workload
    rho: Fraction
    neighbors: Neighbors
    measurement: ExactMeasurement | IntegerStrategy | PurePlan

    def queries(self) -> Iterator[ExactQuery]:
        """Yield the queries in the order of the noisy answers that `answer` takes."""
        measurement = self.measurement
        if isinstance(measurement, ExactMeasurement):
            for position, (query, sigma_sq) in enumerate(measurement.noisy_queries()):
                rho = measurement.rho_of(position)
                yield ExactQuery(query, 2 * rho * sigma_sq, rho)
            return
        if isinstance(measurement, PurePlan):
            for query, share in zip(measurement.queries, measurement.shares, strict=True):
                charged = Fraction(l1_sensitivity(query, self.neighbors))
                yield ExactQuery(query, charged, share * self.rho, Definition.PURE)
            return
        for query, share, sigma_sq in zip(
            measurement.queries, measurement.shares, measurement.noise, strict=True
        ):
            # The strategy is rounded at privacy cost 1, rho 1/2. At rho the noise variance is
            # sigma_sq / (2 rho), so the squared sensitivity is share sigma_sq.
            yield ExactQuery(query, share * sigma_sq, share * self.rho)

    def answer(
        self,
        noisy: Sequence[IntArray | FloatArray],
        names: Sequence[str],
        *,
        most_bytes: int = DEFAULT_BYTES,
    ) -> FloatArray:
        """Answer one marginal from the noisy answers to all queries, without bias.

        Args:
          noisy: One array per query.
          names: Attributes of a marginal of the workload, in the order of the workload.
          most_bytes: Most memory for the reconstruction.

        Returns:
          float64[m_1, ..., m_k].

        Raises:
          SchemaError: An attribute is unknown or out of order, or the marginal was not planned or
            does not fit in the memory.
        """
        measurement = self.measurement
        if isinstance(measurement, ExactMeasurement):
            answers = ResidualAnswers(measurement.plan, np.concatenate(noisy).astype(np.float64))
            return reconstruct(answers, names, most_bytes=most_bytes)
        members = self.workload.members_of(names)
        shape = [self.workload.attributes[i].n_rows for i in members]
        refuse_large_marginal(names, math.prod(shape), most_bytes)
        return measurement.answer(noisy, names).reshape(shape)


@dataclass(frozen=True, eq=False)
class WorkloadPlan:
    """Chosen strategy at privacy cost 1; `das.workload.certify.certify` bounds its loss.

    Attributes:
      workload: The marginals to answer.
      method: The family of the strategy, never AUTO.
      kind: The minimized loss.
      neighbors: The relation whose worst pair costs 1.
      strategy: The measured rows, scaled so that one added record costs at most 1.
      loss: The value of the loss.
      cost: The cost of the worst neighbors if one added record costs 1.
      skipped: Methods that were not tried, with the reason.
    """

    workload: Workload
    method: Method
    kind: Loss
    neighbors: Neighbors
    strategy: StrategyRows
    loss: float
    cost: float
    skipped: Mapping[Method, str]

    def measure_exactly(self, rho: Fraction) -> ExactPlan:
        """Convert the plan to integer queries with discrete Gaussian noise and joint cost rho.

        Args:
          rho: The zCDP budget, exact and positive.

        Raises:
          BudgetError: rho is not positive, or noise or answers overflow their integers.
          SchemaError: The strategy has more than MOST_ANSWERS answers.
        """
        if rho <= 0:
            raise BudgetError("rho", "must be positive", got=rho)
        answers = _count_answers(self.strategy)
        if answers > MOST_ANSWERS:
            raise SchemaError(
                f"strategy of {self.method}",
                "has more answers than can be measured",
                got=f"{answers:.3g}",
                want=f"at most {MOST_ANSWERS}",
                remedy="plan with the method `orp`, or ask for marginals on fewer attributes",
            )
        measurement: ExactMeasurement | IntegerStrategy
        if isinstance(self.strategy, ResidualPlan):
            measurement = measure_residuals_exactly(self.strategy, rho, self.neighbors)
        else:
            measurement = _round_to_fit(self.strategy, rho, self.neighbors)
        return ExactPlan(self.workload, rho, self.neighbors, measurement)


def plan_workload(
    workload: Workload,
    method: Method = Method.AUTO,
    kind: Loss = LossKind.SUM_OF_VARIANCES,
    *,
    neighbors: Neighbors = Neighbors.UNBOUNDED,
) -> WorkloadPlan:
    """Choose the measurements for a workload.

    `auto` compares ResidualPlanner for plain counts, or ResidualPlanner+ and the oblique planner
    otherwise, with HDMM. The oblique planner also uses the bases of the best Kronecker product. So
    it is at least as good as that product, even if HDMM has too many answers to measure.

    Args:
      workload: Marginals with weights.
      method: The family of planners.
      kind: The loss to minimize.
      neighbors: The relation for which plans are compared at equal cost. With bounded neighbors,
        the noise of residual sets for a sum of variances is chosen for changed records.

    Returns:
      The plan at privacy cost 1.

    Raises:
      SchemaError: The method does not support this workload.
      SolverError: A solver stopped without a proof.

    >>> from das.workload.workload import AttributeWorkload
    >>> age, sex = AttributeWorkload.prefix("age", 8), AttributeWorkload.identity("sex", 2)
    >>> plan = plan_workload(Workload.k_way((age, sex), range(3)))
    >>> plan.method.value, round(plan.loss, 3) > 0
    ('orp', True)
    """
    goal = _Goal(workload, kind, neighbors)
    if method is not Method.AUTO:
        return _PLANNERS[method](goal)
    plans, skipped = _try_all(goal)
    return replace(_least(plans), skipped=MappingProxyType(skipped))


@dataclass(frozen=True, eq=False)
class _Goal:
    """Planning problem: the loss of a workload at cost 1 for a neighboring relation."""

    workload: Workload
    loss: Loss
    neighbors: Neighbors

    def plan(self, method: Method, strategy: StrategyRows, loss: float) -> WorkloadPlan:
        """Build the plan of a strategy from its loss if one added record costs 1."""
        if self.neighbors is Neighbors.UNBOUNDED:
            cost = 1.0
        elif isinstance(strategy, ResidualPlan):
            cost = change_cost(strategy)
        else:
            cost = _change_cost_of_products(strategy)
        return WorkloadPlan(
            self.workload, method, self.loss, self.neighbors, strategy, loss * cost, cost, {}
        )


def _try_all(goal: _Goal) -> tuple[list[WorkloadPlan], dict[Method, str]]:
    """Return the candidates of `auto`, preferred ones first, and the skipped methods."""
    workload = goal.workload
    skipped: dict[Method, str] = {}
    if goal.workload.is_plain:
        plans = [_plan_plain(goal)]
        reason = "the same as residual_planner for plain counts"
        skipped |= dict.fromkeys((Method.RESIDUAL_PLANNER_PLUS, Method.ORP), reason)
    else:
        plans = [_plan_oblique(goal), _plan_plus(goal)]
        skipped[Method.RESIDUAL_PLANNER] = "a base matrix is not the identity"
    if workload.marginals.size * len(workload.attributes) > _MOST_HDMM_WORK:
        skipped[Method.HDMM] = f"{workload.marginals.size} marginals would take too long"
        return plans, skipped
    strategies = list_hdmm(workload)
    for strategy in strategies:
        if isinstance(strategy, KroneckerStrategy) and not goal.workload.is_plain:
            plans.append(_with_noise(Method.ORP, goal, _split_off_totals(strategy)))
    usable = [each for each in strategies if _count_answers(each) <= MOST_ANSWERS]
    plans += [_evaluate(Method.HDMM, strategy, goal) for strategy in usable]
    if len(usable) < len(strategies):
        skipped[Method.HDMM] = (
            f"{len(strategies) - len(usable)} of {len(strategies)} strategies measure more "
            f"than {MOST_ANSWERS} answers"
        )
    return plans, skipped


def _plan_plain(goal: _Goal) -> WorkloadPlan:
    bases = per_matrix(goal.workload, uniform_basis)
    return _with_noise(Method.RESIDUAL_PLANNER, goal, bases)


def _plan_plus(goal: _Goal) -> WorkloadPlan:
    builders = [projected_basis]
    if is_of_single_answers(goal.loss):
        builders.append(projected_largest_basis)
    bases = [per_matrix(goal.workload, build) for build in builders]
    return _least([_with_noise(Method.RESIDUAL_PLANNER_PLUS, goal, each) for each in bases])


def _plan_oblique(goal: _Goal) -> WorkloadPlan:
    workload, loss = goal.workload, goal.loss
    bases = choose_oblique_bases(workload)
    plans = [_with_noise(Method.ORP, goal, bases)]
    if is_of_single_answers(loss):
        limits = loss.limits if isinstance(loss, LargestRatio) else None
        certified = plan_oblique_largest(workload, limits=limits, gap=LARGEST_GAP)
        plans.insert(0, goal.plan(Method.ORP, certified.plan, certified.loss))
    elif loss is not LossKind.SUM_OF_VARIANCES:
        # The tangent at the optimum is a weighted sum of variances: choose bases for it, repeat.
        for _ in range(_MOST_REWEIGHTINGS):
            touching = best_noise(loss, workload, bases, goal.neighbors)[1] / workload.sizes
            bases = choose_oblique_bases(replace(workload, weights=touching, weighting=None))
            plans.append(_with_noise(Method.ORP, goal, bases))
            if plans[-1].loss > plans[-2].loss * (1 - _SETTLED):
                break
    return _least(plans)


def _plan_hdmm(goal: _Goal) -> WorkloadPlan:
    return _least([_evaluate(Method.HDMM, each, goal) for each in list_hdmm(goal.workload)])


_PLANNERS: Mapping[Method, Callable[[_Goal], WorkloadPlan]] = {
    Method.RESIDUAL_PLANNER: _plan_plain,
    Method.RESIDUAL_PLANNER_PLUS: _plan_plus,
    Method.ORP: _plan_oblique,
    Method.HDMM: _plan_hdmm,
}


def _least(plans: Sequence[WorkloadPlan]) -> WorkloadPlan:
    """Return the first candidate whose loss is least, up to the solvers' accuracy."""
    best = plans[0]
    for other in plans[1:]:
        if other.loss < best.loss * (1 - _EQUAL):
            best = other
    return best


def _with_noise(method: Method, goal: _Goal, bases: tuple[AttributeBasis, ...]) -> WorkloadPlan:
    """Plan the best noise for the loss and given bases."""
    certified, _ = best_noise(goal.loss, goal.workload, bases, goal.neighbors)
    return goal.plan(method, certified.plan, certified.loss)


def _evaluate(method: Method, strategy: StrategyRows, goal: _Goal) -> WorkloadPlan:
    return goal.plan(method, strategy, evaluate_loss(goal.loss, goal.workload, strategy))


def _change_cost_of_products(strategy: HdmmStrategy) -> float:
    """Return the cost of a changed record if one added record costs 1; at most 4."""
    if isinstance(strategy, MarginalsStrategy):
        return 2.0
    products = strategy.products
    grams = tuple(
        np.stack([factor.T @ factor for factor in factors])
        for factors in zip(*(product.factors for product in products), strict=True)
    )
    kinds = np.repeat(np.arange(len(products))[:, None], len(grams), axis=1)
    weights = [Fraction(share) for share in strategy.shares.tolist()]
    pair = GramSum(tuple(weights), kinds, grams).largest_pair(exact=False)
    if pair is not None:
        return max(2.0, float(pair.value))
    separate = 0.0  # too many pairs for all products together
    for index, weight in enumerate(weights):
        single = GramSum((weight,), kinds[:1], tuple(gram[[index]] for gram in grams))
        worst = single.largest_pair(exact=False)
        separate += 4.0 * float(weight) if worst is None else float(worst.value)
    return max(2.0, separate)


def _split_off_totals(strategy: KroneckerStrategy) -> tuple[AttributeBasis, ...]:
    """Build oblique bases from a Kronecker product; some noise for them equals the product."""
    bases = []
    for attribute, factor in zip(strategy.workload.attributes, strategy.factors, strict=True):
        if attribute.kind is BaseKind.IDENTITY or len(factor.rows) == 1:
            bases.append(orthogonal_basis(attribute))
            continue
        bases.append(split_off_total(attribute, factor.rows.T, factor.decoder))
    return tuple(bases)


def _count_answers(strategy: StrategyRows) -> float:
    """Return the number of noisy answers, a float as it may pass 2^63."""
    if isinstance(strategy, ResidualPlan):
        widths = np.array([len(basis.subtraction) for basis in strategy.bases], np.float64)
        return float(strategy.residuals.product(widths).sum())
    if isinstance(strategy, MarginalsStrategy):
        sizes = [float(attribute.size) for attribute in strategy.workload.attributes]
        return float(np.where(strategy.sets, sizes, 1.0).prod(axis=1).sum())
    return float(sum(math.prod(map(float, map(len, p.factors))) for p in strategy.products))


def _round_to_fit(strategy: HdmmStrategy, rho: Fraction, neighbors: Neighbors) -> IntegerStrategy:
    """Round rows to integers at the largest scale without overflow of answers or noise.

    Args:
      strategy: The strategy.
      rho: Privacy cost of the measurement.
      neighbors: Which data sets count as neighbors.
    """
    scale = DEFAULT_SCALE
    while scale > 1:
        rounded = round_to_integers(strategy, scale=scale, neighbors=neighbors)
        coefficients = [
            math.prod(int(np.abs(factor.matrix).max()) for factor in query.factors)
            for query in rounded.queries
        ]
        widest = max(rounded.noise) / (2 * rho)
        if max(coefficients) <= MOST_COEFFICIENT and widest <= MOST_SIGMA_SQ:
            return rounded
        scale //= 2
    raise BudgetError(
        "discrete noise",
        "does not fit its integers at any scale",
        remedy="raise rho, or plan with orp",
    )
