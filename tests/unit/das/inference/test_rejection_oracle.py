"""Draws by rejection against posteriors by enumeration."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from das.errors import SchemaError, SolverError
from das.inference import rejection
from das.inference.rejection import draw_posterior
from das.mechanisms.gaussian import DiscreteGaussian
from das.mechanisms.laplace import DiscreteLaplace, Laplace

DRAWS = 20_000
ALPHA = 1e-6
LAWS = [DiscreteGaussian(Fraction(9)), DiscreteLaplace(Fraction(3)), Laplace(3.0)]


def draw_poisson(parameters, generator):
    return generator.poisson(parameters)


def draw_gamma(n, generator):
    return generator.gamma(25.0, 1.0, (n, 1))


def exact_counts(noisy: float, law) -> np.ndarray:
    """P(s | noisy) for s = 0..149: a gamma-Poisson mixture is negative binomial."""
    s = np.arange(150)
    weight = stats.nbinom.pmf(s, 25, 0.5) * np.exp(law.log_ratio(noisy - s))
    return weight / weight.sum()


def p_value(drawn: np.ndarray, probability: np.ndarray) -> float:
    """Chi-square test with neighboring cells united until each expects 25 draws."""
    edges, held = [0], 0.0
    for cell, p in enumerate(probability):
        held += p * len(drawn)
        if held >= 25:
            edges.append(cell + 1)
            held = 0.0
    edges[-1] = len(probability)
    expected = np.add.reduceat(probability, edges[:-1]) * len(drawn)
    observed = np.histogram(drawn, edges)[0]
    return float(stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_confidential_counts_have_the_exact_posterior(law):
    noisy = 37.0 if not isinstance(law, Laplace) else 37.4
    drawn = draw_posterior(
        draw_gamma, draw_poisson, [noisy], (law,), DRAWS, np.random.default_rng(3)
    )
    assert p_value(drawn.answers[:, 0], exact_counts(noisy, law)) > ALPHA
    # Power: the same draws are not those of noise with 10 % more scale, nor of a noisy 38.
    wider = {
        "DiscreteGaussian": lambda: DiscreteGaussian(law.sigma_sq * Fraction(121, 100)),
        "DiscreteLaplace": lambda: DiscreteLaplace(law.scale * Fraction(5, 4)),
        "Laplace": lambda: Laplace(law.scale * 1.25),
    }[type(law).__name__]()
    assert p_value(drawn.answers[:, 0], exact_counts(noisy, wider)) < ALPHA
    assert p_value(drawn.answers[:, 0], exact_counts(noisy + 1, law)) < ALPHA


def exact_theta(noisy: float, epsilon: float) -> stats.rv_continuous:
    """CDF of theta | noisy: given s it is Gamma(25 + s, 2)."""
    weights = exact_counts(noisy, Laplace(1 / epsilon))
    s = np.arange(150)
    return lambda t: (stats.gamma.cdf(np.asarray(t)[:, None], 25 + s, scale=0.5) * weights).sum(1)


def test_the_worked_example_of_a_privatized_count():
    """s_dp = 37.4, epsilon 0.2, Gamma(25, 1): Kolmogorov-Smirnov against the exact posterior."""
    drawn = draw_posterior(
        draw_gamma, draw_poisson, [37.4], (Laplace(5.0),), DRAWS, np.random.default_rng(8)
    )
    theta = drawn.parameters[:, 0]
    assert stats.kstest(theta, exact_theta(37.4, 0.2)).pvalue > ALPHA
    assert stats.kstest(theta, exact_theta(37.4, 0.3)).pvalue < ALPHA  # power
    prior_answers = stats.nbinom.pmf(np.arange(150), 25, 0.5)
    kept = (prior_answers * np.exp(Laplace(5.0).log_ratio(37.4 - np.arange(150)))).sum()
    assert abs(drawn.acceptance - kept) < 5 * (kept * (1 - kept) / drawn.proposals) ** 0.5


def test_two_answers_are_both_used():
    """Two noisy answers of one mean: the posterior mean is that by enumeration, to 5 errors."""
    laws = (DiscreteLaplace(Fraction(2)), DiscreteGaussian(Fraction(16)))

    def draw_pairs(parameters, generator):
        return generator.poisson(parameters, (len(parameters), 2))

    drawn = draw_posterior(draw_gamma, draw_pairs, [31, 20], laws, 4000, np.random.default_rng(4))
    theta = np.linspace(0.01, 80, 4000)
    s = np.arange(150)
    likelihood = np.ones_like(theta)
    for noisy, law in zip((31, 20), laws, strict=True):
        likelihood *= stats.poisson.pmf(s, theta[:, None]) @ np.exp(law.log_ratio(noisy - s))
    weight = stats.gamma.pdf(theta, 25) * likelihood
    mean = (theta * weight).sum() / weight.sum()
    error = drawn.parameters.std() / 4000**0.5
    assert abs(drawn.parameters.mean() - mean) < 5 * error
    one = stats.gamma.pdf(theta, 25)
    one *= stats.poisson.pmf(s, theta[:, None]) @ np.exp(laws[0].log_ratio(31 - s))
    assert abs(mean - (theta * one).sum() / one.sum()) > 10 * error  # power


def test_hopeless_rejection_stops(monkeypatch):
    monkeypatch.setattr(rejection, "MOST_PROPOSALS", 1 << 15)
    with pytest.raises(SolverError) as caught:
        draw_posterior(
            draw_gamma, draw_poisson, [4000], (Laplace(0.5),), 1, np.random.default_rng(1)
        )
    assert "keeps too few proposals; got 0 of 32768; expected 1 draws" in str(caught.value)


@pytest.mark.parametrize(
    ("noisy", "answers", "what"),
    [
        ([37.0, 20.0], draw_poisson, "noisy answers"),
        ([np.inf], draw_poisson, "noisy answers"),
        ([37.0], lambda means, generator: generator.poisson(means)[:, 0], "simulated answers"),
        ([37.0], lambda means, generator: generator.poisson(means)[:9], "simulated answers"),
    ],
)
def test_what_does_not_fit_together_is_refused(noisy, answers, what):
    with pytest.raises(SchemaError, match=what):
        draw_posterior(draw_gamma, answers, noisy, (Laplace(5.0),), 5, np.random.default_rng(1))
