"""Models of confidential answers, for `maximize_likelihood`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from das.arrays import FloatArray
from das.inference.simulation import Generator


@dataclass(frozen=True)
class PoissonCounts:
    """Independent counts, n of them, with one mean theta, m = 1, p = 1."""

    is_integer: ClassVar[bool] = True
    units: int = 1

    def log_density(self, answers: FloatArray, theta: FloatArray) -> FloatArray:
        """Return s log theta - theta - log s! at counts."""
        from scipy.special import gammaln

        s = answers[:, :, 0]
        possible = (s >= 0) & (s == np.rint(s))
        value = s * np.log(theta[0]) - theta[0] - gammaln(np.where(possible, s, 0.0) + 1.0)
        return np.where(possible, value, -np.inf)

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

    is_integer: ClassVar[bool] = False
    units: int

    def log_density(self, answers: FloatArray, theta: FloatArray) -> FloatArray:
        """Return the log of the bivariate normal density."""
        intercept, slope, residual, mean, variance = _plain(theta)
        x = answers[:, :, 0]
        error, deviation = answers[:, :, 1] - intercept - slope * x, x - mean
        squares = np.square(error) / residual + np.square(deviation) / variance
        constant = 2 * np.log(2 * np.pi) + np.log(residual * variance)
        return np.asarray(-0.5 * (squares + constant))

    def draw(self, theta: FloatArray, n: int, generator: Generator) -> FloatArray:
        """Return float64[n, N, 2] pairs."""
        intercept, slope, residual, mean, variance = _plain(theta)
        x = generator.normal(mean, variance**0.5, (n, self.units))
        y = intercept + slope * x + generator.normal(0.0, residual**0.5, (n, self.units))
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
        intercept, slope, residual, mean, variance = _plain(theta)
        x = answers[:, :, 0]
        error, deviation = answers[:, :, 1] - intercept - slope * x, x - mean
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
        intercept, slope, residual, mean, variance = _plain(theta)
        x = answers[:, :, 0]
        error, deviation = answers[:, :, 1] - intercept - slope * x, x - mean
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


def _plain(theta: FloatArray) -> tuple[float, ...]:
    intercept, slope, log_residual, mean, log_variance = theta.tolist()
    return intercept, slope, math.exp(log_residual), mean, math.exp(log_variance)
