"""Noise as it is released has the stated law, judged by tests that are shown to reject others.

Each test has level alpha = 1e-9 and fixed keys, so it does not fail by chance from run to run. Each
is also given a law with sigma_sq * 1.03 or duplicated draws, and must reject those.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from statistics import NormalDist

import numpy as np
import pytest
from scipy.stats import chi2

from das.mechanisms import moments
from das.mechanisms.entropy import NoiseKey, SystemBits, stream_label, stream_words
from das.mechanisms.noise import add_noise
from das.mechanisms.reference import discrete_gaussian
from das.mechanisms.table import laplace_table

ALPHA = 1e-9
CRITICAL = NormalDist().inv_cdf(1 - ALPHA / 2)
N_ROWS, N_COLUMNS = 200, 2016
MOST_BINS = 40
LEAST_EXPECTED = 20
OFF = Fraction(103, 100)

SIGMA_SQ = [
    Fraction(1, 4),
    Fraction(1),
    Fraction(6, 5),
    Fraction(100),
    Fraction(12345, 7),
    Fraction(10**6),
    Fraction(2**20 + 1),
    Fraction(10**12),
]


@cache
def noise(sigma_sq: Fraction) -> np.ndarray:
    key = NoiseKey.for_testing(sigma_sq.numerator)
    labels = [stream_label(f"{row:05}", "detailed") for row in range(N_ROWS)]
    zeros = np.zeros((N_ROWS, N_COLUMNS), np.int64)
    return add_noise(zeros, sigma_sq=sigma_sq, key=key, labels=labels)


def variance_score(draws: np.ndarray, sigma_sq: Fraction) -> float:
    """Return how many standard errors the mean square is from the true variance."""
    squares = draws.astype(np.float64) ** 2
    variance = moments.variance(sigma_sq=sigma_sq)
    reach = min(2000, 12 * math.isqrt(math.ceil(sigma_sq)) + 12)
    if sigma_sq < 10_000:
        fourth = math.fsum(2.0 * k**4 * moments.pmf(k, sigma_sq=sigma_sq) for k in range(1, reach))
    else:
        fourth = 3.0 * variance**2
    return float((squares.mean() - variance) / math.sqrt((fourth - variance**2) / squares.size))


def fit_p_value(draws: np.ndarray, sigma_sq: Fraction) -> float:
    """Return the p-value of chi-square on at most MOST_BINS ranges of integers."""
    levels = np.linspace(0, 1, MOST_BINS + 1)[1:-1]
    tails = [2.0**-i for i in range(6, 14)]
    wanted = [*levels, *tails, *(1 - t for t in tails)]
    edges = sorted({moments.quantile(float(p), sigma_sq=sigma_sq) for p in wanted})
    least = LEAST_EXPECTED / draws.size
    edges = [k for k in edges if 1.0 - moments.cdf(k, sigma_sq=sigma_sq) >= least]
    below = np.array([0.0, *(moments.cdf(k, sigma_sq=sigma_sq) for k in edges), 1.0])
    expected = np.diff(below) * draws.size
    assert expected.min() >= LEAST_EXPECTED
    observed = np.bincount(np.searchsorted(edges, draws, side="left"), minlength=len(expected))
    statistic = ((observed - expected) ** 2 / expected).sum()
    return float(chi2.sf(statistic, len(expected) - 1))


def dependence_score(first: np.ndarray, second: np.ndarray) -> float:
    """Return how many standard errors the correlation of two series is from zero."""
    return float(np.corrcoef(first, second)[0, 1] * math.sqrt(first.size))


def dependence_scores(draws: np.ndarray) -> list[float]:
    """Compare neighbors along and across rows, of values and of squares."""
    squares = draws.astype(np.float64) ** 2
    return [
        dependence_score(first.ravel(), second.ravel())
        for values in (draws, squares)
        for first, second in (
            (values[:, :-1], values[:, 1:]),
            (values[:-1], values[1:]),
            (values[: N_ROWS // 2], values[N_ROWS // 2 :]),
            (values[:, : N_COLUMNS // 2], values[:, N_COLUMNS // 2 :]),
        )
    ]


@pytest.mark.parametrize("sigma_sq", SIGMA_SQ, ids=str)
def test_variance_is_right_and_three_percent_more_or_less_is_not(sigma_sq):
    draws = noise(sigma_sq).ravel()
    assert draws.size >= 200_000
    assert abs(variance_score(draws, sigma_sq)) < CRITICAL
    assert variance_score(draws, sigma_sq * OFF) < -CRITICAL
    assert variance_score(draws, sigma_sq / OFF) > CRITICAL


@pytest.mark.parametrize("sigma_sq", SIGMA_SQ, ids=str)
def test_law_fits_and_three_percent_more_does_not(sigma_sq):
    draws = noise(sigma_sq).ravel()
    assert fit_p_value(draws, sigma_sq) > ALPHA
    assert fit_p_value(draws, sigma_sq * OFF) < ALPHA


def test_a_law_shifted_by_one_does_not_fit():
    sigma_sq = Fraction(100)
    assert fit_p_value(noise(sigma_sq).ravel() + 1, sigma_sq) < ALPHA


@pytest.mark.parametrize("sigma_sq", SIGMA_SQ, ids=str)
def test_draws_are_independent_and_duplicates_are_not(sigma_sq):
    draws = noise(sigma_sq)
    assert max(map(abs, dependence_scores(draws))) < CRITICAL
    repeated_rows = np.concatenate([draws[: N_ROWS // 2]] * 2)
    repeated_cells = np.repeat(draws[:, : N_COLUMNS // 2], 2, axis=1)
    assert max(dependence_scores(repeated_rows)) > CRITICAL
    assert max(dependence_scores(repeated_cells)) > CRITICAL


@pytest.mark.parametrize("sigma_sq", [Fraction(1), Fraction(100), Fraction(10**12)], ids=str)
def test_signs_and_parity_are_fair(sigma_sq):
    """The sign has a bit of its own, and nothing rounds to even."""
    draws = noise(sigma_sq).ravel()
    nonzero = draws[draws != 0]
    assert abs((nonzero > 0).sum() * 2 - nonzero.size) < CRITICAL * math.sqrt(nonzero.size)
    if sigma_sq >= 100:
        assert abs((draws % 2).sum() * 2 - draws.size) < CRITICAL * math.sqrt(draws.size)


def test_reference_sampler_agrees():
    """Fresh bits: this one may fail once in 10^9 runs."""
    bits = SystemBits()
    sigma_sq = Fraction(6, 5)
    draws = np.array([discrete_gaussian(sigma_sq=sigma_sq, bits=bits) for _ in range(10_000)])
    assert abs(variance_score(draws, sigma_sq)) < CRITICAL


@pytest.mark.parametrize("scale", [Fraction(1), Fraction(50)], ids=str)
def test_laplace_variance(scale):
    words = stream_words(NoiseKey.for_testing(9), [b"laplace"], 400_000)[0]
    values, undecided = laplace_table(scale).lookup(words)
    assert undecided.size == 0

    def score(scale: Fraction) -> float:
        ratio = math.exp(-1 / scale)
        variance = 2 * ratio / (1 - ratio) ** 2
        weights = [(1 - ratio) / (1 + ratio) * ratio**k for k in range(1, 60 * int(scale) + 60)]
        fourth = math.fsum(2 * k**4 * w for k, w in enumerate(weights, start=1))
        error = math.sqrt((fourth - variance**2) / values.size)
        return float(((values.astype(np.float64) ** 2).mean() - variance) / error)

    assert abs(score(scale)) < CRITICAL
    assert score(scale * Fraction(103, 100)) < -CRITICAL
