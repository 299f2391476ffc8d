"""The sampler of large scales: the fast path is the definition."""

from fractions import Fraction

import numpy as np
import pytest

from das.errors import BudgetError
from das.mechanisms.entropy import NoiseKey, extra_bits, stream_words
from das.mechanisms.wide import MOST_SIGMA_SQ, MOST_TABLE_SIGMA_SQ, wide_gaussian

KEY = NoiseKey.for_testing(1)


class Joined:
    """The bits of some words, then those of another source; written apart from the package's."""

    def __init__(self, words, more):
        self.text = "".join(f"{word:064b}" for word in words)
        self.more = more

    def bits(self, n):
        while len(self.text) < n:
            self.text += f"{self.more.bits(64):064b}"
        taken, self.text = self.text[:n], self.text[n:]
        return int(taken or "0", 2)


@pytest.mark.parametrize(
    "sigma_sq",
    [MOST_TABLE_SIGMA_SQ + 1, Fraction(10**12, 7), Fraction(10**18), MOST_SIGMA_SQ],
)
def test_draw_many_is_draw_of_each_stream(sigma_sq):
    sampler = wide_gaussian(sigma_sq)
    words = stream_words(KEY, [b"a"], 2 * 6000)[0]
    finished = []

    def more(i):
        finished.append(i)
        return extra_bits(KEY, b"a", i)

    values = sampler.draw_many(words, more)
    for i, pair in enumerate(words.reshape(-1, 2).tolist()):
        assert values[i] == sampler.draw(Joined(pair, extra_bits(KEY, b"a", i)))
    assert 0 < len(finished) < 40  # the definition ran for a few only


def test_rare_words_go_the_slow_way():
    """A refused attempt, a negative zero, an undecided table word, a start beyond the table."""
    sampler = wide_gaussian(Fraction(10**12))
    top = 2**63 - 1
    tie = int(sampler.table.thresholds[40])
    pairs = [(0, 2**64 - 1), (1 << 63, 0), (tie, 5), (top, 5), (1 << 63 | top, 7), (0, 0)]
    words = np.array(pairs, np.uint64).reshape(-1)
    values = sampler.draw_many(words, lambda i: extra_bits(KEY, b"b", i))
    expected = [sampler.draw(Joined(p, extra_bits(KEY, b"b", i))) for i, p in enumerate(pairs)]
    assert values.tolist() == expected
    assert values[5] == 0
    assert values[3] >= len(sampler.table.thresholds) - 1 << sampler.rest_bits


def test_tables_stay_small():
    for exponent in range(19, 81):
        sigma_sq = Fraction(2**exponent)
        rest_bits = wide_gaussian(sigma_sq).rest_bits
        assert MOST_TABLE_SIGMA_SQ / 4 < sigma_sq / 4**rest_bits <= MOST_TABLE_SIGMA_SQ
        assert 1 <= rest_bits <= 31
        wide_gaussian.cache_clear()


@pytest.mark.parametrize("sigma_sq", [Fraction(1), MOST_TABLE_SIGMA_SQ, MOST_SIGMA_SQ + 1])
def test_scales_out_of_range_are_refused(sigma_sq):
    with pytest.raises(BudgetError, match=f"out of range; got {sigma_sq}"):
        wide_gaussian(sigma_sq)
