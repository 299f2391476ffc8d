"""Exact sampling of noise of any large scale from a small table.

A magnitude k has a weight exp(-e(k)) with e(k) = linear k + quadratic k^2: the discrete Gaussian
has quadratic = 1 / (2 sigma_sq), the discrete Laplace linear = 1 / scale, the rest is zero.
Write a magnitude as w J + R with w = 2^r and 0 <= R < w. Then

    exp(-e(w J + R)) = exp(-e(w J)) exp(-gamma),    gamma = R (linear + quadratic (2 w J + R)).

So draw J from the half-line distribution of the same kind with sigma_sq / w^2 or scale / w (a small
table), R uniformly and a sign, and accept with probability exp(-gamma). A negative zero is
rejected, so that zero is not drawn twice as often. Accepted draws have exactly the required
distribution. As w is hundreds of times smaller than the scale, gamma is small and well under 1 draw
in 100 is rejected.

`WideSampler.draw` is the definition: a function of an infinite stream of bits. `draw_many`
computes the same function of many streams that begin with two words each. For almost all streams it
proves that the first attempt is accepted; for the others it calls `draw`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import count
from typing import ClassVar

import numpy as np

from das.arrays import IntArray, WordArray
from das.errors import BudgetError
from das.mechanisms.certified import exp_bounds
from das.mechanisms.entropy import BitSource
from das.mechanisms.table import (
    STORED_BITS,
    WORD_BITS,
    SamplingTable,
    gaussian_table,
    laplace_table,
)

# Largest parameters of the half-line tables; default, not measured. A table in use has at least a
# quarter of this sigma_sq, or half of this scale.
MOST_TABLE_SIGMA_SQ = Fraction(1 << 18)
MOST_TABLE_SCALE = Fraction(1 << 8)
MOST_SIGMA_SQ = Fraction(1 << 80)  # 2^22 sigmas fit into 62 bits
MOST_SCALE = Fraction(1 << 39)  # 2^23 scales fit into 62 bits
FLOAT_MARGIN = 2.0**-40  # see `WideSampler.draw_many`
COMPARED_BITS = 8  # bits of the uniform number read between two comparisons


@dataclass(frozen=True, eq=False)
class WideSampler:
    """A sampler of noise of a large scale, with two 64-bit words per draw.

    Attributes:
      linear: Coefficient of k in the exponent e(k).
      quadratic: Coefficient of k^2 in the exponent e(k).
      rest_bits: r, with w = 2^r; from 1 to 31.
      table: Table of the half-line distribution of J, with the exponent e(w J).
      words_per_draw: Number of uniform words that a draw starts from, 2.
    """

    linear: Fraction
    quadratic: Fraction
    rest_bits: int
    table: SamplingTable
    words_per_draw: ClassVar[int] = 2

    def draw(self, bits: BitSource) -> int:
        """Draw one value.

        Law: X in Z with P(X = x) proportional to exp(-e(|x|)), exactly, given uniform bits.
        """
        while True:
            is_negative = bits.bits(1) == 1
            leading = self.table.draw_magnitude(bits) << self.rest_bits
            rest = bits.bits(self.rest_bits)
            gamma = rest * (self.linear + self.quadratic * (2 * leading + rest))
            is_accepted = _uniform_is_below_exp(gamma, bits)
            magnitude = leading + rest
            if is_accepted and (magnitude or not is_negative):
                return -magnitude if is_negative else magnitude

    def draw_many(self, words: WordArray, more: Callable[[int], BitSource]) -> IntArray:
        """Draw one value from each pair of words.

        Args:
          words: uint64[2 n], uniform; sign and J from the first, R and the start of the uniform
            number U that decides acceptance from the second.
          more: Returns the source of further bits of draw i.

        Returns:
          int64[n]; draw i is `draw` on the bits of its words, then of more(i), modulo 2^64.

        Why it agrees with `draw`: U < 1 - gamma proves U < exp(-gamma). The floats below hold U
        rounded down by less than 2^-53 + 2^-(64-r) and gamma with a relative error below 2^-49;
        FLOAT_MARGIN exceeds all errors but the 2^-(64-r), which is added.
        """
        pairs = words.reshape(-1, 2)
        sign_and_leading, tail = np.ascontiguousarray(pairs.T)
        is_negative = sign_and_leading >> np.uint64(STORED_BITS - 1) == 1
        leading, undecided = self.table.lookup(
            sign_and_leading & np.uint64((1 << (STORED_BITS - 1)) - 1)
        )
        leading <<= self.rest_bits
        rest = (tail >> np.uint64(STORED_BITS - self.rest_bits)).astype(np.int64)
        slope = float(self.linear) + float(self.quadratic) * (2 * leading + rest)
        gamma = rest * slope
        uniform = ((tail << np.uint64(self.rest_bits)) >> np.uint64(11)) * 2.0**-53
        slack = 2.0 ** (self.rest_bits - STORED_BITS) + FLOAT_MARGIN
        values: IntArray = leading + rest
        is_accepted = uniform + slack < 1.0 - gamma
        is_accepted &= (values > 0) | ~is_negative
        is_accepted[undecided] = False
        np.negative(values, out=values, where=is_negative)
        for i in np.flatnonzero(~is_accepted).tolist():
            first, second = pairs[i].tolist()
            value = self.draw(_Joined(first << STORED_BITS | second, 2 * STORED_BITS, more(i)))
            values[i] = _modulo_word(value)
        return values


@lru_cache(maxsize=256, typed=True)
def wide_gaussian(sigma_sq: Fraction, word_bits: int = WORD_BITS) -> WideSampler:
    """Return the sampler of the discrete Gaussian with a large sigma_sq.

    Args:
      sigma_sq: More than MOST_TABLE_SIGMA_SQ, at most MOST_SIGMA_SQ.
      word_bits: Word bits of the table; below 63 only `draw` may be used, in tests.

    Raises:
      BudgetError: `sigma_sq` is out of that range.
    """
    _require_range("wide_gaussian: sigma_sq", sigma_sq, MOST_TABLE_SIGMA_SQ, MOST_SIGMA_SQ)
    rest_bits = next(r for r in count(1) if sigma_sq / 4**r <= MOST_TABLE_SIGMA_SQ)
    table = gaussian_table(sigma_sq / 4**rest_bits, word_bits, is_two_sided=False)
    return WideSampler(Fraction(0), 1 / (2 * sigma_sq), rest_bits, table)


@lru_cache(maxsize=256, typed=True)
def wide_laplace(scale: Fraction, word_bits: int = WORD_BITS) -> WideSampler:
    """Return the sampler of the discrete Laplace distribution with a large scale.

    Args:
      scale: More than MOST_TABLE_SCALE, at most MOST_SCALE.
      word_bits: Word bits of the table; below 63 only `draw` may be used, in tests.

    Raises:
      BudgetError: `scale` is out of that range.
    """
    _require_range("wide_laplace: scale", scale, MOST_TABLE_SCALE, MOST_SCALE)
    rest_bits = next(r for r in count(1) if scale / 2**r <= MOST_TABLE_SCALE)
    table = laplace_table(scale / 2**rest_bits, word_bits, is_two_sided=False)
    return WideSampler(1 / scale, Fraction(0), rest_bits, table)


def _require_range(where: str, value: Fraction, above: Fraction, most: Fraction) -> None:
    if not above < value <= most:
        raise BudgetError(
            where, "is out of range", got=value, want=f"more than {above}, at most {most}"
        )


class _Joined:
    """A bit source that reads the bits of an integer, then another source."""

    def __init__(self, head: int, size: int, more: BitSource) -> None:
        self._head = head
        self._size = size
        self._more = more

    def bits(self, n: int) -> int:
        n_head = min(n, self._size)
        self._size -= n_head
        taken = self._head >> self._size
        self._head &= (1 << self._size) - 1
        return taken << (n - n_head) | self._more.bits(n - n_head) if n_head < n else taken


def _uniform_is_below_exp(gamma: Fraction, bits: BitSource) -> bool:
    """Return whether a uniform number, whose bits are read as needed, is below exp(-gamma)."""
    n_bits = COMPARED_BITS
    prefix = bits.bits(n_bits)
    while True:
        low, high = exp_bounds(gamma, n_bits + COMPARED_BITS)
        if (prefix + 1) << COMPARED_BITS <= low:
            return True
        if prefix << COMPARED_BITS >= high:
            return False
        prefix = prefix << COMPARED_BITS | bits.bits(COMPARED_BITS)
        n_bits += COMPARED_BITS


def _modulo_word(value: int) -> int:
    """Reduce to the range of int64; an error instead would reveal a property of the noise."""
    half = 1 << (STORED_BITS - 1)
    return (value + half) % (2 * half) - half
