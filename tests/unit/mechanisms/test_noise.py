"""add_noise is a function of key, label, scale and column; DiscreteGaussian states its cost."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from das.errors import BudgetError, SchemaError
from das.mechanisms.entropy import NoiseKey
from das.mechanisms.noise import WIDE_SIGMA_SQ, DiscreteGaussian, add_noise
from das.mechanisms.table import BLOCK_WORDS

KEY = NoiseKey.for_testing(1)
SCALES = [Fraction(3, 7), Fraction(100), WIDE_SIGMA_SQ, WIDE_SIGMA_SQ + 1, Fraction(10**12)]


def labels(n, prefix="row"):
    return [f"{prefix} {i}".encode() for i in range(n)]


def noise(shape, sigma_sq, key=KEY, prefix="row"):
    zeros = np.zeros(shape, np.int64)
    return add_noise(zeros, sigma_sq=sigma_sq, key=key, labels=labels(shape[0], prefix))


@pytest.mark.parametrize("sigma_sq", SCALES)
def test_noise_does_not_depend_on_the_answers(sigma_sq):
    answers = np.arange(60, dtype=np.int64).reshape(5, 12) * 10**6
    noisy = add_noise(answers, sigma_sq=sigma_sq, key=KEY, labels=labels(5))
    assert (noisy - answers == noise((5, 12), sigma_sq)).all()
    assert noisy.dtype == np.int64


@pytest.mark.parametrize("sigma_sq", SCALES)
@given(order=st.permutations(range(7)), cut=st.integers(0, 7))
def test_noise_does_not_depend_on_grouping_or_order(sigma_sq, order, cut):
    whole = noise((7, 9), sigma_sq)
    for rows in (order[:cut], order[cut:]):
        part = add_noise(
            np.zeros((len(rows), 9), np.int64),
            sigma_sq=sigma_sq,
            key=KEY,
            labels=[labels(7)[i] for i in rows],
        )
        assert (part == whole[list(rows)]).all()


@pytest.mark.parametrize("sigma_sq", [Fraction(100), Fraction(10**12)])
def test_blocks_of_rows_do_not_show(sigma_sq):
    """Rows share blocks; a row wider than a block has one to itself."""
    width = BLOCK_WORDS // 3
    whole = noise((8, width), sigma_sq)
    assert (
        whole[7]
        == add_noise(np.zeros((1, width), np.int64), sigma_sq=sigma_sq, key=KEY, labels=[b"row 7"])
    ).all()
    wide_row = noise((2, BLOCK_WORDS + 5), sigma_sq)
    assert (wide_row[:, :width] == whole[:2]).all()


def test_keys_and_labels_change_the_noise():
    first = noise((3, 50), Fraction(10**6))
    assert (first != noise((3, 50), Fraction(10**6), key=NoiseKey.for_testing(2))).mean() > 0.9
    assert (first != noise((3, 50), Fraction(10**6), prefix="other")).mean() > 0.9
    assert (first[0] != first[1]).mean() > 0.9


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0)])
@pytest.mark.parametrize("sigma_sq", [Fraction(1), Fraction(10**12)])
def test_nothing_to_do(shape, sigma_sq):
    assert noise(shape, sigma_sq).shape == shape


def test_tiny_sigma_sq_gives_the_answers_back():
    answers = np.arange(10_000, dtype=np.int64).reshape(10, 1000)
    noisy = add_noise(answers, sigma_sq=Fraction(1, 10**15), key=KEY, labels=labels(10))
    assert (noisy == answers).all()
    assert noisy is not answers


def test_answers_may_be_a_view_and_stay_untouched():
    answers = np.arange(24, dtype=np.int64).reshape(6, 4).T
    answers.setflags(write=False)
    noisy = add_noise(answers, sigma_sq=Fraction(5), key=KEY, labels=labels(4))
    assert (
        noisy == add_noise(answers.copy(), sigma_sq=Fraction(5), key=KEY, labels=labels(4))
    ).all()


def test_sums_beyond_int64_wrap_and_do_not_fail():
    largest = np.full((1, 1000), np.iinfo(np.int64).max)
    noisy = add_noise(largest, sigma_sq=Fraction(100), key=KEY, labels=[b"row 0"])
    assert (noisy < 0).any()
    with np.errstate(over="ignore"):
        assert (noisy - largest == noise((1, 1000), Fraction(100))).all()


def test_a_repeated_label_is_refused():
    with pytest.raises(BudgetError, match="share their noise; got 2 distinct labels for 3 rows"):
        add_noise(
            np.zeros((3, 2), np.int64), sigma_sq=Fraction(1), key=KEY, labels=[b"a", b"b", b"a"]
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
        add_noise(answers, sigma_sq=Fraction(1), key=KEY, labels=labels(3))


@pytest.mark.parametrize("bad", [Fraction(0), Fraction(-1), Fraction(2**80 + 1), 100, 0.5])
def test_unusable_sigma_sq_is_refused_with_its_value(bad):
    with pytest.raises(BudgetError, match=r"sigma_sq cannot be used; got .*0 < sigma_sq <= "):
        DiscreteGaussian(bad)
    with pytest.raises(BudgetError, match="sigma_sq cannot be used"):
        noise((1, 1), bad)


def test_the_arguments_that_matter_are_named():
    with pytest.raises(TypeError):
        add_noise(np.zeros((1, 1), np.int64), Fraction(1), KEY, [b"a"])


def test_cost_is_exact():
    assert DiscreteGaussian(Fraction(1, 3)).rho(Fraction(2)) == 3
    assert DiscreteGaussian(Fraction(10, 7)).rho(Fraction(1)) == Fraction(7, 20)


def test_variance_is_not_sigma_sq():
    assert DiscreteGaussian(Fraction(1, 4)).variance() < 0.2151
    assert DiscreteGaussian(Fraction(10**12)).variance() == 1e12
