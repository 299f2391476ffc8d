"""Densities against the exact distributions, draws against their variances, refusals."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from das.errors import BudgetError
from das.inference.simulation import draw_noise
from das.mechanisms.gaussian import DiscreteGaussian, Gaussian
from das.mechanisms.laplace import DiscreteLaplace, Laplace

DISCRETE = [
    DiscreteGaussian(Fraction(1, 3)),
    DiscreteGaussian(Fraction(50)),
    DiscreteLaplace(Fraction(1, 2)),
    DiscreteLaplace(Fraction(5)),
]


@pytest.mark.parametrize("distribution", DISCRETE, ids=str)
def test_ratios_are_those_of_the_probabilities(distribution):
    def probability(k: int) -> float:
        return distribution.cdf(k) - distribution.cdf(k - 1)

    ks = np.arange(-4, 5)
    expected = [probability(int(k)) / probability(0) for k in ks]
    assert np.allclose(np.exp(distribution.log_ratio(ks)), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("distribution", DISCRETE, ids=str)
def test_the_peak_is_the_probability_of_no_noise(distribution):
    ks = np.arange(-200, 201)
    assert np.exp(distribution.log_peak() + distribution.log_ratio(ks)).sum() == pytest.approx(
        1, abs=1e-9
    )


@pytest.mark.parametrize("distribution", [Laplace(3.0), Gaussian(7.0)], ids=str)
def test_the_peak_of_a_density(distribution):
    x = np.linspace(-100, 100, 400_001)
    total = np.exp(distribution.log_peak() + distribution.log_ratio(x)).sum() * (x[1] - x[0])
    assert total == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("distribution", DISCRETE, ids=str)
def test_a_discrete_distribution_has_no_density_between_integers(distribution):
    assert distribution.log_ratio([0.5, 1.0]).tolist()[0] == -np.inf
    assert np.isfinite(distribution.log_ratio(1.0))


@pytest.mark.parametrize("distribution", [*DISCRETE, Laplace(3.0), Gaussian(7.0)], ids=str)
def test_draws_have_the_mean_and_variance_of_the_distribution(distribution):
    """200,000 draws: 5 standard errors; the fourth moment is at most 6 variances squared + them."""
    drawn = draw_noise(distribution, 200_000, np.random.default_rng(5))
    if isinstance(distribution, Laplace | Gaussian):
        variance = (
            2 * distribution.scale**2
            if isinstance(distribution, Laplace)
            else distribution.sigma_sq
        )
    else:
        variance = distribution.variance()
        assert (drawn == np.rint(drawn)).all()
    assert abs(drawn.mean()) < 5 * (variance / 200_000) ** 0.5
    error = np.square(drawn).std() / 200_000**0.5
    assert abs(np.square(drawn).mean() - variance) < 5 * error
    assert error < 0.01 * variance  # so a distribution with 5 % more variance is found


@pytest.mark.parametrize("distribution", [Laplace, Gaussian])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_a_parameter_that_is_not_positive_is_refused(distribution, value):
    with pytest.raises(BudgetError, match=f"must be positive; got {value}"):
        distribution(value)
