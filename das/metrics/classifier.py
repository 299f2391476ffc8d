"""A classifier that needs no chance: whether a record has some trait, by its other attributes.

Logistic regression on the levels of attributes, each with an effect of its own, by Newton's method.
It shows what a use of released microdata does to groups (`das.metrics.microdata`).

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

# Of 1/2 |effects|^2, beside the sum of losses over records, as in the usual libraries; of the
# intercept too, so that there is one optimum whatever the records.
_RIDGE = 1.0
# Effects are whole multiples of 2^-14. Newton's method leaves some 1e-10 of an effect to the
# processor: a gradient of 5 million records is a sum with that error, and the ridge keeps the
# curvature at 1 or more. That one of 100 effects is that near to a boundary of rounding happens
# about once in 3,000 fits, and then moves the scores of records by 2^-14.
_UNIT = 1 << 14
_SMALL_STEP = 1e-3  # of a decrement: below it full steps converge, and losses differ by noise
_CONVERGED = 1e-12  # of a decrement; the step that is then taken squares what is left
_MOST_STEPS = 200  # 6 to 12 are taken on surveys


@dataclass(frozen=True, eq=False)
class Classifier:
    """Effects of the levels of d attributes on the logarithm of the odds.

    Attributes:
      intercept: In units of 2^-14.
      effects: Per attribute int64[n_i], in the same units.
    """

    intercept: int
    effects: tuple[IntArray, ...]

    def predict(self, codes: IntArray) -> BoolArray:
        """Whether odds are above one, bool[n], by integers alone.

        Args:
          codes: int64[n, d].
        """
        scores = np.full(len(codes), self.intercept, np.int64)
        for i, effects in enumerate(self.effects):
            scores += effects[codes[:, i]]
        return scores > 0


def train(codes: IntArray, sizes: Sequence[int], positive: BoolArray) -> Classifier:
    """Fit a logistic regression with ridge 1 to records.

    The same records give the same classifier, in whatever order they come: the optimum is unique,
    and effects are rounded far above the error with which it is found.

    Args:
      codes: int64[n, d]; n may be 0.
      sizes: d numbers of levels, d at least 1.
      positive: bool[n], what is predicted.

    Raises:
      SchemaError: Shapes do not fit, or a code is no level.
      SolverError: The fit does not converge.
    """
    fits = (
        codes.ndim == 2 and codes.shape[1] == len(sizes) > 0 and positive.shape == codes.shape[:1]
    )
    if not fits or (len(codes) and ((codes < 0) | (codes >= np.array(sizes))).any()):
        raise SchemaError(
            "classifier",
            "needs the codes of records, and a flag of each",
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
    """Sums of values of records: of all, and by the levels of each attribute."""
    parts = [np.array([values.sum()])]
    for i, (low, high) in enumerate(itertools.pairwise(starts.tolist())):
        parts.append(np.bincount(columns[:, i], weights=values, minlength=high - low))
    return np.concatenate(parts)


def _curvature(columns: IntArray, starts: IntArray, weights: FloatArray) -> FloatArray:
    """Second derivatives: weights of records by the levels of every two attributes, and ridge."""
    n_levels = int(starts[-1])
    out = np.zeros((n_levels, n_levels))
    own = _sums(columns, starts, weights)
    out[0] = out[:, 0] = own
    spans = list(itertools.pairwise(starts.tolist()))
    for (i, (low, high)), (j, (first, last)) in itertools.combinations(enumerate(spans), 2):
        spots = columns[:, i] * (last - first) + columns[:, j]
        cells = (high - low) * (last - first)
        table = np.bincount(spots, weights=weights, minlength=cells).reshape(high - low, -1)
        out[low:high, first:last] = table
        out[first:last, low:high] = table.T
    np.fill_diagonal(out, own + _RIDGE)
    return out


def _loss(scores: FloatArray, positive: BoolArray, effects: FloatArray) -> float:
    """Negative log-likelihood and ridge."""
    losses = np.logaddexp(0.0, np.where(positive, -scores, scores))
    return float(losses.sum() + _RIDGE / 2 * (effects @ effects))
