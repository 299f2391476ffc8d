"""Weights of noisy answers that look like noise around zero.

References:
  Algorithm 2 of "An Uncertainty Principle is a Price of Privacy-Preserving Microdata", NeurIPS
  2021, as implemented by its authors: the deviation of the largest noise is in counts and lowers
  the weights of single answers; the sum has half of its inverse variance.
"""

from __future__ import annotations

import numpy as np

from das.arrays import BoolArray, FloatArray
from das.mechanisms.mechanism import Continuous

CONFIDENCE = 0.99  # default, not measured


def find_low_answers(answers: FloatArray, variance: float, noise: type[Continuous]) -> BoolArray:
    """Mark the answers of disjoint queries that could be noise only.

    In ascending order, the first answer j that the largest of j noises exceeds with probability at
    most 1 - CONFIDENCE is not low. No larger answer is low either.

    Args:
      answers: float64[R, m].
      variance: Variance of the noise.
      noise: Family of the noise distribution.

    Returns:
      bool[R, m].
    """
    ranked = np.sort(answers, axis=1)
    rank = np.arange(1, answers.shape[1] + 1)
    surprising = rank * noise.of_variance(variance).log_cdf(ranked) >= np.log(CONFIDENCE)
    n_low = np.where(surprising.any(1), surprising.argmax(1), answers.shape[1])
    below = np.take_along_axis(ranked, np.maximum(n_low - 1, 0)[:, None], axis=1)
    return np.asarray((answers <= below) & (n_low > 0)[:, None])


def downweight(
    low: BoolArray, variance: float, noise: type[Continuous]
) -> tuple[FloatArray, FloatArray]:
    """Return the weights of single answers, float64[R, m], and of the sum of low ones, float64[R].

    High answers keep 1 / variance. The n low ones get 1 / (2 median^2 variance), with the median of
    the largest of n noises, at least 1; their sum gets 1 / (2 n variance).
    """
    n_low = low.sum(1)
    some = np.maximum(n_low, 1)
    median = np.maximum(1.0, noise.of_variance(variance).quantiles(0.5 ** (1 / some)))
    each = np.where(low, 1 / (2 * median**2 * variance)[:, None], 1 / variance)
    return each, np.where(n_low > 0, 1 / (2 * some * variance), 0.0)
