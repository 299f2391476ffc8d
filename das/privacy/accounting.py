"""Conversion between zCDP rho and (epsilon, delta), rounded so as never to overclaim.

Every epsilon is an upper bound of the stated formula despite rounding. The formula is evaluated in
decimal arithmetic of 150 digits, whose ln, sqrt and quotients are correctly rounded. A bound on all
rounding errors is added, and the sum is rounded up to a float.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction

from das.errors import BudgetError
from das.rational import decimal_of, float_above, require_positive, require_probability

_DIGITS = Context(prec=150)
_SLACK = Decimal("1e-60")  # relative; the operations below lose at most a few units of 1e-149


def epsilon_bun_steinke(rho: Fraction, delta: Fraction) -> float:
    r"""Return epsilon = rho + 2 sqrt(rho ln(1/delta)), for which rho-zCDP implies (epsilon, delta).

    The bound is simple and loose. For the 2020 redistricting release it gives 17.90, where
    `epsilon_from_rho` gives 17.14.

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
    with localcontext(_DIGITS):
        r = decimal_of(rho)
        return float_above((r + 2 * (r * _log_inverse(delta)).sqrt()) * (1 + _SLACK))


def epsilon_from_rho(rho: Fraction, delta: Fraction) -> float:
    r"""Return the smallest epsilon this project claims for rho-zCDP at delta.

    For every alpha > 1, rho-zCDP implies (epsilon, delta)-DP with
    delta = exp((alpha - 1)(alpha rho - epsilon)) / (alpha - 1) * (1 - 1/alpha)^alpha. Solved for
    epsilon, with a = alpha - 1:
    epsilon = alpha rho + ln a - (alpha / a) ln alpha + ln(1/delta) / a.
    Any alpha gives a valid bound. So alpha is searched in floats, and only the bound at the chosen
    alpha is evaluated in decimal arithmetic.

    Args:
      rho: zCDP cost, exact, rho >= 0.
      delta: Failure probability, exact, 0 < delta < 1.

    Returns:
      Epsilon in nats, rounded up.

    Raises:
      BudgetError: An argument is a float or out of range.

    References:
      Canonne, Kamath & Steinke, NeurIPS 2020, arXiv:2004.00010v4, Prop. 12 and Cor. 13.

    >>> round(epsilon_from_rho(Fraction(293764, 114921), Fraction(1, 10**10)), 2)
    17.14
    """
    _check(rho, delta)
    if rho == 0:
        return 0.0
    with localcontext(_DIGITS):
        r, log_inverse = decimal_of(rho), _log_inverse(delta)
        a = Decimal(_best_order(r, log_inverse))
        alpha = 1 + a
        parts = (alpha * r, a.ln(), -alpha / a * alpha.ln(), log_inverse / a)
        error = _SLACK * (1 + 1 / a + sum(abs(part) for part in parts))
        return float_above(max(Decimal(0), sum(parts) + error))


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
    require_positive("epsilon", epsilon)
    unit = 10**9
    low, high = 0, unit
    while epsilon_from_rho(Fraction(high, unit), delta) <= epsilon:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if epsilon_from_rho(Fraction(middle, unit), delta) <= epsilon:
            low = middle
        else:
            high = middle
    if low == 0:
        raise BudgetError("epsilon", "is too small for any budget at this delta", got=epsilon)
    return Fraction(low, unit)


def _best_order(rho: Decimal, log_inverse: Decimal) -> float:
    """Return a = alpha - 1 near the minimum of epsilon, by bisection in floats.

    The derivative of epsilon in a has the sign of rho a^2 + ln(1 + a) - ln(1/delta), which
    increases in a. At the lower start it is at most 0, since ln(1 + a) <= a; at the upper start it
    is at least 0. The limits keep 1 + a well within 150 digits.
    """
    r = float(min(max(rho, Decimal("1e-99")), Decimal("1e99")))
    target = float(log_inverse)
    low, high = min(target / 2, math.sqrt(target / 2 / r)), math.sqrt(target / r)
    for _ in range(60):
        middle = math.sqrt(low) * math.sqrt(high)
        if r * middle * middle + math.log1p(middle) < target:
            low = middle
        else:
            high = middle
    return min(max(high, 1e-15), 1e60)


def _log_inverse(delta: Fraction) -> Decimal:
    """Return ln(1/delta), rounded up; the absolute part covers a delta next to 1."""
    return decimal_of(1 / delta).ln() * (1 + _SLACK) + _SLACK * _SLACK


def _check(rho: Fraction, delta: Fraction) -> None:
    require_positive("rho", rho, or_zero=True)
    require_probability("delta", delta)
