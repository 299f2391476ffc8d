"""The largest budget whose noise keeps a target (epsilon, delta), for many measurements together.

The conversion that knows only rho (`das.privacy.accounting`) leaves some of it unused. Here the
noise of all measurements is composed as it is, by `das.privacy.loss_distribution`, which bounds
epsilon from above in whole numbers; the largest rho for which that bound is at most the target is
found, to a unit of the fifth digit of what rho alone affords, and one more unit is refused. This is
the calibration of Balle & Wang for many discrete measurements in the place of one continuous one.

Every geography is allowed: any geounits may be only children. What is found is never below what rho
alone affords, and does not depend on the processor.

References:
  Balle & Wang, Improving the Gaussian Mechanism for Differential Privacy, ICML 2018,
  arXiv:1805.06530 (calibration by the exact delta).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from das.errors import BudgetError
from das.privacy.accounting import rho_from_epsilon
from das.privacy.ledger import Chain
from das.privacy.loss_distribution import UnitShifts, losses_of_paths
from das.queries.sensitivity import Neighbors

_DIGITS = 5  # of rho

# Of each kind of record, what each chain of geolevels loses: the noise at a budget of 1, and how
# many answers it moves by 1.
Measured = tuple[tuple[tuple[Chain, tuple[UnitShifts, ...]], ...], ...]


@lru_cache(maxsize=64)
def rho_from_noise(
    n_levels: int, measured: Measured, neighbors: Neighbors, epsilon: Fraction, delta: Fraction
) -> Fraction:
    """Return the largest rho, to five digits, whose noise has at most this epsilon at delta.

    Args:
      n_levels: Paths have the geolevels 0..n_levels - 1.
      measured: Noise at rho 1; at another rho its parameter is divided by that.
      neighbors: Whose records change, as in `losses_of_paths`.
      epsilon: Exact, > 0.
      delta: Exact, 0 < delta < 1.

    Returns:
      Exact; at least `rho_from_epsilon`.

    Raises:
      BudgetError: An argument is out of range, no budget fits, or the noise is of a kind whose cost
        is not inverse to its parameter, or has more losses than can be listed.
    """
    least = rho_from_epsilon(epsilon, delta)
    unit = Fraction(10) ** (_magnitude(least) + 1 - _DIGITS)

    def at(units: int) -> float:
        strata = [
            {chain: tuple(_at(shift, units * unit) for shift in shifts) for chain, shifts in chains}
            for chains in measured
        ]
        return losses_of_paths(n_levels, strata, neighbors, delta).epsilon(delta)

    found = _largest(at, float(epsilon), math.ceil(least / unit))
    return least if found is None else max(least, found * unit)


def _largest(at: Callable[[int], float], target: float, start: int) -> int | None:
    """The largest number near a first guess at which a function keeps a target, by secants.

    Args:
      at: Nearly proportional to the root of its argument.
      target: What it may be at most.
      start: First guess.

    Returns:
      A number that keeps the target, whose successor does not; None if none was found.
    """
    known: dict[int, float] = {}

    def keeps(number: int) -> bool:
        if number not in known:
            known[number] = at(number)
        return known[number] <= target

    low, high = 0, None
    guess = start
    while high is None or high - low > 1:
        if keeps(guess):
            low = guess
        else:
            high = guess
        # In proportion to the root from the number known that is nearest to the target.
        near = min(known, key=lambda number: (abs(known[number] - target), number))
        slope = target / known[near] if 0 < known[near] < math.inf else 0.5
        guess = round(near * slope**2)
        if len(known) > 1:
            one, other = sorted(known, key=lambda number: abs(known[number] - target))[:2]
            rise = known[one] - known[other]
            if rise and math.isfinite(rise):
                guess = math.floor(one + (target - known[one]) * (one - other) / rise)
        guess = max(guess, low + 1)
        if high is not None:
            guess = min(guess, high - 1)
    return low or None


def _at(shift: UnitShifts, rho: Fraction) -> UnitShifts:
    noise = type(shift.mechanism).of(shift.mechanism.parameter / rho)
    if noise.unit_rho != rho * shift.mechanism.unit_rho:
        raise BudgetError(
            f"noise {shift.mechanism.kind}",
            "has a cost that is not inverse to its parameter, so no budget is found from it",
            remedy="let epsilon_from be rho",
        )
    return UnitShifts(noise, shift.times)


def _magnitude(value: Fraction) -> int:
    """The exponent of the first decimal digit of a positive number.

    >>> _magnitude(Fraction(999, 1000)), _magnitude(Fraction(10)), _magnitude(Fraction(1, 100))
    (-1, 1, -2)
    """
    exponent = len(str(value.numerator)) - len(str(value.denominator))
    return exponent if value >= Fraction(10) ** exponent else exponent - 1
