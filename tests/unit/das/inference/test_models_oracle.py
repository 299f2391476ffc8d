"""Models against densities, derivatives and likelihoods that are computed another way."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import optimize, stats

from das.errors import SchemaError, SolverError
from das.inference.expectation_maximization import maximize_likelihood
from das.inference.models import CountRegression, PoissonRegression
from das.inference.simulation import draw_noise
from das.mechanisms.gaussian import DiscreteGaussian
from das.mechanisms.laplace import DiscreteLaplace, Laplace

COVARIATES = np.stack((np.ones(8), np.linspace(-1.0, 1.0, 8)), axis=1)
EXPOSURE = np.array([3.0, 5, 8, 2, 6, 4, 7, 9])
POISSON = PoissonRegression(COVARIATES, EXPOSURE)
PAIRS = CountRegression(8, 4.0)
MODELS = [(POISSON, np.array([0.7, 0.4])), (PAIRS, np.array([1.0, 2.0, 1.5]))]


def density(model, answers, theta):
    """By another program."""
    if isinstance(model, PoissonRegression):
        return stats.poisson.logpmf(answers[:, :, 0], EXPOSURE * np.exp(COVARIATES @ theta))
    x, y = answers[:, :, 0], answers[:, :, 1]
    of_x = stats.poisson.logpmf(x, np.exp(theta[2]))
    return of_x + stats.norm.logpdf(y, theta[0] + theta[1] * x, model.residual**0.5)


@pytest.mark.parametrize(("model", "theta"), MODELS, ids=["poisson", "pairs"])
def test_densities_scores_curvatures_and_maxima_are_of_one_likelihood(model, theta):
    answers = model.draw(theta, 5, np.random.default_rng(1))
    weights = np.random.default_rng(2).dirichlet(np.ones(5), 8).T
    assert answers.shape == (5, 8, len(model.are_integers))
    for column, is_integer in enumerate(model.are_integers):
        assert (answers[:, :, column] == np.rint(answers[:, :, column])).all() == is_integer
    assert np.allclose(model.log_density(answers, theta), density(model, answers, theta))
    assert (model.log_density(answers + 0.5, theta) == -np.inf).all()

    h = 1e-5
    moves = h * np.eye(len(theta))
    ends = [density(model, answers, theta + m) - density(model, answers, theta - m) for m in moves]
    assert np.allclose(model.score(answers, theta), np.stack(ends, axis=2) / (2 * h), atol=1e-5)

    def slope(at):
        return np.einsum("ni,nip->p", weights, model.score(answers, at))

    second = np.stack([(slope(theta + m) - slope(theta - m)) / (2 * h) for m in moves])
    assert np.allclose(model.curvature(answers, weights, theta), -second, atol=1e-5)
    assert np.allclose(slope(model.maximize(answers, weights)), 0, atol=1e-7)


def exact_fit(noisy, law):
    """Maximum and observed information of a privatized Poisson regression, by enumeration."""
    s = np.arange(200)
    eta = np.exp(law.log_ratio(noisy - s))  # [N, 200]

    def minus(theta):
        means = EXPOSURE * np.exp(COVARIATES @ theta)
        return -np.log((eta * stats.poisson.pmf(s, means[:, None])).sum(axis=1)).sum()

    best = optimize.minimize(minus, [0.5, 0.0], method="Nelder-Mead", options={"xatol": 1e-8})
    h, information = 1e-3 * np.eye(2), np.empty((2, 2))
    for i, j in np.ndindex(2, 2):
        corners = [minus(best.x + a * h[i] + b * h[j]) for a in (-1, 1) for b in (-1, 1)]
        information[i, j] = (corners[0] + corners[3] - corners[1] - corners[2]) / 4e-6
    return best.x, information


@pytest.mark.parametrize(
    "law", [DiscreteGaussian(Fraction(12)), DiscreteLaplace(Fraction(3))], ids=str
)
def test_a_poisson_regression_has_the_maximum_and_information_by_enumeration(law):
    generator = np.random.default_rng(3)
    noisy = POISSON.draw(np.array([0.7, 0.4]), 1, generator)[0]
    noisy = noisy + draw_noise(law, noisy.shape, generator)
    exact, information = exact_fit(noisy, law)
    found = maximize_likelihood(POISSON, noisy, (law,), [1.0, 0.0], generator, draws=600)
    assert (np.abs(found.theta - exact) < 5 * found.monte_carlo_error).all()
    assert (found.monte_carlo_error < 0.1 * found.standard_error).all()
    scale = np.sqrt(np.outer(np.diag(information), np.diag(information)))
    assert np.abs((found.information - information) / scale).max() < 0.05
    ignored = POISSON.curvature(noisy[None], np.ones((1, 8)), exact)  # power
    assert np.abs((ignored - information) / scale).max() > 0.2


def test_a_line_through_privatized_pairs_has_the_maximum_by_enumeration():
    """x is enumerated, y in closed form: normal plus Laplace; the naive slope is far away."""
    law, generator = Laplace(5.0), np.random.default_rng(5)
    n, residual = 40, 25.0
    x = generator.poisson(10.0, n)
    pairs = np.stack((x, -5 + 4 * x + generator.normal(0, 5, n)), axis=1)
    noisy = pairs + draw_noise(law, (n, 2), generator)
    found = maximize_likelihood(
        CountRegression(n, residual), noisy, (law, law), [-5.0, 4.0, np.log(10)], generator,
        draws=600, iterations=60,
    )  # fmt: skip
    counts, b, sigma = np.arange(60), 5.0, 5.0
    of_x = np.exp(law.log_ratio(noisy[:, :1] - counts))

    def minus(theta):
        error = noisy[:, 1, None] - theta[0] - theta[1] * counts  # of the noisy y given x
        tails = [sign * error / b + stats.norm.logcdf(-sign * error / sigma - sigma / b)
                 for sign in (-1, 1)]  # fmt: skip
        mass = of_x * stats.poisson.pmf(counts, np.exp(theta[2])) * np.exp(tails).sum(axis=0)
        return -np.log(mass.sum(axis=1)).sum()

    best = optimize.minimize(minus, found.theta, method="Nelder-Mead", options={"maxfev": 120})
    gained = minus(found.theta) - best.fun
    assert gained < 0.05  # half a squared standard error times 0.1
    naive = np.polyfit(noisy[:, 0], noisy[:, 1], 1)[0]
    away = found.theta + np.array([0.0, naive - found.theta[1], 0.0])
    assert minus(away) - best.fun > 2  # power


@pytest.mark.parametrize(
    ("covariates", "exposure", "what"),
    [
        (np.ones(3), np.ones(3), "shapes do not fit"),
        (np.ones((3, 1)), np.ones(4), "shapes do not fit"),
        (np.full((3, 1), np.nan), np.ones(3), "is not finite"),
        (np.ones((3, 1)), np.array([1.0, 0.0, 1.0]), "an exposure is not positive"),
        (np.ones((3, 2)), np.ones(3), "covariates depend on each other"),
    ],
)
def test_covariates_that_make_no_model_are_refused(covariates, exposure, what):
    with pytest.raises(SchemaError, match=what):
        PoissonRegression(covariates, exposure)


def test_counts_of_nothing_have_no_maximum():
    with pytest.raises(SolverError, match="Poisson regression: has no maximum"):
        POISSON.maximize(np.zeros((1, 8, 1)), np.ones((1, 8)))
