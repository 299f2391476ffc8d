"""Exact sampling by table: inverse transform of a uniform number whose bits are read lazily.

Let F(k) = P(|X| <= k) and let U be uniform in [0, 1), an infinite stream of fair bits. Then
|X| = #{k : F(k) <= U} has exactly the required distribution. A table holds T(k) = floor(F(k) 2^b).
With u the first b bits of U, u < T(k) proves U < F(k) and u > T(k) proves U > F(k). Only u = T(k)
leaves the draw undecided, once in about 2^63 / (table length) draws. Further bits are then compared
with bounds of F at a higher precision. The same rule covers the tail beyond the table, where u is
all ones. So no probability is rounded or truncated.

Most draws do not search the table: their leading bits alone select the value from a guide.

Timing: a lookup does nearly the same work for every word. Searched or resolved draws take longer.
That is safe for a batch job in which single draws cannot be timed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np

from das.arrays import BoolArray, IntArray, WordArray
from das.errors import BudgetError
from das.mechanisms.certified import Weights
from das.mechanisms.entropy import BitSource

WORD_BITS = 63  # the remaining bit of a word is the sign
STORED_BITS = 64
LEAST_GUIDE_BITS = 10
MOST_GUIDE_BITS = 14  # 2^15 values of 8 bytes stay in a second-level cache
GUIDE_CELLS_PER_ENTRY = 64  # about one draw in 64 falls into a cell with a threshold inside
SEARCH = np.iinfo(np.int64).min  # guide value meaning: search the table
BLOCK_WORDS = 1 << 15  # words, guide positions and results of one block fit into the caches
SURPLUS_BITS = 32  # extra precision of bounds; default, not measured

# A table has about nine entries for each unit of sigma, 300,000 at this limit.
MOST_TABLE_ENTRIES = 300_000


@dataclass(frozen=True, eq=False)
class SamplingTable:
    """A sampler of one symmetric noise distribution, with one 64-bit word per draw.

    A word is read from its top bit down: one sign bit, then `word_bits` bits of U; lower bits are
    ignored. A magnitude of zero ignores the sign.

    Attributes:
      weights: P(|X| = k) is proportional to w(k), and to 2 w(k) for k > 0 if two-sided.
      word_bits: b, from 1 to 63. Tests use small values, so that undecided words become common.
      thresholds: uint64[K + 1], floor(F(k) 2^b) for k = 0..K; the last is 2^b - 1.
      words_per_draw: Number of uniform words that a draw starts from, 1.
      guide: int64[2^(g+1)], the draw for each combination of sign and g leading bits, or SEARCH.
    """

    weights: Weights
    word_bits: int
    thresholds: WordArray
    guide: IntArray
    words_per_draw: ClassVar[int] = 1

    def lookup(self, words: WordArray) -> tuple[IntArray, IntArray]:
        """Turn words into draws.

        Args:
          words: uint64[n], uniform.

        Returns:
          values: int64[n], the draws; 0 where undecided.
          undecided: int64[u], indices in rising order of the draws that `resolve` must decide.

        Law: with undecided draws resolved from fresh bits, the values are independent draws from
        the distribution of `weights`, exactly, given uniform words and bits.
        """
        values = np.empty(len(words), np.int64)
        guide_shift = np.uint64(STORED_BITS - (len(self.guide) - 1).bit_length())
        cell = np.empty(min(len(words), BLOCK_WORDS), np.uint64)
        undecided = []
        for start in range(0, len(words), BLOCK_WORDS):
            block = words[start : start + BLOCK_WORDS]
            result = values[start : start + BLOCK_WORDS]
            position = cell[: len(block)]
            np.right_shift(block, guide_shift, out=position)
            # positions are in range by construction; "clip" only spares numpy a buffered check
            np.take(self.guide, position.view(np.int64), out=result, mode="clip")
            searched = np.flatnonzero(result == SEARCH)
            if searched.size:
                result[searched], is_tied = self._search(block[searched])
                undecided.append(searched[is_tied] + start)
        return values, np.concatenate([np.empty(0, np.int64), *undecided])

    def _search(self, words: WordArray) -> tuple[IntArray, BoolArray]:
        prefix = (words << np.uint64(1)) >> np.uint64(STORED_BITS - self.word_bits)
        magnitude = np.searchsorted(self.thresholds, prefix, side="right").astype(np.int64)
        is_tied = self.thresholds[np.maximum(magnitude - 1, 0)] == prefix
        is_negative = words >> np.uint64(STORED_BITS - 1) == 1
        magnitude[is_tied] = 0
        return np.where(is_negative, -magnitude, magnitude), is_tied

    def resolve(self, word: int, bits: BitSource) -> int:
        """Decide an undecided word by further bits of U.

        Args:
          word: The 64-bit word that `lookup` left undecided.
          bits: Source of the further bits; two are enough on average.

        Returns:
          The signed draw, of unbounded magnitude. The loop ends with probability 1.
        """
        prefix = (word >> (STORED_BITS - 1 - self.word_bits)) & ((1 << self.word_bits) - 1)
        magnitude = self._settle(prefix, bits)
        return -magnitude if word >> (STORED_BITS - 1) else magnitude

    def draw(self, bits: BitSource) -> int:
        """Draw one value from a sign bit, `word_bits` bits and, if undecided, further bits.

        Law: P(X = k) and P(X = -k) are proportional to w(k), exactly, given uniform bits.
        """
        is_negative = bits.bits(1) == 1
        magnitude = self.draw_magnitude(bits)
        return -magnitude if is_negative else magnitude

    def draw_magnitude(self, bits: BitSource) -> int:
        """Draw one magnitude, as `draw` does after its sign bit."""
        prefix = bits.bits(self.word_bits)
        magnitude = int(np.searchsorted(self.thresholds, np.uint64(prefix), side="right"))
        is_tied = magnitude > 0 and int(self.thresholds[magnitude - 1]) == prefix
        return self._settle(prefix, bits) if is_tied else magnitude

    def draw_many(self, words: WordArray, more: Callable[[int], BitSource]) -> IntArray:
        """Draw one value from each word.

        Args:
          words: uint64[n], uniform.
          more: Returns the source of further bits of draw i.

        Returns:
          int64[n]. If `word_bits` is 63, draw i is `draw` on the bits of word i, then of more(i).
        """
        values, undecided = self.lookup(words)
        for i in undecided.tolist():
            values[i] = self.resolve(int(words[i]), more(i))
        return values

    def _settle(self, prefix: int, bits: BitSource) -> int:
        """Return #{k : F(k) <= U}, given the leading `word_bits` bits of U."""
        n_bits = self.word_bits
        precision = 0
        while True:
            prefix = prefix << 1 | bits.bits(1)
            n_bits += 1
            if n_bits > precision - SURPLUS_BITS:
                precision = n_bits + 2 * SURPLUS_BITS
                bounds = self.weights.cumulative_bounds(precision)
            least = prefix << (precision - n_bits)  # least <= U 2^precision < beyond
            beyond = (prefix + 1) << (precision - n_bits)
            magnitude = bisect_right(bounds.high, least)  # F(k) <= U for all k < magnitude
            if magnitude < len(bounds.low) and beyond <= bounds.low[magnitude]:
                return magnitude


@lru_cache(maxsize=256, typed=True)
def gaussian_table(
    sigma_sq: Fraction, word_bits: int = WORD_BITS, *, is_two_sided: bool = True
) -> SamplingTable:
    """Return the table of the discrete Gaussian, P(X = k) proportional to exp(-k^2/(2 sigma_sq)).

    Args:
      sigma_sq: Positive and exact.
      word_bits: Bits of a word that the lookup uses.
      is_two_sided: Whether k may be negative. If not, words must have a zero sign bit.

    Raises:
      BudgetError: `sigma_sq` is not a positive Fraction, or its table would be too large.
    """
    _require_positive("gaussian_table", "sigma_sq", sigma_sq)
    weights = Weights.gaussian(sigma_sq, is_two_sided=is_two_sided)
    return build_table(weights, word_bits, where=f"sigma_sq {sigma_sq}")


@lru_cache(maxsize=256, typed=True)
def laplace_table(
    scale: Fraction, word_bits: int = WORD_BITS, *, is_two_sided: bool = True
) -> SamplingTable:
    """Return the table of the discrete Laplace, P(X = k) proportional to exp(-|k| / scale).

    Args:
      scale: Positive and exact.
      word_bits: Bits of a word that the lookup uses.
      is_two_sided: As in `gaussian_table`; the one-sided distribution is the geometric.

    Raises:
      BudgetError: `scale` is not a positive Fraction, or its table would be too large.
    """
    _require_positive("laplace_table", "scale", scale)
    weights = Weights.laplace(scale, is_two_sided=is_two_sided)
    return build_table(weights, word_bits, where=f"scale {scale}")


def build_table(weights: Weights, word_bits: int, where: str) -> SamplingTable:
    """Build the table of a distribution given by its weights.

    Args:
      weights: The weights of the distribution.
      word_bits: Bits of a uniform word.
      where: Name of the distribution in errors.

    Raises:
      BudgetError: The table would have more than MOST_TABLE_ENTRIES entries.
    """
    entries = weights.last_above(word_bits)
    if entries > MOST_TABLE_ENTRIES:
        raise BudgetError(
            where,
            "has too much noise for a sampling table",
            got=entries,
            want=f"at most {MOST_TABLE_ENTRIES} entries",
        )
    thresholds = np.array(_certain_floors(weights, word_bits), np.uint64)
    thresholds.setflags(write=False)
    guide = _guide(thresholds, word_bits)
    guide.setflags(write=False)
    return SamplingTable(weights, word_bits, thresholds, guide)


def _certain_floors(weights: Weights, word_bits: int) -> list[int]:
    """Return floor(F(k) 2^b) for k = 0, 1, ... up to the first that is 2^b - 1.

    Close enough bounds have the same floor, unless F(k) 2^b is an integer. No such case is known;
    the loop would not end, so no wrong value could be drawn. F < 1, so no floor exceeds 2^b - 1,
    although the upper bound of F 2^b may be 2^b.
    """
    top = (1 << word_bits) - 1
    surplus = SURPLUS_BITS
    while True:
        bounds = weights.cumulative_bounds(word_bits + surplus)
        floors = [low >> surplus for low in bounds.low]
        if floors == [min(high >> surplus, top) for high in bounds.high] and floors[-1] == top:
            return floors[: floors.index(top) + 1]
        surplus *= 2


def _guide(thresholds: WordArray, word_bits: int) -> IntArray:
    """Tabulate the draws that the sign and the leading bits decide, and SEARCH for the others."""
    wanted = (GUIDE_CELLS_PER_ENTRY * len(thresholds)).bit_length()
    guide_bits = min(max(wanted, LEAST_GUIDE_BITS), MOST_GUIDE_BITS, word_bits)
    width = word_bits - guide_bits
    first = np.arange(1 << guide_bits, dtype=np.uint64) << np.uint64(width)
    final = first + np.uint64((1 << width) - 1)
    magnitude = np.searchsorted(thresholds, first, side="left").astype(np.int64)
    is_cut = magnitude != np.searchsorted(thresholds, final, side="right")
    return np.concatenate([np.where(is_cut, SEARCH, m) for m in (magnitude, -magnitude)])


def _require_positive(where: str, name: str, value: Fraction) -> None:
    if not isinstance(value, Fraction) or value <= 0:
        raise BudgetError(
            where, f"{name} cannot be used", got=repr(value), want="a positive Fraction"
        )
