"""plan_workload: one door to all planners of a single level, and the best of them.

A plan is made at privacy cost 1 (zCDP rho 1/2, Gaussian DP mu 1) for the neighbors of the budget;
at cost c all variances and the bounds on them are divided by c. A strategy itself is scaled so that
one added record costs at most 1; where neighbors change a record, its noise is larger by what the
worst change costs then.
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
from das.queries.sensitivity import Neighbors
from das.workload.choices import LossKind, Method
from das.workload.hdmm.integer import DEFAULT_SCALE, IntegerStrategy, round_to_integers
from das.workload.hdmm.marginals import MOST_ATTRIBUTES, MarginalsStrategy, optimize_marginals
from das.workload.hdmm.strategies import (
    HdmmStrategy,
    KroneckerStrategy,
    optimize_kronecker,
    optimize_union,
)
from das.workload.losses import LARGEST_GAP, LargestRatio, Loss, best_noise, is_of_largest, loss_of
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
from das.workload.residual.integer_plan import ExactMeasurement
from das.workload.residual.integer_plan import measure_exactly as measure_residuals_exactly
from das.workload.residual.oblique_largest import plan_oblique_largest
from das.workload.residual.plan import ResidualPlan
from das.workload.residual.reconstruction import DEFAULT_BYTES, ResidualAnswers, reconstruct
from das.workload.residual.total_variance import choose_oblique_bases
from das.workload.variances import StrategyRows
from das.workload.workload import BaseKind, Workload

MOST_ANSWERS = 1 << 28
"""Most noisy answers a plan may measure, 2 GB of integers."""

# HDMM visits every attribute of every marginal many times.
_MOST_HDMM_WORK = 100_000
_MOST_REWEIGHTINGS = 8
_SETTLED = 1e-5  # relative; the bases of the oblique planner for a sum end at the same
# Strategies that differ by less than their solvers prove count as equal; then the first one wins.
_EQUAL = 1e-6
# The same bound as for residual plans, so that answers fit in 63 bits.
_MOST_COEFFICIENT = 1 << 34


@dataclass(frozen=True, eq=False)
class ExactQuery:
    """One integer query with noise whose cost is proportional to squared sensitivities.

    Attributes:
      query: Over the attributes of the workload.
      sensitivity_sq: The squared sensitivity to which the noise is scaled, exact.
      rho: Its part of the zCDP cost of all queries together, exact.
    """

    query: Query
    sensitivity_sq: Fraction
    rho: Fraction

    @property
    def mechanism(self) -> Mechanism:
        """The noise of this cost: discrete Gaussian, with sigma_sq = sensitivity_sq / (2 rho)."""
        noise = choose_mechanism(Definition.ZCDP)
        return noise.costing(Definition.ZCDP, self.rho, self.sensitivity_sq)


@dataclass(frozen=True, eq=False)
class ExactPlan:
    """A plan as integer queries that cost rho together.

    Attributes:
      workload: What is answered.
      rho: The zCDP cost of all queries.
      neighbors: The relation it holds for.
      measurement: The integer rows and how answers come from them.
    """

    workload: Workload
    rho: Fraction
    neighbors: Neighbors
    measurement: ExactMeasurement | IntegerStrategy

    def queries(self) -> Iterator[ExactQuery]:
        """Yield the queries in the order in which `answer` takes their noisy answers."""
        found = self.measurement
        if isinstance(found, ExactMeasurement):
            for position, (query, sigma_sq) in enumerate(found.noisy_queries()):
                rho = found.rho_of(position)
                yield ExactQuery(query, 2 * rho * sigma_sq, rho)
            return
        for query, share, sigma_sq in zip(found.queries, found.shares, found.noise, strict=True):
            # The strategy is rounded at privacy cost 1, which is rho 1/2. At rho the noise has
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
          names: Attributes of a marginal of the workload, in its order.
          most_bytes: Memory that reconstruction may take.

        Returns:
          float64[m_1, ..., m_k].

        Raises:
          SchemaError: An unknown attribute, another order, a marginal that was not planned or that
            does not fit in the memory.
        """
        found = self.measurement
        if isinstance(found, ExactMeasurement):
            values = np.concatenate(noisy).astype(np.float64)
            return reconstruct(ResidualAnswers(found.plan, values), names, most_bytes=most_bytes)
        rows = {attribute.name: attribute.n_rows for attribute in self.workload.attributes}
        if list(names) != [name for name in rows if name in names]:
            raise SchemaError(
                f"marginal {list(names)}",
                "does not list attributes once each, in the order of the workload",
                want=f"a part of {list(rows)}",
            )
        shape = [rows[name] for name in names]
        needed = 16 * math.prod(shape)
        if needed > most_bytes:
            raise SchemaError(
                f"marginal {list(names)}",
                "is too large to reconstruct",
                got=f"{needed:.3g} bytes",
                want=f"at most {most_bytes}",
                remedy="allow more memory, or ask for a marginal with fewer answers",
            )
        return found.answer(noisy, names).reshape(shape)


@dataclass(frozen=True, eq=False)
class WorkloadPlan:
    """The chosen strategy at privacy cost 1.

    How far it is from the best, and the variances of its answers: `das.workload.certify.certify`.

    Attributes:
      workload: What is answered.
      method: The family of the strategy, never AUTO.
      kind: The loss that was minimized.
      neighbors: The relation whose worst pair costs 1.
      strategy: What is measured, scaled so that one added record costs at most 1.
      loss: Its value.
      cost: What the worst neighbors cost where one added record costs 1.
      skipped: Methods that were not tried, and why.
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
        """Turn the plan into integer queries with discrete Gaussian noise that cost rho together.

        Args:
          rho: The zCDP budget, exact and positive.

        Returns:
          The queries, for any family of strategies.

        Raises:
          BudgetError: rho is not positive, or noise and answers fit their integers at no scale.
          SchemaError: The strategy has more answers than can be measured.
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
                remedy="plan with orp, or ask for marginals on fewer attributes",
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
    """Plan what to measure for a workload.

    `auto` returns the best of ResidualPlanner for plain counts, else ResidualPlanner+ and the
    oblique planner, and of HDMM, at the neighbors given. The oblique planner also starts from the
    bases of the best Kronecker product, so it is at least as good as that one even where HDMM
    cannot be measured.

    Args:
      workload: Marginals with weights.
      method: The family of planners.
      kind: What to minimize.
      neighbors: The relation at which errors are compared at equal cost. Where a record is changed,
        the noise of residual sets is chosen for that too, for the sum of variances.

    Returns:
      The plan at privacy cost 1.

    Raises:
      SchemaError: The method cannot plan this workload.
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
    found, skipped = _try_all(goal)
    return replace(_least(found), skipped=MappingProxyType(skipped))


@dataclass(frozen=True, eq=False)
class _Goal:
    """What is planned for: the loss of a workload at cost 1 among neighbors."""

    workload: Workload
    loss: Loss
    neighbors: Neighbors

    def plan(self, method: Method, strategy: StrategyRows, loss: float) -> WorkloadPlan:
        """The plan of a strategy, given its loss where one added record costs 1."""
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
    """The candidates of `auto`, the preferred ones first, and what was left out."""
    workload = goal.workload
    skipped: dict[Method, str] = {}
    if goal.workload.is_plain:
        found = [_plan_plain(goal)]
        reason = "the same as residual_planner for plain counts"
        skipped |= dict.fromkeys((Method.RESIDUAL_PLANNER_PLUS, Method.ORP), reason)
    else:
        found = [_plan_oblique(goal), _plan_plus(goal)]
        skipped[Method.RESIDUAL_PLANNER] = "a base matrix is not the identity"
    if workload.marginals.size * len(workload.attributes) > _MOST_HDMM_WORK:
        skipped[Method.HDMM] = f"{workload.marginals.size} marginals would take it too long"
        return found, skipped
    strategies = _list_hdmm(workload)
    for strategy in strategies:
        if isinstance(strategy, KroneckerStrategy) and not goal.workload.is_plain:
            found.append(_with_noise(Method.ORP, goal, _split_off_totals(strategy)))
    usable = [each for each in strategies if _count_answers(each) <= MOST_ANSWERS]
    found += [_evaluate(Method.HDMM, strategy, goal) for strategy in usable]
    if len(usable) < len(strategies):
        skipped[Method.HDMM] = (
            f"{len(strategies) - len(usable)} of its {len(strategies)} strategies measure more "
            f"than {MOST_ANSWERS} answers"
        )
    return found, skipped


def _plan_plain(goal: _Goal) -> WorkloadPlan:
    bases = per_matrix(goal.workload, uniform_basis)
    return _with_noise(Method.RESIDUAL_PLANNER, goal, bases)


def _plan_plus(goal: _Goal) -> WorkloadPlan:
    builders = [projected_basis]
    if is_of_largest(goal.loss):
        builders.append(projected_largest_basis)
    bases = [per_matrix(goal.workload, build) for build in builders]
    return _least([_with_noise(Method.RESIDUAL_PLANNER_PLUS, goal, each) for each in bases])


def _plan_oblique(goal: _Goal) -> WorkloadPlan:
    workload, loss = goal.workload, goal.loss
    bases = choose_oblique_bases(workload)
    found = [_with_noise(Method.ORP, goal, bases)]
    if is_of_largest(loss):
        limits = loss.limits if isinstance(loss, LargestRatio) else None
        certified = plan_oblique_largest(workload, limits=limits, gap=LARGEST_GAP)
        found.insert(0, goal.plan(Method.ORP, certified.plan, certified.loss))
    elif loss is not LossKind.SUM_OF_VARIANCES:
        # At its optimum the loss is a weighted sum of variances: bases for that, and again.
        for _ in range(_MOST_REWEIGHTINGS):
            touching = best_noise(loss, workload, bases, goal.neighbors)[1] / workload.sizes
            bases = choose_oblique_bases(replace(workload, weights=touching, weighting=None))
            found.append(_with_noise(Method.ORP, goal, bases))
            if found[-1].loss > found[-2].loss * (1 - _SETTLED):
                break
    return _least(found)


def _plan_hdmm(goal: _Goal) -> WorkloadPlan:
    return _least([_evaluate(Method.HDMM, each, goal) for each in _list_hdmm(goal.workload)])


_PLANNERS: Mapping[Method, Callable[[_Goal], WorkloadPlan]] = {
    Method.RESIDUAL_PLANNER: _plan_plain,
    Method.RESIDUAL_PLANNER_PLUS: _plan_plus,
    Method.ORP: _plan_oblique,
    Method.HDMM: _plan_hdmm,
}


def _least(found: Sequence[WorkloadPlan]) -> WorkloadPlan:
    """Return the first candidate that no other one improves on noticeably."""
    best = found[0]
    for other in found[1:]:
        if other.loss < best.loss * (1 - _EQUAL):
            best = other
    return best


def _with_noise(method: Method, goal: _Goal, bases: tuple[AttributeBasis, ...]) -> WorkloadPlan:
    """The best noise for the loss and given bases."""
    certified, _ = best_noise(goal.loss, goal.workload, bases, goal.neighbors)
    return goal.plan(method, certified.plan, certified.loss)


def _evaluate(method: Method, strategy: StrategyRows, goal: _Goal) -> WorkloadPlan:
    return goal.plan(method, strategy, loss_of(goal.loss, goal.workload, strategy))


def _change_cost_of_products(strategy: HdmmStrategy) -> float:
    """What a changed record costs, if one added record costs 1; at most 4."""
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
    for place, weight in enumerate(weights):
        alone = GramSum((weight,), kinds[:1], tuple(gram[[place]] for gram in grams))
        worst = alone.largest_pair(exact=False)
        separate += 4.0 * float(weight) if worst is None else float(worst.value)
    return max(2.0, separate)


def _list_hdmm(workload: Workload) -> list[HdmmStrategy]:
    found: list[HdmmStrategy] = [optimize_kronecker(workload), optimize_union(workload)]
    if len(workload.attributes) <= MOST_ATTRIBUTES:
        found.append(optimize_marginals(workload))
    return found


def _split_off_totals(strategy: KroneckerStrategy) -> tuple[AttributeBasis, ...]:
    """Oblique bases that contain a Kronecker product: some noise for them is the same strategy."""
    bases = []
    for attribute, factor in zip(strategy.workload.attributes, strategy.factors, strict=True):
        if attribute.kind is BaseKind.IDENTITY or len(factor.rows) == 1:
            bases.append(orthogonal_basis(attribute))
            continue
        bases.append(split_off_total(attribute, factor.rows.T, factor.decoder))
    return tuple(bases)


def _count_answers(strategy: StrategyRows) -> float:
    """Number of noisy answers, a float because it may pass 2^63."""
    if isinstance(strategy, ResidualPlan):
        widths = np.array([len(basis.subtraction) for basis in strategy.bases], np.float64)
        return float(strategy.residuals.product(widths).sum())
    if isinstance(strategy, MarginalsStrategy):
        sizes = [float(attribute.size) for attribute in strategy.workload.attributes]
        return float(np.where(strategy.sets, sizes, 1.0).prod(axis=1).sum())
    return float(sum(math.prod(map(float, map(len, p.factors))) for p in strategy.products))


def _round_to_fit(strategy: HdmmStrategy, rho: Fraction, neighbors: Neighbors) -> IntegerStrategy:
    """Round at the largest scale at which answers and noise fit their integers."""
    scale = DEFAULT_SCALE
    while scale > 1:
        found = round_to_integers(strategy, scale=scale, neighbors=neighbors)
        coefficients = [
            math.prod(int(np.abs(factor.matrix).max()) for factor in query.factors)
            for query in found.queries
        ]
        widest = max(found.noise) / (2 * rho)
        if max(coefficients) <= _MOST_COEFFICIENT and widest <= MOST_SIGMA_SQ:
            return found
        scale //= 2
    raise BudgetError(
        "discrete noise",
        "does not fit its integers at any scale",
        remedy="raise rho, or plan with orp",
    )
