"""Totals expected by housing units: what is learned, what is added, and its estimated error."""

from __future__ import annotations

import numpy as np
import pytest

from das.errors import SchemaError
from das.tree.covariate import (
    Children,
    answers,
    deviations,
    expect,
    family_scales,
    learn_variance,
    merge,
    risk,
)

NOISE = 50.0


def state(
    seed: int, families: int = 400, *, spread: float = 1.0
) -> tuple[Children, np.ndarray, np.ndarray]:
    """Children whose totals are off what is expected by 2 mu + mu^2 / 40, with truth and mu."""
    rng = np.random.default_rng(seed)
    size = 25
    owners = np.repeat(np.arange(families), size)
    units = np.maximum(1, np.rint(rng.lognormal(2.9, 0.8, len(owners))))
    mu = 2.5 * units
    sd = np.sqrt(spread * (2 * mu + mu**2 / 40))
    truth = np.maximum(0, np.rint(mu + sd * rng.standard_normal(len(owners))))
    noisy = truth + np.sqrt(NOISE) * rng.standard_normal(len(owners))
    parents = np.bincount(owners, truth)
    none = np.zeros(len(owners), np.bool_)
    variance = np.full(len(owners), NOISE)
    return Children(noisy, variance, units, none, owners, parents), truth, mu


def test_persons_are_shared_by_units():
    children = Children(
        np.array([30.0, 60, 9, 10]),
        np.ones(4),
        np.array([1.0, 2, 3, 7]),
        np.array([False, False, False, True]),
        np.array([0, 0, 1, 1]),
        np.array([90.0, 20]),
    )
    found = expect(children)
    assert found.totals.tolist() == [30, 60, 10, 10]  # ten live in a facility, the others in units
    assert found.flat.tolist() == [False, False, False, True]


def test_an_outlier_is_set_aside_before_the_others_share():
    noisy = np.array([10.0, 10, 10, 400])
    children = Children(
        noisy,
        np.ones(4),
        np.full(4, 5.0),
        np.zeros(4, np.bool_),
        np.zeros(4, np.int64),
        np.array([430.0]),
    )
    found = expect(children)
    assert found.flat.tolist() == [False, False, False, True]
    assert found.totals.tolist() == [10, 10, 10, 400]


def test_flat_children_never_take_more_than_there_is():
    children = Children(
        np.array([90.0, 30, -5]),
        np.ones(3),
        np.array([0.0, 0, 4]),
        np.array([True, True, False]),
        np.zeros(3, np.int64),
        np.array([60.0]),
    )
    found = expect(children)
    assert found.totals.tolist() == [45, 15, 0]


def test_children_without_noise_or_of_other_lengths_are_refused():
    one = np.ones(1)
    with pytest.raises(SchemaError, match="same length"):
        Children(one, 0 * one, one, one > 2, np.zeros(1, np.int64), one)


def test_the_variance_is_learned_from_noisy_totals():
    """The oracle sees the truth; noise of variance 50 is more than all there is below mu = 20."""
    children, _, _ = state(1)
    learned = learn_variance(deviations(children))
    assert learned is not None
    for mu in (20.0, 50.0, 100.0, 200.0):
        assert learned.of(np.array([mu]))[0] == pytest.approx(2 * mu + mu**2 / 40, rel=0.35)
    grid = learned.of(np.arange(0.0, 3000.0))
    assert (np.diff(grid) >= 0).all()


def test_tallies_merge_in_any_order_to_the_last_digit():
    parts = [deviations(state(seed, 30)[0]) for seed in range(5)]
    one, other = merge(parts), merge(parts[::-1])
    assert np.array_equal(one.squares, other.squares)
    assert np.array_equal(one.expected, other.expected)
    assert learn_variance(one).variance.tolist() == learn_variance(other).variance.tolist()


def test_of_too_few_children_nothing_is_learned():
    assert learn_variance(deviations(state(1, 1)[0])) is None
    assert learn_variance(merge([])) is None


def test_families_that_are_further_off_have_a_larger_scale():
    usual, wild = state(4, 200)[0], state(5, 200, spread=4.0)[0]
    learned = learn_variance(deviations(usual))
    assert learned is not None
    of = [family_scales(one, expect(one, learned), learned).mean() for one in (usual, wild)]
    assert of[0] == pytest.approx(1, abs=0.15)
    assert of[1] > 1.7 * of[0]


def test_expected_totals_take_off_squared_error():
    """Each child by itself: the mean by inverse variance of what is noisy and what is expected."""
    children, truth, _ = state(6)
    learned = learn_variance(deviations(children))
    assert learned is not None
    expected, weights = answers(children, learned, 2.0)
    precision = 1 / children.variance + weights
    drawn = (children.noisy / children.variance + weights * expected.totals) / precision
    error = [((one - truth) ** 2).mean() for one in (children.noisy, drawn)]
    assert error[1] < 0.85 * error[0]
    _, less = answers(children, learned, 4.0)
    assert less == pytest.approx(weights / 2)


def test_nothing_is_expected_of_flat_children():
    children, _, _ = state(7, 5)
    apart = np.arange(len(children.owners)) % 7 == 0
    some = Children(
        children.noisy,
        children.variance,
        children.units,
        apart,
        children.owners,
        children.parents,
    )
    learned = learn_variance(deviations(state(8)[0]))
    assert learned is not None
    _, weights = answers(some, learned, 2.0)
    assert not weights[apart].any()
    assert weights[~apart].any()


@pytest.mark.parametrize("factor", [1.0, 0.5, 0.1])
def test_the_risk_is_that_of_the_truth(factor):
    """Of a shrinkage that bends at 0; both means are known to a fiftieth of themselves."""
    rng = np.random.default_rng(9)
    n, sd, step = 200_000, 7.0, 0.1
    truth = rng.gamma(1.5, 8, n)
    noisy = truth + sd * rng.standard_normal(n)
    signs = 2.0 * rng.integers(0, 2, n) - 1
    shifted = noisy + step * sd * signs

    def solve(z):
        return np.maximum(0, 10 + factor * (z - 10))

    found = risk(noisy, np.full(n, sd**2), solve(noisy), shifted, solve(shifted), step)
    true = (solve(noisy) - truth) ** 2
    spread = np.sqrt((found.var() + true.var()) / n)
    assert abs(found.mean() - true.mean()) < 5 * spread
    assert spread < 0.02 * true.mean()
