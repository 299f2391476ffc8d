"""Weighted sums of units as noisy answers of a later product tell them; reads the release alone.

A product that others are tied to is solved first, and what it says binds them. So it is fitted to
the noisy answers of both: an estimate of the persons in households, with its variance, is an answer
about the sum of size x households. Those of an open size hold more than its least; how many more in
the mean, the estimate of the root and the units solved there say. What one household differs from
that is taken to vary like a geometric number of that mean, and the mean itself from one geounit to
another by a third. Nothing is spent: noisy answers are measured, and what is made of them is free.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from das.arrays import FloatArray, IntArray
from das.histograms import Histograms
from invariants.between import weighted_sums
from jobs.pipeline.plan import Hint
from jobs.pipeline.release.estimate import subtree_estimates
from jobs.pipeline.release.level import LevelRange, LevelReader
from jobs.pipeline.release.problems import ToldSum
from jobs.pipeline.storage.histograms import read_counts
from jobs.pipeline.tasks.batches import all_geounits

_LEAST_VARIANCE = 1 / 12  # of what is all but exact: rounding alone has as much


@dataclass(frozen=True, eq=False)
class HintReader:
    """Reads what a hint says of ranges of a geolevel.

    Attributes:
      hint: The hint.
      later: Reads the geolevel of the later product.
      beyond: float64[t], what an open unit holds beyond its least, in the mean; NaN at the root,
        where no unit is solved yet.
    """

    hint: Hint
    later: LevelReader
    beyond: FloatArray

    def read(self, rows: LevelRange) -> list[ToldSum]:
        """What is told of the geounits of a range that are not only children."""
        hint, parts = self.hint, []
        for values, covariances, kind in subtree_estimates(self.later, rows, hint.query):
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


def hint_readers(reader: LevelReader) -> list[HintReader]:
    """Open what hints say of a geolevel; none under maxfit, which fits partitions alone.

    Raises:
      OutputError: Estimates of a later product, or counts of the root, are not complete.
    """
    plan, level = reader.plan, reader.level.index
    readers = []
    for hint in () if plan.solving.method == "maxfit" else plan.hints:
        release = reader.release.beside(hint.folder)
        later, beyond = LevelReader(hint.plan, release, level), np.full(len(hint.least), np.nan)
        if level:
            root = LevelReader(hint.plan, release, 0)
            rows = root.rows(all_geounits(0))
            counts = read_counts(reader.release, plan.levels[0].name, rows.codes, plan.schema.size)
            beyond = _mean_beyond(hint, counts, subtree_estimates(root, rows, hint.query))
        readers.append(HintReader(hint, later, beyond))
    return readers


def _mean_beyond(
    hint: Hint,
    counts: Histograms,
    estimates: Iterable[tuple[FloatArray, FloatArray, IntArray]],
) -> FloatArray:
    """float64[t]: what an open unit holds beyond its least, in the mean over the root."""
    records = sum(values.sum(0) for values, _, _ in estimates) @ hint.types.T
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
