"""Planning for the weighted sum of all variances: a closed form, and the best pivots for it.

With s_i and rho_i = beta_i r_i of the bases, the least sum at privacy cost c is F / c,

    F = ( sum_S sqrt(prod_{i in S} rho_i) sqrt(sum_{A superset S} w_A prod_{i in A - S} s_i) )^2,

by the Cauchy-Schwarz inequality, as in ResidualPlanner+, Lemma 2, where s_i = 1/n_i and
rho_i = (n_i - 1)^2 / n_i.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np

from das.arrays import FloatArray
from das.errors import BudgetError
from das.workload.attribute_sets import AttributeSets
from das.workload.incidence import Incidence
from das.workload.one_dimensional import OneDimensionalStrategy
from das.workload.residual.bases import (
    AttributeBasis,
    orthogonal_basis,
    projected_basis,
    split_off_total,
    uniform_basis,
    weigh_total,
)
from das.workload.residual.plan import ResidualPlan
from das.workload.workload import AttributeWorkload, BaseKind, Workload

_MOST_ROUNDS = 30
_SETTLED = 1e-8
_INNER_GAP = 1e-7


def sum_over_supersets(
    workload: Workload, residuals: AttributeSets, pivots: FloatArray
) -> FloatArray:
    """Return sum_{A superset S} w_A prod_{i in A - S} pivots[i] for every residual set S.

    If all marginals of an order are asked or none, and the weights follow a scheme, these are
    elementary symmetric polynomials of the attributes outside S; otherwise they are summed over
    the subsets of every marginal. Only positive numbers are added either way.
    """
    marginals, factors = workload.marginals, workload.weight_factors
    orders = [k for k, members in enumerate(marginals.by_order) if len(members)]
    if factors is not None and all(marginals.is_complete(order) for order in orders):
        return _symmetric_sums(residuals, orders, pivots * factors) * residuals.product(factors)
    found = Incidence.build(marginals, residuals)
    out = np.zeros(residuals.size)
    values = found.values(pivots, np.ones(len(pivots)))
    for order, (columns, products) in enumerate(zip(found.columns, values, strict=True)):
        weighted = products * workload.weights[marginals.part(order)][:, None]
        out += np.bincount(columns.ravel(), weighted.ravel(), minlength=residuals.size)
    return out


def _symmetric_sums(residuals: AttributeSets, orders: list[int], values: FloatArray) -> FloatArray:
    """Sum e_{k - |S|}(values outside S) over the orders k, for every S.

    The attributes outside S fall into intervals between its members. Polynomials of intervals are
    multiplied; dividing factors out of the full polynomial would cancel.
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
    """Multiply polynomials, coefficients along axis 0, up to a degree."""
    if len(left) == 1:
        return left * right
    out = np.zeros((degree + 1, left.shape[1]))
    for power in range(min(len(left), degree + 1)):
        out[power:] += left[power] * right[: degree + 1 - power]
    return out


@dataclass(frozen=True, eq=False)
class TotalVariance:
    """The least weighted sum of variances at privacy cost 1, and its slopes.

    Attributes:
      value: F.
      supersets: float64[sets], sum_{A superset S} w_A prod_{A - S} s_i.
      pivot_slopes: float64[d], derivative of sqrt(F) by s_i.
      product_slopes: float64[d], derivative of sqrt(F) by rho_i.
    """

    value: float
    supersets: FloatArray
    pivot_slopes: FloatArray
    product_slopes: FloatArray


def evaluate_total_variance(
    workload: Workload, residuals: AttributeSets, pivots: FloatArray, products: FloatArray
) -> TotalVariance:
    """Evaluate F and its slopes for s = pivots and rho = products, float64[d] each."""
    supersets = sum_over_supersets(workload, residuals, pivots)
    roots = residuals.product(np.sqrt(products))
    terms = roots * np.sqrt(supersets)
    # A set that no weighted marginal contains has the term 0 and no slope.
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
    return TotalVariance(
        float(terms.sum()) ** 2, supersets, by_pivot / 2, by_product / (2 * products)
    )


def minimize_noise(
    workload: Workload, bases: tuple[AttributeBasis, ...], privacy_cost: float = 1.0
) -> ResidualPlan:
    """Choose the noise of least weighted total variance for given bases.

    Args:
      workload: Marginals and weights.
      bases: One per attribute.
      privacy_cost: c > 0; zCDP rho is c / 2.

    Returns:
      The plan; no other noise at this cost and these bases has a smaller weighted sum.

    Raises:
      BudgetError: The privacy cost is not positive.

    References:
      He, Xiao, Toksoz, Ding, Zhang & Kifer, ResidualPlanner+, Lemma 2.
    """
    if not privacy_cost > 0:
        raise BudgetError("privacy cost", "must be positive", got=privacy_cost)
    closure = workload.marginals.closure()
    supersets = sum_over_supersets(
        workload, closure, np.array([basis.pivot_variance for basis in bases])
    )
    if not supersets.all():
        # Sets below marginals of weight zero get no noise level from the objective.
        supersets = np.maximum(supersets, supersets.max() * 1e-12)
    costs = closure.product(np.array([basis.cell_cost for basis in bases]))
    values = supersets * closure.product(np.array([basis.residual_variance for basis in bases]))
    scale = np.sqrt(costs * values).sum() / privacy_cost
    return ResidualPlan(workload, bases, closure, scale * np.sqrt(costs / values))


def plan_marginals(workload: Workload, privacy_cost: float = 1.0) -> ResidualPlan:
    """ResidualPlanner: optimal among all matrix mechanisms, for identity base matrices.

    Raises:
      SchemaError: A base matrix is not the identity.
      BudgetError: The privacy cost is not positive.

    >>> sex = AttributeWorkload.identity("sex", 2)
    >>> plan = plan_marginals(Workload.all_k_way((sex,), 1))
    >>> round(plan.root_mean_square_error(), 6)
    1.0
    """
    return minimize_noise(workload, _per_kind(workload, uniform_basis), privacy_cost)


def plan_projected(workload: Workload, privacy_cost: float = 1.0) -> ResidualPlan:
    """ResidualPlanner+ as published: pivots 1/n, strategies with the total projected out."""
    return minimize_noise(workload, _per_kind(workload, projected_basis), privacy_cost)


def plan_orthogonal(workload: Workload, privacy_cost: float = 1.0) -> ResidualPlan:
    """ResidualPlanner+ with the best strategies that the uniform pivot allows."""
    return minimize_noise(workload, _per_kind(workload, orthogonal_basis), privacy_cost)


def plan_oblique(workload: Workload, privacy_cost: float = 1.0) -> ResidualPlan:
    """Oblique ResidualPlanner: pivots and strategies chosen together.

    F depends on an attribute through (s_i, rho_i) alone, and the frontier of these pairs is
    V(c) = argmin tr((G + c 11^T) V^-). At a stationary point
    c_i = rho_i (F_rho / F_s)^2 - s_i; it is iterated over all attributes. The result is never
    worse than the optimal orthogonal bases nor than the attribute-wise optimum (c = 0).

    >>> age = AttributeWorkload.prefix("age", 10)
    >>> workload = Workload.all_k_way((age,), 1)
    >>> plan_oblique(workload).root_mean_square_error() < plan_projected(
    ...     workload
    ... ).root_mean_square_error()
    True
    """
    return minimize_noise(workload, choose_oblique_bases(workload), privacy_cost)


def choose_oblique_bases(workload: Workload) -> tuple[AttributeBasis, ...]:
    """Choose the bases of `plan_oblique`."""
    closure = workload.marginals.closure()
    fixed = _per_kind(workload, orthogonal_basis)
    best, best_value = fixed, _evaluate(workload, closure, fixed).value
    if all(attribute.kind is BaseKind.IDENTITY for attribute in workload.attributes):
        return best
    weights = np.zeros(len(workload.attributes))
    strategies: dict[Hashable, OneDimensionalStrategy] = {}
    previous = np.inf
    for _ in range(_MOST_ROUNDS):
        bases = _weigh_totals(workload, weights, strategies)
        found = _evaluate(workload, closure, bases)
        if found.value < best_value:
            best, best_value = bases, found.value
        if found.value > previous * (1 - _SETTLED):
            break
        previous = found.value
        pivots, products = _pairs(bases)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = found.product_slopes / found.pivot_slopes
        # An attribute in no weighted marginal has no slopes; any basis serves it.
        ratio = np.where(found.pivot_slopes > 0, ratio, 0.0)
        weights = np.maximum(products * ratio**2 - pivots, 0.0)
    return best


def _weigh_totals(
    workload: Workload,
    weights: FloatArray,
    strategies: dict[Hashable, OneDimensionalStrategy],
) -> tuple[AttributeBasis, ...]:
    """Bases for total weights c_i; equal attributes with equal c_i are solved once."""
    solved: dict[Hashable, AttributeBasis] = {}
    out = []
    for attribute, weight in zip(workload.attributes, weights, strict=True):
        if attribute.kind is BaseKind.IDENTITY:
            key: Hashable = attribute.signature
            if key not in solved:
                solved[key] = uniform_basis(attribute)
        else:
            key = (attribute.signature, float(f"{weight:.9g}"))
            if key not in solved:
                strategies[attribute.signature] = weigh_total(
                    attribute,
                    float(weight),
                    gap=_INNER_GAP,
                    start=strategies.get(attribute.signature),
                )
                solved[key] = split_off_total(attribute, strategies[attribute.signature])
        out.append(solved[key])
    return tuple(out)


def _per_kind(
    workload: Workload, build: Callable[[AttributeWorkload], AttributeBasis]
) -> tuple[AttributeBasis, ...]:
    """Build one basis per distinct base matrix; keyed by the matrix, never by its size."""
    solved: dict[Hashable, AttributeBasis] = {}
    for attribute in workload.attributes:
        if attribute.signature not in solved:
            solved[attribute.signature] = build(attribute)
    return tuple(solved[attribute.signature] for attribute in workload.attributes)


def _pairs(bases: tuple[AttributeBasis, ...]) -> tuple[FloatArray, FloatArray]:
    return (
        np.array([basis.pivot_variance for basis in bases]),
        np.array([basis.residual_product for basis in bases]),
    )


def _evaluate(
    workload: Workload, closure: AttributeSets, bases: tuple[AttributeBasis, ...]
) -> TotalVariance:
    return evaluate_total_variance(workload, closure, *_pairs(bases))
