"""The strongest attacker we can train: a lower bound of epsilon from many runs on two data sets.

References:
  Jagielski, Ullman & Oprea, NeurIPS 2020, arXiv:2006.07709 (auditing by hypothesis tests).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from scipy.stats import beta

DOUBT = 1e-6  # probability that one lower bound is too high
NEAR = 1  # values this close to the median have an indicator of their own


def epsilon_lower_bounds(
    one: np.ndarray, other: np.ndarray, deltas: Sequence[Fraction]
) -> list[float]:
    """Bound epsilon from below at each delta.

    If a mechanism is (epsilon, delta)-DP, then P(S) <= exp(epsilon) Q(S) + delta for each event S.
    An event is found with one half of the runs; its probabilities are bounded by Clopper-Pearson
    intervals with the other half.

    Args:
      one: float64[n, k], outputs of n independent runs on a data set.
      other: The same for a neighboring one.
      deltas: Where to bound epsilon.

    Returns:
      One bound per delta, each too high with probability at most DOUBT; 0.0 says nothing.
    """
    half = len(one) // 2
    score = _learn(one[:half], other[:half])
    learned, tested = ((score(one[part]), score(other[part])) for part in _halves(half))
    bounds = []
    for delta in deltas:
        events = [
            (sign, limit)
            for sign in (1, -1)
            for limit in np.quantile(np.concatenate(learned), np.linspace(0.01, 0.99, 99))
        ]
        best = max(events, key=lambda event: _bound(learned, event, delta))
        bounds.append(max(0.0, _bound(tested, best, delta)))
    return bounds


def _halves(half: int) -> tuple[slice, slice]:
    return slice(half), slice(half, 2 * half)


def _bound(
    scores: tuple[np.ndarray, np.ndarray], event: tuple[int, float], delta: Fraction
) -> float:
    sign, limit = event
    hits = [int((sign * s > sign * limit).sum()) for s in scores]
    if sign < 0:
        hits = hits[::-1]  # the event that is more likely under `one`
    n = len(scores[0])
    low = float(beta.ppf(DOUBT / 2, hits[1], n - hits[1] + 1)) if hits[1] else 0.0
    high = float(beta.ppf(1 - DOUBT / 2, hits[0] + 1, n - hits[0])) if hits[0] < n else 1.0
    left = low - float(delta)
    return math.log(left / high) if left > 0 else -math.inf


def _learn(one: np.ndarray, other: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return a score that is larger for outputs like those of `other`.

    Least squares on the values and on indicators of the values that are frequent: it contains the
    likelihood ratio of independent answers, and linear relations between answers.
    """
    both = np.concatenate([one, other])
    middle = np.median(both, axis=0)

    def expand(values: np.ndarray) -> np.ndarray:
        near = np.clip(np.rint(values - middle), -NEAR, NEAR)
        indicators = [near == k for k in range(-NEAR, NEAR + 1)] + [values == 0]
        return np.concatenate([values - middle, *indicators], axis=1, dtype=float)

    first, second = expand(one), expand(other)
    spread = np.cov(first.T) + np.cov(second.T)
    ridge = 1e-9 * np.trace(spread) * np.eye(len(spread))
    weights = np.linalg.solve(spread + ridge, second.mean(0) - first.mean(0))
    return lambda values: expand(values) @ weights
