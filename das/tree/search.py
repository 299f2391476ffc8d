"""The search for an allocation: which method, and on which tree.

With all measurements of the tree a step costs one pass over the classes of its subtrees, of which
a nation has tens of thousands, and a largest error or a limit wants a pass of its own. The search
then runs on a smaller tree (`das.tree.coarse`). Its errors are multiplied by what makes them those
of the large tree at the point where the search begins, and again where it ended, until that factor
stays. A round costs two passes over the large tree: there the errors are taken and, with the prices
of the smaller tree, the bound. So what is returned was judged on the large tree alone.

References:
  Alexandrov, Lewis, Gumbert, Green & Newman, J. Aircraft 38, 2001 (models with corrections).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from das.arrays import FloatArray
from das.errors import BudgetError
from das.tree.allocation import Allocation, AllocationProblem, least_weighted_error
from das.tree.coarse import coarse_classes
from das.tree.errors import SpineModel
from das.tree.information import Information
from das.tree.largest import (
    NEAR_ENOUGH,
    Aim,
    certify,
    least_bound,
    least_within,
    power_of_two,
    refuse_unsearchable,
)

# Classes from which a search on a smaller tree is the shorter way: where a pass over all of them
# takes longer than the arithmetic of the search around it.
_MANY_CLASSES = 500
_MOST_ROUNDS = 8
_STEADY = 1e-4  # relative change of the factor: the smaller tree then says what the large one does
# Relative distance of value and bound on the smaller tree. Tangents at one point bound well only
# near the optimum: at a distance of 5e-3 they left 3 % in a tree of 29 classes, here 0.1 %.
_GAP = 2e-4
_MOST_PRICES = 60  # rounds of the search for prices
_MOST_PAID = 1e3  # of the value, for all limits: more, and they cannot or can hardly be met
_FIRST_PRICE = 1e-3  # of the value, for a limit on an error that does not count otherwise
_SLACK = 1e-3  # relative, by which an error may be below a limit that has a price
_MISSED = 3e-4  # relative, by which a limit may be missed: searches for shares stop so near


def find_shares(problem: AllocationProblem, aim: Aim, start: FloatArray) -> Allocation:
    """Find shares that make the largest error, or a sum of errors, least within limits.

    Args:
      problem: Errors as a function of shares.
      aim: What is made least, and the limits.
      start: float64[L, Q], nonnegative; shares to start from, up to a factor. With all measurements
        of the tree, positive ones of every query that a part of the tables hangs on.

    Raises:
      BudgetError: A scale is negative, or none of a table with noise is positive; or no allocation
        was found within the limits, and the message says by what factor rho is too small.
    """
    refuse_unsearchable(problem, aim)
    # Limits and targets of any size: the search squares what it finds.
    unit = power_of_two(aim.scale)
    scaled = replace(aim, scale=aim.scale / unit)
    few = problem.information is Information.OWN or problem.model.tree.n_classes < _MANY_CLASSES
    found = (_least if few else _by_coarse_tree)(problem, scaled, start)
    value, bound = found.value * unit, found.bound * unit
    return replace(found, value=value, bound=bound, prices=found.prices / unit)


def _least(
    problem: AllocationProblem,
    aim: Aim,
    start: FloatArray,
    gap: float | None = None,
    prices: FloatArray | None = None,
) -> Allocation:
    if not aim.is_sum:
        return least_within(problem, aim, start, gap)
    if aim.limits is None:
        return least_weighted_error(problem, aim.scale, start)
    return _by_prices(problem, aim, start, prices) or least_within(problem, aim, start, gap)


def _by_prices(
    problem: AllocationProblem, aim: Aim, start: FloatArray, known: FloatArray | None
) -> Allocation | None:
    """A sum within limits as a weighted sum without, for which prices of the limits are sought.

    With errors c / x the best x go by the roots of their weights, so that an error halves where its
    weight is fourfold. Weights of errors with a limit are multiplied by the squares of the ratios
    to it until these are 1, or the price is 0. Returns None if prices do not settle.
    """
    aim = aim.of_noise(problem)
    has_limit = aim.limited > 0
    limits = np.divide(1.0, aim.limited, out=np.zeros_like(aim.limited), where=has_limit)
    shares, prices = start, np.zeros_like(aim.scale)
    if known is not None:  # in units of 1 / value, as those of `Allocation`
        value = float((aim.scale * problem.errors(start)).sum())
        prices = np.divide(known * value**2, limits, out=prices, where=has_limit)
    for _ in range(_MOST_PRICES):
        found = least_weighted_error(problem, aim.scale + prices, shares)
        shares, errors = found.shares, problem.errors(found.shares)
        over = errors * aim.limited
        value = float((aim.scale * errors).sum())
        if over.max() <= 1 + _MISSED and (over[prices > 0] >= 1 - _SLACK).all():
            paid = prices * limits
            bound = found.bound - float(paid.sum())
            return replace(found, value=value, bound=bound, prices=paid / value**2)
        least = np.divide(_FIRST_PRICE * value, limits, out=np.zeros_like(prices), where=has_limit)
        held = np.maximum(aim.scale + prices, least)
        counts = has_limit & ((prices > 0) | (over > 1))
        with np.errstate(over="ignore"):  # limits far out of reach
            prices = np.where(counts, np.maximum(held * over**2 - aim.scale, 0.0), 0.0)
        if not float((prices * limits).sum()) <= _MOST_PAID * value:
            return None
    return None


def _by_coarse_tree(problem: AllocationProblem, aim: Aim, start: FloatArray) -> Allocation:
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
        found = _least(replace(coarse, factor=factor), aim, shares, _GAP, prices)
        shares, prices = found.shares, found.prices
        judged = certify(problem, aim, found)
        errors = judged.errors
        bound = max(bound, judged.bound)
        if judged.excess <= 1 + 2 * _MISSED and (best is None or judged.value <= best.value):
            best = replace(found, value=judged.value, bound=bound)
    if best is None:
        raise BudgetError("limits of errors", "no allocation within them was found")
    if best.value > (1 + NEAR_ENOUGH[problem.information]) * bound:
        bound = max(bound, least_bound(problem, aim, best))
    return replace(best, bound=bound)
