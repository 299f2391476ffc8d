"""What stratification costs the mean of everybody: bounds and exact variances, from sizes alone.

Strata are disjoint, so each may be estimated at the full budget (parallel composition, Proposition
8); the weighted sum of their means then has the noise of all of them. All of it is public.

References:
  Rosenblatt, Stoyanovich & Musco, Stratification against the disparate impact of differential
  privacy: Propositions 8 and 9, Theorem 10. Two misprints there: the interval of clipping is
  symmetric, and sizes are g_i n.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy.special import digamma

from das.errors import SchemaError


def clipping_bound(size: int, most_mean: float, failure: float) -> float:
    """Where values of unit variance and a mean in [-R, R] are clipped, R + sqrt(ln(n / gamma)).

    Args:
      size: Records n >= 1.
      most_mean: R >= 0, in standard deviations.
      failure: gamma, 0 < gamma < 1: clipping is rare but with about this probability.
    """
    return most_mean + math.sqrt(math.log(size / failure))


def noise_scale(size: int, most_mean: float, failure: float, epsilon: float) -> float:
    """Scale of the Laplace noise of a clipped mean of unit variance, 2 B(n) / (n epsilon)."""
    return 2.0 * clipping_bound(size, most_mean, failure) / (size * epsilon)


def stratified_variance(
    sizes: Sequence[int], most_mean: float, failure: float, epsilon: float
) -> float:
    """Variance of the noise of sum_i (n_i / n) mean_i, (2 / n^2) sum_i (n_i b_i)^2, exact.

    It is what Proposition 9 bounds. Its root over that of one stratum is about sqrt(k): what
    stratification costs the mean of everybody.

    Args:
      sizes: n_i >= 1, public.
      most_mean: R of every stratum.
      failure: gamma.
      epsilon: Pure cost of each stratum, and so of all of them.
    """
    total = sum(sizes)
    scales = [size * noise_scale(size, most_mean, failure, epsilon) for size in sizes]
    return 2.0 * math.fsum(scale * scale for scale in scales) / total**2


def error_bound(
    n_strata: int, size: int, most_mean: float, failure: float, epsilon: float
) -> float:
    """Bound of Proposition 9 without its constant, for k strata of equal sizes.

    ln(1/gamma) sqrt(k) (R + sqrt(ln(n / (k gamma)))) / (n epsilon); holds but with a probability
    of order gamma k.
    """
    per_stratum = clipping_bound(size // n_strata, most_mean, failure)
    return -math.log(failure) * math.sqrt(n_strata) * per_stratum / (size * epsilon)


def expected_log_sizes(concentration: float, n_strata: int, size: int) -> float:
    """E sum_i ln n_i where shares are symmetric Dirichlet(alpha), Theorem 10; an equality.

    k (psi(alpha) - psi(k alpha) + ln n), since every share is Beta(alpha, (k - 1) alpha).
    """
    k = n_strata
    return k * float(digamma(concentration) - digamma(k * concentration) + math.log(size))


def most_log_sizes(n_strata: int, size: int) -> float:
    """The largest sum of ln n_i of k strata that add up to n, k ln(n / k): equal sizes."""
    return n_strata * math.log(size / n_strata)


def moment_concentration(shares: Sequence[float]) -> float:
    """Concentration alpha of a symmetric Dirichlet from one vector of shares, by second moments.

    E sum v_i^2 = (alpha + 1) / (k alpha + 1), so alpha = (1 - s) / (k s - 1) with s = sum v_i^2.

    Raises:
      SchemaError: Shares are equal, fewer than two, or do not sum to 1.
    """
    squares = math.fsum(share * share for share in shares)
    k = len(shares)
    # The margin is wide beside rounding (1e-16) and narrow beside shares of real strata.
    if k < 2 or abs(math.fsum(shares) - 1.0) > 1e-9 or k * squares - 1.0 < 1e-12:
        raise SchemaError(
            "shares of strata",
            "have no Dirichlet concentration",
            got=f"{k} shares that sum to {math.fsum(shares):.6g}",
            want="two or more shares that sum to 1 and are not all equal",
        )
    return (1.0 - squares) / (k * squares - 1.0)
