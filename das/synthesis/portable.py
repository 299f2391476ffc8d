"""Floats that come out the same on every processor.

IEEE arithmetic is the same everywhere; what differs is the order in which a matrix product adds,
whether it fuses, and which exponential a library has for a processor. Here products are of numbers
rounded to so few bits that no sum is rounded, in whatever order, and elementary functions are made
of additions, multiplications and powers of two.
"""

from __future__ import annotations

import math

import numpy as np

from das.arrays import FloatArray

_MANTISSA = 53  # bits of a double
_LOG2_E, _LN_2 = 1.4426950408889634, 0.6931471805599453
_LEAST_EXPONENT = -700.0  # exp of it is a normal double
# Taylor's: at most (ln 2 / 2)^7 / 7! = 1.2e-7 of it off.
_EXP_COEFFICIENTS = (1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0)


def product(a: FloatArray, b: FloatArray) -> FloatArray:
    """Multiply a @ b, both rounded to a common number of bits, the same on every processor.

    Bits are as many as leave every sum of products exact: (53 - log2 n) / 2 for n terms, 22 for up
    to 512. Relative to the largest entries the error is about 2^-22, as of single precision.

    Args:
      a: float64[m, n], finite.
      b: float64[n, k], finite.
    """
    bits = (_MANTISSA - max(1, (a.shape[1] - 1).bit_length())) // 2
    first, scale_a = _whole(a, bits)
    second, scale_b = (first.T, scale_a) if b.base is a else _whole(b, bits)
    return np.asarray((first @ second) * (1.0 / (scale_a * scale_b)))


def exp(values: FloatArray) -> FloatArray:
    """Compute exp of values <= 0, with relative error 2e-7; values below -700 count as -700."""
    at = np.maximum(values, _LEAST_EXPONENT)
    power = np.rint(at * _LOG2_E)
    rest = at - power * _LN_2
    out = np.full_like(rest, _EXP_COEFFICIENTS[0])
    for coefficient in _EXP_COEFFICIENTS[1:]:
        out *= rest
        out += coefficient
    # A double of exponent bits power + 1023 and no others is 2^power.
    out *= ((power + 1023.0).astype(np.int64) << 52).view(np.float64)
    return out


def log(values: FloatArray) -> FloatArray:
    """Compute the natural logarithm of positive numbers, with absolute error 1e-7."""
    fraction, power = np.frexp(values)  # fraction in [1/2, 1)
    t = (fraction - 0.75) / (fraction + 0.75)  # |t| <= 1/5
    square = t * t
    series = t * (2.0 + square * (2 / 3 + square * (2 / 5 + square * (2 / 7 + square * 2 / 9))))
    return np.asarray(series - 0.2876820724517809 + power * _LN_2)  # log(3/4)


def _whole(values: FloatArray, bits: int) -> tuple[FloatArray, float]:
    """Round to integers of at most `bits` bits; return also the power of two that scaled them."""
    largest = float(np.abs(values).max(initial=0.0))
    scale = math.ldexp(1.0, bits - math.frexp(largest)[1]) if largest > 0 else 1.0
    return np.rint(values * scale), scale
