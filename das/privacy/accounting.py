"""Conversion between zCDP rho and (epsilon, delta), rounded so as never to overclaim."""

from __future__ import annotations

import math
from fractions import Fraction

from das.errors import BudgetError

_UP = 1 + 1e-9  # covers the rounding of a few dozen float operations


def epsilon_bun_steinke(rho: Fraction, delta: Fraction) -> float:
    r"""Return epsilon = rho + 2 sqrt(rho ln(1/delta)), for which rho-zCDP implies (epsilon, delta).

    Simple and loose: the 2020 redistricting release has 17.90 by this formula and 17.14 by
    `epsilon_from_rho`.

    Args:
      rho: zCDP cost, exact, rho >= 0.
      delta: Failure probability, exact, 0 < delta < 1.

    Returns:
      Epsilon in nats, rounded up.

    Raises:
      BudgetError: An argument is a float or out of range.

    References:
      Bun & Steinke, TCC 2016, arXiv:1605.02065, Prop. 1.3.

    >>> round(epsilon_bun_steinke(Fraction(293764, 114921), Fraction(1, 10**10)), 2)
    17.9
    """
    _check(rho, delta)
    r = float(rho)
    return (r + 2 * math.sqrt(r * -_log(delta))) * _UP


def epsilon_from_rho(rho: Fraction, delta: Fraction) -> float:
    r"""Return the smallest epsilon this project claims for rho-zCDP at delta.

    For every alpha > 1, rho-zCDP implies (epsilon, delta)-DP with
    delta = exp((alpha - 1)(alpha rho - epsilon)) / (alpha - 1) * (1 - 1/alpha)^alpha. Solved for
    epsilon and minimised over alpha; any alpha gives a valid bound, so an imprecise minimum is
    safe.

    Args:
      rho: zCDP cost, exact, rho >= 0.
      delta: Failure probability, exact, 0 < delta < 1.

    Returns:
      Epsilon in nats, rounded up.

    Raises:
      BudgetError: An argument is a float or out of range.

    References:
      Canonne, Kamath & Steinke, NeurIPS 2020, arXiv:2004.00010, Cor. 13.

    >>> round(epsilon_from_rho(Fraction(293764, 114921), Fraction(1, 10**10)), 2)
    17.14
    """
    from scipy.optimize import minimize_scalar  # slow to import, and workers never need it

    _check(rho, delta)
    if rho == 0:
        return 0.0
    r, log_delta = float(rho), _log(delta)

    def epsilon(log_alpha_minus_1: float) -> float:
        a = math.exp(log_alpha_minus_1)  # alpha - 1
        alpha = 1 + a
        return alpha * r + (alpha * (math.log(a) - math.log1p(a)) - math.log(a) - log_delta) / a

    start = 0.5 * math.log(-log_delta / r)
    best = minimize_scalar(
        epsilon, bounds=(start - 10, start + 10), method="bounded", options={"xatol": 1e-12}
    )
    return max(0.0, min(float(best.fun) * _UP, epsilon_bun_steinke(rho, delta)))


def rho_from_epsilon(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the largest rho, a multiple of 1/10^9, with `epsilon_from_rho(rho, delta) <= epsilon`.

    Args:
      epsilon: Target in nats, exact, epsilon > 0.
      delta: Failure probability, exact, 0 < delta < 1.

    Returns:
      An exact fraction, rounded down.

    Raises:
      BudgetError: An argument is a float or out of range, or no positive rho fits.

    >>> rho_from_epsilon(Fraction(1714, 100), Fraction(1, 10**10)) > Fraction(255, 100)
    True
    """
    if not isinstance(epsilon, Fraction) or epsilon <= 0:
        raise BudgetError("epsilon", "must be a positive exact fraction", got=repr(epsilon))
    _check(Fraction(1), delta)
    unit = 10**9
    low, high = 0, math.ceil(float(epsilon)) * unit
    while high - low > 1:
        middle = (low + high) // 2
        if epsilon_from_rho(Fraction(middle, unit), delta) <= float(epsilon):
            low = middle
        else:
            high = middle
    if low == 0:
        raise BudgetError("epsilon", "is too small for any budget at this delta", got=epsilon)
    return Fraction(low, unit)


def _log(value: Fraction) -> float:
    """Natural logarithm; numerator and denominator apart, so tiny fractions do not underflow."""
    return math.log(value.numerator) - math.log(value.denominator)


def _check(rho: Fraction, delta: Fraction) -> None:
    if not isinstance(rho, Fraction) or rho < 0:
        raise BudgetError("rho", "must be a nonnegative exact fraction", got=repr(rho))
    if not isinstance(delta, Fraction) or not 0 < delta < 1:
        raise BudgetError("delta", "must be an exact fraction between 0 and 1", got=repr(delta))
