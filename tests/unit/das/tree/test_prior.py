"""Priors learned from noisy counts: their posterior means, and when nothing is learned."""

from __future__ import annotations

import numpy as np
import pytest

from das.errors import SchemaError
from das.tree.prior import Tally, learn_prior, merge, tally

VARIANCE = 9.7


def sparse_counts(seed: int, size: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    """Counts of which 95 % are zero and the rest about 6, and noisy ones."""
    rng = np.random.default_rng(seed)
    counts = np.where(rng.random(size) < 0.05, rng.poisson(6.0, size), 0)
    return counts, counts + rng.normal(0, VARIANCE**0.5, size)


def test_posterior_means_come_near_those_of_the_true_prior():
    """The oracle knows the prior; what was learned from noisy counts is nearly as good."""
    counts, noisy = sparse_counts(1)
    expected = np.full(len(noisy), 0.3)
    learned = learn_prior(tally(noisy, expected, VARIANCE), VARIANCE)
    found = learned.posterior_mean(noisy, expected)
    support = np.arange(40)
    truth = np.bincount(counts, minlength=40)[:40] / len(counts)
    weights = np.exp(-0.5 * (noisy[:, None] - support) ** 2 / VARIANCE) * truth
    best = weights @ support / weights.sum(1)
    error = [((x - counts) ** 2).mean() for x in (best, found, np.maximum(noisy, 0))]
    assert error[1] <= 1.05 * error[0]
    assert error[1] < 0.3 * error[2]


def test_means_are_kept_on_average():
    counts, noisy = sparse_counts(2)
    expected = np.full(len(noisy), 0.3)
    found = learn_prior(tally(noisy, expected, VARIANCE), VARIANCE).posterior_mean(noisy, expected)
    assert found.min() >= 0
    assert found.mean() == pytest.approx(counts.mean(), abs=3 * (VARIANCE / len(noisy)) ** 0.5)


def test_each_expected_count_has_a_prior_of_its_own():
    rng = np.random.default_rng(3)
    counts = np.concatenate([np.zeros(5000, int), rng.poisson(50.0, 5000)])
    noisy = counts + rng.normal(0, VARIANCE**0.5, len(counts))
    expected = np.repeat([0.0, 50.0], 5000)
    learned = learn_prior(tally(noisy, expected, VARIANCE), VARIANCE)
    ask = np.array([4.0, 50.0])
    assert learned.posterior_mean(ask, np.array([0.0, 50.0])) == pytest.approx([0, 50], abs=0.5)


def test_tallies_add_up_whatever_the_batches():
    _, noisy = sparse_counts(4, 1000)
    expected = np.geomspace(0.01, 1e9, 1000)
    whole = tally(noisy, expected, VARIANCE)
    parts = merge(tally(noisy[i::3], expected[i::3], VARIANCE) for i in range(3))
    assert whole.times.sum() == 1000
    for name in ("bins", "steps", "times"):
        assert np.array_equal(getattr(whole, name), getattr(parts, name))


def test_too_few_observations_teach_nothing():
    noisy = np.array([3.5, -1.0])
    expected = np.array([2.0, 0.0])
    learned = learn_prior(tally(noisy, expected, VARIANCE), VARIANCE)
    assert learned.posterior_mean(noisy, expected).tolist() == noisy.tolist()
    nothing = learn_prior(merge([]), VARIANCE)
    assert nothing.posterior_mean(noisy, expected).tolist() == noisy.tolist()


@pytest.mark.parametrize("variance", [1.0, VARIANCE])
def test_large_counts_stay_where_they_were_measured(variance):
    """The counts a prior may give mass to are near enough to one another, however large."""
    rng = np.random.default_rng(5)
    counts = rng.integers(0, 3000, 5000)
    noisy = counts + rng.normal(0, variance**0.5, 5000)
    expected = np.full(5000, 1000.0)
    found = learn_prior(tally(noisy, expected, variance), variance).posterior_mean(noisy, expected)
    deviation = variance**0.5
    assert np.abs(found - noisy).max() <= 5 * deviation
    assert ((found - counts) ** 2).mean() <= 1.3 * variance
    assert (found[noisy > 60 + 200 * deviation] == noisy[noisy > 60 + 200 * deviation]).all()


@pytest.mark.parametrize(
    ("shape", "variance"), [((3,), 1.0), ((2,), 0.0), ((2,), -1.0), ((2,), float("nan"))]
)
def test_bad_input_is_refused(shape, variance):
    with pytest.raises(SchemaError, match="tally of noisy counts"):
        tally(np.zeros(2), np.zeros(shape), variance)


def test_tallies_are_plain_integers():
    seen = tally(np.array([1.0, 1.01, -7.0]), np.ones(3), 4.0)
    assert isinstance(seen, Tally)
    assert seen.times.tolist() == [1, 2]
    assert seen.steps.tolist() == [-14, 2]
