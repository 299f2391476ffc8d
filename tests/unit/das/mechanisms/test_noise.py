"""add_noise is a function of key, label, mechanism and column alone."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from das.errors import BudgetError, SchemaError
from das.mechanisms.entropy import NoiseKey
from das.mechanisms.gaussian import WIDE_SIGMA_SQ, DiscreteGaussian
from das.mechanisms.laplace import DiscreteLaplace
from das.mechanisms.noise import add_noise
from das.mechanisms.table import BLOCK_WORDS

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


def labels(n, prefix="row"):
    return [f"{prefix} {i}".encode() for i in range(n)]


def noise(shape, mechanism, key=KEY, prefix="row"):
    zeros = np.zeros(shape, np.int64)
    return add_noise(zeros, mechanism=mechanism, key=key, labels=labels(shape[0], prefix))


@each_mechanism
def test_noise_does_not_depend_on_the_answers(mechanism):
    answers = np.arange(60, dtype=np.int64).reshape(5, 12) * 10**6
    noisy = add_noise(answers, mechanism=mechanism, key=KEY, labels=labels(5))
    assert (noisy - answers == noise((5, 12), mechanism)).all()
    assert noisy.dtype == np.int64


@each_mechanism
@given(order=st.permutations(range(7)), cut=st.integers(0, 7))
def test_noise_does_not_depend_on_grouping_or_order(mechanism, order, cut):
    whole = noise((7, 9), mechanism)
    for rows in (order[:cut], order[cut:]):
        part = add_noise(
            np.zeros((len(rows), 9), np.int64),
            mechanism=mechanism,
            key=KEY,
            labels=[labels(7)[i] for i in rows],
        )
        assert (part == whole[list(rows)]).all()


@pytest.mark.parametrize("mechanism", [GAUSSIAN, *MECHANISMS[-2:]], ids=str)
def test_blocks_of_rows_do_not_show(mechanism):
    """Rows share blocks; a row wider than a block has one to itself."""
    width = BLOCK_WORDS // 3
    whole = noise((8, width), mechanism)
    assert (
        whole[7]
        == add_noise(
            np.zeros((1, width), np.int64),
            mechanism=mechanism,
            key=KEY,
            labels=[b"row 7"],
        )
    ).all()
    wide_row = noise((2, BLOCK_WORDS + 5), mechanism)
    assert (wide_row[:, :width] == whole[:2]).all()


@pytest.mark.parametrize("mechanism", [MECHANISMS[4], MECHANISMS[-1]], ids=str)
def test_keys_and_labels_change_the_noise(mechanism):
    first = noise((3, 50), mechanism)
    assert (first != noise((3, 50), mechanism, key=NoiseKey.for_testing(2))).mean() > 0.9
    assert (first != noise((3, 50), mechanism, prefix="other")).mean() > 0.9
    assert (first[0] != first[1]).mean() > 0.9


@each_mechanism
def test_columns_of_a_row_have_noise_of_their_own(mechanism):
    row = noise((1, 4000), mechanism)[0]
    for shift in (1, 2, 1000, 2000):
        same = (row[shift:] == row[:-shift]).mean()
        assert same < 0.9  # a law of few values repeats itself, a stream does not


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0)])
@pytest.mark.parametrize("mechanism", [GAUSSIAN, *MECHANISMS[-2:]], ids=str)
def test_nothing_to_do(shape, mechanism):
    assert noise(shape, mechanism).shape == shape


def test_tiny_sigma_sq_gives_the_answers_back():
    answers = np.arange(10_000, dtype=np.int64).reshape(10, 1000)
    noisy = add_noise(
        answers, mechanism=DiscreteGaussian(Fraction(1, 10**15)), key=KEY, labels=labels(10)
    )
    assert (noisy == answers).all()
    assert noisy is not answers


def test_answers_may_be_a_view_and_stay_untouched():
    answers = np.arange(24, dtype=np.int64).reshape(6, 4).T
    answers.setflags(write=False)
    noisy = add_noise(answers, mechanism=DiscreteGaussian(Fraction(5)), key=KEY, labels=labels(4))
    assert (
        noisy
        == add_noise(
            answers.copy(), mechanism=DiscreteGaussian(Fraction(5)), key=KEY, labels=labels(4)
        )
    ).all()


def test_sums_beyond_int64_wrap_and_do_not_fail():
    largest = np.full((1, 1000), np.iinfo(np.int64).max)
    noisy = add_noise(
        largest, mechanism=DiscreteGaussian(Fraction(100)), key=KEY, labels=[b"row 0"]
    )
    assert (noisy < 0).any()
    with np.errstate(over="ignore"):
        assert (noisy - largest == noise((1, 1000), GAUSSIAN)).all()


def test_a_repeated_label_is_refused():
    with pytest.raises(BudgetError, match="share their noise; got 2 distinct labels for 3 rows"):
        add_noise(
            np.zeros((3, 2), np.int64),
            mechanism=DiscreteGaussian(Fraction(1)),
            key=KEY,
            labels=[b"a", b"b", b"a"],
        )


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
    with pytest.raises(SchemaError, match=r"and 3 labels; expected int64\[G, m\]"):
        add_noise(answers, mechanism=DiscreteGaussian(Fraction(1)), key=KEY, labels=labels(3))


def test_the_arguments_that_matter_are_named():
    with pytest.raises(TypeError):
        add_noise(np.zeros((1, 1), np.int64), GAUSSIAN, KEY, [b"a"])
