"""Posterior means of counts under a prior fitted to the noisy counts of a geolevel.

Counts of small geounits are mostly zero, which least squares ignores: with three persons in forty
blocks, it puts them in the blocks with the largest noise. The distribution of counts with similar
expectations can be estimated from the noisy counts, and gives posterior means:

    z = x + e,  e of variance v,  x ~ g_b on the nonnegative integers,  b the bin of the expected
    count mu;  g_b maximises the likelihood of all z in bin b;  the posterior mean is E[x | z, b].

Only noisy answers enter, so this is post-processing. It lowers the squared error and is biased, as
any nonnegative estimate is; unbiased estimates come from `das.tree.passes`.

References:
  Robbins, Proc. 3rd Berkeley Symp. (1956), 157-163 (empirical Bayes).
  Kiefer & Wolfowitz, Ann. Math. Stat. 27 (1956), 887-906 (the maximum likelihood mixture).
  Jiang & Zhang, Ann. Statist. 37 (2009), 1647-1684 (its posterior means).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from das.arrays import BoolArray, FloatArray, IntArray
from das.errors import SchemaError

# Defaults, not measured.
_LEAST_MEAN = 0.02
_RATIO = 1.44  # of neighboring bins of the expected count
_BINS = 48
_STEPS_PER_DEVIATION = 4  # noisy counts are tallied to a quarter of a standard deviation
_OFF_EDGES = 1e-6  # of a step: integers over even deviations lie on edges between steps
_FINE_GRID = 60  # all counts up to this are support points; larger ones are a deviation apart
_COARSE_POINTS = 200
_ITERATIONS = 150
_LEAST_OBSERVATIONS = 200  # bins with fewer use neighboring bins too
_ROWS = 4096


@dataclass(frozen=True, eq=False)
class Tally:
    """Frequencies of noisy counts by bin of the expected count; mergeable.

    Attributes:
      bins: int64[u], bin of the expected count.
      steps: int64[u], noisy count in quarters of its standard deviation, rounded.
      times: int64[u], frequencies.
    """

    bins: IntArray
    steps: IntArray
    times: IntArray


def tally(noisy: FloatArray, expected: FloatArray, variance: float) -> Tally:
    """Tally noisy counts of one variance.

    Args:
      noisy: float64[...], unbiased noisy counts.
      expected: float64[...], expected counts >= 0, of the same shape.
      variance: Variance of the noise, > 0.

    Raises:
      SchemaError: The shapes differ or the variance is not positive.
    """
    if noisy.shape != expected.shape or not variance > 0:
        raise SchemaError(
            "tally of noisy counts",
            "needs expected counts of the same shape and a positive variance",
            got=f"{noisy.shape}, {expected.shape}, {variance}",
        )
    steps = noisy.ravel() * (_STEPS_PER_DEVIATION / np.sqrt(variance))
    step = np.rint(steps + _OFF_EDGES).astype(np.int64)
    return _summed(_bin(expected.ravel()), step, np.ones(noisy.size, np.int64))


def merge(tallies: Iterable[Tally]) -> Tally:
    """Add up tallies of noisy counts that have equal noise variances."""
    none = np.zeros(0, np.int64)
    every = [Tally(none, none, none), *tallies]
    return _summed(
        np.concatenate([t.bins for t in every]),
        np.concatenate([t.steps for t in every]),
        np.concatenate([t.times for t in every]),
    )


def _summed(bins: IntArray, steps: IntArray, times: IntArray) -> Tally:
    low = int(steps.min(initial=0))
    width = int(steps.max(initial=0)) - low + 1
    keys, numbers = np.unique(bins * width + (steps - low), return_inverse=True)
    sums = np.bincount(numbers, times, len(keys)).astype(np.int64)
    return Tally(keys // width, keys % width + low, sums)


def _bin(expected: FloatArray) -> IntArray:
    """Return bin 0 for expected counts of 0, then bins of increasing expected counts."""
    edges = _LEAST_MEAN * _RATIO ** np.arange(_BINS)
    return np.where(expected > 0, 1 + np.digitize(expected, edges), 0).astype(np.int64)


@dataclass(frozen=True, eq=False)
class LearnedPrior:
    """Fitted distributions of counts by bin of the expected count.

    Attributes:
      variance: Variance of the noise in the fitted counts.
      support: Per bin, float64[s] counts; empty for bins without a fit.
      mass: Per bin, float64[s] probabilities.
    """

    variance: float
    support: tuple[FloatArray, ...]
    mass: tuple[FloatArray, ...]

    def posterior_mean(self, noisy: FloatArray, expected: FloatArray) -> FloatArray:
        """Return E[x | z] of noisy counts z of this variance; z where no prior was fitted.

        Args:
          noisy: float64[...], noisy counts.
          expected: float64[...], expected counts of the same shape.
        """
        bins, flat = _bin(expected.ravel()), noisy.ravel()
        out = flat.copy()
        for index in np.unique(bins):
            if len(self.support[index]):
                rows = np.flatnonzero((bins == index) & (flat <= _largest(self.variance)))
                for start in range(0, len(rows), _ROWS):
                    some = rows[start : start + _ROWS]
                    weights = _likelihood(flat[some], self.support[index], self.variance)
                    weights *= self.mass[index]
                    out[some] = weights @ self.support[index] / weights.sum(1)
        return out.reshape(noisy.shape)


def learn_prior(tallied: Tally, variance: float) -> LearnedPrior:
    """Fit the distribution of counts of every bin by maximum likelihood.

    Expectation maximization runs a fixed number of steps from a uniform start. Early stopping
    smooths, and the result depends on the tally alone. Bins with few observations use those of
    neighboring bins too.

    Args:
      tallied: Tally of noisy counts.
      variance: Variance of their noise.
    """
    values = tallied.steps * (np.sqrt(variance) / _STEPS_PER_DEVIATION)
    support: list[FloatArray] = []
    mass: list[FloatArray] = []
    for index in range(_BINS + 2):
        near = _neighborhood(tallied, index, values <= _largest(variance))
        if near is None:
            support.append(np.zeros(0))
            mass.append(np.zeros(0))
            continue
        points = _grid(float(values[near].max()), variance)
        likelihood = _likelihood(values[near], points, variance)
        times = tallied.times[near] / tallied.times[near].sum()
        probabilities = np.full(len(points), 1 / len(points))
        for _ in range(_ITERATIONS):
            ratios = times / (likelihood @ probabilities)
            probabilities = probabilities * (ratios @ likelihood)
        support.append(points)
        mass.append(probabilities / probabilities.sum())
    return LearnedPrior(variance, tuple(support), tuple(mass))


def _neighborhood(tallied: Tally, index: int, is_covered: BoolArray) -> IntArray | None:
    """Return indices of covered entries in and around a bin; None if they have too few counts.

    Args:
      tallied: The tally.
      index: The bin, numbered from 0.
      is_covered: bool[u], the entries that may be used.
    """
    bins = tallied.bins
    if index not in bins:
        return None
    for reach in range(4 if index else 1):
        near = np.flatnonzero(
            (np.abs(bins - index) <= reach) & ((bins > 0) == (index > 0)) & is_covered
        )
        if tallied.times[near].sum() >= _LEAST_OBSERVATIONS:
            return near
    return None


def _largest(variance: float) -> float:
    """Return the largest noisy count that a prior covers; larger counts would hardly change."""
    return float(_FINE_GRID + _COARSE_POINTS * np.sqrt(variance))


def _grid(largest: float, variance: float) -> FloatArray:
    """Return the support points of the prior: small counts one by one, then one per deviation.

    Args:
      largest: Largest count to cover.
      variance: Variance of the noise.
    """
    fine = np.arange(min(_FINE_GRID, max(10, int(largest) + 1)) + 1, dtype=np.float64)
    step = max(1.0, np.sqrt(variance))
    coarse = np.rint(np.arange(fine[-1] + step, largest + 1 + step, step))
    return np.concatenate([fine, coarse])


def _likelihood(values: FloatArray, points: FloatArray, variance: float) -> FloatArray:
    """Return exp(-(z - x)^2 / 2v), divided by the largest value of each row.

    Args:
      values: float64[z], noisy counts z.
      points: float64[x], support points x.
      variance: v, the variance of the noise.
    """
    exponent = -0.5 * (values[:, None] - points[None, :]) ** 2 / variance
    return np.asarray(np.exp(exponent - exponent.max(1, keepdims=True)))
