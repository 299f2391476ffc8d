"""Search for an allocation: chooses the method, and the full or a coarse tree.

With the measurements of the whole tree, a step costs one pass over the classes of its subtrees. A
nation has tens of thousands of classes, and a largest error or a limit needs a separate pass. The
search then runs on a coarse tree (`das.tree.coarse`). Factors make its errors those of the full
tree, at the start of each round, until the factors settle. A round costs two passes over the full
tree: for the errors and, with the prices from the coarse tree, for the bound. So the returned value
and bound hold for the full tree.

References:
  Alexandrov, Lewis, Gumbert, Green & Newman, J. Aircraft 38, 2001 (models with corrections).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from das.arrays import FloatArray
from das.errors import BudgetError
from das.tree.allocation import Allocation, AllocationProblem, minimize_weighted_error
from das.tree.coarse import coarse_classes
from das.tree.errors import SpineModel
from das.tree.information import Information
from das.tree.largest import (
    NEAR_ENOUGH,
    Objective,
    certify_shares,
    minimize_within_limits,
    power_of_two,
    refuse_unsearchable,
    tangent_bound,
)

# Least classes for which the search uses a coarse tree: a pass over them takes longer than the
# other arithmetic of a step. Default, not measured.
_MANY_CLASSES = 500
_MOST_ROUNDS = 8  # default, not measured
_STEADY = 1e-4  # relative change of the factors at which rounds end; default, not measured
# Relative distance of value and bound on the coarse tree. Tangents at one point bound well only
# near the optimum: at a distance of 5e-3 they left 3 % in a tree of 29 classes, here 0.1 %.
_GAP = 2e-4
# Defaults, not measured.
_MOST_PRICES = 60  # rounds of the search for prices
_MOST_PAID = 1e3  # total of prices over the value; above it the limits count as not attainable
_FIRST_PRICE = 1e-3  # of the value, for a limit on an error of scale 0
_SLACK = 1e-3  # relative, by which an error may be below a limit that has a price
_MISSED = 3e-4  # relative, by which a limit may be missed: the accuracy of a search


def find_shares(problem: AllocationProblem, objective: Objective, start: FloatArray) -> Allocation:
    """Find shares that make the largest error, or a sum of errors, least within limits.

    Args:
      problem: Errors as a function of shares.
      objective: The objective and the limits.
      start: float64[L, Q], nonnegative; shares to start from, up to a factor. With all measurements
        of the tree, positive for every query that some table depends on.

    Raises:
      BudgetError: A scale is negative, or no error with noise has a positive scale. Or no
        allocation meets the limits; the message says how much more budget is needed.
    """
    refuse_unsearchable(problem, objective)
    # The search squares errors and limits; a power of two keeps them in range and exact.
    unit = power_of_two(objective.scale)
    scaled = replace(objective, scale=objective.scale / unit)
    few = problem.information is Information.GEOUNIT or problem.model.tree.n_classes < _MANY_CLASSES
    allocation = (_least if few else _by_coarse_tree)(problem, scaled, start)
    value, bound = allocation.value * unit, allocation.bound * unit
    return replace(allocation, value=value, bound=bound, prices=allocation.prices / unit)


def _least(
    problem: AllocationProblem,
    objective: Objective,
    start: FloatArray,
    gap: float | None = None,
    prices: FloatArray | None = None,
) -> Allocation:
    if not objective.is_sum:
        return minimize_within_limits(problem, objective, start, gap)
    if objective.limits is None:
        return minimize_weighted_error(problem, objective.scale, start)
    return _by_prices(problem, objective, start, prices) or minimize_within_limits(
        problem, objective, start, gap
    )


def _by_prices(
    problem: AllocationProblem, objective: Objective, start: FloatArray, known: FloatArray | None
) -> Allocation | None:
    """Minimize a sum within limits as a weighted sum without limits, by finding dual prices.

    For errors c / x the optimal x are proportional to the roots of the weights, so a fourfold
    weight halves an error. The weight of an error with a limit is multiplied by the squared ratio
    of error to limit, until the ratio is 1 or the price 0. Return None if prices do not converge.
    """
    objective = objective.without_determined(problem)
    has_limit = objective.inverse_limits > 0
    limits = np.divide(
        1.0, objective.inverse_limits, out=np.zeros_like(objective.inverse_limits), where=has_limit
    )
    shares, prices = start, np.zeros_like(objective.scale)
    if known is not None:  # in units of 1 / value, as those of `Allocation`
        value = float((objective.scale * problem.errors(start)).sum())
        prices = np.divide(known * value**2, limits, out=prices, where=has_limit)
    for _ in range(_MOST_PRICES):
        allocation = minimize_weighted_error(problem, objective.scale + prices, shares)
        shares, errors = allocation.shares, problem.errors(allocation.shares)
        over = errors * objective.inverse_limits
        value = float((objective.scale * errors).sum())
        if over.max() <= 1 + _MISSED and (over[prices > 0] >= 1 - _SLACK).all():
            paid = prices * limits
            bound = allocation.bound - float(paid.sum())
            return replace(allocation, value=value, bound=bound, prices=paid / value**2)
        least = np.divide(_FIRST_PRICE * value, limits, out=np.zeros_like(prices), where=has_limit)
        weight = np.maximum(objective.scale + prices, least)
        counts = has_limit & ((prices > 0) | (over > 1))
        with np.errstate(over="ignore"):  # limits far out of reach
            prices = np.where(counts, np.maximum(weight * over**2 - objective.scale, 0.0), 0.0)
        if not float((prices * limits).sum()) <= _MOST_PAID * value:
            return None
    return None


def _by_coarse_tree(
    problem: AllocationProblem, objective: Objective, start: FloatArray
) -> Allocation:
    model = problem.model
    small = SpineModel(coarse_classes(model.tree), model.measured, model.exact, model.tables)
    coarse = replace(problem, model=small)
    errors, shares = problem.errors(start), start
    factor: FloatArray | None = None
    best: Allocation | None = None
    prices: FloatArray | None = None
    bound = 0.0
    for _ in range(_MOST_ROUNDS):
        plain, before = coarse.errors(shares), factor
        factor = np.divide(errors, plain, out=np.ones_like(plain), where=plain > 0)
        if before is not None and np.abs(factor / before - 1).max() < _STEADY:
            break
        allocation = _least(replace(coarse, factor=factor), objective, shares, _GAP, prices)
        shares, prices = allocation.shares, allocation.prices
        judged = certify_shares(problem, objective, allocation)
        errors = judged.errors
        bound = max(bound, judged.bound)
        if judged.excess <= 1 + 2 * _MISSED and (best is None or judged.value <= best.value):
            best = replace(allocation, value=judged.value, bound=bound)
    if best is None:
        raise BudgetError("limits of errors", "no allocation within the limits was found")
    if best.value > (1 + NEAR_ENOUGH[problem.information]) * bound:
        bound = max(bound, tangent_bound(problem, objective, best))
    return replace(best, bound=bound)
