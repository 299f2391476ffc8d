"""Probabilities and moments of the noise distributions as floats, for plans and reports.

No noise and no privacy guarantee depends on these numbers; they are accurate to about 1e-13.

Discrete Gaussian (the functions without a prefix): tau = 1 / (2 sigma_sq), g(k) = exp(-tau k^2),
Z = sum of g over the integers. By Poisson summation Z = sqrt(pi / tau) theta(2 pi^2 sigma_sq) with
theta(x) = 1 + 2 sum_{n>=1} exp(-n^2 x). For small sigma_sq the defining sums converge in a few
terms, for large sigma_sq the sums of theta do.
Discrete Laplace: everything is a closed form in a = exp(-1 / scale).

References:
  Canonne, Kamath & Steinke, NeurIPS 2020, arXiv:2004.00010, section 3.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

from das.errors import BudgetError

SPLIT_SIGMA_SQ = 1  # both families of sums need under ten terms here
DIRECT_CDF_SIGMA = 64  # above this, the corrected integral is accurate to 1e-15
NEGLIGIBLE = 746.0  # exp(-746) is 0.0


def normalizer(*, sigma_sq: Fraction) -> float:
    """Return Z, the sum of exp(-k^2 / (2 sigma_sq)) over all integers k."""
    if sigma_sq <= SPLIT_SIGMA_SQ:
        return math.fsum([1.0, *(2.0 * weight for weight in _weights(sigma_sq))])
    theta, _ = _theta(sigma_sq)
    return math.sqrt(2.0 * math.pi * float(sigma_sq)) * theta


def variance(*, sigma_sq: Fraction) -> float:
    """Return the variance of X, which is below sigma_sq; the gap is visible if sigma_sq < 1.

    >>> round(variance(sigma_sq=Fraction(1, 4)), 6), variance(sigma_sq=Fraction(100))
    (0.215013, 100.0)
    """
    if sigma_sq <= SPLIT_SIGMA_SQ:
        moment = math.fsum(2.0 * k * k * w for k, w in enumerate(_weights(sigma_sq), start=1))
        return moment / normalizer(sigma_sq=sigma_sq)
    theta, slope = _theta(sigma_sq)
    scale = float(sigma_sq)
    return scale * (1.0 - 8.0 * math.pi**2 * scale * slope / theta)


def cdf(k: int, *, sigma_sq: Fraction) -> float:
    """Return P(X <= k).

    >>> cdf(0, sigma_sq=Fraction(1, 10**15))
    1.0
    """
    if k >= 0:
        return 1.0 - cdf(-k - 1, sigma_sq=sigma_sq)
    if sigma_sq <= DIRECT_CDF_SIGMA**2:
        tail = _tail_sums(sigma_sq)
        return tail[-k] if -k < len(tail) else 0.0
    return _smooth_cdf(k, math.sqrt(sigma_sq))


def quantile(probability: float, *, sigma_sq: Fraction) -> int:
    """Return the least k with P(X <= k) >= probability.

    By symmetry |X| <= quantile((1 + c) / 2) with probability at least c.

    Args:
      probability: Strictly between 0 and 1.
      sigma_sq: Parameter of the noise, > 0.

    Raises:
      BudgetError: `probability` or `sigma_sq` is out of range.

    >>> quantile(0.95, sigma_sq=Fraction(100))
    16
    """
    reach = 40 * (math.isqrt(math.ceil(sigma_sq)) + 1)  # P(X <= -reach) is 0.0
    return _quantile(probability, reach, lambda k: cdf(k, sigma_sq=sigma_sq))


def laplace_variance(*, scale: Fraction) -> float:
    """Return the variance of the discrete Laplace distribution, 2 a / (1 - a)^2.

    >>> round(laplace_variance(scale=Fraction(1)), 6), round(laplace_variance(scale=Fraction(1000)))
    (1.841347, 2000000)
    """
    fall = 1.0 / float(scale)
    return 2.0 * math.exp(-fall) / math.expm1(-fall) ** 2 if fall < NEGLIGIBLE else 0.0


def laplace_cdf(k: int, *, scale: Fraction) -> float:
    """Return P(X <= k) of the discrete Laplace distribution, a^-k / (1 + a) for k < 0.

    >>> laplace_cdf(-1, scale=Fraction(2)) + laplace_cdf(0, scale=Fraction(2))
    1.0
    """
    if k >= 0:
        return 1.0 - laplace_cdf(-k - 1, scale=scale)
    return _exp_or_zero(Fraction(-k) / scale) / (1.0 + _exp_or_zero(1 / scale))


def laplace_quantile(probability: float, *, scale: Fraction) -> int:
    """Return the least k with P(X <= k) >= probability, for the discrete Laplace distribution.

    Raises:
      BudgetError: `probability` or `scale` is out of range.
    """
    reach = math.ceil(int(NEGLIGIBLE) * scale) + 1
    return _quantile(probability, reach, lambda k: laplace_cdf(k, scale=scale))


def _quantile(probability: float, reach: int, cdf_at: Callable[[int], float]) -> int:
    if not 0.0 < probability < 1.0:
        raise BudgetError("quantile", "probability out of range", got=probability, want="0 < p < 1")
    range_ = range(-reach, reach)
    return range_[bisect_left(range_, probability, key=cdf_at)]


def _weights(sigma_sq: Fraction) -> list[float]:
    """Return g(1), g(2), ... until they vanish."""
    last = math.isqrt(math.floor(2 * sigma_sq * int(NEGLIGIBLE))) + 1
    return [_exp_or_zero(Fraction(k * k) / (2 * sigma_sq)) for k in range(1, last + 1)]


@lru_cache(maxsize=64)
def _tail_sums(sigma_sq: Fraction) -> list[float]:
    """Return P(X >= k) at index k, summed from the far end to keep small tails accurate."""
    total = normalizer(sigma_sq=sigma_sq)
    sums = [*accumulate(weight / total for weight in reversed(_weights(sigma_sq)))]
    return [1.0, *reversed(sums)]  # index 0 is not used


def _theta(sigma_sq: Fraction) -> tuple[float, float]:
    """Return theta(x) and sum of n^2 exp(-n^2 x) at x = 2 pi^2 sigma_sq, for sigma_sq >= 1."""
    x = 2.0 * math.pi**2 * float(sigma_sq)
    terms = [(n, math.exp(-n * n * x)) for n in (1, 2, 3) if n * n * x < NEGLIGIBLE]
    return 1.0 + 2.0 * math.fsum(t for _, t in terms), math.fsum(n * n * t for n, t in terms)


def _smooth_cdf(k: int, sigma: float) -> float:
    """Return P(X <= k) for large sigma by the Euler-Maclaurin formula at the midpoint k + 1/2.

    sum_{j<=k} f(j) = integral up to k + 1/2 of f - f'/24 + 7 f'''/5760 - ..., where f is the normal
    density with variance sigma^2; the next term is below 1e-4 / sigma^6.
    """
    z = (k + 0.5) / sigma
    density = math.exp(-z * z / 2.0) / math.sqrt(2.0 * math.pi)
    first = -z * density / sigma**2
    third = (3.0 * z - z**3) * density / sigma**4
    return 0.5 * math.erfc(-z / math.sqrt(2.0)) - first / 24.0 + 7.0 * third / 5760.0


def _exp_or_zero(gamma: Fraction) -> float:
    return math.exp(-float(gamma)) if gamma < NEGLIGIBLE else 0.0
