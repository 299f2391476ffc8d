"""Intervals: published values, a search over all truths, and limits."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
from scipy.special import ndtr

from das.definition import Definition
from das.errors import ConfigError
from das.tree.intervals import (
    IntervalKind,
    central_intervals,
    estimated_ratios,
    normal_factor,
    positive_intervals,
    positive_simultaneous_factor,
    simultaneous_factor,
)

FACTOR = normal_factor(0.9)


@cache
def kept_by_truth(confidence: float) -> tuple[np.ndarray, np.ndarray, float]:
    """The definition on a grid: truths, and the least and largest estimate each keeps."""
    x = np.linspace(-9, 12, 8_401)
    step = x[1] - x[0]
    best = np.maximum(x, 0)
    truths, ends = np.linspace(0, 8, 801), []
    for mu in truths:
        advantage = (x - best) ** 2 - (x - mu) ** 2
        order = np.argsort(-advantage, kind="stable")
        mass = np.cumsum(np.exp(-((x[order] - mu) ** 2) / 2)) * step / np.sqrt(2 * np.pi)
        inside = order[: int(np.searchsorted(mass, confidence)) + 1]
        ends.append((x[inside].min(), x[inside].max()))
    return truths, np.array(ends), step


def by_search(seen: float, confidence: float) -> tuple[float, float]:
    """The truths whose most likely estimates hold what was seen."""
    truths, ends, step = kept_by_truth(confidence)
    kept = truths[(ends[:, 0] - step <= seen) & (seen <= ends[:, 1] + step)]
    return kept.min(), kept.max()


def test_positive_intervals_are_those_of_a_search():
    for confidence, seen in itertools.product(
        [0.68, 0.9, 0.95], [-3.0, -0.7, 0.0, 0.9, 1.5, 2.2, 3.0, 5.0]
    ):
        found = positive_intervals(np.array([[seen]]), np.ones((1, 1)), normal_factor(confidence))
        low, high = by_search(seen, confidence)
        assert found.lower[0, 0] == pytest.approx(low, abs=0.02)
        assert found.upper[0, 0] == pytest.approx(high, abs=0.02)


@pytest.mark.parametrize("truth", [0.0, 0.3, 1.0, 2.0, 4.0])
def test_positive_intervals_cover_every_truth_with_the_probability_they_say(truth):
    """By integration: the normal mass of the estimates whose interval holds the truth."""
    x = np.linspace(truth - 5, truth + 5, 60_001)  # 6e-7 is beyond, and 1.4e-4 in two steps
    found = positive_intervals(x[None], np.ones((1, len(x))), FACTOR)
    holds = ((found.lower <= truth) & (found.upper >= truth))[0]
    mass = np.diff(ndtr(x - truth))
    assert (mass * (holds[1:] & holds[:-1])).sum() == pytest.approx(0.9, abs=2e-4)


@pytest.mark.parametrize("truth", [3.0, 5.0, 7.5])
def test_public_bounds_of_a_truth_leave_its_coverage(truth):
    """Bounds 3 and 8, by integration over all estimates."""
    x = np.linspace(truth - 9, truth + 9, 200_001)
    found = IntervalKind(0.9, positive=True).around(x[None], np.ones((1, len(x))), 1, 3, 8)
    holds = ((found.lower <= truth) & (found.upper >= truth))[0]
    mass = np.diff(ndtr(x - truth))
    assert (mass * (holds[1:] & holds[:-1])).sum() == pytest.approx(0.9, abs=2e-4)
    assert (found.lower >= 3).all()
    assert (found.upper <= 8).all()


def test_positive_intervals_scale_and_keep_what_is_exact():
    one = positive_intervals(np.array([[1.0, 5.0]]), np.array([[2.0, 0.0]]), FACTOR)
    half = positive_intervals(np.array([[0.5]]), np.ones((1, 1)), FACTOR)
    assert one.upper[0, 0] == pytest.approx(2 * half.upper[0, 0])
    assert (one.lower[0, 1], one.upper[0, 1]) == (5, 5)


def test_far_from_zero_they_are_central():
    estimates, errors = np.array([[40.0, 50.0]]), np.array([[3.0, 12.0]])
    found = positive_intervals(estimates, errors, FACTOR)
    plain = central_intervals(estimates, errors, FACTOR)
    np.testing.assert_allclose(found.lower, plain.lower)
    np.testing.assert_allclose(found.upper, plain.upper)


def test_simultaneous_factors():
    """Of independent errors Sidak's is exact; of few dimensions Scheffe's is the smaller."""
    factor = simultaneous_factor(0.9, 20, 20)
    assert (2 * ndtr(factor) - 1) ** 20 == pytest.approx(0.9)
    assert simultaneous_factor(0.9, 20, 1) == pytest.approx(FACTOR)
    assert simultaneous_factor(0.9, 500, 2) == pytest.approx(np.sqrt(2 * np.log(10)))
    assert simultaneous_factor(0.9, 0, 0) == simultaneous_factor(0.9, 1, 1) == FACTOR
    assert positive_simultaneous_factor(0.9, 20) > factor
    assert positive_simultaneous_factor(0.9, 1) == pytest.approx(FACTOR)


@pytest.mark.parametrize("confidence", [0.5, 1.0, 0.0, -1.0, 2.0])
def test_a_confidence_out_of_range_is_refused(confidence):
    with pytest.raises(ConfigError, match="confidence"):
        normal_factor(confidence)


def test_ratios_cover_and_their_probabilities_are_calibrated() -> None:
    """Districts whose true share lies around one half, with correlated noise as of one release.

    Of 200,000 districts, the standard error of a coverage is 0.0007, of a probability 0.003.
    """
    generator, size = np.random.default_rng(7), 200_000
    whole = generator.uniform(200, 2000, (size, 1))
    share = generator.uniform(0.4, 0.6, (size, 1))
    variance = np.array([[160.0, 90.0], [90.0, 240.0]])
    noise = generator.multivariate_normal([0, 0], variance, size)
    estimates = (share * whole + noise[:, :1], whole + noise[:, 1:])
    spread = [np.full((size, 1), variance[i, i]) for i in (0, 1)]
    covariances = np.full((size, 1), variance[0, 1])
    found = estimated_ratios(
        (estimates[0], spread[0]), (estimates[1], spread[1]), covariances, FACTOR
    )
    covered = (found.lower <= share) & (share <= found.upper)
    assert covered.mean() == pytest.approx(0.9, abs=0.003)
    for low in np.arange(0, 1, 0.1):
        chosen = (low <= found.above_half) & (found.above_half < low + 0.1)
        stated = found.above_half[chosen].mean()
        assert (share[chosen] > 0.5).mean() == pytest.approx(stated, abs=0.02)


def test_ratios_without_information_or_without_error() -> None:
    def ratio(above: float, below: float, variance: float) -> tuple[float, float, float, float]:
        numbers = [np.array([[number]]) for number in (above, variance, below, variance, 0.0)]
        found = estimated_ratios(
            (numbers[0], numbers[1]), (numbers[2], numbers[3]), numbers[4], 1.6
        )
        ends = (found.estimate, found.lower, found.upper, found.above_half)
        return tuple(float(end[0, 0]) for end in ends)  # type: ignore[return-value]

    assert ratio(30, 50, 0) == (0.6, 0.6, 0.6, 1)
    estimate, lower, upper, above = ratio(1, 2, 400)  # the whole may be 0
    assert np.isnan(estimate)
    assert (lower, upper, above) == (0, 1, 0.5)


def test_intervals_of_laplace_noise_cover_exactly_or_more():
    """One variable of standard deviation 1 exceeds t with probability exp(-t sqrt(2)); two: more."""
    for confidence in (0.6, 0.9, 0.905, 0.95, 0.999):
        ends = IntervalKind(confidence).around(
            np.zeros((1, 1)), np.ones((1, 1)), 1, definition=Definition.PURE
        )
        half = float(ends.upper[0, 0])
        single, two = np.exp(-half * np.sqrt(2)), np.exp(-2 * half) * (1 + half)
        assert max(single, two) <= (1 - confidence) * (1 + 1e-9)
    assert single == pytest.approx(1 - 0.999)
    table = IntervalKind(0.9, simultaneous=True).around(
        np.zeros((1, 50)), np.ones((1, 50)), 50, definition=Definition.PURE
    )
    assert table.upper[0] == pytest.approx(np.log(500) / np.sqrt(2))
