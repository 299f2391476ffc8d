"""Parametric bootstrap of a release: errors of replicates by size class, and intervals from them.

A replicate treats a release y as the truth, draws fresh noise with the same laws and solves again
to y'. Only y enters, so no privacy is lost. Among answers of one class of y', the law of y - y'
estimates the law of truth - y among released answers of the class. So classes are defined by the
released count and by the released population of its geounit: the error of an answer released as 0
can have one sign only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction

import numpy as np

from das.arrays import FloatArray, IntArray
from das.errors import SchemaError
from das.histograms import Histograms, freeze_arrays
from das.metrics.accuracy import TRUE_EDGES, gather, summarize_query, unpack
from das.queries.query import Query


@dataclass(frozen=True, eq=False)
class ClassErrors:
    """Errors counted by class of geounit and answer; sums over disjoint answers are exact.

    Attributes:
      keys: int64[k]; distinct (error, size bin, count bin), packed as in `das.metrics.accuracy`.
      counts: int64[k]; answers with each key, positive.
    """

    keys: IntArray
    counts: IntArray

    def __post_init__(self) -> None:
        freeze_arrays(self, "keys", "counts")

    @property
    def nbytes(self) -> int:
        """Return the memory of `keys` and `counts` in bytes."""
        return self.keys.nbytes + self.counts.nbytes

    def by_class(self) -> dict[int, tuple[IntArray, IntArray]]:
        """Return the errors, ascending, and their counts by class, size bin x 7 + count bin."""
        errors, size_bins, count_bins = unpack(self.keys)
        classes = size_bins * len(TRUE_EDGES) + count_bins
        return {
            int(number): (errors[inside], self.counts[inside])
            for number in np.unique(classes)
            for inside in [classes == number]
        }


@dataclass(frozen=True, eq=False)
class Compared:
    """Errors of one query between a release and its replicate, in some geounits.

    Attributes:
      by_release: replicate - release, by classes of the release: the effect of a run on counts.
      by_replicate: release - replicate, by classes of the replicate: estimates the error of a
        released answer.
    """

    by_release: ClassErrors
    by_replicate: ClassErrors


def compare(query: Query, release: Histograms, replicate: Histograms) -> Compared:
    """Compare a query on the same geounits between a release and its replicate.

    Raises:
      SchemaError: The histograms do not fit the query or each other.
    """
    codes = [""] * release.n_geounits
    if replicate.n_geounits != len(codes):
        raise SchemaError("replicates", "hold other geounits than the release")
    forward = summarize_query(query, codes, release, replicate)
    backward = summarize_query(query, codes, replicate, release)
    return Compared(
        ClassErrors(forward.keys, forward.counts), ClassErrors(backward.keys, backward.counts)
    )


def add_errors(parts: Iterable[ClassErrors]) -> ClassErrors:
    """Return the errors of disjoint answers, or of several replicates, together."""
    none = np.zeros(0, np.int64)
    padded = [*parts, ClassErrors(none, none)]
    return ClassErrors(
        *gather(
            np.concatenate([part.keys for part in padded]),
            np.concatenate([part.counts for part in padded]),
        )
    )


def add_compared(parts: Sequence[Compared]) -> Compared:
    """Return the errors of disjoint answers, or of several replicates, together."""
    by_release = add_errors(part.by_release for part in parts)
    return Compared(by_release, add_errors(part.by_replicate for part in parts))


class Mark(IntEnum):
    """Coverage of the intervals of a class, as estimated by replicates of replicates.

    Attributes:
      WITHIN: The nominal coverage, within two percentage points.
      ABOVE: Higher coverage: counts are integers, and no narrower interval has enough coverage.
      BELOW: Coverage more than two points below nominal: the class is not covered.
      UNKNOWN: There are too few replicates of such answers.
      SHIFTED: Nominal coverage among replicates, but the release is a poor substitute for the
        truth: from replicates to their replicates the mean error or the number of answers changes
        by more than chance. Coverage of the truth may then be a few points lower.
    """

    WITHIN = 0
    ABOVE = 1
    BELOW = 2
    UNKNOWN = 3
    SHIFTED = 4


# By count bin, the share of leaf answers left outside of an interval, in units of 1 - confidence.
# Replicates take the release for the truth, and true blocks are more uneven than released ones:
# with one unit, 90 % intervals covered 85 to 89 % of the answers of 5 or more, and 75 to 86 % of
# such totals. Chosen on the public blocks of Rhode Island and Delaware in 2010 (`python -m
# bench.replicate_coverage --data FOLDER`).
ONE_SHARE = (Fraction(1),) * len(TRUE_EDGES)  # of other geolevels
LEAF_SHARES = tuple(Fraction(share, 100) for share in (100, 100, 100, 70, 80, 75, 70))
TOTAL_SHARES = tuple(Fraction(share, 100) for share in (100, 100, 70, 30, 60, 60, 35))
TOLERANCE = Fraction(2, 100)  # tolerance of the coverage; default, not measured
# Change of the mean error, in standard deviations, and of the logarithm of the number of answers,
# from one step to the next, above which a class counts as shifted. Classes of blocks within two
# points among replicates covered 88.4 % of the truths in Delaware and 86.4 % in a generated state
# of 2,016 cells; classes that are not shifted covered 89.8 and 87.9 %
# (`python -m bench.replicate_coverage`).
MOST_DRIFT = 0.02
MOST_CHANGE = 0.1
_LEAST_SPREAD = 0.3  # minimum sd, for classes whose errors are nearly all 0; not measured
_CHANCE = 2.0  # standard errors


@dataclass(frozen=True)
class ClassInterval:
    """Interval for truth - released answer in one class.

    Attributes:
      low: Lower end of the interval; with too few answers for `central`, minus the upper end.
      high: Upper end of the interval.
      answers: Number of answers of replicates behind the interval.
      expected: Estimated coverage: share of answers of replicates inside intervals computed from
        replicates of replicates; None without such replicates.
      mark: Assessment of the coverage.
    """

    low: int
    high: int
    answers: int
    expected: float | None
    mark: Mark


def central(errors: IntArray, counts: IntArray, confidence: Fraction) -> tuple[int, int] | None:
    """Return a prediction interval between two order statistics.

    For N exchangeable draws and one more, the k-th smallest and k-th largest of the N contain the
    last with probability at least (N + 1 - 2 k) / (N + 1). k is the largest with at least the
    confidence. With ties, an end then moves inwards while the coverage stays sufficient, and once
    more if that is nearer to the confidence: else whole numbers would cover more on average.

    Args:
      errors: int64[k], ascending.
      counts: int64[k], positive; N is their sum.
      confidence: Coverage probability, less than 1.

    Returns:
      Lower and upper end; None if there are too few draws for this confidence.
    """
    reached = np.cumsum(counts)
    n = int(reached[-1])
    wanted = (1 - confidence) * (n + 1)  # draws that should lie outside, the last one included
    outside = math.floor(wanted)
    rank = outside // 2
    if not rank:
        return None
    low = int(np.searchsorted(reached, rank))
    high = int(np.searchsorted(reached, n + 1 - rank))
    below = int(reached[low] - counts[low])
    above = n - int(reached[high])
    while low < high:  # only with ties
        left, right = below + int(counts[low]), above + int(counts[high])
        if left <= right and left + above <= outside - 2:
            low, below = low + 1, left
        elif right + below <= outside - 2:
            high, above = high - 1, right
        elif left + above <= outside - 2:
            low, below = low + 1, left
        else:
            break
    if low < high and min(counts[low], counts[high]) < 2 * (wanted - 2 - below - above):
        low, high = (low + 1, high) if counts[low] <= counts[high] else (low, high - 1)
    return int(errors[low]), int(errors[high])


def class_intervals(
    first: Compared,
    second: Compared,
    confidence: Fraction,
    shares: Sequence[Fraction] = ONE_SHARE,
) -> dict[int, ClassInterval]:
    """Return the intervals of all classes of one query at one geolevel, by class.

    Args:
      first: Errors between a release and all its replicates.
      second: Errors between the replicates and their replicates.
      confidence: Coverage probability of the intervals.
      shares: By count bin, the share of answers outside of intervals, in units of 1 - confidence.
    """
    released = {c: int(counts.sum()) for c, (_, counts) in first.by_release.by_class().items()}
    deeper = second.by_replicate.by_class()
    out = {}
    for number, (errors, counts) in first.by_replicate.by_class().items():
        n = int(counts.sum())
        wanted = 1 - shares[number % len(TRUE_EDGES)] * (1 - confidence)
        ends = central(errors, counts, wanted)
        checked = central(*deeper[number], wanted) if ends and number in deeper else None
        if ends is None or checked is None:
            ends = ends or _symmetric(errors, counts, wanted)
            out[number] = ClassInterval(*ends, n, None, Mark.UNKNOWN)
            continue
        inside = (errors >= checked[0]) & (errors <= checked[1])
        expected = float(counts[inside].sum() / n)
        mark = mark_of(expected, wanted)
        if mark is Mark.WITHIN and is_shifted(
            (errors, counts), deeper[number], released.get(number, 0)
        ):
            mark = Mark.SHIFTED
        out[number] = ClassInterval(*ends, n, expected, mark)
    return out


def _symmetric(errors: IntArray, counts: IntArray, confidence: Fraction) -> tuple[int, int]:
    """Return an interval around 0 from few draws: their root mean square times Student's t."""
    from scipy.special import stdtrit

    n = int(counts.sum())
    spread = math.sqrt(int((errors * errors * counts).sum()) / n)
    half = math.ceil(stdtrit(n, (1 + float(confidence)) / 2) * spread)
    return -half, half


def is_shifted(
    first: tuple[IntArray, IntArray], second: tuple[IntArray, IntArray], released: int
) -> bool:
    """Return whether a class changes from a release to replicates, or from these to the next.

    Args:
      first: Errors of the class among replicates, and their counts.
      second: Errors of the class among replicates of replicates, and their counts.
      released: Answers of the class in the release, once for each replicate.
    """
    mean, spread = _moments(*first)
    n, number = int(first[1].sum()), int(second[1].sum())
    chance = _CHANCE / math.sqrt(number)
    drift = abs(mean - _moments(*second)[0]) / max(spread, _LEAST_SPREAD)
    change = abs(math.log(n / released)) if released else math.inf
    return drift > max(MOST_DRIFT, chance) or change > max(MOST_CHANGE, chance)


def _moments(errors: IntArray, counts: IntArray) -> tuple[float, float]:
    """Return the mean and the standard deviation, from exact sums."""
    n, total = int(counts.sum()), int((errors * counts).sum())
    squares = int((errors * errors * counts).sum())
    return total / n, math.sqrt(max(0, n * squares - total * total)) / n


def mark_of(coverage: float, confidence: Fraction) -> Mark:
    """Return the assessment of an estimated coverage against the confidence.

    Args:
      coverage: The estimated coverage.
      confidence: The coverage that the intervals should have.
    """
    if coverage < confidence - TOLERANCE:
        return Mark.BELOW
    return Mark.ABOVE if coverage > confidence + TOLERANCE else Mark.WITHIN


@dataclass(frozen=True, eq=False)
class OwnIntervals:
    """Intervals of single answers from replicates of the same answers.

    Attributes:
      lower: int64[A, m], smallest true answer in the interval.
      upper: int64[A, m], largest.
      bias: float64[A, m], mean of replicate - release.
      spread: float64[A, m], standard deviation of replicate - release.
    """

    lower: IntArray
    upper: IntArray
    bias: FloatArray
    spread: FloatArray


def own_intervals(seen: IntArray, replicated: IntArray, confidence: float) -> OwnIntervals:
    """Return intervals of sums over areas, from the errors of replicates of the same sums.

    The integers in seen -+ t RMSE sqrt(1 + 1 / R), t of Student's law with R - 1 degrees of
    freedom. The mean error widens the interval and does not move it, because the bias of
    post-processing in an area depends on rounding there and has either sign equally often.

    Args:
      seen: int64[A, m], answers of the release.
      replicated: int64[R, A, m], answers of R replicates, R >= 2.
      confidence: Coverage probability of the intervals.

    Raises:
      SchemaError: There are fewer than two replicates.
    """
    from scipy.special import stdtrit

    n = len(replicated)
    if n < 2:
        raise SchemaError("replicates", "are too few for an interval", got=n, want="2 or more")
    errors = replicated - seen
    bias, spread = errors.mean(0), errors.std(0, ddof=1)
    factor = float(stdtrit(n - 1, (1 + confidence) / 2)) * math.sqrt(1 + 1 / n)
    half = factor * np.sqrt(spread**2 + bias**2)
    lower, upper = np.ceil(seen - half), np.floor(seen + half)
    return OwnIntervals(lower.astype(np.int64), upper.astype(np.int64), bias, spread)
