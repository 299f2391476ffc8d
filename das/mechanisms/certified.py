"""Certified bounds of exp(-x) and of cumulative distributions, as integers, without floats.

Notation: at precision P a real number v >= 0 is enclosed by integers low <= v 2^P <= high.

Why the bounds hold. Every lower bound is computed from lower bounds by operations that round down,
every upper bound from upper bounds by operations that round up, and all quantities are
non-negative, so sums, products and quotients keep the enclosure. The only transcendental number is
exp, taken from `decimal`, whose exp is specified to be correctly rounded to nearest: the true value
lies strictly between the neighbors of the result, which are therefore bounds. Callers test whether
the bounds are close enough, and otherwise repeat at a higher precision.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from itertools import accumulate

# More than log10(2) and more than ln(2), as fractions. They set sizes; no bound depends on them.
LOG10_2 = Fraction(302, 1000)
LN_2 = Fraction(7, 10)


@dataclass(frozen=True)
class Bounds:
    """Lists of integers low <= v 2^P <= high that enclose real numbers v."""

    low: list[int]
    high: list[int]


def exp_bounds(gamma: Fraction, precision: int) -> tuple[int, int]:
    """Enclose exp(-gamma) 2^precision, gamma >= 0.

    Returns:
      Integers low <= exp(-gamma) 2^precision <= high, a few units apart.

    >>> exp_bounds(Fraction(1), 10)  # 2^10 / e = 376.7...
    (376, 377)
    """
    if gamma == 0:
        return 1 << precision, 1 << precision
    if gamma >= precision:  # exp(-gamma) < 2^-gamma <= 2^-precision
        return 0, 1
    digits = int(precision * LOG10_2) + 10
    down = Context(prec=digits, rounding=ROUND_FLOOR, Emin=MIN_EMIN, Emax=MAX_EMAX)
    up = Context(prec=digits, rounding=ROUND_CEILING, Emin=MIN_EMIN, Emax=MAX_EMAX)
    numerator, denominator = Decimal(-gamma.numerator), Decimal(gamma.denominator)
    least = down.next_minus(down.exp(down.divide(numerator, denominator)))
    most = up.next_plus(up.exp(up.divide(numerator, denominator)))
    low, low_scale = least.as_integer_ratio()
    high, high_scale = most.as_integer_ratio()
    return (low << precision) // low_scale, _ceil_div(high << precision, high_scale)


@dataclass(frozen=True)
class Weights:
    """Weights w(k) = exp(-(first k + second k (k-1) / 2)) of magnitudes k = 0, 1, 2, ...

    Neighboring weights have the ratio w(k+1) / w(k) = exp(-(first + second k)), so two exponentials
    give them all by multiplication.

    Attributes:
      first: Exponent of k = 1, first > 0.
      second: Increase of the exponent's step from one k to the next, second >= 0.
      is_two_sided: Whether each k > 0 stands for the two values k and -k.
    """

    first: Fraction
    second: Fraction
    is_two_sided: bool = True

    @classmethod
    def gaussian(cls, sigma_sq: Fraction, *, is_two_sided: bool = True) -> Weights:
        """Return the weights exp(-k^2 / (2 sigma_sq)) of the discrete Gaussian distribution."""
        return cls(1 / (2 * sigma_sq), 1 / sigma_sq, is_two_sided)

    @classmethod
    def laplace(cls, scale: Fraction, *, is_two_sided: bool = True) -> Weights:
        """Return the weights exp(-k / scale) of the discrete Laplace distribution."""
        return cls(1 / scale, Fraction(0), is_two_sided)

    def exponent(self, k: int) -> Fraction:
        """Return -ln w(k), an exact fraction."""
        return self.first * k + self.second * k * (k - 1) / 2

    def last_above(self, precision: int) -> int:
        """Return approximately the last k with w(k) > 2^-precision."""
        return bisect.bisect_left(range(1 << 62), precision * LN_2, key=self.exponent)

    def cumulative_bounds(self, precision: int) -> Bounds:
        """Enclose F(k) 2^precision, F(k) = P(|X| <= k), for k = 0..K; F(K) is nearly 1.

        Both lists are non-decreasing. Beyond K, F lies between F(K) and 1.
        """
        # Errors of the products grow at most like k^2; the guard keeps them under one final unit.
        last = self.last_above(precision)
        inner = precision + 2 * last.bit_length() + 16
        last = self.last_above(inner)
        low, high, beyond = self._masses(last, inner)
        low_total = low[-1]
        high_total = high[-1] + beyond
        return Bounds(
            low=[(c << precision) // high_total for c in low],
            high=[min(_ceil_div(c << precision, low_total), 1 << precision) for c in high],
        )

    def _masses(self, last: int, inner: int) -> tuple[list[int], list[int], int]:
        """Enclose the unnormalised mass of {|X| <= k}, k <= last, and bound all mass beyond."""
        unit = 1 << inner
        sides = 2 if self.is_two_sided else 1
        ratio_low, ratio_high = exp_bounds(self.first, inner)
        step_low, step_high = exp_bounds(self.second, inner)
        weight_low = weight_high = unit
        lows, highs = [unit], [unit]
        for _ in range(last):
            weight_low = (weight_low * ratio_low) >> inner
            weight_high = _shift_up(weight_high * ratio_high, inner)
            ratio_low = (ratio_low * step_low) >> inner
            ratio_high = _shift_up(ratio_high * step_high, inner)
            lows.append(sides * weight_low)
            highs.append(sides * weight_high)
        # w(last + i) <= w(last) ratio^i, as ratios never grow: the rest is below a geometric series
        beyond = _ceil_div(sides * weight_high * ratio_high, unit - ratio_high)
        return list(accumulate(lows)), list(accumulate(highs)), beyond


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def _shift_up(a: int, n: int) -> int:
    return -(-a >> n)
