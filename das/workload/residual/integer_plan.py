"""ExactMeasurement: a plan made of integer queries, discrete Gaussian noise and exact costs."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from das.errors import BudgetError
from das.queries.factor import Factor
from das.queries.query import Query
from das.queries.sensitivity import Neighbors
from das.workload.exact_shares import SHARE_UNITS, as_fractions, round_up, split_exactly
from das.workload.residual.bases import AttributeBasis
from das.workload.residual.integer_rows import center_counts, integer_rows, round_rows
from das.workload.residual.plan import ResidualPlan
from das.workload.workload import BaseKind

_FINEST_BITS = 14
_COARSEST_BITS = 4
_MOST_SIGMA_SQ = 2.0**80
# Answers to counts of up to 2^29 records stay within 63 bits.
_MOST_COEFFICIENT = 2.0**34
# Sums of squares of rows that floats hold exactly, with room for |a|^2 + |b|^2 + 2 |<a, b>|.
_MOST_SQUARE = 2.0**51


@dataclass(frozen=True, eq=False)
class ExactMeasurement:
    """Integer queries for every residual set of a plan, with exact noise.

    The cost is that of all queries together: the worst pair of neighbors for their sum, which is
    not the worst one for any of them. The shares say how the noise divides it among them.

    Attributes:
      plan: The plan with integer residual rows (as floats); reconstruct with it, and ask it for
        variances, which take sigma_sq for the variance of the noise.
      rho: The zCDP cost of everything, exact.
      neighbors: The relation it holds for.
      shares: Per residual set its part of rho in units of 2^-48; they sum to exactly 2^48.
      joint: What the worst neighbors cost together, if one record added costs 1 and every set its
        share of it; exact or an upper bound, a multiple of 2^-48.
    """

    plan: ResidualPlan
    rho: Fraction
    neighbors: Neighbors
    shares: tuple[int, ...]
    joint: Fraction

    def rho_of(self, position: int) -> Fraction:
        """Return the part of the joint cost of one residual set, by flat number."""
        return self.rho * self.shares[position] / SHARE_UNITS

    def sensitivity_sq_of(self, position: int) -> Fraction:
        """Return the squared sensitivity to which the noise of one residual set is scaled."""
        return self.joint * _longest_column(self.plan, self._members[position])

    def sigma_sq_of(self, position: int) -> Fraction:
        """Return the exact discrete Gaussian parameter Delta^2 / (2 rho_S) of one residual set.

        References:
          Canonne, Kamath & Steinke, NeurIPS 2020, arXiv:2004.00010, Thm. 14.
        """
        return self.sensitivity_sq_of(position) / (2 * self.rho_of(position))

    def query_of(self, position: int) -> Query:
        """Return the integer query of one residual set, over the attributes of the workload."""
        inside = self._members[position]
        names = [self.plan.workload.attributes[i].name for i in inside]
        factors = list(self._totals)
        for i in inside:
            factors[i] = self._residuals[i]
        return Query(f"residual of {' * '.join(names)}" if names else "total", tuple(factors))

    def noisy_queries(self) -> Iterator[tuple[Query, Fraction]]:
        """Yield every query with its sigma_sq, in the flat order of the residual sets."""
        for position in range(self.plan.residuals.size):
            yield self.query_of(position), self.sigma_sq_of(position)

    @cached_property
    def _members(self) -> tuple[tuple[int, ...], ...]:
        return _list_sets(self.plan)

    @cached_property
    def _totals(self) -> tuple[Factor, ...]:
        return tuple(
            Factor(np.ones((1, attribute.size), np.int64), ("all",))
            for attribute in self.plan.workload.attributes
        )

    @cached_property
    def _residuals(self) -> tuple[Factor, ...]:
        built: dict[int, Factor] = {}
        for basis in self.plan.bases:
            if id(basis) not in built:
                rows = integer_rows(basis)
                labels = tuple(f"residual {row}" for row in range(1, len(rows) + 1))
                built[id(basis)] = Factor(rows, labels)
        return tuple(built[id(basis)] for basis in self.plan.bases)


def measure_exactly(
    plan: ResidualPlan,
    rho: Fraction,
    neighbors: Neighbors = Neighbors.UNBOUNDED,
) -> ExactMeasurement:
    """Turn a plan into integer queries with discrete Gaussian noise that cost exactly rho.

    Every residual set keeps its share of the plan's privacy cost. Rounding the residual rows costs
    accuracy, never privacy: noise is scaled to what the rounded rows cost together.

    Args:
      plan: A plan with float bases, at any privacy cost.
      rho: The zCDP budget, exact.
      neighbors: The relation it holds for.

    Returns:
      The measurement; the largest column norm of rounded rows is 2^14, or the largest smaller power
      of two for which answers and noise fit their integers.

    Raises:
      BudgetError: rho is not positive, or no resolution keeps the noise within 2^80.
      SchemaError: A base matrix cannot be measured with integer rows.

    References:
      He, Xiao, Toksoz, Ding, Zhang & Kifer, ResidualPlanner+, Theorem 5.1.

    >>> from das.workload.plan import Method, plan_workload
    >>> from das.workload.workload import AttributeWorkload, Workload
    >>> sex = AttributeWorkload.identity("sex", 2)
    >>> found = plan_workload(Workload.k_way((sex,), [1]), Method.RESIDUAL_PLANNER)
    >>> exact = measure_exactly(found.strategy, Fraction(1, 2))
    >>> [(query.name, str(sigma_sq)) for query, sigma_sq in exact.noisy_queries()]
    [('total', '2'), ('residual of sex', '2')]
    """
    if rho <= 0:
        raise BudgetError("rho", "must be positive", got=rho)
    shares = split_exactly(plan.set_costs / plan.noise)
    widest = largest = math.inf
    for bits in range(_FINEST_BITS, _COARSEST_BITS - 1, -1):
        bases = _make_integer(plan, bits)
        draft = ResidualPlan(plan.workload, bases, plan.residuals, plan.noise)
        # An upper estimate of sigma_sq; the exact one follows from integers.
        noise = 2 * draft.set_costs * SHARE_UNITS / (float(rho) * np.array(shares, np.float64))
        widest = float(noise.max())
        entries = [float(np.abs(basis.subtraction).max()) for basis in bases]
        largest = float(plan.residuals.product(np.array(entries)).max())
        fits = widest <= _MOST_SIGMA_SQ and max(b.cell_cost for b in bases) <= _MOST_SQUARE
        if fits and largest <= _MOST_COEFFICIENT:
            return _with_noise(draft, rho, neighbors, shares)
    raise BudgetError(
        "discrete noise",
        "does not fit its integers at any resolution",
        got=f"sigma_sq up to {widest:.3g}, coefficients up to {largest:.3g}",
        want=f"sigma_sq of at most 2^80, coefficients of at most {_MOST_COEFFICIENT:.3g}",
        remedy="plan with hdmm, raise rho, or ask for tables of fewer attributes",
    )


def _with_noise(
    draft: ResidualPlan, rho: Fraction, neighbors: Neighbors, shares: tuple[int, ...]
) -> ExactMeasurement:
    joint = Fraction(1)
    if neighbors is Neighbors.BOUNDED:
        joint = round_up(max(Fraction(2), _worst_pair(draft, shares)))
    unscaled = ExactMeasurement(draft, rho, neighbors, shares, joint)
    noise = [float(unscaled.sigma_sq_of(position)) for position in range(draft.residuals.size)]
    plan = ResidualPlan(draft.workload, draft.bases, draft.residuals, np.array(noise))
    return ExactMeasurement(plan, rho, neighbors, shares, joint)


def _list_sets(plan: ResidualPlan) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(row) for members in plan.residuals.by_order for row in members.tolist())


def _longest_column(plan: ResidualPlan, members: tuple[int, ...]) -> int:
    """The largest squared column of a residual set; residual rows are integers below 2^53."""
    return math.prod(int(plan.bases[i].cell_cost) for i in members)


def _worst_pair(plan: ResidualPlan, shares: tuple[int, ...]) -> Fraction:
    """What a change within a geounit costs together, if the worst added record costs 1.

    One record is added at cost 1 exactly: a level with the longest residual column of its attribute
    is the worst one in every set.
    """
    longest = [_longest_column(plan, members) for members in _list_sets(plan)]
    weights = [share / length for share, length in zip(as_fractions(shares), longest, strict=True)]
    found = plan.gram_sum(weights).largest_pair()
    # By the Cauchy-Schwarz inequality, where there are too many pairs to be searched.
    return found.value if found else Fraction(4)


def _make_integer(plan: ResidualPlan, bits: int) -> tuple[AttributeBasis, ...]:
    built: dict[Hashable, AttributeBasis] = {}
    out = []
    for attribute, basis in zip(plan.workload.attributes, plan.bases, strict=True):
        key = (attribute.signature, id(basis))
        if key not in built:
            plain = attribute.kind is BaseKind.IDENTITY
            built[key] = center_counts(attribute) if plain else round_rows(attribute, basis, bits)
        out.append(built[key])
    return tuple(out)
