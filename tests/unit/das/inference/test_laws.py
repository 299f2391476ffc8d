"""Densities against the exact laws, draws against their variances, refusals."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from das.errors import BudgetError
from das.inference.laws import Gaussian, Laplace, draw_noise, log_peak, log_ratio
from das.mechanisms.mechanism import DiscreteGaussian, DiscreteLaplace

LAWS = [
    DiscreteGaussian(Fraction(1, 3)),
    DiscreteGaussian(Fraction(50)),
    DiscreteLaplace(Fraction(1, 2)),
    DiscreteLaplace(Fraction(5)),
]


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_ratios_are_those_of_the_probabilities(law):
    def probability(k: int) -> float:
        return law.cdf(k) - law.cdf(k - 1)

    ks = np.arange(-4, 5)
    expected = [probability(int(k)) / probability(0) for k in ks]
    assert np.allclose(np.exp(log_ratio(law, ks)), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_peak_is_the_probability_of_no_noise(law):
    ks = np.arange(-200, 201)
    assert np.exp(log_peak(law) + log_ratio(law, ks)).sum() == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("law", [Laplace(3.0), Gaussian(7.0)], ids=str)
def test_the_peak_of_a_density(law):
    x = np.linspace(-100, 100, 400_001)
    total = np.exp(log_peak(law) + log_ratio(law, x)).sum() * (x[1] - x[0])
    assert total == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_a_discrete_law_has_no_density_between_integers(law):
    assert log_ratio(law, [0.5, 1.0]).tolist()[0] == -np.inf
    assert np.isfinite(log_ratio(law, 1.0))


@pytest.mark.parametrize("law", [*LAWS, Laplace(3.0), Gaussian(7.0)], ids=str)
def test_draws_have_the_mean_and_variance_of_the_law(law):
    """200,000 draws: 5 standard errors; the fourth moment is at most 6 variances squared + them."""
    drawn = draw_noise(law, 200_000, np.random.default_rng(5))
    if isinstance(law, Laplace | Gaussian):
        variance = 2 * law.scale**2 if isinstance(law, Laplace) else law.sigma_sq
    else:
        variance = law.variance()
        assert (drawn == np.rint(drawn)).all()
    assert abs(drawn.mean()) < 5 * (variance / 200_000) ** 0.5
    error = np.square(drawn).std() / 200_000**0.5
    assert abs(np.square(drawn).mean() - variance) < 5 * error
    assert error < 0.01 * variance  # so a law with 5 % more variance is found


@pytest.mark.parametrize("law", [Laplace, Gaussian])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_a_parameter_that_is_not_positive_is_refused(law, value):
    with pytest.raises(BudgetError, match=f"must be positive; got {value}"):
        law(value)


def test_an_unknown_law_is_refused():
    with pytest.raises(BudgetError, match="has no density here; got str"):
        log_ratio("laplace", 1.0)
