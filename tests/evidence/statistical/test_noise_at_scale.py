"""Noise as it is released has the stated law, judged by tests that are shown to reject others.

Each test has level alpha = 1e-9 and fixed keys, so it does not fail by chance from run to run. Each
is also given the law with its parameter times 1.03 or duplicated draws, and must reject those.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from statistics import NormalDist

import numpy as np
import pytest
from scipy.stats import chi2

from das.mechanisms.entropy import NoiseKey
from das.mechanisms.gaussian import DiscreteGaussian
from das.mechanisms.laplace import DiscreteLaplace
from das.mechanisms.mechanism import Mechanism
from das.mechanisms.noise import add_noise
from tests.builders.streams import bits_at, stream
from tests.evidence.reference import discrete_gaussian, discrete_laplace, geometric

ALPHA = 1e-9
CRITICAL = NormalDist().inv_cdf(1 - ALPHA / 2)
N_ROWS, N_COLUMNS = 200, 2016
MOST_BINS = 40
LEAST_EXPECTED = 20
OFF = Fraction(103, 100)

MECHANISMS: list[Mechanism] = [
    DiscreteGaussian(Fraction(1, 10)),
    DiscreteGaussian(Fraction(1, 4)),
    DiscreteGaussian(Fraction(1)),
    DiscreteGaussian(Fraction(6, 5)),
    DiscreteGaussian(Fraction(100)),
    DiscreteGaussian(Fraction(12345, 7)),
    DiscreteGaussian(Fraction(10**6)),
    DiscreteGaussian(Fraction(2**20 + 1)),
    DiscreteGaussian(Fraction(10**12)),
    DiscreteLaplace(Fraction(1, 2)),
    DiscreteLaplace(Fraction(5)),
    DiscreteLaplace(Fraction(255)),
    DiscreteLaplace(Fraction(257)),
    DiscreteLaplace(Fraction(10**6)),
    DiscreteLaplace(Fraction(10**9)),
]


def name(mechanism: Mechanism) -> str:
    return f"{mechanism.kind} {mechanism.parameter}"


def times(mechanism: Mechanism, factor: Fraction) -> Mechanism:
    """The mechanism with its parameter times a factor."""
    return type(mechanism)(mechanism.parameter * factor)


@cache
def noise(mechanism: Mechanism) -> np.ndarray:
    key = NoiseKey.for_testing(mechanism.parameter.numerator)
    zeros = np.zeros((N_ROWS, N_COLUMNS), np.int64)
    return add_noise(zeros, mechanism=mechanism, stream=stream(key, N_ROWS))


def fourth_moment(mechanism: Mechanism) -> float:
    if isinstance(mechanism, DiscreteLaplace):
        fall = math.exp(-1 / mechanism.scale)
        rest = -math.expm1(-1 / mechanism.scale)
        return 2 * fall * (1 + 10 * fall + fall**2) / rest**4
    if mechanism.parameter >= 10_000:
        return 3.0 * mechanism.variance() ** 2
    reach = 12 * math.isqrt(math.ceil(mechanism.parameter)) + 12
    values = np.arange(1, reach)
    masses = np.exp(mechanism.log_ratio(values) + mechanism.log_peak())
    return math.fsum((2.0 * values**4 * masses).tolist())


def variance_score(draws: np.ndarray, mechanism: Mechanism) -> float:
    """Return how many standard errors the mean square is from the true variance."""
    squares = draws.astype(np.float64) ** 2
    variance = mechanism.variance()
    error = math.sqrt((fourth_moment(mechanism) - variance**2) / squares.size)
    return float((squares.mean() - variance) / error)


def fit_p_value(
    draws: np.ndarray, quantile: Callable[[float], int], cdf: Callable[[int], float]
) -> float:
    """Return the p-value of chi-square on at most MOST_BINS ranges of integers."""
    levels = np.linspace(0, 1, MOST_BINS + 1)[1:-1]
    tails = [2.0**-i for i in range(6, 14)]
    wanted = [*levels, *tails, *(1 - t for t in tails)]
    least = LEAST_EXPECTED / draws.size
    edges, below = [], [0.0]
    for k in sorted({quantile(float(p)) for p in wanted}):
        if cdf(k) - below[-1] >= least and 1.0 - cdf(k) >= least:
            edges.append(k)
            below.append(cdf(k))
    expected = np.diff([*below, 1.0]) * draws.size
    observed = np.bincount(np.searchsorted(edges, draws, side="left"), minlength=len(expected))
    statistic = ((observed - expected) ** 2 / expected).sum()
    return float(chi2.sf(statistic, len(expected) - 1))


def fit(draws: np.ndarray, mechanism: Mechanism) -> float:
    return fit_p_value(draws, mechanism.quantile, mechanism.cdf)


def dependence_score(first: np.ndarray, second: np.ndarray) -> float:
    """Return how many standard errors the correlation of two series is from zero."""
    return float(np.corrcoef(first, second)[0, 1] * math.sqrt(first.size))


def dependence_scores(draws: np.ndarray) -> list[float]:
    """Compare neighbors along and across rows, of values and of magnitudes."""
    return [
        dependence_score(first.ravel(), second.ravel())
        for values in (draws, np.abs(draws))
        for first, second in (
            (values[:, :-1], values[:, 1:]),
            (values[:-1], values[1:]),
            (values[: N_ROWS // 2], values[N_ROWS // 2 :]),
            (values[:, : N_COLUMNS // 2], values[:, N_COLUMNS // 2 :]),
        )
    ]


def test_variance_is_right_and_three_percent_more_or_less_is_not():
    for mechanism in MECHANISMS:
        draws = noise(mechanism).ravel()
        assert draws.size >= 200_000
        assert abs(variance_score(draws, mechanism)) < CRITICAL
        assert variance_score(draws, times(mechanism, OFF)) < -CRITICAL
        assert variance_score(draws, times(mechanism, 1 / OFF)) > CRITICAL


def test_law_fits_and_three_percent_more_does_not():
    for mechanism in MECHANISMS:
        draws = noise(mechanism).ravel()
        assert fit(draws, mechanism) > ALPHA
        assert fit(draws, times(mechanism, OFF)) < ALPHA


@pytest.mark.parametrize(
    "mechanism", [DiscreteGaussian(Fraction(100)), DiscreteLaplace(Fraction(5))], ids=name
)
def test_a_law_shifted_by_one_does_not_fit(mechanism):
    assert fit(noise(mechanism).ravel() + 1, mechanism) < ALPHA


def test_a_law_with_twice_the_zeros_does_not_fit():
    """As if a negative zero were kept."""
    mechanism = DiscreteLaplace(Fraction(5))
    draws = noise(mechanism).ravel()
    zeros = np.zeros((draws == 0).sum(), np.int64)
    assert fit(np.concatenate([draws, zeros]), mechanism) < ALPHA


def test_draws_are_independent_and_duplicates_are_not():
    for mechanism in MECHANISMS:
        draws = noise(mechanism)
        assert max(map(abs, dependence_scores(draws))) < CRITICAL
        repeated_rows = np.concatenate([draws[: N_ROWS // 2]] * 2)
        repeated_cells = np.repeat(draws[:, : N_COLUMNS // 2], 2, axis=1)
        assert max(dependence_scores(repeated_rows)) > CRITICAL
        assert max(dependence_scores(repeated_cells)) > CRITICAL


def test_signs_and_parity_are_fair():
    """The sign has a bit of its own, and nothing rounds to even."""
    for mechanism in MECHANISMS:
        draws = noise(mechanism).ravel()
        nonzero = draws[draws != 0]
        assert nonzero.size > 1000
        assert abs((nonzero > 0).sum() * 2 - nonzero.size) < CRITICAL * math.sqrt(nonzero.size)
        if mechanism.variance() >= 100:
            assert abs((draws % 2).sum() * 2 - draws.size) < CRITICAL * math.sqrt(draws.size)


def test_reference_samplers_agree():
    """Fresh bits: this one may fail once in 10^8 runs."""
    bits = bits_at(NoiseKey.draw(), 0)
    gaussian = DiscreteGaussian(Fraction(6, 5))
    draws = [discrete_gaussian(sigma_sq=gaussian.sigma_sq, bits=bits) for _ in range(5000)]
    assert abs(variance_score(np.array(draws), gaussian)) < CRITICAL
    laplace = DiscreteLaplace(Fraction(7, 2))
    draws = [discrete_laplace(scale=laplace.scale, bits=bits) for _ in range(5000)]
    assert abs(variance_score(np.array(draws), laplace)) < CRITICAL
    assert fit(np.array(draws), laplace) > ALPHA
    assert fit(np.array(draws), times(laplace, Fraction(4, 3))) < ALPHA


def test_reference_geometric_agrees():
    """Fresh bits: this one may fail once in 10^9 runs."""
    bits = bits_at(NoiseKey.draw(), 0)
    draws = np.array([geometric(scale=Fraction(7, 2), bits=bits) for _ in range(5000)])

    def p_value(scale: Fraction) -> float:
        return fit_p_value(
            draws,
            lambda p: max(0, math.ceil(-math.log1p(-p) * scale) - 1),
            lambda k: -math.expm1(-(k + 1) / scale),
        )

    assert p_value(Fraction(7, 2)) > ALPHA
    assert p_value(Fraction(14, 3)) < ALPHA
