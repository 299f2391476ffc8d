"""Calibration: the largest budget whose noise meets a target (epsilon, delta).

The conversion from rho alone (`das.privacy.accounting`) leaves some of the target unused. Here the
exact noise of all measurements is composed (`das.privacy.loss_distribution`), which bounds epsilon
from above in integers. A search returns the largest rho for which that bound is at most the target,
in units of the fifth digit of the rho from the conversion. This is the calibration of Balle & Wang
for many discrete measurements in place of one continuous measurement.

Every geography is allowed: any geounits may be only children. The result is never below the rho
from the conversion, and does not depend on the processor.

References:
  Balle & Wang, Improving the Gaussian Mechanism for Differential Privacy, ICML 2018,
  arXiv:1805.06530 (calibration by the exact delta).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from das.errors import BudgetError
from das.mechanisms.mechanism import Mechanism
from das.privacy.accounting import rho_from_epsilon
from das.privacy.joint_shifts import JointShifts
from das.privacy.ledger import Chain
from das.privacy.loss_distribution import Shifts, losses_of_paths
from das.queries.sensitivity import Neighbors

_DIGITS = 5  # decimal digits of rho; default, not measured

# For each stratum and chain of geolevels: the noise at rho 1, and how many answers move by 1.
Measured = tuple[tuple[tuple[Chain, tuple[Shifts, ...]], ...], ...]


@lru_cache(maxsize=64)
def rho_from_noise(
    n_levels: int, measured: Measured, neighbors: Neighbors, epsilon: Fraction, delta: Fraction
) -> Fraction:
    """Return the largest rho, to five digits, whose noise has at most this epsilon at delta.

    Args:
      n_levels: Number of geolevels of a path.
      measured: The measurements with their noise at rho 1; at rho r the parameter is divided by r.
      neighbors: Which data sets count as neighbors.
      epsilon: Exact epsilon of the target, > 0.
      delta: Exact delta of the target, 0 < delta < 1.

    Returns:
      Rho, exact; at least `rho_from_epsilon`.

    Raises:
      BudgetError: An argument is out of range, no budget fits, the cost of the mechanism is not
        inverse to its parameter, or the noise has more losses than can be listed.
    """
    least = rho_from_epsilon(epsilon, delta)
    unit = Fraction(10) ** (_magnitude(least) + 1 - _DIGITS)

    def at(units: int) -> float:
        strata = [
            {chain: tuple(_at(shift, units * unit) for shift in shifts) for chain, shifts in chains}
            for chains in measured
        ]
        return losses_of_paths(n_levels, strata, neighbors, delta).epsilon(delta)

    units = _largest(at, float(epsilon), math.ceil(least / unit))
    return least if units is None else max(least, units * unit)


def _largest(at: Callable[[int], float], target: float, start: int) -> int | None:
    """Return the largest integer at which an increasing function is at most a target, by secants.

    Args:
      at: An increasing function, nearly proportional to the square root of its argument.
      target: Upper limit of the function.
      start: Integer that is tried first.

    Returns:
      An integer that meets the target and whose successor does not; None if no positive one does.
    """
    known: dict[int, float] = {}
    low, high = 0, None
    guess = start
    while high is None or high - low > 1:
        known[guess] = at(guess)
        if known[guess] <= target:
            low = guess
        else:
            high = guess
        # Extrapolate by the square root from the evaluated number that is nearest to the target.
        near = min(known, key=lambda number: (abs(known[number] - target), number))
        slope = target / known[near] if 0 < known[near] < math.inf else 0.5
        guess = round(near * slope**2)
        if len(known) > 1:
            first, second = sorted(known, key=lambda number: abs(known[number] - target))[:2]
            rise = known[first] - known[second]
            if rise and math.isfinite(rise):
                guess = math.floor(first + (target - known[first]) * (first - second) / rise)
        guess = max(guess, low + 1)
        if high is not None:
            guess = min(guess, high - 1)
    return low or None


def _at(shift: Shifts, rho: Fraction) -> Shifts:
    """Return the shifts with their noise rescaled from rho 1 to the given rho."""
    if isinstance(shift, JointShifts):
        return replace(shift, noise=tuple(_scaled(noise, rho) for noise in shift.noise))
    return replace(shift, mechanism=_scaled(shift.mechanism, rho))


def _scaled(noise: Mechanism, rho: Fraction) -> Mechanism:
    scaled = noise.of(noise.parameter / rho)
    if scaled.unit_rho != rho * noise.unit_rho:
        raise BudgetError(
            f"noise {noise.kind}",
            "has a cost that is not inverse to its parameter, so no budget follows from epsilon",
            remedy="set epsilon_from to rho",
        )
    return scaled


def _magnitude(value: Fraction) -> int:
    """Return the exponent of the first decimal digit of a positive number.

    >>> _magnitude(Fraction(999, 1000)), _magnitude(Fraction(10)), _magnitude(Fraction(1, 100))
    (-1, 1, -2)
    """
    exponent = len(str(value.numerator)) - len(str(value.denominator))
    return exponent if value >= Fraction(10) ** exponent else exponent - 1
