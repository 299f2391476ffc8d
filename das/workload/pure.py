"""HDMM under pure differential privacy: columns of L1 norm 1, and integer rows that keep it.

Product A_j of a strategy has columns of L1 norm at most 1. It is measured with Laplace noise of
scale 1 / (c_j epsilon). The shares c_j sum to 1, so an added record costs at most epsilon. A
changed record costs exactly twice as much if it moves to another geounit, and never more. So with
bounded neighbors every scale is twice as large.

    one product      a p-identity strategy [I; Theta] D per attribute, D for columns of sum 1
    a union          shares proportional to the cube roots of the errors
    marginals        plain marginals, the precision of each in proportion to the square of its share

None is proven optimal: these problems are not convex. Residual planners do not apply: they are
optimal for noise N(0, sigma^2 Sub Sub^T), whose cost is a squared L2 norm.

References:
  McKenna, Miklau, Hay & Machanavajjhala, Optimizing error of high-dimensional statistical queries
  under differential privacy, VLDB 2018, arXiv:1808.03537 (p-identity strategies, OPT_0,
  OPT_kron, OPT_+, OPT_M).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

import numpy as np

from das.arrays import FloatArray, IntArray
from das.errors import SchemaError
from das.mechanisms.mechanism import Norm
from das.queries.query import Query
from das.queries.sensitivity import Neighbors, l1_sensitivity
from das.workload.choices import LossKind
from das.workload.exact_shares import as_fractions, split_exactly
from das.workload.hdmm.attribute import AttributeStrategy
from das.workload.hdmm.integer import integer_queries
from das.workload.hdmm.marginals import (
    MOST_ATTRIBUTES,
    MarginalsStrategy,
    as_residual_plan,
    optimize_marginals_l1,
)
from das.workload.hdmm.strategies import (
    HdmmStrategy,
    KroneckerStrategy,
    UnionStrategy,
    optimize_kronecker,
    optimize_union,
)
from das.workload.kronecker import list_members
from das.workload.losses import Loss, evaluate_loss
from das.workload.workload import AttributeWorkload, BaseKind, Workload

DEFAULT_BITS = 24
"""Columns of all attributes together have an L1 norm of at most 2^DEFAULT_BITS in integers."""

# Defaults, not measured.
_MOST_BITS = 10  # of one attribute, as for the L2 norm
_LEAST_BITS = 2
_MOST_ITERATIONS = 300
_BRANCHES = (2, 4, 16)
_MOST_LEVELS_OF_BINARY_TREES = 128  # n - 1 rows of n levels; larger ones start from flatter trees
_EQUAL = 1 + 1e-6
_LEAST_ROW = 1e-6  # relative to an entry of the identity; smaller rows round to nothing


@dataclass(frozen=True, eq=False)
class PurePlan:
    """Integer queries with shares of epsilon, measured with independent Laplace noise.

    Each query is charged by its L1 sensitivity. All columns of a query have the same L1 norm, so
    the sum of the charges is the exact joint cost.

    Attributes:
      workload: The marginals to answer.
      queries: One per product of the strategy, factors in the order of the workload.
      shares: Part of epsilon per query, exact; they sum to 1.
      strategy: The strategy of these queries, scaled to columns of sum 1.
      rounding: Relative increase of the error by rounding.
    """

    workload: Workload
    queries: tuple[Query, ...]
    shares: tuple[Fraction, ...]
    strategy: HdmmStrategy
    rounding: float

    def scales(self, epsilon: Fraction, neighbors: Neighbors) -> tuple[Fraction, ...]:
        """Return the exact scales of Laplace noise for a joint cost of epsilon."""
        return tuple(
            l1_sensitivity(query, neighbors) / (share * epsilon)
            for query, share in zip(self.queries, self.shares, strict=True)
        )

    def error(self, epsilon: Fraction, neighbors: Neighbors) -> float:
        """Bound the weighted total variance of the least-squares answers with discrete noise."""
        scale = (1 if neighbors is Neighbors.UNBOUNDED else 2) / float(epsilon)
        return 2 * scale**2 * self.strategy.error

    def answer(self, noisy: Sequence[FloatArray | IntArray], names: Sequence[str]) -> FloatArray:
        """Return the least-squares answers of one marginal, float64[m_A] in C order.

        Args:
          noisy: The noisy answers to `queries`.
          names: Attributes of the marginal, in the order of the workload.
        """
        lengths = [l1_sensitivity(query, Neighbors.UNBOUNDED) for query in self.queries]
        scaled = [values / length for values, length in zip(noisy, lengths, strict=True)]
        return self.strategy.answer(scaled, names)


def plan_pure(
    workload: Workload, loss: Loss = LossKind.SUM_OF_VARIANCES, *, bits: int = DEFAULT_BITS
) -> PurePlan:
    """Choose the strategy of least loss among marginals, one product and a union, in integers.

    The strategies are optimized for the sum of variances and compared by the loss.

    Args:
      workload: Marginals with weights; those of weight 0 are not planned for.
      loss: The loss to compare by.
      bits: log2 of the integer column norm of a product over all attributes. Each attribute with
        more rows than levels needs 2.

    Raises:
      SchemaError: There are too many such attributes.

    >>> ages = Workload.k_way([AttributeWorkload.prefix("age", 16)], [1])
    >>> plan = plan_pure(ages)
    >>> plan.queries[0].shape[0] > 16, sum(plan.shares), abs(plan.rounding) < 0.01
    (True, Fraction(1, 1), True)
    >>> plain = Workload.k_way([AttributeWorkload.identity("sex", 2)], [1])
    >>> plan_pure(plain).error(Fraction(1, 2), Neighbors.UNBOUNDED)  # 2 answers, 2 / (1/2)^2
    16.0
    """
    strategies: list[HdmmStrategy] = [
        optimize_kronecker(workload, solve_p_identity),
        optimize_union(workload, solve_p_identity, Norm.L1),
    ]
    if len(workload.attributes) <= MOST_ATTRIBUTES:
        strategies.insert(0, optimize_marginals_l1(workload))
    plans = [_round(strategy, bits) for strategy in strategies]
    losses = [evaluate_loss(loss, workload, plan.strategy) for plan in plans]
    # Families can end at one strategy, up to the accuracy of their descents: take the first.
    return next(p for p, value in zip(plans, losses, strict=True) if value <= min(losses) * _EQUAL)


def plan_plain_tables(workload: Workload, neighbors: Neighbors, most_cells: float) -> PurePlan:
    """Choose plain tables to measure, from which `pool_tables` answers every marginal.

    Shares of all tables are optimized for the weighted total variance, up to 14 attributes. Beyond,
    or if that measures too many cells, it is the tables of the workload that no other contains,
    with shares proportional to the cube roots of their cells: the optimum if each was answered
    from its own measurement alone.

    Args:
      workload: Marginals with weights.
      neighbors: Which data sets count as neighbors. With bounded neighbors the total is public, so
        it is not measured next to other tables.
      most_cells: Most cells of measured tables that are not in the workload.
    """
    sizes = np.array([attribute.size for attribute in workload.attributes], np.float64)
    sets, shares = list_members(workload.marginals), np.zeros(0)
    if len(sizes) <= MOST_ATTRIBUTES:
        found = optimize_marginals_l1(workload)
        if np.where(found.sets, sizes, 1.0).prod(axis=1).sum() <= most_cells:
            sets, shares = found.sets, found.shares
    if not len(shares):
        common = sets.astype(np.float64) @ sets.T
        sets = sets[(common >= sets.sum(axis=1)[:, None]).sum(axis=1) == 1]
        shares = np.cbrt(np.where(sets, sizes, 1.0).prod(axis=1))
    if neighbors is Neighbors.BOUNDED and sets.any():
        sets, shares = sets[sets.any(axis=1)], shares[sets.any(axis=1)]
    strategy = MarginalsStrategy(workload, sets, shares / shares.sum(), math.nan, 0.0, Norm.L1)
    error = float(workload.weights @ as_residual_plan(strategy).total_variances())
    plan, names = _round(replace(strategy, error=error), DEFAULT_BITS), workload.names_of
    texts = [" * ".join(names(np.array(q.kept, np.int64))) or "total" for q in plan.queries]
    return replace(plan, queries=tuple(map(Query, texts, (q.factors for q in plan.queries))))


def solve_p_identity(
    attribute: AttributeWorkload, total_weight: float, start: AttributeStrategy | None = None
) -> AttributeStrategy:
    """Find a p-identity strategy [I; Theta] D, Theta >= 0, with columns of L1 norm 1.

    L-BFGS runs once from each start: the inner nodes of several trees over the levels, and the sum
    of all levels. If `start` has rows Theta, it is the only start. Return the best result, or the
    identity if it is better.

    Args:
      attribute: The attribute, with Gram matrix G.
      total_weight: c >= 0; the objective is tr((G + c 11^T) (A^T A)^-1).
      start: A strategy of this form.
    """
    from scipy.optimize import minimize

    gram, n = attribute.gram + total_weight, attribute.size
    best, error = np.zeros((1, n)), float(np.trace(gram))
    for theta in _list_starts(attribute, start):
        end = minimize(
            lambda flat: evaluate_p_identity_l1(gram, flat.reshape(-1, n)),
            theta.ravel(),
            jac=True,
            method="L-BFGS-B",
            bounds=[(0.0, None)] * theta.size,
            options={"maxiter": _MOST_ITERATIONS, "maxcor": 20},
        )
        if end.fun < error:
            best, error = end.x.reshape(-1, n), float(end.fun)
    best = best[(best > _LEAST_ROW).any(axis=1)]
    stacked = np.concatenate([np.eye(n), best])
    rows = stacked / stacked.sum(axis=0)
    return AttributeStrategy(rows, np.linalg.pinv(rows))


def evaluate_p_identity_l1(gram: FloatArray, theta: FloatArray) -> tuple[float, FloatArray]:
    """Return tr(G (A^T A)^-1) for A = [I; Theta] D of column sums 1, and its gradient, ravelled.

    With s = 1 + 1^T Theta, S = diag(s) = D^-1 and C = (I + Theta^T Theta)^-1 the value is
    tr(S G S C).

    Args:
      gram: G, float64[n, n].
      theta: Theta, float64[p, n], nonnegative.
    """
    p, n = theta.shape
    covariance = np.eye(n) - theta.T @ np.linalg.solve(np.eye(p) + theta @ theta.T, theta)
    lengths = 1 + theta.sum(axis=0)
    half = (lengths[:, None] * gram * lengths) @ covariance
    by_length = (gram * covariance) @ lengths
    gradient = 2 * by_length - 2 * (theta @ covariance) @ half
    return float(np.trace(half)), gradient.ravel()


def _list_starts(attribute: AttributeWorkload, start: AttributeStrategy | None) -> list[FloatArray]:
    n = attribute.size
    if start is not None and len(start.rows) > n:
        return [start.rows[n:] / start.rows[:n].diagonal()]
    total = np.ones((1, n))
    starts = [total, total / n]
    if attribute.kind is not BaseKind.IDENTITY:
        for branch in _BRANCHES:
            if branch > 2 or n <= _MOST_LEVELS_OF_BINARY_TREES:
                starts.append(_inner_nodes(n, branch))
    return starts


def _inner_nodes(n: int, branch: int) -> FloatArray:
    """Return the rows of a tree: sums of branch, branch^2, ... consecutive levels, and of all.

    Args:
      n: Number of levels.
      branch: Number of children of each inner node.
    """
    rows, width = [], branch
    while True:
        owner = np.arange(n) // width
        rows.append((owner == np.arange(owner[-1] + 1)[:, None]) * 1.0)
        if width >= n:
            return np.concatenate(rows) / len(rows)
        width *= branch


def _round(strategy: HdmmStrategy, bits: int) -> PurePlan:
    """Round a strategy to integer rows whose columns have the same L1 norm."""
    parts = strategy.parts if isinstance(strategy, UnionStrategy) else (strategy,)
    products = [part for part in parts if isinstance(part, KroneckerStrategy)]
    scale = _column_norm(products, bits)
    queries, rounded = integer_queries(strategy, partial(_round_attribute, scale=scale))
    shares = as_fractions(split_exactly(rounded.shares))
    loss = rounded.error / strategy.error - 1
    return PurePlan(strategy.workload, queries, shares, rounded, loss)


def _column_norm(products: Sequence[KroneckerStrategy], bits: int) -> int:
    """Choose the column norm of integer rows so that products over attributes have few bits.

    Args:
      products: The products of the strategy.
      bits: Most bits of the column norm of a product.
    """
    deepest = max(
        (sum(len(f.rows) > f.rows.shape[1] for f in each.factors) for each in products), default=0
    )
    each = min(_MOST_BITS, bits // max(deepest, 1))
    if each < _LEAST_BITS:
        raise SchemaError(
            "strategy for pure differential privacy",
            "has too many attributes with more strategy rows than levels",
            got=deepest,
            want=f"at most {bits // _LEAST_BITS}",
        )
    return 1 << each


def _round_attribute(
    _: AttributeWorkload, given: AttributeStrategy, scale: int
) -> tuple[IntArray, AttributeStrategy]:
    """Round rows to integers of equal column sums.

    Args:
      _: Not used.
      given: The strategy of one attribute.
      scale: Column sum before common factors are divided out.

    Returns:
      The integer rows, and the strategy with these rows scaled to column sums of 1.
    """
    n = given.rows.shape[1]
    if len(given.rows) <= n:  # the identity or the total: integers already
        return np.asarray(given.rows.astype(np.int64)), given
    wanted = scale * given.rows[n:]
    extra = np.rint(wanted).astype(np.int64)
    crowded = extra.sum(axis=0) >= scale
    # Rounded down, the diagonal of such a column stays positive.
    extra[:, crowded] = np.floor(wanted[:, crowded]).astype(np.int64)
    extra = extra[(extra != 0).any(axis=1)]
    integers = np.concatenate([np.diag(scale - extra.sum(axis=0)), extra])
    integers //= int(np.gcd.reduce(integers, axis=None))
    scaled = integers / integers[:, 0].sum()
    return integers, AttributeStrategy(scaled, np.linalg.pinv(scaled))
