"""Confidence intervals around unbiased estimates: single answers, whole tables, small counts.

Errors are sums of many independent noises and nearly normal; see `docs/estimation.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from das.arrays import BoolArray, FloatArray, IntArray
from das.definition import Definition
from das.errors import ConfigError

_HALVINGS = 60  # narrow an interval of a few standard errors to rounding


@dataclass(frozen=True, eq=False)
class Intervals:
    """Bounds of the answers of G geounits, float64[G, m] each."""

    lower: FloatArray
    upper: FloatArray


@dataclass(frozen=True)
class IntervalKind:
    """Kind of the intervals around the answers of a table.

    Attributes:
      confidence: Probability of covering the true answer.
      simultaneous: Cover all answers of a table together.
      positive: Use that true counts cannot be negative, and public bounds of counts.
    """

    confidence: float
    simultaneous: bool = False
    positive: bool = False

    def around(
        self,
        estimates: FloatArray,
        errors: FloatArray,
        rank: int,
        least: IntArray | int = 0,
        most: IntArray | float = np.inf,
        *,
        definition: Definition = Definition.ZCDP,
    ) -> Intervals:
        """Return intervals around estimates float64[G, m] with standard errors of that shape.

        With `positive`, an answer less its lower bound cannot be negative and has the same error.
        So its interval covers every truth above `least` with the confidence. The intersection with
        answers up to `most` covers the same truths, because every truth is one of these.

        Args:
          estimates: The estimates.
          errors: Their standard errors.
          rank: Largest dimension of the space of the errors.
          least: Public lower bounds of the answers, which `positive` uses.
          most: Public upper bounds of the answers, which `positive` uses.
          definition: Privacy definition; under pure epsilon errors have Laplace tails, and whole
            tables use Bonferroni's bound, since rank bounds hold for normal errors only.

        Raises:
          ConfigError: The confidence is out of range.
        """
        uncertain = int((errors > 0).sum())
        factor = normal_factor(self.confidence)
        if definition is Definition.PURE:
            answers = max(1, uncertain) if self.simultaneous else 1
            factor = two_sided_factor((1 - self.confidence) / answers, definition)
        elif self.simultaneous and self.positive:
            factor = positive_simultaneous_factor(self.confidence, uncertain)
        elif self.simultaneous:
            factor = simultaneous_factor(self.confidence, uncertain, min(uncertain, rank))
        if not self.positive:
            return central_intervals(estimates, errors, factor)
        ends = positive_intervals(estimates - least, errors, factor)
        return Intervals(np.minimum(ends.lower + least, most), np.minimum(ends.upper + least, most))


def normal_factor(confidence: float) -> float:
    """Return the half width, in standard errors, of the central interval of one answer.

    Raises:
      ConfigError: The confidence is not between 1/2 and 1.

    >>> round(normal_factor(0.9), 4)
    1.6449
    """
    if not 0.5 < confidence < 1:
        raise ConfigError(
            "confidence", "is out of range", got=confidence, want="more than 0.5, less than 1"
        )
    return NormalDist().inv_cdf((1 + confidence) / 2)


def two_sided_factor(failure: float, definition: Definition) -> float:
    """Return the approximate two-sided quantile of an error, in standard errors.

    Sampling and discrete Gaussian noise are nearly normal. The quantile of a sum of normal and
    Laplace variables is near the larger of their quantiles.

    Args:
      failure: Probability that the error is larger.
      definition: Privacy definition of the noise.
    """
    normal = NormalDist().inv_cdf(1.0 - failure / 2.0)
    if definition is Definition.ZCDP:
        return normal
    return max(normal, math.log(1.0 / failure) / math.sqrt(2.0))


def simultaneous_factor(confidence: float, n_answers: int, rank: int) -> float:
    """Return the half width, in standard errors, that covers all answers of a table at once.

    Two bounds hold for normal errors with any correlation; the smaller one is returned. Sidak:
    P(all |Z_j| <= c) >= prod P(|Z_j| <= c). Scheffe: the largest |Z_j| of r dimensions is at most
    the root of a chi square with r degrees of freedom.

    Args:
      confidence: Wanted probability.
      n_answers: Number of answers with an error.
      rank: Dimension of the space of their errors.

    References:
      Sidak, Journal of the American Statistical Association 62, 1967.
      Scheffe, Biometrika 40, 1953.

    >>> round(simultaneous_factor(0.9, 1, 1), 4), round(simultaneous_factor(0.9, 100, 100), 4)
    (1.6449, 3.276)
    """
    from scipy.special import gammaincinv

    alone = normal_factor(confidence)
    if n_answers <= 1:
        return alone
    sidak = normal_factor(confidence ** (1 / n_answers))
    return min(sidak, float(np.sqrt(2 * gammaincinv(rank / 2, confidence))))


def positive_simultaneous_factor(confidence: float, n_answers: int) -> float:
    """Return the factor with which `positive_intervals` cover all answers of a table at once.

    Sidak's inequality is not known to hold for these asymmetric intervals. The probabilities of
    missing are added up instead (Bonferroni).

    >>> round(positive_simultaneous_factor(0.9, 100), 4)
    3.2905
    """
    return normal_factor(1 - (1 - confidence) / max(1, n_answers))


def central_intervals(
    estimates: FloatArray, standard_errors: FloatArray, factor: float
) -> Intervals:
    """Return estimate -+ factor times the standard error; arguments float64[G, m]."""
    half = factor * standard_errors
    return Intervals(estimates - half, estimates + half)


def positive_intervals(
    estimates: FloatArray, standard_errors: FloatArray, factor: float
) -> Intervals:
    """Return intervals for answers that cannot be negative.

    For every truth mu >= 0, accept estimates by their likelihood at mu relative to the best
    nonnegative truth, until they have the wanted probability. The interval is the set of truths
    that accept the estimate. Under normal errors it covers every mu >= 0 with exactly that
    probability. It is never empty. If the estimate exceeds twice the half width, it is the central
    interval. An answer without error keeps its value.

    Args:
      estimates: float64[G, m], unbiased; may be negative.
      standard_errors: float64[G, m], the standard error of each estimate.
      factor: Half width of the central interval in standard errors, from `normal_factor` or
        `simultaneous_factor`.

    References:
      Feldman & Cousins, Physical Review D 57, 1998, Section IV.B.

    >>> both = positive_intervals(np.array([[-1.0, 0.0, 4.0]]), np.ones((1, 3)), 1.6448536)
    >>> both.lower.round(2).tolist(), both.upper.round(2).tolist()
    ([[0.0, 0.0, 2.36]], [[0.81, 1.64, 5.64]])
    """
    confidence = 2 * NormalDist().cdf(factor) - 1
    scale = np.where(standard_errors > 0, standard_errors, 1.0)
    scaled = estimates / scale
    lower = np.where(scaled >= 2 * factor, scaled - factor, _low_end(scaled, factor, confidence))
    upper = np.where(scaled >= 0, scaled + factor, _high_end(scaled, factor, confidence))
    exact = standard_errors == 0
    return Intervals(
        np.where(exact, estimates, scale * lower), np.where(exact, estimates, scale * upper)
    )


@dataclass(frozen=True, eq=False)
class Ratios:
    """Ratios of counts to a count of the same geounit, each float64[G, m].

    Attributes:
      estimate: Numerator over denominator.
      lower: Lower end of the interval, in [0, 1].
      upper: Upper end of the interval, in [0, 1].
      above_half: Probability that the true ratio exceeds 1/2, in a flat prior of the counts.
    """

    estimate: FloatArray
    lower: FloatArray
    upper: FloatArray
    above_half: FloatArray


def estimated_ratios(
    numerators: tuple[FloatArray, FloatArray],
    denominators: tuple[FloatArray, FloatArray],
    covariances: FloatArray,
    factor: float,
) -> Ratios:
    """Estimate ratios between 0 and 1, from jointly normal estimates of both counts.

    The interval has the ratios r for which numerator - r denominator is at most `factor` standard
    errors from 0. It covers the true ratio with the confidence of the factor, however small the
    counts are. Without information it is [0, 1].

    Args:
      numerators: Estimates and variances, float64[G, m] each.
      denominators: Estimates and variances, float64[G, 1] each.
      covariances: float64[G, m], of numerator and denominator.
      factor: Half width of a central interval in standard errors, from `normal_factor`.

    References:
      Fieller, Journal of the Royal Statistical Society B 16, 1954.
    """
    from scipy.special import ndtr

    (above, above_var), (below, below_var) = numerators, denominators
    square = factor**2
    leading = below**2 - square * below_var
    middle = above * below - square * covariances
    last = above**2 - square * above_var
    with np.errstate(divide="ignore", invalid="ignore"):
        estimate = above / below
        root = np.sqrt(np.maximum(middle**2 - leading * last, 0))
        ends = ((middle - root) / leading, (middle + root) / leading)
        spread = np.sqrt(np.maximum(above_var - covariances + below_var / 4, 0))
        above_half = np.where(spread > 0, ndtr((above - below / 2) / spread), above > below / 2)
    known = (leading > 0) & (below > 0)
    lower = np.where(known, np.clip(ends[0], 0, 1), 0.0)
    upper = np.where(known, np.clip(ends[1], 0, 1), 1.0)
    return Ratios(np.where(known, estimate, np.nan), lower, upper, above_half)


def _low_end(scaled: FloatArray, factor: float, confidence: float) -> FloatArray:
    """Find the truth whose largest accepted estimate is `scaled`; 0 if the truth 0 accepts it.

    Args:
      scaled: Estimates over their standard errors.
      factor: Half width of the central interval in standard errors.
      confidence: Coverage probability.
    """
    from scipy.special import ndtr

    x = np.clip(scaled, 0, 2 * factor)

    def kept(mu: FloatArray) -> FloatArray:
        return np.asarray(ndtr(x - mu) - ndtr(x - x * x / (2 * mu) - mu))

    root = _bisect(lambda mu: kept(mu) > confidence, np.zeros_like(x), x / np.sqrt(2))
    return np.where(x <= NormalDist().inv_cdf(confidence), 0.0, root)


def _high_end(scaled: FloatArray, factor: float, confidence: float) -> FloatArray:
    """Find the truth whose smallest accepted estimate is `scaled`, for estimates below 0.

    Args:
      scaled: Estimates over their standard errors; values above 0 count as 0.
      factor: Half width of the central interval in standard errors.
      confidence: Coverage probability.
    """
    from scipy.special import ndtr

    x = np.minimum(scaled, 0)

    def kept(mu: FloatArray) -> FloatArray:
        return np.asarray(ndtr(np.sqrt(mu * mu - 2 * mu * x)) - ndtr(x - mu))

    return _bisect(lambda mu: kept(mu) < confidence, np.zeros_like(x), np.full_like(x, factor))


def _bisect(
    goes_up: Callable[[FloatArray], BoolArray], low: FloatArray, high: FloatArray
) -> FloatArray:
    """Find roots by bisection, element by element; a root lies above where `goes_up` holds."""
    for _ in range(_HALVINGS):
        middle = np.maximum((low + high) / 2, np.finfo(float).tiny)
        up = goes_up(middle)
        low, high = np.where(up, middle, low), np.where(up, high, middle)
    return (low + high) / 2
