"""ExactMeasurement: integer queries of a plan, with discrete Gaussian noise and exact costs."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from das.errors import BudgetError
from das.mechanisms.wide import MOST_SIGMA_SQ
from das.queries.factor import Factor
from das.queries.query import Query
from das.queries.sensitivity import Neighbors
from das.workload.exact_shares import SHARE_UNITS, as_fractions, round_up, split_exactly
from das.workload.residual.bases import AttributeBasis
from das.workload.residual.integer_rows import center_counts, integer_rows, round_rows
from das.workload.residual.plan import ResidualPlan
from das.workload.workload import BaseKind

# Defaults, not measured.
_FINEST_BITS = 14
_COARSEST_BITS = 4
# Answers to counts of up to 2^29 records stay within 63 bits.
MOST_COEFFICIENT = 2.0**34
# Largest exact sum of squares in floats, with room for |a|^2 + |b|^2 + 2 |<a, b>|.
_MOST_SQUARE = 2.0**51


@dataclass(frozen=True, eq=False)
class ExactMeasurement:
    """Integer queries for every residual set of a plan, with exact noise.

    The cost is the joint cost of all queries, for the worst pair of neighbors of their sum. The
    shares divide it among the queries.

    Attributes:
      plan: The plan with integer residual rows (as floats), for reconstruction and variances; the
        noise variances are sigma_sq.
      rho: The joint zCDP cost, exact.
      neighbors: The neighboring relation of rho.
      shares: Part of rho per residual set, in units of 2^-48; they sum to exactly 2^48.
      joint: Cost of the worst neighbors if one added record costs 1; exact or an upper bound, a
        multiple of 2^-48.
    """

    plan: ResidualPlan
    rho: Fraction
    neighbors: Neighbors
    shares: tuple[int, ...]
    joint: Fraction

    def rho_of(self, position: int) -> Fraction:
        """Return the part of the joint cost of the residual set at flat index `position`."""
        return self.rho * self.shares[position] / SHARE_UNITS

    def sigma_sq_of(self, position: int) -> Fraction:
        """Return the exact discrete Gaussian parameter Delta^2 / (2 rho_S) of one residual set.

        Delta^2 is the squared sensitivity of its query times `joint`.

        References:
          Canonne, Kamath & Steinke, NeurIPS 2020, arXiv:2004.00010, Thm. 14.
        """
        charged = self.joint * _longest_column(self.plan, self.plan.residuals.rows[position])
        return charged / (2 * self.rho_of(position))

    def noisy_queries(self) -> Iterator[tuple[Query, Fraction]]:
        """Yield every query with its sigma_sq, in the flat order of the residual sets."""
        for position, inside in enumerate(self.plan.residuals.rows):
            factors = list(self._totals)
            for i in inside:
                factors[i] = self._residuals[i]
            names = " * ".join(self.plan.workload.attributes[i].name for i in inside)
            query = Query(f"residual of {names}" if inside else "total", tuple(factors))
            yield query, self.sigma_sq_of(position)

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
    """Convert a plan to integer queries with discrete Gaussian noise and a joint cost of rho.

    Every residual set keeps its share of the plan's privacy cost. Rounding the residual rows costs
    accuracy, never privacy: noise is scaled to the joint cost of the rounded rows.

    Args:
      plan: A plan with float bases, at any privacy cost.
      rho: The zCDP budget, exact.
      neighbors: The neighboring relation of rho.

    Returns:
      The measurement. The largest column norm of rounded rows is 2^14, or a smaller power of two if
      answers or noise would overflow their integers.

    Raises:
      BudgetError: rho is not positive, or no resolution keeps the noise within 2^80.
      SchemaError: A base matrix cannot be measured with integer rows.

    References:
      He, Xiao, Toksoz, Ding, Zhang & Kifer, ResidualPlanner+, Theorem 5.1.

    >>> from das.workload.plan import Method, plan_workload
    >>> from das.workload.workload import AttributeWorkload, Workload
    >>> sex = AttributeWorkload.identity("sex", 2)
    >>> plan = plan_workload(Workload.k_way((sex,), [1]), Method.RESIDUAL_PLANNER)
    >>> exact = measure_exactly(plan.strategy, Fraction(1, 2))
    >>> [(query.name, str(sigma_sq)) for query, sigma_sq in exact.noisy_queries()]
    [('total', '2'), ('residual of sex', '2')]
    """
    if rho <= 0:
        raise BudgetError("rho", "must be positive", got=rho)
    shares = split_exactly(plan.set_costs / plan.noise)
    widest = largest = math.inf
    for bits in range(_FINEST_BITS, _COARSEST_BITS - 1, -1):
        bases = _make_integer(plan, bits)
        draft = replace(plan, bases=bases)
        # An upper estimate of sigma_sq; the exact value is computed from integers below.
        noise = 2 * draft.set_costs * SHARE_UNITS / (float(rho) * np.array(shares, np.float64))
        widest = float(noise.max())
        entries = [float(np.abs(basis.subtraction).max()) for basis in bases]
        largest = float(plan.residuals.product(np.array(entries)).max())
        fits = widest <= MOST_SIGMA_SQ and max(b.cell_cost for b in bases) <= _MOST_SQUARE
        if fits and largest <= MOST_COEFFICIENT:
            return _with_noise(draft, rho, neighbors, shares)
    raise BudgetError(
        "discrete noise",
        "does not fit its integers at any resolution",
        got=f"sigma_sq up to {widest:.3g}, coefficients up to {largest:.3g}",
        want=f"sigma_sq of at most 2^80, coefficients of at most {MOST_COEFFICIENT:.3g}",
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
    return replace(unscaled, plan=replace(draft, noise=np.array(noise)))


def _longest_column(plan: ResidualPlan, members: tuple[int, ...]) -> int:
    """Return the largest squared column norm of a residual set of integer rows below 2^53."""
    return math.prod(int(plan.bases[i].cell_cost) for i in members)


def _worst_pair(plan: ResidualPlan, shares: tuple[int, ...]) -> Fraction:
    """Return the joint cost of a change within a geounit if the worst added record costs 1.

    That record has, per attribute, a level with the longest residual column. So it is the worst
    record in every residual set.
    """
    longest = [_longest_column(plan, members) for members in plan.residuals.rows]
    weights = [share / length for share, length in zip(as_fractions(shares), longest, strict=True)]
    pair = plan.gram_sum(weights).largest_pair()
    # If there are too many pairs to search, the bound is 4 (Cauchy-Schwarz).
    return pair.value if pair else Fraction(4)


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
