"""Shares of a cost as whole units, and the factor that scales their noise to one exact cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from das.arrays import FloatArray

SHARE_UNITS = 1 << 48
"""Costs are split in whole units of 2^-48, so that they add up exactly."""

# Float shares from solvers differ in their last digits between processors. Rounded to this many
# binary digits, shares of a closed form are equal with very high probability.
_DIGITS = 24


def split_exactly(costs: FloatArray) -> tuple[int, ...]:
    """Round positive parts to units that sum to exactly SHARE_UNITS, each at least one unit.

    >>> [part / SHARE_UNITS for part in split_exactly(np.array([3.0, 1.0]))]
    [0.75, 0.25]
    """
    fractions, powers = np.frexp(costs / costs.sum())
    rounded = np.ldexp(np.rint(np.ldexp(fractions, _DIGITS)), powers - _DIGITS)
    units = np.maximum(np.rint(rounded * SHARE_UNITS).astype(np.int64), 1)
    units[units.argmax()] += SHARE_UNITS - int(units.sum())
    return tuple(units.tolist())


def as_fractions(units: Sequence[int]) -> tuple[Fraction, ...]:
    """Convert units of 2^-48 to fractions.

    >>> as_fractions([SHARE_UNITS // 4])
    (Fraction(1, 4),)
    """
    return tuple(Fraction(part, SHARE_UNITS) for part in units)


def round_up(value: Fraction) -> Fraction:
    """Round a value up to a multiple of 2^-48.

    >>> round_up(Fraction(2)), float(round_up(Fraction(1, 3)) - Fraction(1, 3)) < 2**-48
    (Fraction(2, 1), True)
    """
    return Fraction(math.ceil(value * SHARE_UNITS), SHARE_UNITS)
