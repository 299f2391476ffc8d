"""Models of confidential answers, for `maximize_likelihood`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from das.arrays import FloatArray
from das.errors import SchemaError, SolverError
from das.inference.simulation import Generator

_NEWTON_STEPS = 100
_NEWTON_GAIN = 1e-14  # of the log likelihood, relative to the sum of the counts: that of rounding
_LEAST_SHARE = 2.0**-40


@dataclass(frozen=True)
class PoissonCounts:
    """Independent Poisson counts s of `units` units with one mean theta; m = 1, p = 1.

    Shapes of arguments are those of `AnswerModel`.
    """

    are_integers: ClassVar[tuple[bool, ...]] = (True,)
    units: int = 1

    def log_density(self, answers: FloatArray, theta: FloatArray) -> FloatArray:
        """Return s log theta - theta - log s! at counts."""
        return _log_poisson(answers[:, :, 0], np.full(self.units, theta[0]))

    def draw(self, theta: FloatArray, n: int, generator: Generator) -> FloatArray:
        """Return float64[n, N, 1] counts."""
        return generator.poisson(theta[0], (n, self.units, 1)).astype(np.float64)

    def maximize(self, answers: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the mean of the expected counts."""
        return np.array([(weights * answers[:, :, 0]).sum() / self.units])

    def score(self, answers: FloatArray, theta: FloatArray) -> FloatArray:
        """Return s / theta - 1."""
        return np.asarray(answers / theta[0] - 1.0)

    def curvature(self, answers: FloatArray, weights: FloatArray, theta: FloatArray) -> FloatArray:
        """Return the expected sum of s / theta^2."""
        return np.array([[(weights * answers[:, :, 0]).sum() / theta[0] ** 2]])


@dataclass(frozen=True)
class NormalRegression:
    """Independent pairs: x ~ N(mean, variance), y | x ~ N(intercept + slope x, residual); n pairs.

    m = 2, the answers (x, y); p = 5, theta = (intercept, slope, log residual, mean, log variance).
    The variances enter by their logarithms, so that any theta is a distribution.
    """

    are_integers: ClassVar[tuple[bool, ...]] = (False, False)
    units: int

    @staticmethod
    def _departures(
        answers: FloatArray, theta: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray, float, float]:
        """Return x, y minus its line, x minus its mean, and the variances of these deviations."""
        intercept, slope, log_residual, mean, log_variance = theta.tolist()
        x, y = answers[:, :, 0], answers[:, :, 1]
        variances = math.exp(log_residual), math.exp(log_variance)
        return x, y - intercept - slope * x, x - mean, *variances

    def log_density(self, answers: FloatArray, theta: FloatArray) -> FloatArray:
        """Return the log of the bivariate normal density."""
        _, error, deviation, residual, variance = self._departures(answers, theta)
        squares = np.square(error) / residual + np.square(deviation) / variance
        constant = 2 * np.log(2 * np.pi) + np.log(residual * variance)
        return np.asarray(-0.5 * (squares + constant))

    def draw(self, theta: FloatArray, n: int, generator: Generator) -> FloatArray:
        """Return float64[n, N, 2] pairs."""
        intercept, slope, log_residual, mean, log_variance = theta.tolist()
        x = generator.normal(mean, math.exp(log_variance) ** 0.5, (n, self.units))
        error = generator.normal(0.0, math.exp(log_residual) ** 0.5, (n, self.units))
        y = intercept + slope * x + error
        return np.stack((x, y), axis=2)

    def maximize(self, answers: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the least-squares line and variances of the weighted pairs."""
        x, y = answers[:, :, 0], answers[:, :, 1]
        share = weights / self.units
        mean, mean_y = (share * x).sum(), (share * y).sum()
        variance = (share * np.square(x - mean)).sum()
        slope = (share * (x - mean) * (y - mean_y)).sum() / variance
        intercept = mean_y - slope * mean
        residual = (share * np.square(y - intercept - slope * x)).sum()
        return np.array([intercept, slope, np.log(residual), mean, np.log(variance)])

    def score(self, answers: FloatArray, theta: FloatArray) -> FloatArray:
        """Return the gradient of the log density of the pairs."""
        x, error, deviation, residual, variance = self._departures(answers, theta)
        return np.stack(
            (
                error / residual,
                error * x / residual,
                (np.square(error) / residual - 1) / 2,
                deviation / variance,
                (np.square(deviation) / variance - 1) / 2,
            ),
            axis=2,
        )

    def curvature(self, answers: FloatArray, weights: FloatArray, theta: FloatArray) -> FloatArray:
        """Return the weighted sum of minus the second derivatives of the log density."""
        x, error, deviation, residual, variance = self._departures(answers, theta)
        n = float(self.units)
        sum_x, sum_e, sum_d = ((weights * v).sum() for v in (x, error, deviation))
        sum_xx, sum_ex, sum_ee, sum_dd = (
            (weights * v).sum() for v in (x * x, error * x, error * error, deviation * deviation)
        )
        line = np.array([[n, sum_x, sum_e], [sum_x, sum_xx, sum_ex], [sum_e, sum_ex, sum_ee / 2]])
        spread = np.array([[n, sum_d], [sum_d, sum_dd / 2]])
        out = np.zeros((5, 5))
        out[:3, :3] = line / residual
        out[3:, 3:] = spread / variance
        return out


@dataclass(frozen=True, eq=False)
class PoissonRegression:
    """Independent counts, s_i ~ Poisson(exposure_i exp(x_i theta)), m = 1, of public covariates x.

    The logarithm of the mean is linear, so any theta is a distribution.

    Attributes:
      covariates: float64[N, p], of full rank; a column of ones is an intercept.
      exposure: float64[N], > 0, such as housing units: means are proportional to it.

    Raises:
      SchemaError: Shapes do not fit, a number is not finite, an exposure is not positive, or
        covariates depend on each other.
    """

    are_integers: ClassVar[tuple[bool, ...]] = (True,)
    covariates: FloatArray
    exposure: FloatArray

    def __post_init__(self) -> None:
        covariates = np.asarray(self.covariates, np.float64)
        exposure = np.asarray(self.exposure, np.float64)
        where = "Poisson regression"
        if covariates.ndim != 2 or exposure.shape != covariates.shape[:1]:
            got = (covariates.shape, exposure.shape)
            raise SchemaError(where, "shapes do not fit", got=got, want="(N, p) and (N,)")
        if not (np.isfinite(covariates).all() and np.isfinite(exposure).all()):
            raise SchemaError(where, "a covariate or an exposure is not finite")
        if not (exposure > 0).all():
            raise SchemaError(where, "an exposure is not positive", got=float(exposure.min()))
        if np.linalg.matrix_rank(covariates) < covariates.shape[1]:
            raise SchemaError(where, "covariates depend on each other")
        object.__setattr__(self, "covariates", covariates)
        object.__setattr__(self, "exposure", exposure)

    def means(self, theta: FloatArray) -> FloatArray:
        """Return float64[N], the means of the counts."""
        return np.asarray(self.exposure * np.exp(self.covariates @ theta))

    def log_density(self, answers: FloatArray, theta: FloatArray) -> FloatArray:
        """Return s log mean - mean - log s! at counts."""
        return _log_poisson(answers[:, :, 0], self.means(theta))

    def draw(self, theta: FloatArray, n: int, generator: Generator) -> FloatArray:
        """Return float64[n, N, 1] counts."""
        means = self.means(theta)
        return generator.poisson(means, (n, len(means)))[:, :, None].astype(np.float64)

    def maximize(self, answers: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the maximum by Newton steps, halved until the concave likelihood grows.

        Raises:
          SolverError: All expected counts are 0, or the steps do not settle.
        """
        counts, where = (weights * answers[:, :, 0]).sum(axis=0), "Poisson regression"
        if not counts.sum() > 0:
            raise SolverError(where, "has no maximum", got="counts of nothing")

        def log_likelihood(theta: FloatArray) -> float:
            with np.errstate(over="ignore"):  # a step too long is halved
                return float(counts @ (self.covariates @ theta) - self.means(theta).sum())

        # Least squares of the logarithms; half a count more, as some are 0.
        logs = np.log(np.maximum(counts, 0.0) + 0.5) - np.log(self.exposure)
        theta = np.linalg.lstsq(self.covariates, logs, rcond=None)[0]
        value = log_likelihood(theta)
        for _ in range(_NEWTON_STEPS):
            means = self.means(theta)
            score = self.covariates.T @ (counts - means)
            weighted = self.covariates * means[:, None]
            step = np.linalg.lstsq(self.covariates.T @ weighted, score, rcond=None)[0]
            # Half of this is what the likelihood still gains, in its own units.
            if float(step @ score) < _NEWTON_GAIN * max(1.0, float(counts.sum())):
                return np.asarray(theta + step, np.float64)
            share = 1.0
            while log_likelihood(theta + share * step) < value and share > _LEAST_SHARE:
                share /= 2
            theta = theta + share * step
            value = log_likelihood(theta)
        raise SolverError(where, "does not settle", got=f"counts of sum {counts.sum():.3g}")

    def score(self, answers: FloatArray, theta: FloatArray) -> FloatArray:
        """Return (s - mean) x."""
        return np.asarray((answers - self.means(theta)[:, None]) * self.covariates)

    def curvature(self, answers: FloatArray, weights: FloatArray, theta: FloatArray) -> FloatArray:
        """Return the weighted sum of mean x x'."""
        means = weights.sum(axis=0) * self.means(theta)
        return np.asarray((self.covariates * means[:, None]).T @ self.covariates)


@dataclass(frozen=True)
class CountRegression:
    """Independent pairs: x ~ Poisson(mean), y | x ~ N(intercept + slope x, residual); n pairs.

    m = 2, the answers (x, y); p = 3, theta = (intercept, slope, log mean). The residual variance is
    known: where noise is much larger, as in few privatized pairs, the likelihood is often largest
    at residual 0, where no information gives standard errors.
    """

    are_integers: ClassVar[tuple[bool, ...]] = (True, False)
    units: int
    residual: float

    def log_density(self, answers: FloatArray, theta: FloatArray) -> FloatArray:
        """Return the log of the probability of x times the density of y given x."""
        intercept, slope, log_mean = theta.tolist()
        x = answers[:, :, 0]
        squares = np.square(answers[:, :, 1] - intercept - slope * x) / self.residual
        normal = -0.5 * (squares + math.log(2 * math.pi * self.residual))
        return np.asarray(_log_poisson(x, np.full(self.units, math.exp(log_mean))) + normal)

    def draw(self, theta: FloatArray, n: int, generator: Generator) -> FloatArray:
        """Return float64[n, N, 2] pairs."""
        intercept, slope, log_mean = theta.tolist()
        x = generator.poisson(math.exp(log_mean), (n, self.units)).astype(np.float64)
        error = generator.normal(0.0, self.residual**0.5, (n, self.units))
        return np.stack((x, intercept + slope * x + error), axis=2)

    def maximize(self, answers: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the least-squares line and the mean of the weighted pairs."""
        intercept, slope, _, mean, _ = NormalRegression(self.units).maximize(answers, weights)
        return np.array([intercept, slope, np.log(mean)])

    def score(self, answers: FloatArray, theta: FloatArray) -> FloatArray:
        """Return the gradient of `log_density`."""
        intercept, slope, log_mean = theta.tolist()
        x = answers[:, :, 0]
        error = (answers[:, :, 1] - intercept - slope * x) / self.residual
        return np.stack((error, error * x, x - math.exp(log_mean)), axis=2)

    def curvature(self, answers: FloatArray, weights: FloatArray, theta: FloatArray) -> FloatArray:
        """Return the weighted sum of minus the second derivatives of `log_density`."""
        x = answers[:, :, 0]
        n, sum_x, sum_xx = (float((weights * v).sum()) for v in (np.ones_like(x), x, x * x))
        out = np.diag([0.0, 0.0, n * math.exp(theta[2])])
        out[:2, :2] = np.array([[n, sum_x], [sum_x, sum_xx]]) / self.residual
        return out


def _log_poisson(s: FloatArray, means: FloatArray) -> FloatArray:
    """Return the log of Poisson probabilities, float64[n, N]; -inf where s is no count.

    Args:
      s: float64[n, N], n draws of the counts of N units.
      means: float64[N], the mean of each unit.
    """
    from scipy.special import gammaln

    possible = (s >= 0) & (s == np.rint(s))
    value = s * np.log(means) - means - gammaln(np.where(possible, s, 0.0) + 1.0)
    return np.where(possible, value, -np.inf)
