"""Deterministic logistic regression that predicts a binary trait from a record's attributes.

Every level of an attribute has an effect; the fit uses Newton's method. Reports use the classifier
to show the effect of released microdata on groups (`das.metrics.microdata`).

References:
  Boyd & Vandenberghe, Convex Optimization, 9.5 (Newton's method with backtracking).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import linalg, special

from das.arrays import BoolArray, FloatArray, IntArray
from das.errors import SchemaError, SolverError

# Coefficient of 1/2 |effects|^2 in the loss, as in the usual libraries. The intercept has a ridge
# too, so that the optimum is unique for any records.
_RIDGE = 1.0
# Effects are integer multiples of 2^-14. Processors differ by about 1e-10 of an effect: the error
# of a gradient over 5 million records, with curvature at least 1 from the ridge. Rounding then
# differs for one of 100 effects about once in 3,000 fits, which moves scores by 2^-14.
_UNIT = 1 << 14
_SMALL_STEP = 1e-3  # decrement below which full steps converge and losses differ by rounding only
_CONVERGED = 1e-12  # decrement; the final step squares the remaining error
_MOST_STEPS = 200  # surveys take 6 to 12


@dataclass(frozen=True, eq=False)
class Classifier:
    """Effects of the levels of d attributes on the logarithm of the odds.

    Attributes:
      intercept: Effect of every record, in units of 2^-14.
      effects: Per attribute int64[n_i], in the same units.
    """

    intercept: int
    effects: tuple[IntArray, ...]

    def predict(self, codes: IntArray) -> BoolArray:
        """Return bool[n], whether the odds are above one; in integer arithmetic.

        Args:
          codes: int64[n, d], the level of each of d attributes of n records, numbered from 0.
        """
        scores = np.full(len(codes), self.intercept, np.int64)
        for i, effects in enumerate(self.effects):
            scores += effects[codes[:, i]]
        return scores > 0


def train(codes: IntArray, sizes: Sequence[int], positive: BoolArray) -> Classifier:
    """Fit a logistic regression with ridge 1 to records.

    The classifier does not depend on the order of records: the optimum is unique, and effects are
    rounded far above the numerical error.

    Args:
      codes: int64[n, d]; n may be 0.
      sizes: d numbers of levels, d at least 1.
      positive: bool[n], the trait to predict.

    Raises:
      SchemaError: Shapes do not fit, or a code is not a level.
      SolverError: The fit does not converge.
    """
    fits = (
        codes.ndim == 2 and codes.shape[1] == len(sizes) > 0 and positive.shape == codes.shape[:1]
    )
    if not fits or (len(codes) and ((codes < 0) | (codes >= np.array(sizes))).any()):
        raise SchemaError(
            "classifier",
            "needs the codes of records, and one flag per record",
            got=f"{codes.shape} and {positive.shape}",
            want=f"levels of {len(sizes)} attributes",
        )
    columns = np.asfortranarray(codes)
    starts = np.cumsum([1, *sizes])
    effects = np.zeros(starts[-1])
    for _ in range(_MOST_STEPS):
        scores = _scores(columns, starts, effects)
        shares = special.expit(scores)
        gradient = _sums(columns, starts, shares - positive) + _RIDGE * effects
        curvature = _curvature(columns, starts, shares * (1.0 - shares))
        step = linalg.solve(curvature, gradient, assume_a="pos", overwrite_a=True)
        decrement = float(gradient @ step)
        length = 1.0
        if decrement > _SMALL_STEP:
            before = _loss(scores, positive, effects)
            while length > 2.0**-40:
                tried = effects - length * step
                after = _loss(_scores(columns, starts, tried), positive, tried)
                if after <= before - length * decrement / 4:
                    break
                length /= 2
        effects = effects - length * step
        if decrement <= _CONVERGED:
            units = np.rint(effects * _UNIT).astype(np.int64)
            inside = itertools.pairwise(starts.tolist())
            return Classifier(int(units[0]), tuple(units[low:high] for low, high in inside))
    raise SolverError("classifier", "does not converge", got=f"{_MOST_STEPS} steps")


def _scores(columns: IntArray, starts: IntArray, effects: FloatArray) -> FloatArray:
    scores = np.full(len(columns), effects[0])
    for i, start in enumerate(starts[:-1]):
        scores += effects[start : starts[i + 1]][columns[:, i]]
    return scores


def _sums(columns: IntArray, starts: IntArray, values: FloatArray) -> FloatArray:
    """Return the sum of values over all records, then sums by the levels of each attribute.

    Args:
      columns: int64[n, d], the level, from 0, of each attribute in each record.
      starts: int64[d + 1], index of the first level of each attribute in the result, and the end.
      values: float64[n], the value of each record.
    """
    sizes = np.diff(starts).tolist()
    parts = [np.bincount(columns[:, i], values, minlength=n) for i, n in enumerate(sizes)]
    return np.concatenate([np.array([values.sum()]), *parts])


def _curvature(columns: IntArray, starts: IntArray, weights: FloatArray) -> FloatArray:
    """Return the Hessian of the loss: weights summed by each pair of levels, plus the ridge.

    Args:
      columns: int64[n, d], the level, from 0, of each attribute in each record.
      starts: int64[d + 1], index of the first level of each attribute in the result, and the end.
      weights: float64[n], the weight of each record.
    """
    n_levels = int(starts[-1])
    out = np.zeros((n_levels, n_levels))
    by_level = _sums(columns, starts, weights)
    out[0] = out[:, 0] = by_level
    spans = list(itertools.pairwise(starts.tolist()))
    for (i, (low, high)), (j, (first, last)) in itertools.combinations(enumerate(spans), 2):
        spots = columns[:, i] * (last - first) + columns[:, j]
        cells = (high - low) * (last - first)
        table = np.bincount(spots, weights=weights, minlength=cells).reshape(high - low, -1)
        out[low:high, first:last] = table
        out[first:last, low:high] = table.T
    np.fill_diagonal(out, by_level + _RIDGE)
    return out


def _loss(scores: FloatArray, positive: BoolArray, effects: FloatArray) -> float:
    """Return the negative log-likelihood plus the ridge penalty.

    Args:
      scores: float64[n], log odds of each record.
      positive: bool[n], whether each record is positive.
      effects: All effects, which the ridge shrinks.
    """
    losses = np.logaddexp(0.0, np.where(positive, -scores, scores))
    return float(losses.sum() + _RIDGE / 2 * (effects @ effects))
