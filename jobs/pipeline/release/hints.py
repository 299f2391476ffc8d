"""Weighted sums of units as noisy answers of a later product tell them; reads the release alone.

A product that others are tied to is solved first, and what it says binds them. So it is fitted to
the noisy answers of both: an estimate of the persons in households, with its variance, is an answer
about the sum of size x households. Those of an open size hold more than its least; how many more in
the mean, the estimate of the root and the units solved there say. What one household differs from
that is taken to vary like a geometric number of that mean, and the mean itself from one geounit to
another by a third. Nothing is spent: noisy answers are measured, and what is made of them is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import nnls

from das.arrays import FloatArray, IntArray
from das.histograms import Histograms
from invariants.between import weighted_sums
from jobs.pipeline.plan import Hint, Plan
from jobs.pipeline.release.estimate import CONFIDENCE, LevelEstimator
from jobs.pipeline.storage.dataset import RangeReader
from jobs.pipeline.storage.geography import read_public_geocodes
from jobs.pipeline.storage.histograms import read_counts
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.tasks.batches import Batch, all_geounits

# How what an open unit holds beyond its least, in the mean, differs between geounits, as a share of
# it. Persons beside the householder, per occupied unit, of public counts: 0.35 between tracts, 0.37
# between block groups and 0.43 between blocks of Cook County in 2010, less what units of a geounit
# differ by chance; 0.28 between tracts of Illinois in 2020.
_BETWEEN = 1 / 3
_LEAST_VARIANCE = 1 / 12  # of what is all but exact: rounding alone has as much


@dataclass(frozen=True, eq=False)
class ToldSum:
    """What is told of a weighted sum of the cells of M geounits.

    Attributes:
      coefficients: float64[n].
      beyond: float64[n], what of it one unit holds beyond its least, which varies.
      spread: float64[n], the variance of that of one unit.
      answers: float64[M].
      weights: float64[M], inverse variances without that of the units.
    """

    coefficients: FloatArray
    beyond: FloatArray
    spread: FloatArray
    answers: FloatArray
    weights: FloatArray

    def take(self, measured: IntArray) -> ToldSum:
        """That of some of the geounits."""
        answers, weights = self.answers[measured], self.weights[measured]
        return replace(self, answers=answers, weights=weights)

    def of_family(self, parent: IntArray, cells: IntArray, rows: slice) -> FloatArray:
        """float64[C]: inverse variances of children, with that of what open units hold.

        Open units are spread over the children as the answers are, and what they hold beyond their
        least in the mean differs between geounits.

        Args:
          parent: int64[k], counts of the parent in its live cells.
          cells: int64[k], these cells.
          rows: The children among the geounits.
        """
        weights, records = self.weights[rows], np.maximum(self.answers[rows], 0)
        share = records / max(float(records.sum()), 1.0)
        varies = share * float(self.spread[cells] @ parent)
        varies += (_BETWEEN * share * float(self.beyond[cells] @ parent)) ** 2
        return np.asarray(weights / (1 + varies * weights), np.float64)


@dataclass(frozen=True, eq=False)
class HintReader:
    """Reads what a hint says of ranges of a geolevel.

    Attributes:
      hint: The hint.
      estimator: Of the later product.
      messages: Its estimates from subtrees; None at the leaves.
      beyond: float64[t], what an open unit holds beyond its least, in the mean; NaN at the root,
        where no unit is solved yet.
    """

    hint: Hint
    estimator: LevelEstimator
    messages: RangeReader | None
    beyond: FloatArray

    @classmethod
    def of(cls, hint: Hint, plan: Plan, release: ReleaseLayout, level: int) -> HintReader:
        """Open what a geolevel of the product before needs; all above it is solved.

        Raises:
          OutputError: Estimates of the later product are not complete.
        """
        estimator = LevelEstimator(hint.plan, release.beside(hint.folder), (), CONFIDENCE)
        beyond = np.full(len(hint.least), np.nan)
        if level:
            root = plan.levels[0].name
            codes = read_public_geocodes(release, root)
            counts = read_counts(release, root, codes, plan.schema.size)
            beyond = _mean_beyond(hint, counts, estimator)
        return cls(hint, estimator, _messages(estimator, level), beyond)

    def read(self, batch: Batch) -> list[ToldSum]:
        """What is told of the geounits of a range that are not only children."""
        hint, parts = self.hint, []
        found = self.estimator.subtree_estimates(batch, hint.query, self.messages)
        for values, covariances, kind in found:
            weights = np.array([weights_of(hint, one) for one in covariances])
            parts.append((values @ hint.types.T @ hint.sums.T, weights[kind]))
        answers, weights = (np.concatenate(part) for part in zip(*parts, strict=True))
        is_known = np.isfinite(self.beyond) | ~hint.is_open.any(1)
        mean = np.where(hint.is_open.any(1) & is_known, self.beyond, 0.0)[:, None] * hint.is_open
        return [
            ToldSum(
                members @ (hint.least + mean),
                members @ mean,
                members @ (mean * (1 + mean)),
                answers[:, number],
                weights[:, number],
            )
            for number, members in enumerate(hint.sums)
            if is_known[members > 0].all()
        ]


def _messages(estimator: LevelEstimator, level: int) -> RangeReader | None:
    return None if level == estimator.leaf else estimator.reader(level)


def _mean_beyond(hint: Hint, counts: Histograms, estimator: LevelEstimator) -> FloatArray:
    """float64[t]: what an open unit holds beyond its least, in the mean over the root."""
    read = estimator.subtree_estimates(all_geounits(0), hint.query, _messages(estimator, 0))
    records = sum(values.sum(0) for values, _, _ in read) @ hint.types.T
    out = np.zeros(len(hint.least))
    for one, (least, is_open) in enumerate(zip(hint.least, hint.is_open, strict=True)):
        units = int(weighted_sums(is_open.astype(np.int64), counts).sum())
        rest = float(records[one]) - int(weighted_sums(least, counts).sum())
        out[one] = max(0.0, rest) / max(1, units)
    return out


def weights_of(hint: Hint, covariance: FloatArray) -> FloatArray:
    """float64[d]: weights of sums of types that say together what an estimate of them says.

    The best nonnegative ones in least squares of relative information, as in `das.tree.targets`;
    zeros if they are not found, for what is only told may not make a run fail.

    Args:
      hint: Types and sums.
      covariance: float64[m, m], of the answers to the query.
    """
    of_types = hint.types @ covariance @ hint.types.T
    root = np.linalg.cholesky(of_types + _LEAST_VARIANCE * np.eye(len(of_types)))
    seen = [root.T @ members for members in hint.sums.astype(np.float64)]
    columns = np.array([np.outer(one, one).ravel() for one in seen]).T
    scale = np.linalg.norm(columns, axis=0)
    try:
        found, _ = nnls(columns / scale, np.eye(len(of_types)).ravel())
    except RuntimeError:  # it did not converge: units are solved without being told, as they may be
        return np.zeros(len(hint.sums))
    return np.asarray(found / scale, np.float64)


def hint_readers(plan: Plan, release: ReleaseLayout, level: int) -> Sequence[HintReader]:
    """What reads the hints of a geolevel; none under maxfit, which fits partitions alone."""
    hints = () if plan.solving.method == "maxfit" else plan.hints
    return [HintReader.of(hint, plan, release, level) for hint in hints]
