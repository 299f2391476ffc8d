"""ExactMeasurement: a plan made of integer queries, discrete Gaussian noise and exact costs."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from das.errors import BudgetError
from das.planning.bases import AttributeBasis
from das.planning.integer_bases import center_counts, integer_rows, round_rows
from das.planning.residual_plan import ResidualPlan
from das.planning.workload import BaseKind
from das.queries.factor import Factor
from das.queries.query import Query
from das.queries.sensitivity import Neighbors, l2_sensitivity_sq

FloatArray = npt.NDArray[np.float64]

# Costs are split in whole units, so that they add up exactly.
_SHARE_UNITS = 1 << 48
_FINEST_BITS = 14
_COARSEST_BITS = 4
_MOST_SIGMA_SQ = 2.0**80
# Answers to counts of up to 2^29 records stay within 63 bits.
_MOST_COEFFICIENT = 2.0**34


@dataclass(frozen=True, eq=False)
class ExactMeasurement:
    """Integer queries for every residual set of a plan, with exact noise.

    Attributes:
      plan: The plan with integer residual rows (as floats); reconstruct with it, and ask it for
        variances, which take sigma_sq for the variance of the noise.
      rho: The zCDP cost of everything, exact.
      neighbors: The relation it holds for.
      shares: Per residual set its part of rho in units of 2^-48; they sum to exactly 2^48.
    """

    plan: ResidualPlan
    rho: Fraction
    neighbors: Neighbors
    shares: tuple[int, ...]

    def rho_of(self, position: int) -> Fraction:
        """Return the exact cost of one residual set, by flat number."""
        return self.rho * self.shares[position] / _SHARE_UNITS

    def sensitivity_sq_of(self, position: int) -> int:
        """Return the squared L2 sensitivity of one residual set, as `l2_sensitivity_sq` has it."""
        norms = [self._sensitivities[i] for i in self._members[position]]
        product = math.prod(unbounded for unbounded, _ in norms)
        if self.neighbors is Neighbors.UNBOUNDED:
            return product
        return max(
            (product // unbounded * bounded for unbounded, bounded in norms), default=2 * product
        )

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
        return tuple(
            tuple(row) for members in self.plan.residuals.by_order for row in members.tolist()
        )

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

    @cached_property
    def _sensitivities(self) -> tuple[tuple[int, int], ...]:
        """Per attribute the squared sensitivities of its residual rows, unbounded and bounded."""
        built: dict[int, tuple[int, int]] = {}
        for factor in self._residuals:
            if id(factor) not in built:
                query = Query("rows", (factor,))
                built[id(factor)] = (
                    l2_sensitivity_sq(query, Neighbors.UNBOUNDED),
                    l2_sensitivity_sq(query, Neighbors.BOUNDED),
                )
        return tuple(built[id(factor)] for factor in self._residuals)


def measure_exactly(
    plan: ResidualPlan,
    rho: Fraction,
    neighbors: Neighbors = Neighbors.UNBOUNDED,
    *,
    resolution_bits: int | None = None,
) -> ExactMeasurement:
    """Turn a plan into integer queries with discrete Gaussian noise that cost exactly rho.

    Every residual set keeps its share of the plan's privacy cost. Rounding the residual rows costs
    accuracy, never privacy: noise is scaled to the sensitivity of the rounded rows.

    Args:
      plan: A plan with float bases, at any privacy cost.
      rho: The zCDP budget, exact.
      neighbors: The relation it holds for.
      resolution_bits: log2 of the largest column norm of rounded rows; by default the largest
        number up to 14 for which answers and noise fit their integers.

    Returns:
      The measurement.

    Raises:
      BudgetError: rho is not positive, or no resolution keeps the noise within 2^80.
      SchemaError: A base matrix cannot be measured with integer rows.

    References:
      He, Xiao, Toksoz, Ding, Zhang & Kifer, ResidualPlanner+, Theorem 5.1.

    >>> from das.planning.total_variance import plan_marginals
    >>> from das.planning.workload import AttributeWorkload, Workload
    >>> sex = AttributeWorkload.identity("sex", 2)
    >>> plan = plan_marginals(Workload.all_k_way((sex,), 1))
    >>> exact = measure_exactly(plan, Fraction(1, 2))
    >>> [(query.name, str(sigma_sq)) for query, sigma_sq in exact.noisy_queries()]
    [('total', '2'), ('residual of sex', '2')]
    """
    if rho <= 0:
        raise BudgetError("rho", "must be positive", got=rho)
    shares = _split_exactly(plan.set_costs / plan.noise)
    finest, coarsest = (
        (_FINEST_BITS, _COARSEST_BITS)
        if resolution_bits is None
        else (resolution_bits, resolution_bits)
    )
    widest = largest = math.inf
    for bits in range(finest, coarsest - 1, -1):
        bases = _make_integer(plan, bits)
        draft = ResidualPlan(plan.workload, bases, plan.residuals, plan.noise)
        costs = draft.set_costs
        # An upper estimate of sigma_sq; the exact one follows from integers.
        noise = 2 * costs * _SHARE_UNITS / (float(rho) * np.array(shares, np.float64))
        widest = float(noise.max())
        entries = np.array([np.abs(basis.subtraction).max() for basis in bases])
        largest = float(plan.residuals.product(entries).max())
        if widest <= _MOST_SIGMA_SQ and (
            resolution_bits is not None or largest <= _MOST_COEFFICIENT
        ):
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
    unscaled = ExactMeasurement(draft, rho, neighbors, shares)
    noise = [float(unscaled.sigma_sq_of(position)) for position in range(draft.residuals.size)]
    plan = ResidualPlan(draft.workload, draft.bases, draft.residuals, np.array(noise))
    return ExactMeasurement(plan, rho, neighbors, shares)


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


def _split_exactly(costs: FloatArray) -> tuple[int, ...]:
    """Round positive parts to whole units that sum to exactly 2^48, each at least one unit."""
    units = np.maximum(np.rint(costs / costs.sum() * _SHARE_UNITS).astype(np.int64), 1)
    units[units.argmax()] += _SHARE_UNITS - int(units.sum())
    return tuple(units.tolist())
