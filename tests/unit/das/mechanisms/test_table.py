"""The table's edges: tails, tiny scales, refusals, caching."""

import pickle
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from das.errors import BudgetError
from das.mechanisms.entropy import NoiseKey
from das.mechanisms.table import (
    BLOCK_WORDS,
    MOST_TABLE_ENTRIES,
    gaussian_table,
    laplace_table,
)
from tests.builders.streams import bits_at, words_at

ALL_ONES = 2**64 - 1


class Ones:
    """n ones, then zeros."""

    def __init__(self, n_ones):
        self.left = n_ones

    def bits(self, n):
        ones = min(n, self.left)
        self.left -= ones
        return ((1 << ones) - 1) << (n - ones)


@pytest.mark.parametrize("table", [gaussian_table(Fraction(100)), laplace_table(Fraction(10))])
def test_all_ones_reach_beyond_every_table_entry(table):
    _, undecided = table.lookup(np.array([ALL_ONES], np.uint64))
    assert undecided.tolist() == [0]
    draws = [table.resolve(ALL_ONES, Ones(n)) for n in (0, 1, 8, 64, 256)]
    assert all(draw < 0 for draw in draws)  # the leading one is the sign
    assert [-d for d in draws] == sorted({-d for d in draws})
    assert -draws[-1] > 2 * len(table.thresholds)
    assert table.resolve(ALL_ONES >> 1, Ones(64)) == -draws[3]


def test_zero_ignores_the_sign():
    values, undecided = gaussian_table(Fraction(100)).lookup(np.array([0, 1 << 63], np.uint64))
    assert values.tolist() == [0, 0]
    assert undecided.size == 0


def test_the_sign_bit_is_the_leading_bit():
    words = words_at(NoiseKey.for_testing(1), 1000)
    table = gaussian_table(Fraction(100))
    flipped, _ = table.lookup(words ^ np.uint64(1 << 63))
    assert (flipped == -table.lookup(words)[0]).all()


@pytest.mark.parametrize("n_words", [0, 1, BLOCK_WORDS - 1, BLOCK_WORDS, 2 * BLOCK_WORDS + 1])
def test_blocks_do_not_show(n_words):
    words = words_at(NoiseKey.for_testing(2), n_words)
    table = gaussian_table(Fraction(100), word_bits=9)
    values, undecided = table.lookup(words)
    halves = [table.lookup(part) for part in (words[: n_words // 2], words[n_words // 2 :])]
    assert (values == np.concatenate([half[0] for half in halves])).all()
    expected = np.concatenate([halves[0][1], halves[1][1] + n_words // 2])
    assert undecided.tolist() == expected.tolist()


def test_draw_many_settles_what_is_undecided():
    key = NoiseKey.for_testing(3)
    words = words_at(key, 2000)
    table = gaussian_table(Fraction(4), word_bits=5)
    asked = []

    def more(i):
        asked.append(i)
        return bits_at(key, i)

    values, undecided = table.lookup(words)
    settled = table.draw_many(words, more)
    assert asked == undecided.tolist()
    assert 300 < len(asked) < 1000
    for i in asked:
        assert settled[i] == table.resolve(int(words[i]), bits_at(key, i))
    values[undecided] = settled[undecided]
    assert (values == settled).all()


def test_tiny_sigma_sq_gives_zeros():
    table = gaussian_table(Fraction(1, 10**15))
    values, undecided = table.lookup(words_at(NoiseKey.for_testing(4), 10_000))
    assert not values.any()
    assert undecided.size == 0
    assert table.resolve(ALL_ONES, Ones(200)) == 0


@pytest.mark.parametrize(
    "factory",
    [
        gaussian_table,
        partial(gaussian_table, is_two_sided=False),
        laplace_table,
        partial(laplace_table, is_two_sided=False),
    ],
)
def test_unusable_scales_are_refused_with_their_value(factory):
    for bad in [Fraction(0), Fraction(-1, 2), 1, 0.5, "1"]:
        for table in (gaussian_table, laplace_table):
            table.cache_clear()  # it would find a float that equals a known Fraction
        with pytest.raises(
            BudgetError, match=r"cannot be used; got .*; expected a positive Fraction"
        ):
            factory(bad)


def test_too_large_a_table_is_refused():
    with pytest.raises(
        BudgetError, match=f"too much noise for a sampling table; .* at most {MOST_TABLE_ENTRIES}"
    ):
        gaussian_table(Fraction(10**12))
    with pytest.raises(
        BudgetError, match=f"too much noise for a sampling table; .* at most {MOST_TABLE_ENTRIES}"
    ):
        laplace_table(Fraction(10**5))


def test_a_table_is_made_once_and_cannot_be_written_to():
    table = gaussian_table(Fraction(7, 3))
    assert gaussian_table(Fraction(14, 6)) is table
    with pytest.raises(ValueError, match="read-only"):
        table.thresholds[0] = 0
    with pytest.raises(ValueError, match="read-only"):
        table.guide[0] = 0


def test_a_table_travels():
    table = gaussian_table(Fraction(7, 3))
    copy = pickle.loads(pickle.dumps(table))
    words = words_at(NoiseKey.for_testing(5), 100)
    assert (copy.lookup(words)[0] == table.lookup(words)[0]).all()
