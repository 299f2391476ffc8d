"""HDMM: strategies of Kronecker products from three families, for workloads of marginals.

A strategy is a list of products A_j = kron_i A_ji whose columns have L2 norm at most 1. Product j
is measured with noise of variance 1 / c_j. The shares c_j of the privacy cost sum to 1, so every
strategy costs 1 (zCDP rho 1/2), and its `error` is the weighted sum of the variances of all
answers. At privacy cost c the error is error / c. For the L1 norm the variance is 1 / c_j^2:
see `das.workload.pure`.

    KroneckerStrategy   one product for the whole workload
    UnionStrategy       one product for every group of marginals
    MarginalsStrategy   marginals of any order, up to 14 attributes

References:
  McKenna, Miklau, Hay & Machanavajjhala, Optimizing error of high-dimensional statistical queries
  under differential privacy, VLDB 2018, arXiv:1808.03537 and 2106.12118 (OPT_0, OPT_kron, OPT_+,
  OPT_M). The noise is Gaussian here and the inner problem is solved to proven optimality.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from das.arrays import FloatArray, IntArray
from das.errors import SchemaError
from das.mechanisms.mechanism import Norm
from das.workload.attribute_sets import AttributeSets
from das.workload.hdmm.attribute import (
    AttributeSolver,
    AttributeStrategy,
    measure_total,
    solve_exactly,
)
from das.workload.hdmm.marginals import (
    MOST_ATTRIBUTES,
    MarginalsStrategy,
    optimize_marginals,
)
from das.workload.kronecker import Kronecker, list_members, mark_attributes
from das.workload.workload import AttributeWorkload, Workload

# Defaults, not measured.
_MOST_SWEEPS = 100
_SWEEP_TOLERANCE = 1e-7
# Starting weights of the total, as multiples of the trace of the Gram matrix.
_START_WEIGHTS = (0.0, 1.0)
_MOST_WEIGHT = 1e8
# Groups are merged in pairs, which takes the square of their number.
_MOST_GROUPS = 16
# The search for groups rounds the weight of the total to powers of 2^(1/4), to solve few problems.
_WEIGHTS_PER_OCTAVE = 4


@dataclass(frozen=True, eq=False)
class KroneckerStrategy:
    """One product, measured for a workload or a group of its marginals.

    Attributes:
      workload: The marginals to answer.
      factors: One strategy per attribute.
    """

    workload: Workload
    factors: tuple[AttributeStrategy, ...]

    @cached_property
    def error(self) -> float:
        """Return the weighted total variance of all answers at privacy cost 1."""
        values, totals, _ = _terms(self.workload, self.factors)
        return float(values.sum() * totals.prod())

    @property
    def products(self) -> tuple[Kronecker, ...]:
        """Return the measured Kronecker product A as a tuple of one."""
        return (Kronecker(tuple(factor.rows for factor in self.factors)),)

    @property
    def shares(self) -> FloatArray:
        """Return the share of the privacy cost of the only product, 1, as float64[1]."""
        return np.ones(1)

    def answer(self, noisy: Sequence[FloatArray], names: Sequence[str]) -> FloatArray:
        """Return the least-squares answers of one marginal, float64[m_A] in C order.

        Args:
          noisy: The noisy answers to `products`, float64[rows] each.
          names: Attributes of the marginal.

        Raises:
          SchemaError: A name is not that of an attribute, or occurs twice.
        """
        chosen = mark_attributes(self.workload, names)
        everything = zip(self.workload.attributes, self.factors, chosen, strict=True)
        return Kronecker(
            tuple(
                attribute.apply(factor.decoder) if is_in else factor.decoder.sum(axis=0)[None]
                for attribute, factor, is_in in everything
            )
        ).apply(noisy[0])


def optimize_kronecker(
    workload: Workload, solve: AttributeSolver = solve_exactly
) -> KroneckerStrategy:
    """Find one Kronecker strategy for all marginals together (OPT_kron).

    Let t_i be the total variance of the answers W_i, and o_i the variance of the total of attribute
    i. The error is sum_A w_A prod_{i in A} t_i prod_{i not in A} o_i. It is linear in the pair
    (t_i, o_i) of one attribute. So every step of the descent solves the problem of one attribute
    exactly, for the weight c_i of its total that follows from the other attributes. For a single
    marginal the result is optimal among all strategies. Otherwise it is the better of two local
    optima.

    Args:
      workload: Marginals with weights; those of weight 0 are not planned for.
      solve: Solves the problem of one attribute.

    >>> ages = [AttributeWorkload.prefix(name, 10) for name in ("age", "age of spouse")]
    >>> workload = Workload.k_way(ages, [2])
    >>> float(round((optimize_kronecker(workload).error / workload.sizes.sum()) ** 0.5, 2))
    2.42
    """
    ends = [_descend(workload, solve, weight) for weight in _START_WEIGHTS]
    return min(ends, key=lambda end: end.error)


def _terms(
    workload: Workload, factors: Sequence[AttributeStrategy]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return (w_A prod_{i in A} t_i / o_i per marginal A of positive weight, o, t / o).

    t_i is the total variance of the answers of attribute i, and o_i the variance of its total.
    """
    counted = workload.weights > 0
    members = list_members(workload.marginals)[counted]
    totals = np.array([factor.total_variance for factor in factors])
    ratios = np.ones(len(factors))
    for i in np.flatnonzero(members.any(axis=0)).tolist():
        ratios[i] = factors[i].variance(workload.attributes[i].gram) / totals[i]
    values = workload.weights[counted] * np.where(members, ratios, 1.0).prod(axis=1)
    return values, totals, ratios


def _descend(workload: Workload, solve: AttributeSolver, start: float) -> KroneckerStrategy:
    members = list_members(workload.marginals)[workload.weights > 0]
    used = np.flatnonzero(members.any(axis=0)).tolist()
    units = [float(np.trace(attribute.gram)) for attribute in workload.attributes]
    factors = [measure_total(attribute.size) for attribute in workload.attributes]
    for i in used:
        factors[i] = solve(workload.attributes[i], start * units[i], None)
    best = KroneckerStrategy(workload, tuple(factors))
    for _ in range(_MOST_SWEEPS):
        values, _, ratios = _terms(workload, factors)
        for i in used:
            inside, attribute = members[:, i], workload.attributes[i]
            # Two sums, since a difference from the sum of all would not be exactly 0.
            weight = float(values[~inside].sum() / values[inside].sum() * ratios[i])
            factors[i] = solve(attribute, min(weight, _MOST_WEIGHT * units[i]), factors[i])
            ratio = factors[i].variance(attribute.gram) / factors[i].total_variance
            values[inside] *= ratio / ratios[i]
            ratios[i] = ratio
        swept = KroneckerStrategy(workload, tuple(factors))
        converged = swept.error > best.error * (1 - _SWEEP_TOLERANCE)
        best = min(best, swept, key=lambda strategy: strategy.error)
        if converged:
            break
    return best


@dataclass(frozen=True, eq=False)
class UnionStrategy:
    """One product for every group of marginals; each marginal is answered from its group.

    Attributes:
      workload: The marginals to answer.
      parts: One strategy per group.
      norm: The norm of the columns of the parts. At share c_j the variance is e_j / c_j for squared
        L2 norms and e_j / c_j^2 for L1 norms.
    """

    workload: Workload
    parts: tuple[KroneckerStrategy, ...]
    norm: Norm = Norm.L2_SQUARED

    @property
    def error(self) -> float:
        """Return the weighted total variance of all answers at privacy cost 1."""
        return _split_error([part.error for part in self.parts], self.norm)

    @property
    def products(self) -> tuple[Kronecker, ...]:
        """Return the measured products, one per group."""
        return tuple(part.products[0] for part in self.parts)

    @property
    def shares(self) -> FloatArray:
        """Return c_j proportional to sqrt(e_j), or to the cube root for the L1 norm.

        By Hölder, they minimize sum e_j / c_j, or sum e_j / c_j^2, for sum c_j = 1.
        """
        roots = _roots([part.error for part in self.parts], self.norm)
        return np.asarray(roots / roots.sum())

    @property
    def precisions(self) -> FloatArray:
        """Return 1 / noise variance of each group at privacy cost 1, float64[groups]."""
        return self.shares if self.norm is Norm.L2_SQUARED else self.shares**2

    def answer(self, noisy: Sequence[FloatArray], names: Sequence[str]) -> FloatArray:
        """Return the least-squares answers of one marginal from its group, float64[m_A].

        Args:
          noisy: The noisy answers to `products`, float64[rows] each.
          names: Attributes of the marginal.

        Raises:
          SchemaError: No group has the marginal.
        """
        chosen = mark_attributes(self.workload, names)
        for part, values in zip(self.parts, noisy, strict=True):
            if (list_members(part.workload.marginals) == chosen).all(axis=1).any():
                return part.answer([values], names)
        raise SchemaError(f"marginal {list(names)}", "is not one that the strategy answers")


@dataclass(frozen=True, eq=False)
class _Group:
    """Flat indexes of marginals in a workload, and the error of their strategy."""

    indexes: IntArray
    error: float


def optimize_union(
    workload: Workload,
    solve: AttributeSolver = solve_exactly,
    norm: Norm = Norm.L2_SQUARED,
) -> UnionStrategy:
    """Partition the marginals into groups with a Kronecker strategy each (OPT_+).

    Three partitions are compared: single marginals, marginals grouped by order, and one from greedy
    merging. Merging joins the pair of groups with the largest gain while there is a gain. It starts
    from single marginals if there are at most 16, and from orders otherwise.

    Args:
      workload: Marginals with weights; those of weight 0 are not planned for.
      solve: Solves the problem of one attribute.
      norm: The norm of the columns of `solve`.
    """
    rough = _remember(solve)
    indexes = np.flatnonzero(workload.weights > 0)
    separate = [_Group(indexes[[k]], error) for k, error in enumerate(_separate(workload, rough))]
    orders = list_members(workload.marginals)[indexes].sum(axis=1)
    by_order = [_group(workload, rough, indexes[orders == order]) for order in np.unique(orders)]
    start = separate if len(separate) <= _MOST_GROUPS else by_order

    def split(groups: Sequence[_Group]) -> float:
        return _split_error([group.error for group in groups], norm)

    best = min((separate, by_order, _merge(workload, rough, start, norm)), key=split)
    return UnionStrategy(
        workload,
        tuple(
            _descend(_select(workload, group.indexes), rough, 0.0)
            if len(group.indexes) == 1
            else optimize_kronecker(_select(workload, group.indexes), solve)
            for group in best
        ),
        norm,
    )


def _separate(workload: Workload, solve: AttributeSolver) -> FloatArray:
    """Return the least error of each marginal of positive weight if it were measured alone."""
    variances = [solve(each, 0.0, None).variance(each.gram) for each in workload.attributes]
    errors = workload.weights * workload.marginals.product(np.array(variances))
    return errors[workload.weights > 0]


def _roots(errors: Sequence[float], norm: Norm) -> FloatArray:
    return np.sqrt(errors) if norm is Norm.L2_SQUARED else np.cbrt(errors)


def _split_error(errors: Sequence[float], norm: Norm) -> float:
    """Return the error with optimal shares: (sum_j sqrt(e_j))^2, or (sum_j cbrt(e_j))^3 for L1."""
    return float(_roots(errors, norm).sum() ** (2 if norm is Norm.L2_SQUARED else 3))


def _group(workload: Workload, solve: AttributeSolver, indexes: IntArray) -> _Group:
    return _Group(indexes, _descend(_select(workload, indexes), solve, 0.0).error)


def _merge(
    workload: Workload, solve: AttributeSolver, groups: Sequence[_Group], norm: Norm
) -> list[_Group]:
    """Merge pairs of groups while it lowers the error, the largest gain first.

    The gain is root(e_1) + root(e_2) - root(e_union), e the error of a group; roots are square
    roots, or cube roots for the L1 norm.

    Args:
      workload: The marginals.
      solve: Solves the problem of one attribute.
      groups: The groups to start from.
      norm: The norm of the privacy cost.
    """
    current = list(groups)
    tried: dict[tuple[bytes, bytes], _Group] = {}
    while len(current) > 1:
        best, gain = None, 0.0
        for first, second in itertools.combinations(current, 2):
            key = (first.indexes.tobytes(), second.indexes.tobytes())
            if key not in tried:
                both = np.sort(np.concatenate([first.indexes, second.indexes]))
                tried[key] = _group(workload, solve, both)
            left, right, union = _roots([first.error, second.error, tried[key].error], norm)
            saved = float(left + right - union)
            if saved > gain:
                best, gain = (first, second, tried[key]), saved
        if best is None:
            break
        current = [group for group in current if group not in best[:2]] + [best[2]]
    return current


def _remember(solve: AttributeSolver) -> AttributeSolver:
    """Cache solutions by attribute signature and rounded weight of the total."""
    known: dict[tuple[object, ...], AttributeStrategy] = {}

    def solve_rounded(
        attribute: AttributeWorkload, total_weight: float, start: AttributeStrategy | None
    ) -> AttributeStrategy:
        unit = float(np.trace(attribute.gram))
        step = None
        if total_weight > 0:
            step = round(_WEIGHTS_PER_OCTAVE * math.log2(total_weight / unit))
            total_weight = unit * 2.0 ** (step / _WEIGHTS_PER_OCTAVE)
        key = (attribute.signature, step)
        if key not in known:
            known[key] = solve(attribute, total_weight, start)
        return known[key]

    return solve_rounded


def _select(workload: Workload, indexes: IntArray) -> Workload:
    """Keep the marginals with some flat indexes, in order."""
    marginals = workload.marginals
    kept = np.zeros(marginals.size, bool)
    kept[indexes] = True
    by_order = [
        members[kept[marginals.part(order)]] for order, members in enumerate(marginals.by_order)
    ]
    while not len(by_order[-1]):
        by_order.pop()
    sets = AttributeSets(marginals.n_attributes, tuple(by_order))
    return replace(workload, marginals=sets, weights=workload.weights[kept])


HdmmStrategy = KroneckerStrategy | UnionStrategy | MarginalsStrategy


def list_hdmm(workload: Workload) -> list[HdmmStrategy]:
    """Optimize a strategy of each family; marginals only up to 14 attributes."""
    strategies: list[HdmmStrategy] = [optimize_kronecker(workload), optimize_union(workload)]
    if len(workload.attributes) <= MOST_ATTRIBUTES:
        strategies.append(optimize_marginals(workload))
    return strategies
