"""Maximum likelihood from noisy answers, by Monte Carlo expectation maximization.

The confidential answers s are missing data: the likelihood of the parameters theta given the noisy
answers is the integral of eta(noisy | s) pi(s | theta). The E step weighs simulated s, from
pi(. | theta) by eta(noisy | s); the M step maximizes the weighted complete-data likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from das.arrays import FloatArray
from das.errors import SchemaError, SolverError
from das.inference.simulation import Generator, draw_noise
from das.mechanisms.mechanism import Distribution

_BATCHES = 8  # of iterates, for the Monte Carlo error
_SETTLING = 10  # iterations


class AnswerModel(Protocol):
    """A parametric model pi of the confidential answers of N independent units, m each.

    In the arguments of all methods, `answers` is float64[n, N, m], n draws of the answers; `theta`
    is float64[p], the parameters; and `weights` is float64[n, N], the weight of each draw.
    """

    are_integers: ClassVar[tuple[bool, ...]]  # which of the m answers are whole numbers

    def log_density(self, answers: FloatArray, theta: FloatArray) -> FloatArray:
        """Return float64[n, N], log pi(answers | theta), normalized; -inf where pi is 0."""

    def draw(self, theta: FloatArray, n: int, generator: Generator) -> FloatArray:
        """Draw the answers of all units n times, float64[n, N, m]."""

    def maximize(self, answers: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the theta that maximizes sum weights[k, i] log pi(answers[k, i] | theta).

        Args:
          answers: float64[n, N, m], n draws of the m answers of each of N units.
          weights: float64[n, N], summing to 1 over n for each unit.
        """

    def score(self, answers: FloatArray, theta: FloatArray) -> FloatArray:
        """Return the gradient in theta of log pi(answers | theta), per unit, float64[n, N, p]."""

    def curvature(self, answers: FloatArray, weights: FloatArray, theta: FloatArray) -> FloatArray:
        """Return float64[p, p], the weighted sum of minus the second derivatives of log pi."""


@dataclass(frozen=True, eq=False)
class MaximumLikelihood:
    """A maximum-likelihood estimate and its precision.

    Attributes:
      theta: float64[p], mean of the settled Newton iterates.
      monte_carlo_error: float64[p], standard error of `theta` from simulation alone.
      information: float64[p, p], observed information.
      effective_draws: Least effective number of weighted draws of any unit; if few, raise `draws`.
    """

    theta: FloatArray
    monte_carlo_error: FloatArray
    information: FloatArray
    effective_draws: float

    @property
    def covariance(self) -> FloatArray:
        """Return the covariance of theta, the inverse of the observed information, float64[p, p].

        Raises:
          SolverError: The information is not positive definite, as its simulation is too coarse.
        """
        if not np.linalg.eigvalsh(self.information).min() > 0.0:
            raise SolverError(
                "expectation maximization",
                "the observed information is not positive definite, so it gives no standard error",
                got=f"{self.effective_draws:.0f} effective draws",
                remedy="start nearer, or simulate more",
            )
        return np.asarray(np.linalg.inv(self.information), np.float64)

    @property
    def standard_error(self) -> FloatArray:
        """Return the standard error of theta from sampling and privacy noise, float64[p]."""
        return np.asarray(np.sqrt(np.diagonal(self.covariance)))


def maximize_likelihood(  # noqa: PLR0913 - what is known, and two settings of effort
    model: AnswerModel,
    noisy: npt.ArrayLike,
    distributions: tuple[Distribution, ...],
    start: npt.ArrayLike,
    generator: Generator,
    *,
    draws: int = 2000,
    iterations: int = 160,
) -> MaximumLikelihood:
    """Find the parameters under which the noisy answers are most likely.

    The first half of the iterations are expectation maximization, which is safe but slow where much
    information is missing; the second half are Newton steps from the same weighted draws, by Louis'
    identities: with g the gradient and h minus the second derivatives of the complete-data log
    likelihood, the score is sum over units of E[g | noisy], the observed information sum of
    E[h | noisy] - Cov[g | noisy].

    Args:
      model: The model of the confidential answers.
      noisy: float[N, m], the noisy answers.
      distributions: m distributions of noise, one per column.
      start: float[p], where to start.
      generator: Randomness of the analyst.
      draws: Simulated answers per unit and iteration.
      iterations: At least 60.

    Raises:
      SchemaError: Model, noisy answers and distributions do not fit together.
      SolverError: No simulated answer of some unit fits its noisy answer; the start is too far.

    References:
      Wei & Tanner, JASA 1990 (Monte Carlo EM). Louis, JRSS B 1982 (information).
      Gong, arXiv:1909.12237 (importance weights from the privacy mechanism).
    """
    wanted = np.asarray(noisy, np.float64)
    theta = np.asarray(start, np.float64)
    _check(model, wanted, distributions)

    def simulate(theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        return weighted_answers(model, theta, wanted, distributions, draws, generator)

    for _ in range(iterations // 2):
        theta = model.maximize(*simulate(theta))
    iterates = np.empty((iterations - iterations // 2, len(theta)))
    step = np.zeros((len(theta), len(theta)))
    effective = np.inf
    for index in range(len(iterates)):
        answers, weights = simulate(theta)
        effective = min(effective, float((1 / np.square(weights).sum(axis=0)).min()))
        score, information = _debiased(model, answers, weights, theta)
        step += information
        if index < _SETTLING or np.linalg.eigvalsh(step)[0] <= 0:
            theta = model.maximize(answers, weights)
        else:
            move = np.linalg.solve(step / (index + 1), score)
            theta = theta + move / max(1.0, float(move @ score) ** 0.5)  # at most a standard error
        iterates[index] = theta
    settled = iterates[2 * _SETTLING :]
    means = np.stack([batch.mean(axis=0) for batch in np.array_split(settled, _BATCHES)])
    estimate = settled.mean(axis=0)
    total = np.zeros_like(step)
    for _ in range(_SETTLING):
        total += _debiased(model, *simulate(estimate), estimate)[1]
    return MaximumLikelihood(
        estimate, means.std(axis=0, ddof=1) / _BATCHES**0.5, total / _SETTLING, effective
    )


def _check(model: AnswerModel, noisy: FloatArray, distributions: tuple[Distribution, ...]) -> None:
    where, m = "expectation maximization", len(model.are_integers)
    if noisy.ndim != 2 or noisy.shape[1] != m or len(distributions) != m:
        got = f"{noisy.shape} and {len(distributions)} distributions"
        raise SchemaError(where, "shapes do not fit", got=got, want=f"(N, {m}) and {m}")
    if not np.isfinite(noisy).all():
        raise SchemaError(where, "a noisy answer is not finite")
    for column, is_integer in enumerate(model.are_integers):
        if distributions[column].is_discrete and not is_integer:
            raise SchemaError(
                where,
                "noise is a whole number but answers are real, so no simulated answer fits",
                got=f"column {column}",
                remedy="take mechanism.continuous.of_variance("
                "float(mechanism.continuous_variance))",
            )


def weighted_answers(
    model: AnswerModel,
    theta: FloatArray,
    noisy: FloatArray,
    distributions: tuple[Distribution, ...],
    draws: int,
    generator: Generator,
) -> tuple[FloatArray, FloatArray]:
    """Simulate confidential answers, with weights from the noisy answers.

    Answers come from the model, with weights eta(noisy | answers). Where model and noise have one
    support, half of them are instead the noisy answers less simulated noise, and the weights are
    pi eta / (pi / 2 + eta / 2): bounded, so also good where the noise is precise or a unit unusual.

    Args:
      model: The model pi of the confidential answers.
      theta: float64[p], the parameters of the model.
      noisy: float64[N, m], the noisy answers of N units.
      distributions: Distribution eta of the noise of each of the m answers.
      draws: Number of simulated answers per unit.
      generator: Generator of the random numbers.

    Returns:
      float64[draws, N, m] answers and float64[draws, N] weights; for every unit, weighted sums are
      expectations given its noisy answers and theta.

    Raises:
      SchemaError: The model does not have the units of the noisy answers.
      SolverError: All weights of some unit are 0.
    """
    same_support = all(
        distribution.is_discrete is is_integer
        for distribution, is_integer in zip(distributions, model.are_integers, strict=True)
    )
    near = draws // 2 if same_support else 0
    answers = model.draw(theta, draws - near, generator)
    if answers.shape[1:] != noisy.shape:
        where = "expectation maximization"
        raise SchemaError(
            where, "the model has other units", got=answers.shape[1:], want=noisy.shape
        )
    if near:
        size = (near, len(noisy))
        noise = np.stack(
            [draw_noise(distribution, size, generator) for distribution in distributions], axis=2
        )
        # Alternate, so that every half of the draws has both kinds.
        answers = np.concatenate((answers, noisy - noise))[np.argsort(np.arange(draws) % near)]
    log_weights = np.zeros(answers.shape[:2])
    for column, distribution in enumerate(distributions):
        log_weights += distribution.log_ratio(noisy[:, column] - answers[:, :, column])
    if near:
        log_noise = log_weights + sum(distribution.log_peak() for distribution in distributions)
        log_model = model.log_density(answers, theta)
        log_weights = log_noise + log_model - np.logaddexp(log_noise, log_model)
    largest = log_weights.max(axis=0)
    if not np.isfinite(largest).all():
        raise SolverError(
            "expectation maximization",
            "no simulated answer fits the noisy one of some unit",
            got=f"{int((~np.isfinite(largest)).sum())} such units",
            remedy="start nearer, or simulate more",
        )
    weights = np.exp(log_weights - largest)
    return answers, weights / weights.sum(axis=0)


def _debiased(
    model: AnswerModel, answers: FloatArray, weights: FloatArray, theta: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return score and observed information given the noisy answers, at theta.

    Ratios of weighted sums are biased by a multiple of 1 / draws; twice the whole less the mean of
    the halves is not.
    """
    score = model.score(answers, theta)
    half = len(answers) // 2
    whole, first, second = (
        _moments(model, answers[rows], weights[rows], score[rows], theta)
        for rows in (slice(None), slice(half), slice(half, None))
    )
    at, information = (2 * w - (a + b) / 2 for w, a, b in zip(whole, first, second, strict=True))
    return at, information


def _moments(
    model: AnswerModel,
    answers: FloatArray,
    weights: FloatArray,
    score: FloatArray,
    theta: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Return E[g] and Louis' information E[h] - Cov[g], summed over units.

    g is the score and h the curvature of one unit. The expectations are weighted means of draws.
    """
    share = weights / weights.sum(axis=0)
    mean = np.einsum("ni,nip->ip", share, score)
    second = np.einsum("nip,niq->pq", share[:, :, None] * score, score, optimize=True)
    covariance = second - mean.T @ mean
    return mean.sum(axis=0), model.curvature(answers, share, theta) - covariance
