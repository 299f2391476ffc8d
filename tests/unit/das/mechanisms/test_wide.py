"""The sampler of large scales: the fast path is the definition."""

import math
from fractions import Fraction

import numpy as np
import pytest

from das.errors import BudgetError
from das.mechanisms.entropy import NoiseKey
from das.mechanisms.wide import (
    MOST_SCALE,
    MOST_SIGMA_SQ,
    MOST_TABLE_SCALE,
    MOST_TABLE_SIGMA_SQ,
    wide_gaussian,
    wide_laplace,
)
from tests.builders.streams import bits_at, words_at

KEY = NoiseKey.for_testing(1)
SAMPLERS = [
    *(
        (wide_gaussian, sigma_sq)
        for sigma_sq in (
            MOST_TABLE_SIGMA_SQ + 1,
            Fraction(10**12, 7),
            Fraction(10**18),
            MOST_SIGMA_SQ,
        )
    ),
    *(
        (wide_laplace, scale)
        for scale in (Fraction(257), Fraction(10**6, 7), Fraction(10**9), MOST_SCALE)
    ),
]
each_sampler = pytest.mark.parametrize(("make", "parameter"), SAMPLERS)


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


@each_sampler
def test_draw_many_is_draw_of_each_stream(make, parameter):
    sampler = make(parameter)
    words = words_at(KEY, 2 * 6000)
    finished = []

    def more(i):
        finished.append(i)
        return bits_at(KEY, i)

    values = sampler.draw_many(words, more)
    for i, pair in enumerate(words.reshape(-1, 2).tolist()):
        assert values[i] == sampler.draw(Joined(pair, bits_at(KEY, i)))
    assert 0 < len(finished) < 60  # the definition ran for a few only


def test_uniform_numbers_next_to_the_limit_of_acceptance():
    """U is placed around 1 - gamma and exp(-gamma), where a careless float would decide wrongly."""
    for make, parameter in SAMPLERS:
        sampler = make(parameter)
        low_bits = 64 - sampler.rest_bits
        pairs = []
        for cell in (0, 3, 100, len(sampler.table.thresholds) // 2):
            first = int(sampler.table.thresholds[cell]) + 1  # decides J = cell + 1
            leading = (cell + 1) << sampler.rest_bits
            for rest in {1, 1 << sampler.rest_bits - 1, (1 << sampler.rest_bits) - 1}:
                gamma = rest * (sampler.linear + sampler.quadratic * (2 * leading + rest))
                for limit in (1 - gamma, Fraction(math.exp(-gamma))):
                    for steps in (-(2**12), -1, 0, 1, 2**12):
                        uniform = math.floor(limit * 2**low_bits) + steps
                        if 0 <= uniform < 1 << low_bits:
                            pairs.append((first, rest << low_bits | uniform))
        assert len(pairs) >= 40
        words = np.array(pairs, np.uint64).reshape(-1)
        values = sampler.draw_many(words, lambda i: bits_at(KEY, i))
        expected = [sampler.draw(Joined(p, bits_at(KEY, i))) for i, p in enumerate(pairs)]
        assert values.tolist() == expected


@pytest.mark.parametrize(
    ("make", "parameter"), [(wide_gaussian, Fraction(10**12)), (wide_laplace, Fraction(10**9))]
)
def test_rare_words_go_the_slow_way(make, parameter):
    """A refused attempt, a negative zero, an undecided table word, a start beyond the table."""
    sampler = make(parameter)
    top = 2**63 - 1
    tie = int(sampler.table.thresholds[40])
    pairs = [(0, 2**64 - 1), (1 << 63, 0), (tie, 5), (top, 5), (1 << 63 | top, 7), (0, 0)]
    words = np.array(pairs, np.uint64).reshape(-1)
    values = sampler.draw_many(words, lambda i: bits_at(KEY, i))
    expected = [sampler.draw(Joined(p, bits_at(KEY, i))) for i, p in enumerate(pairs)]
    assert values.tolist() == expected
    assert values[5] == 0
    assert values[3] >= len(sampler.table.thresholds) - 1 << sampler.rest_bits


def test_a_negative_zero_is_drawn_again():
    """Kept, it would double the mass of zero."""
    sampler = wide_laplace(Fraction(257))
    asked = []

    def more(i):
        asked.append(i)
        return bits_at(KEY, i)

    values = sampler.draw_many(np.array([0, 0, 1 << 63, 0], np.uint64), more)
    assert asked == [1]
    assert values[0] == 0
    assert values[1] == sampler.draw(Joined([1 << 63, 0], bits_at(KEY, 1)))


def test_tables_stay_small():
    for exponent in range(19, 81):
        sigma_sq = Fraction(2**exponent)
        rest_bits = wide_gaussian(sigma_sq).rest_bits
        assert MOST_TABLE_SIGMA_SQ / 4 < sigma_sq / 4**rest_bits <= MOST_TABLE_SIGMA_SQ
        assert 1 <= rest_bits <= 31
        wide_gaussian.cache_clear()
    for exponent in range(9, 40):
        scale = Fraction(2**exponent)
        rest_bits = wide_laplace(scale).rest_bits
        assert MOST_TABLE_SCALE / 2 < scale / 2**rest_bits <= MOST_TABLE_SCALE
        assert 1 <= rest_bits <= 31
        wide_laplace.cache_clear()


@pytest.mark.parametrize(
    ("make", "parameter"),
    [
        (wide_gaussian, Fraction(1)),
        (wide_gaussian, MOST_TABLE_SIGMA_SQ),
        (wide_gaussian, MOST_SIGMA_SQ + 1),
        (wide_laplace, Fraction(1)),
        (wide_laplace, MOST_TABLE_SCALE),
        (wide_laplace, MOST_SCALE + 1),
    ],
)
def test_scales_out_of_range_are_refused(make, parameter):
    with pytest.raises(BudgetError, match=f"out of range; got {parameter}"):
        make(parameter)
