"""Noise and pivots for the weighted sum of all variances; the noise has a closed form.

For bases with s_i and rho_i = beta_i r_i, the least sum at privacy cost c is F / c,

    F = ( sum_S sqrt(prod_{i in S} rho_i) sqrt(sum_{A superset S} w_A prod_{i in A - S} s_i) )^2,

by the Cauchy-Schwarz inequality, as in ResidualPlanner+, Lemma 2, where s_i = 1/n_i and
rho_i = (n_i - 1)^2 / n_i.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from das.arrays import FloatArray
from das.workload.attribute_sets import AttributeSets
from das.workload.incidence import Incidence
from das.workload.one_dimensional import weigh_total
from das.workload.residual.bases import (
    AttributeBasis,
    orthogonal_basis,
    per_matrix,
    split_off_total,
    uniform_basis,
)
from das.workload.residual.plan import ResidualPlan
from das.workload.workload import BaseKind, Workload

# Defaults, not measured.
_MOST_ROUNDS = 30
_SETTLED = 1e-8
_INNER_GAP = 1e-7


def sum_over_supersets(
    workload: Workload, residuals: AttributeSets, pivots: FloatArray
) -> FloatArray:
    """Return sum_{A superset S} w_A prod_{i in A - S} pivots[i] for every residual set S.

    If the workload has all marginals of an order or none, and its weights follow a scheme, these
    are elementary symmetric polynomials of the attributes outside S. Otherwise they are summed over
    the subsets of every marginal. Both ways add only positive numbers.

    Args:
      workload: The marginals A and their weights w_A.
      residuals: The residual sets S.
      pivots: float64[d], the factor of each attribute outside S.
    """
    marginals, factors = workload.marginals, workload.weight_factors
    orders = [k for k, members in enumerate(marginals.by_order) if len(members)]
    if factors is not None and all(marginals.is_complete(order) for order in orders):
        return _symmetric_sums(residuals, orders, pivots * factors) * residuals.product(factors)
    incidence = Incidence(marginals, residuals)
    out = np.zeros(residuals.size)
    values = incidence.values(pivots, np.ones(len(pivots)))
    for order, (columns, products) in enumerate(zip(incidence.columns, values, strict=True)):
        weighted = products * workload.weights[marginals.part(order)][:, None]
        out += np.bincount(columns.ravel(), weighted.ravel(), minlength=residuals.size)
    return out


def _symmetric_sums(residuals: AttributeSets, orders: list[int], values: FloatArray) -> FloatArray:
    """Sum elementary symmetric polynomials e_{k - |S|}(values outside S) over k, for every S.

    The members of S split the other attributes into intervals, whose polynomials are multiplied.
    Dividing factors out of the full polynomial would lose digits.

    Args:
      residuals: The residual sets S.
      orders: The orders k.
      values: float64[d], the value of each attribute.
    """
    top, n = max(orders), len(values)
    # intervals[q, a, b] = e_q of values[a:b]
    intervals = np.zeros((top + 1, n + 1, n + 1))
    intervals[0] = 1.0
    for end in range(n):
        intervals[1:, : end + 1, end + 1] = (
            intervals[1:, : end + 1, end] + values[end] * intervals[:-1, : end + 1, end]
        )
    out = np.zeros(residuals.size)
    for order, members in enumerate(residuals.by_order):
        degree = top - order
        borders = np.column_stack([np.full(len(members), -1), members, np.full(len(members), n)])
        product = np.ones((1, len(members)))
        for piece in range(order + 1):
            inside = intervals[: degree + 1, borders[:, piece] + 1, borders[:, piece + 1]]
            product = _multiply(product, inside, degree)
        out[residuals.part(order)] = sum(product[k - order] for k in orders if k >= order)
    return out


def _multiply(left: FloatArray, right: FloatArray, degree: int) -> FloatArray:
    """Multiply polynomials in one variable, up to a degree.

    Args:
      left: float64[a, m], coefficients of m polynomials, constant first.
      right: float64[b, m], coefficients of the other factors.
      degree: Highest degree to keep.
    """
    if len(left) == 1:
        return left * right
    out = np.zeros((degree + 1, left.shape[1]))
    for power in range(min(len(left), degree + 1)):
        out[power:] += left[power] * right[: degree + 1 - power]
    return out


@dataclass(frozen=True, eq=False)
class TotalVariance:
    """Least weighted sum of variances at privacy cost 1, and its derivatives.

    Attributes:
      value: F, the least weighted total variance.
      pivot_slopes: float64[d], derivatives of sqrt(F) by s_i.
      product_slopes: float64[d], derivatives of sqrt(F) by rho_i.
    """

    value: float
    pivot_slopes: FloatArray
    product_slopes: FloatArray


def evaluate_total_variance(
    workload: Workload, residuals: AttributeSets, pivots: FloatArray, products: FloatArray
) -> TotalVariance:
    """Evaluate the least total variance F and its derivatives in s and rho.

    Args:
      workload: The marginals and their weights.
      residuals: The residual sets.
      pivots: s, float64[d], `pivot_variance` of the basis of each attribute.
      products: rho, float64[d], `residual_product` of the basis of each attribute.
    """
    supersets = sum_over_supersets(workload, residuals, pivots)
    roots = residuals.product(np.sqrt(products))
    terms = roots * np.sqrt(supersets)
    # A set that no weighted marginal contains has the term 0 and derivative 0.
    ratio = np.divide(roots, np.sqrt(supersets), out=np.zeros_like(roots), where=supersets > 0)
    by_pivot, by_product = np.zeros(len(pivots)), np.zeros(len(pivots))
    for order, members in enumerate(residuals.by_order):
        part = residuals.part(order)
        for column in range(order):
            inside = members[:, column]
            without = residuals.positions(np.delete(members, column, axis=1))
            slopes = supersets[part] * ratio[without]
            by_pivot += np.bincount(inside, slopes, minlength=len(pivots))
            by_product += np.bincount(inside, terms[part], minlength=len(pivots))
    return TotalVariance(float(terms.sum()) ** 2, by_pivot / 2, by_product / (2 * products))


def minimize_noise(workload: Workload, bases: tuple[AttributeBasis, ...]) -> ResidualPlan:
    """Choose the noise of least weighted total variance for given bases, at privacy cost 1.

    Args:
      workload: Marginals and weights.
      bases: One per attribute.

    Returns:
      The plan; no other noise at this cost and these bases has a smaller weighted sum.

    References:
      He, Xiao, Toksoz, Ding, Zhang & Kifer, ResidualPlanner+, Lemma 2.
    """
    closure = workload.marginals.closure()
    supersets = sum_over_supersets(
        workload, closure, np.array([basis.pivot_variance for basis in bases])
    )
    if not supersets.all():
        # The objective does not determine the noise of sets in marginals of weight 0 only.
        supersets = np.maximum(supersets, supersets.max() * 1e-12)
    costs = closure.product(np.array([basis.cell_cost for basis in bases]))
    values = supersets * closure.product(np.array([basis.residual_variance for basis in bases]))
    scale = np.sqrt(costs * values).sum()
    return ResidualPlan(workload, bases, closure, scale * np.sqrt(costs / values))


def choose_oblique_bases(workload: Workload) -> tuple[AttributeBasis, ...]:
    """Choose pivots and strategies together, for the weighted sum of variances (oblique).

    F depends on an attribute through (s_i, rho_i) alone. The frontier of these pairs is
    V(c) = argmin tr((G + c 11^T) V^-). At a stationary point c_i = rho_i (F_rho / F_s)^2 - s_i,
    which is iterated over all attributes. The result is at least as good as the optimal orthogonal
    bases and as the attribute-wise optimum (c = 0).
    """
    closure = workload.marginals.closure()
    best = per_matrix(workload, orthogonal_basis)
    best_value = evaluate_total_variance(workload, closure, *_pairs(best)).value
    if workload.is_plain:
        return best
    weights = np.zeros(len(workload.attributes))
    starts: dict[Hashable, FloatArray] = {}
    previous = np.inf
    for _ in range(_MOST_ROUNDS):
        bases = _weigh_totals(workload, weights, starts)
        pivots, products = _pairs(bases)
        total = evaluate_total_variance(workload, closure, pivots, products)
        if total.value < best_value:
            best, best_value = bases, total.value
        if total.value > previous * (1 - _SETTLED):
            break
        previous = total.value
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = total.product_slopes / total.pivot_slopes
        # An attribute in no weighted marginal has derivatives 0; any basis is optimal.
        ratio = np.where(total.pivot_slopes > 0, ratio, 0.0)
        weights = np.maximum(products * ratio**2 - pivots, 0.0)
    return best


def _weigh_totals(
    workload: Workload, weights: FloatArray, starts: dict[Hashable, FloatArray]
) -> tuple[AttributeBasis, ...]:
    """Build bases for total weights c_i; equal attributes with equal c_i are solved once."""
    solved: dict[Hashable, AttributeBasis] = {}
    out = []
    for attribute, weight in zip(workload.attributes, weights, strict=True):
        matrix, is_plain = attribute.signature, attribute.kind is BaseKind.IDENTITY
        key = (matrix, 0.0 if is_plain else float(f"{weight:.9g}"))
        if key not in solved and is_plain:
            solved[key] = uniform_basis(attribute)
        elif key not in solved:
            start = starts.get(matrix)
            strategy = weigh_total(attribute, float(weight), gap=_INNER_GAP, start=start)
            starts[matrix] = strategy.cell_weights
            solved[key] = split_off_total(attribute, strategy.factor, strategy.inverse)
        out.append(solved[key])
    return tuple(out)


def _pairs(bases: tuple[AttributeBasis, ...]) -> tuple[FloatArray, FloatArray]:
    return (
        np.array([basis.pivot_variance for basis in bases]),
        np.array([basis.residual_product for basis in bases]),
    )
