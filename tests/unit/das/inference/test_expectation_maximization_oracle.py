"""Monte Carlo EM against exact likelihoods: enumeration for counts, closed form for regression."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import optimize, stats

from das.errors import SchemaError, SolverError
from das.inference.expectation_maximization import (
    MaximumLikelihood,
    maximize_likelihood,
    weighted_answers,
)
from das.inference.models import NormalRegression, PoissonCounts
from das.inference.simulation import draw_noise
from das.mechanisms.gaussian import DiscreteGaussian, Gaussian
from das.mechanisms.laplace import DiscreteLaplace, Laplace

ONE = np.ones((1, 1))


def exact_poisson(noisy, law) -> tuple[float, float]:
    """Maximum and observed information of the likelihood of a Poisson mean, by enumeration."""
    s = np.arange(400)
    weights = np.exp(law.log_ratio(np.asarray(noisy, float)[:, None] - s))

    def log_likelihood(theta: float) -> float:
        return float(np.log(weights @ stats.poisson.pmf(s, theta)).sum())

    best = optimize.minimize_scalar(
        lambda t: -log_likelihood(t), bounds=(1, 90), method="bounded", options={"xatol": 1e-9}
    ).x
    h = 1e-2
    ends = log_likelihood(best + h) + log_likelihood(best - h)
    return best, (2 * log_likelihood(best) - ends) / h**2


def test_the_worked_example_of_a_privatized_count():
    """s_dp = 37.4 and epsilon 0.2 give 37.237 and 1.582e-2; the noise ignored gives 2.674e-2."""
    found = maximize_likelihood(
        PoissonCounts(), [[37.4]], (Laplace(5.0),), [37.4], np.random.default_rng(1), draws=20_000
    )
    exact, information = exact_poisson([37.4], Laplace(5.0))
    assert (round(exact, 3), round(information, 5)) == (37.237, 0.01582)
    assert 0 < found.monte_carlo_error[0] < 0.01
    assert abs(found.theta[0] - 37.237) < 4 * found.monte_carlo_error[0]
    assert abs(found.information[0, 0] - 1.582e-2) < 5e-5  # 4 standard errors of the simulation
    naive = PoissonCounts().curvature(np.array([[[37.4]]]), ONE, np.array([37.4]))
    assert round(float(naive[0, 0]), 5) == 0.02674
    assert round(float(naive[0, 0]) / information, 2) == 1.69


def test_the_monte_carlo_error_is_that_of_repetitions():
    """Over 30 seeds, distances from the exact maximum are as large as claimed, within a factor."""
    exact, _ = exact_poisson([37.4], Laplace(5.0))
    scaled = []
    for seed in range(30):
        found = maximize_likelihood(
            PoissonCounts(), [[37.4]], (Laplace(5.0),), [37.4], np.random.default_rng(seed),
            draws=500,
        )  # fmt: skip
        scaled.append(float((found.theta[0] - exact) / found.monte_carlo_error[0]))
    assert 0.5 < np.sqrt(np.mean(np.square(scaled))) < 2.5


@pytest.mark.parametrize(
    "law", [DiscreteGaussian(Fraction(20)), DiscreteLaplace(Fraction(4))], ids=str
)
def test_many_counts_under_the_laws_of_a_release(law):
    generator = np.random.default_rng(2)
    noisy = generator.poisson(12.0, (12, 1)) + draw_noise(law, (12, 1), generator)
    exact, information = exact_poisson(noisy[:, 0], law)
    found = maximize_likelihood(PoissonCounts(12), noisy, (law,), [10.0], generator, draws=1000)
    assert abs(found.theta[0] - exact) < 5 * found.monte_carlo_error[0]
    assert found.monte_carlo_error[0] < 0.2 * found.standard_error[0]
    assert found.information[0, 0] == pytest.approx(information, rel=0.01)
    assert found.covariance[0, 0] == pytest.approx(1 / found.information[0, 0])


def regression(n: int, generator):
    """n pairs as in the paper: x Poisson(10), y = -5 + 4 x + N(0, 25)."""
    x = generator.poisson(10.0, n).astype(float)
    return np.stack((x, -5 + 4 * x + generator.normal(0, 5, n)), axis=1)


def log_likelihood(theta, noisy, sigma_sq):
    """Of the noisy pairs under `NormalRegression` and Gaussian noise: a bivariate normal."""
    intercept, slope, mean = theta[[0, 1, 3]]
    residual, variance = np.exp(theta[[2, 4]])
    covariance = np.array(
        [
            [variance + sigma_sq[0], slope * variance],
            [slope * variance, slope**2 * variance + residual + sigma_sq[1]],
        ]
    )
    center = [mean, intercept + slope * mean]
    return stats.multivariate_normal.logpdf(noisy, center, covariance).sum()


def test_regression_recovers_what_noise_attenuates():
    generator = np.random.default_rng(4)
    n, laws = 300, (Gaussian(8.0), Gaussian(20.0))
    pairs = regression(n, generator)
    noisy = pairs + np.stack([draw_noise(law, n, generator) for law in laws], axis=1)
    model = NormalRegression(n)
    whole = np.ones((1, n))
    naive = model.maximize(noisy[None], whole)
    found = maximize_likelihood(model, noisy, laws, naive, generator, draws=400, iterations=80)

    covariance = np.cov(noisy.T, bias=True) - np.diag([8.0, 20.0])
    slope = covariance[0, 1] / covariance[0, 0]  # the maximum in closed form
    assert abs(found.theta[1] - slope) < 5 * found.monte_carlo_error[1]
    assert found.monte_carlo_error[1] < 0.1 * found.standard_error[1]
    assert naive[1] / slope == pytest.approx(covariance[0, 0] / (covariance[0, 0] + 8.0))
    assert naive[1] < 2.6
    assert abs(found.theta[1] - 4) < 3 * found.standard_error[1]
    assert abs(naive[1] - 4) > 3 * found.standard_error[1]


def test_information_of_a_regression_is_the_second_derivative():
    generator = np.random.default_rng(6)
    n, sigma_sq = 200, (1.0, 4.0)
    laws = tuple(Gaussian(value) for value in sigma_sq)
    noisy = regression(n, generator) + np.stack(
        [draw_noise(law, n, generator) for law in laws], axis=1
    )
    found = maximize_likelihood(
        NormalRegression(n), noisy, laws, [-5.0, 4.0, 3.0, 10.0, 2.0], generator,
        draws=1000, iterations=60,
    )  # fmt: skip
    steps = np.diag(0.01 * found.standard_error)
    exact = np.empty((5, 5))
    for i, j in np.ndindex(5, 5):
        corners = [
            log_likelihood(found.theta + a * steps[i] + b * steps[j], noisy, sigma_sq)
            for a in (-1, 1)
            for b in (-1, 1)
        ]
        exact[i, j] = (corners[1] + corners[2] - corners[0] - corners[3]) / (
            4 * steps[i, i] * steps[j, j]
        )
    scale = np.sqrt(np.outer(np.diag(exact), np.diag(exact)))
    assert np.abs((found.information - exact) / scale).max() < 0.06


@pytest.mark.parametrize(
    ("model", "theta", "m"),
    [
        (PoissonCounts(3), np.array([7.0]), 1),
        (NormalRegression(3), np.array([-1.0, 2.0, 1.2, 5.0, 0.7]), 2),
    ],
)
def test_scores_and_curvatures_are_derivatives(model, theta, m):
    answers = model.draw(theta, 4, np.random.default_rng(1))
    weights = np.random.default_rng(2).dirichlet(np.ones(4), 3).T
    assert answers.shape == (4, 3, m)

    def log_density(at):
        if m == 1:
            return stats.poisson.logpmf(answers[:, :, 0], at[0])
        x, y = answers[:, :, 0], answers[:, :, 1]
        return stats.norm.logpdf(x, at[3], np.exp(at[4] / 2)) + stats.norm.logpdf(
            y, at[0] + at[1] * x, np.exp(at[2] / 2)
        )

    p, h = len(theta), 1e-5
    moves = h * np.eye(p)
    gradient = [(log_density(theta + move) - log_density(theta - move)) / (2 * h) for move in moves]
    assert np.allclose(model.score(answers, theta), np.stack(gradient, axis=2), atol=1e-6)

    def slope(at):
        return np.einsum("ni,nip->p", weights, model.score(answers, at))

    second = np.stack([(slope(theta + move) - slope(theta - move)) / (2 * h) for move in moves])
    assert np.allclose(model.curvature(answers, weights, theta), -second, atol=1e-6)


@pytest.mark.parametrize("model", [PoissonCounts(3), NormalRegression(3)], ids=str)
def test_the_m_step_has_no_weighted_score(model):
    theta = np.array([7.0]) if isinstance(model, PoissonCounts) else np.array([-1, 2, 3, 5, 1.0])
    answers = model.draw(theta, 6, np.random.default_rng(3))
    weights = np.random.default_rng(4).dirichlet(np.ones(6), 3).T
    best = model.maximize(answers, weights)
    assert np.allclose(np.einsum("ni,nip->p", weights, model.score(answers, best)), 0, atol=1e-9)


def test_weights_are_those_of_the_noise():
    answers, weights = weighted_answers(
        PoissonCounts(2), np.array([5.0]), np.array([[4.0], [9.0]]), (Laplace(2.0),), 50,
        np.random.default_rng(1),
    )  # fmt: skip
    expected = np.exp(-np.abs(np.array([4.0, 9.0]) - answers[:, :, 0]) / 2)
    assert np.allclose(weights, expected / expected.sum(axis=0))


@pytest.mark.parametrize("noisy", [12.0, 30.0])
@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(4)], ids=str)
def test_weighted_answers_have_the_law_given_the_noisy_one(noisy, scale):
    """Mean and variance by enumeration, to 5 standard errors; also far from the model's mean."""
    law, draws, theta = DiscreteLaplace(scale), 200_000, 12.0
    answers, weights = weighted_answers(
        PoissonCounts(), np.array([theta]), np.array([[noisy]]), (law,), draws,
        np.random.default_rng(4),
    )  # fmt: skip
    s = np.arange(150)
    exact = stats.poisson.pmf(s, theta) * np.exp(law.log_ratio(noisy - s))
    exact /= exact.sum()
    for power in (1, 2):
        value = answers[:, 0, 0] ** power
        mean = weights[:, 0] @ value
        error = np.sqrt(np.square(weights[:, 0] * (value - mean)).sum())
        assert abs(mean - exact @ s**power) < 5 * error
        assert error < 0.01 * mean
    assert 1 / np.square(weights).sum() > draws / 10  # the model alone has too few at 30


def test_log_densities_are_normalized():
    counts = np.arange(60.0)[:, None, None] - 5
    mass = np.exp(PoissonCounts().log_density(counts, np.array([9.0])))
    assert np.allclose(mass[:, 0], stats.poisson.pmf(counts[:, 0, 0], 9.0))
    assert np.exp(PoissonCounts().log_density(np.array([[[2.5]]]), np.array([9.0]))) == 0
    theta = np.array([1.0, 2.0, np.log(3.0), 5.0, np.log(4.0)])
    pairs = NormalRegression(2).draw(theta, 5, np.random.default_rng(1))
    exact = stats.norm.logpdf(pairs[:, :, 0], 5, 2) + stats.norm.logpdf(
        pairs[:, :, 1], 1 + 2 * pairs[:, :, 0], 3**0.5
    )
    assert np.allclose(NormalRegression(2).log_density(pairs, theta), exact)


def test_a_start_that_explains_nothing_is_refused():
    with pytest.raises(SolverError, match=r"no simulated answer fits .* got 1 such units"):
        maximize_likelihood(
            PoissonCounts(2), [[9.0], [10.5]], (DiscreteLaplace(Fraction(1)),), [9.0],
            np.random.default_rng(1), draws=10,
        )  # fmt: skip


def test_information_that_is_not_positive_gives_no_standard_error():
    coarse = MaximumLikelihood(np.zeros(2), np.zeros(2), np.array([[1.0, 2.0], [2.0, 1.0]]), 4.0)
    with pytest.raises(SolverError, match="4 effective draws"):
        _ = coarse.standard_error
    fine = replace(coarse, information=np.array([[4.0, 0.0], [0.0, 1.0]]))
    assert fine.standard_error.tolist() == [0.5, 1.0]


@pytest.mark.parametrize(
    ("model", "noisy", "laws", "what"),
    [
        (PoissonCounts(2), [4.0, 9.0], (Laplace(2.0),), "shapes do not fit"),
        (PoissonCounts(2), [[4.0], [9.0]], (Laplace(2.0),) * 2, "shapes do not fit"),
        (PoissonCounts(3), [[4.0], [9.0]], (Laplace(2.0),), "the model has other units"),
        (PoissonCounts(2), [[4.0], [np.nan]], (Laplace(2.0),), "is not finite"),
        (
            NormalRegression(2), [[4.0, 1.0], [9.0, 2.0]], (DiscreteGaussian(Fraction(2)),) * 2,
            "answers are real, so no simulated answer fits; got column 0; take mechanism.cont",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_refused(model, noisy, laws, what):
    start = [9.0] if isinstance(model, PoissonCounts) else [1.0, 0.0, 0.0, 5.0, 1.0]
    with pytest.raises(SchemaError, match=what):
        maximize_likelihood(model, noisy, laws, start, np.random.default_rng(1), draws=10)


@pytest.mark.parametrize("law", [DiscreteGaussian(Fraction(20)), DiscreteLaplace(Fraction(4))])
def test_the_remedy_for_real_answers_has_the_variance_of_the_noise(law):
    noise = law.continuous.of_variance(float(law.continuous_variance))
    assert not noise.is_discrete
    values = noise.quantiles((np.arange(100_000) + 0.5) / 100_000)
    assert np.square(values).mean() == pytest.approx(law.variance(), rel=0.02)
