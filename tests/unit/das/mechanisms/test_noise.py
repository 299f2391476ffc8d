"""add_noise is a function of key, position, row, mechanism and column alone."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from das.errors import BudgetError, SchemaError
from das.mechanisms.entropy import NoiseKey
from das.mechanisms.gaussian import WIDE_SIGMA_SQ, DiscreteGaussian
from das.mechanisms.laplace import DiscreteLaplace
from das.mechanisms.noise import add_noise, add_noise_in_place
from das.mechanisms.table import BLOCK_WORDS
from tests.builders.streams import stream

KEY = NoiseKey.for_testing(1)
MECHANISMS = [
    DiscreteGaussian(Fraction(3, 7)),
    DiscreteGaussian(Fraction(100)),
    DiscreteGaussian(WIDE_SIGMA_SQ),
    DiscreteGaussian(WIDE_SIGMA_SQ + 1),
    DiscreteGaussian(Fraction(10**12)),
    DiscreteLaplace(Fraction(1, 2)),
    DiscreteLaplace(Fraction(256)),
    DiscreteLaplace(Fraction(257)),
    DiscreteLaplace(Fraction(10**9)),
]
each_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
GAUSSIAN = DiscreteGaussian(Fraction(100))


def noisy_answers(answers, mechanism, key=KEY, position=(0,), rows=None):
    rows = len(answers) if rows is None else rows
    return add_noise(answers, mechanism=mechanism, stream=stream(key, rows, position))


def noise(shape, mechanism, key=KEY, position=(0,), rows=None):
    return noisy_answers(np.zeros(shape, np.int64), mechanism, key, position, rows)


def test_noise_does_not_depend_on_the_answers():
    for mechanism in MECHANISMS:
        answers = np.arange(60, dtype=np.int64).reshape(5, 12) * 10**6
        noisy = noisy_answers(answers, mechanism)
        assert (noisy - answers == noise((5, 12), mechanism)).all()
        assert noisy.dtype == np.int64


@each_mechanism
@given(some=st.sets(st.integers(0, 6)))
def test_noise_does_not_depend_on_grouping(mechanism, some):
    whole = noise((7, 9), mechanism)
    for rows in (sorted(some), sorted({*range(7)} - some)):
        assert (noise((len(rows), 9), mechanism, rows=rows) == whole[rows]).all()


@pytest.mark.parametrize("mechanism", [GAUSSIAN, *MECHANISMS[-2:]], ids=str)
def test_blocks_of_rows_do_not_show(mechanism):
    """Rows share blocks; a row wider than a block has one to itself."""
    width = BLOCK_WORDS // 3
    whole = noise((8, width), mechanism)
    alone = noise((1, width), mechanism, rows=[7])
    assert (whole[7] == alone).all()
    wide_row = noise((2, BLOCK_WORDS + 5), mechanism)
    assert (wide_row[:, :width] == whole[:2]).all()


@pytest.mark.parametrize("mechanism", [MECHANISMS[4], MECHANISMS[-1]], ids=str)
def test_keys_positions_and_rows_change_the_noise(mechanism):
    first = noise((3, 50), mechanism)
    assert (first != noise((3, 50), mechanism, key=NoiseKey.for_testing(2))).mean() > 0.9
    assert (first != noise((3, 50), mechanism, position=(1,))).mean() > 0.9
    assert (first != noise((3, 50), mechanism, rows=[3, 4, 5])).mean() > 0.9
    assert (first[0] != first[1]).mean() > 0.9
    assert (first[1] != first[2]).mean() > 0.9


def test_columns_of_a_row_have_noise_of_their_own():
    for mechanism in MECHANISMS:
        row = noise((1, 4000), mechanism)[0]
        for shift in (1, 2, 1000, 2000):
            same = (row[shift:] == row[:-shift]).mean()
            assert same < 0.9  # a law of few values repeats itself, a stream does not


@each_mechanism
@given(rows=st.lists(st.integers(0, 6), unique=True))
def test_noise_in_place_is_that_of_the_rows_it_is_for(mechanism, rows):
    """In any order; other rows stay as they are."""
    answers = np.arange(63).reshape(7, 9)
    wanted = answers.copy()
    wanted[rows] = noisy_answers(answers, mechanism)[rows]
    add_noise_in_place(answers, mechanism=mechanism, stream=stream(KEY, 7), rows=rows)
    assert (answers == wanted).all()


def test_nothing_to_do():
    for shape, mechanism in itertools.product(
        [(0, 5), (3, 0), (0, 0)], [GAUSSIAN, *MECHANISMS[-2:]]
    ):
        assert noise(shape, mechanism).shape == shape


def test_tiny_sigma_sq_gives_the_answers_back():
    answers = np.arange(10_000, dtype=np.int64).reshape(10, 1000)
    noisy = noisy_answers(answers, DiscreteGaussian(Fraction(1, 10**15)))
    assert (noisy == answers).all()
    assert noisy is not answers


def test_answers_may_be_a_view_and_stay_untouched():
    answers = np.arange(24, dtype=np.int64).reshape(6, 4).T
    answers.setflags(write=False)
    noisy = noisy_answers(answers, DiscreteGaussian(Fraction(5)))
    assert (noisy == noisy_answers(answers.copy(), DiscreteGaussian(Fraction(5)))).all()


def test_sums_beyond_int64_wrap_and_do_not_fail():
    largest = np.full((1, 1000), np.iinfo(np.int64).max)
    noisy = noisy_answers(largest, GAUSSIAN)
    assert (noisy < 0).any()
    with np.errstate(over="ignore"):
        assert (noisy - largest == noise((1, 1000), GAUSSIAN)).all()


def test_a_row_never_gets_noise_twice():
    opened, answers = stream(KEY, 3), np.zeros((3, 2), np.int64)
    add_noise_in_place(answers, mechanism=GAUSSIAN, stream=opened, rows=[0, 2])
    before = answers.copy()
    with pytest.raises(BudgetError, match="two answers would share their noise"):
        add_noise_in_place(answers, mechanism=GAUSSIAN, stream=opened, rows=[1, 2])
    assert (answers == before).all()
    add_noise_in_place(answers, mechanism=GAUSSIAN, stream=opened, rows=[1])


@pytest.mark.parametrize(
    "answers",
    [
        np.zeros((3, 2)),
        np.zeros(3, np.int64),
        np.zeros((2, 2), np.int64),
        np.zeros((3, 2), np.int32),
    ],
)
def test_answers_that_do_not_fit_are_refused(answers):
    with pytest.raises(SchemaError, match=r"and 3 rows; expected int64\[G, m\]"):
        noisy_answers(answers, GAUSSIAN, rows=3)


def test_the_arguments_that_matter_are_named():
    with pytest.raises(TypeError):
        add_noise(np.zeros((1, 1), np.int64), GAUSSIAN, stream(KEY, 1))
