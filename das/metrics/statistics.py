"""Statistics of an ErrorSummary for reports, as plain JSON values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from das.arrays import IntArray, sums_at
from das.metrics.accuracy import SIZE_LABELS, TRUE_LABELS, ErrorSummary, unpack

QUANTILES = {
    "q50": Fraction(1, 2),
    "q90": Fraction(9, 10),
    "q95": Fraction(95, 100),
    "q99": Fraction(99, 100),
}
ERROR_EDGES = (0, 1, 2, 3, 5, 10, 20, 50)  # least absolute error of each class


@dataclass(frozen=True)
class Moments:
    """Exact sums over errors.

    Attributes:
      answers: Number of errors.
      total: Sum of errors.
      absolute: Sum of absolute errors.
      squared: Sum of squared errors.
      largest: Largest absolute error, 0 if there are none.
      exact: Number of errors that are 0.
    """

    answers: int
    total: int
    absolute: int
    squared: int
    largest: int
    exact: int

    def means(self) -> dict[str, float | int | None]:
        """Return answers, mae, rmse, bias, max and exact (a share); None where undefined."""
        n = self.answers
        return {
            "answers": n,
            "mae": self.absolute / n if n else None,
            "rmse": math.sqrt(Fraction(self.squared, n)) if n else None,
            "bias": self.total / n if n else None,
            "max": self.largest if n else None,
            "exact": self.exact / n if n else None,
        }


def moments(errors: IntArray, counts: IntArray) -> Moments:
    """Sum errors, each taken `counts` times, without rounding or overflow.

    Args:
      errors: int64[k], distinct or repeated errors of answers.
      counts: int64[k], positive: how often each error occurs.
    """
    total = absolute = squared = 0
    for error, count in zip(errors.tolist(), counts.tolist(), strict=True):
        total += error * count
        absolute += abs(error) * count
        squared += error * error * count
    largest = int(np.abs(errors).max()) if len(errors) else 0
    exact = int(counts[errors == 0].sum())
    return Moments(int(counts.sum()), total, absolute, squared, largest, exact)


def quantile(errors: IntArray, counts: IntArray, share: Fraction) -> int | None:
    """Return the least v such that at least `share` of the absolute errors are <= v.

    Args:
      errors: int64[k], distinct or repeated errors of answers.
      counts: int64[k], positive: how often each error occurs.
      share: 0 < share <= 1, exact.

    Returns:
      None if there are no errors.
    """
    if len(errors) == 0:
        return None
    order = np.argsort(np.abs(errors), kind="stable")
    reached = np.cumsum(counts[order])
    rank = math.ceil(share * int(reached[-1]))
    return int(np.abs(errors)[order][np.searchsorted(reached, rank)])


def describe(summary: ErrorSummary) -> dict[str, object]:
    """Return every statistic of a summary as JSON values.

    Returns:
      geounits, persons; answers, mae, rmse, bias (mean of released minus true), max, exact (share
      of answers exactly right); l1 (sum of absolute errors) and tvd (l1 / (2 persons), None
      without persons); appeared, vanished; q50..q99 of the absolute error; live (answers not zero
      on both sides) and distribution (share of live answers in each class of ERROR_EDGES);
      by_size and by_true, one entry per bin with the means of the bin; most_changed.
    """
    errors, size_bins, true_bins = unpack(summary.keys)
    counts = summary.counts
    whole = moments(errors, counts)
    live = (errors != 0) | (true_bins != 0)
    classes = np.searchsorted(ERROR_EDGES, np.abs(errors[live]), side="right") - 1
    sums = sums_at(classes, counts[live], len(ERROR_EDGES))
    n_live = int(sums.sum())
    return {
        "geounits": int(summary.geounits.sum()),
        "persons": summary.persons,
        **whole.means(),
        "l1": whole.absolute,
        "tvd": whole.absolute / (2 * summary.persons) if summary.persons else None,
        "appeared": summary.appeared,
        "vanished": summary.vanished,
        **{name: quantile(errors, counts, share) for name, share in QUANTILES.items()},
        "live": n_live,
        "distribution": [int(s) / n_live for s in sums] if n_live else [],
        "by_size": [
            {**means, "geounits": int(geounits)}
            for means, geounits in zip(
                _by_bin(errors, counts, size_bins, SIZE_LABELS), summary.geounits, strict=True
            )
        ],
        "by_true": _by_bin(errors, counts, true_bins, TRUE_LABELS),
        "most_changed": [
            {"geocode": c.geocode, "l1": c.l1, "persons": c.true_total, "net": c.net}
            for c in summary.top
        ],
    }


def _by_bin(
    errors: IntArray, counts: IntArray, bins: IntArray, labels: tuple[str, ...]
) -> list[dict[str, object]]:
    return [
        {"bin": label, **moments(errors[bins == index], counts[bins == index]).means()}
        for index, label in enumerate(labels)
    ]
