"""Errors of a run repeated from its own release, by size class, and the intervals they give.

A replicate takes a release y for the truth, draws fresh noise of the same laws and solves again to
y'. Nothing but y enters, so no privacy is lost. Among answers of one class of y', the law of y - y'
stands for that of truth - y among released answers of the class: the truth given what is
seen, with the release as the population from which truths come. That is why classes are those of
the count that is seen, and of the population seen of its geounit: of an answer seen as 0 the error
can only have one sign.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction

import numpy as np

from das.arrays import FloatArray, IntArray
from das.errors import SchemaError
from das.histograms import Histograms, frozen_array
from das.metrics.accuracy import TRUE_EDGES, gather, summarize_query, unpack
from das.queries.query import Query


@dataclass(frozen=True, eq=False)
class ClassErrors:
    """Errors counted by class of geounit and answer; sums of disjoint ones are exact.

    Attributes:
      keys: int64[k]; distinct (error, size bin, count bin), packed as in `das.metrics.accuracy`.
      counts: int64[k]; answers with each key, positive.
    """

    keys: IntArray
    counts: IntArray

    def __post_init__(self) -> None:
        for name in ("keys", "counts"):
            object.__setattr__(self, name, frozen_array(getattr(self, name)))

    @property
    def nbytes(self) -> int:
        """Bytes of the two arrays."""
        return self.keys.nbytes + self.counts.nbytes

    def by_class(self) -> dict[int, tuple[IntArray, IntArray]]:
        """Class number, size bin x 7 + count bin, to its errors, ascending, and how often each."""
        errors, size_bins, count_bins = unpack(self.keys)
        classes = size_bins * len(TRUE_EDGES) + count_bins
        return {
            int(one): (errors[inside], self.counts[inside])
            for one in np.unique(classes)
            for inside in [classes == one]
        }


@dataclass(frozen=True, eq=False)
class Compared:
    """One query of a release and of a replicate of it, in some geounits.

    Attributes:
      by_release: replicate - release, by what the release says: what a run does to counts.
      by_replicate: release - replicate, by what the replicate says: how far from what is seen
        the truth lies.
    """

    by_release: ClassErrors
    by_replicate: ClassErrors


def compare(query: Query, release: Histograms, replicate: Histograms) -> Compared:
    """Compare a query of the same geounits in a release and in a replicate of it.

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
    """Errors of disjoint answers, or of several replicates, together."""
    none = np.zeros(0, np.int64)
    found = [*parts, ClassErrors(none, none)]
    return ClassErrors(
        *gather(
            np.concatenate([one.keys for one in found]),
            np.concatenate([one.counts for one in found]),
        )
    )


class Mark(IntEnum):
    """How often the intervals of a class hold the truth, as replicates of replicates tell.

    Attributes:
      WITHIN: As often as they say, within two points.
      ABOVE: More often: counts are whole numbers, and no narrower ones hold it often enough.
      BELOW: Less often than they say, by more than two points: the class is not covered.
      UNKNOWN: There are too few replicates of such answers to tell.
      SHIFTED: As often as they say among replicates, but the release is no stand-in for the truth:
        a step further errors have another mean, or the class as many more or fewer answers, by more
        than chance. Then the truth may be held a few points less often.
    """

    WITHIN = 0
    ABOVE = 1
    BELOW = 2
    UNKNOWN = 3
    SHIFTED = 4


TOLERANCE = Fraction(2, 100)  # of coverage
# Change of the mean error, in standard deviations, and of the logarithm of the number of answers,
# from one step to the next, beyond which a class counts as shifted. Classes of blocks that are
# within two points among replicates held 88.4 % of the truths in Delaware and 86.4 % in a generated
# state of 2,016 cells; those that are not shifted, 89.8 and 87.9 %
# (`python -m bench.replicate_coverage`).
MOST_DRIFT = 0.02
MOST_CHANGE = 0.1
_LEAST_SPREAD = 0.3  # of errors of a class that are nearly all 0
_CHANCE = 2.0  # standard errors


@dataclass(frozen=True)
class ClassInterval:
    """Where the truth lies relative to an answer that is seen, in one class.

    Attributes:
      low: Least truth - seen of the interval.
      high: Largest.
      answers: Answers of replicates it was made of.
      expected: Share of answers of replicates that intervals made in the same way from replicates
        of replicates hold; None where there are none.
      mark: What is known of it.
    """

    low: int
    high: int
    answers: int
    expected: float | None
    mark: Mark


def central(errors: IntArray, counts: IntArray, confidence: Fraction) -> tuple[int, int] | None:
    """The interval between two order statistics that holds one more draw with some probability.

    Of N exchangeable draws and one more, the k-th smallest and k-th largest of the N hold the last
    with probability (N + 1 - 2 k) / (N + 1) or, with ties, more. k is the largest with at least
    the confidence; then an end moves inwards while what is outside of both keeps its share.

    Args:
      errors: int64[k], ascending.
      counts: int64[k], positive; N is their sum.
      confidence: Of the interval, less than 1.

    Returns:
      The ends; None if there are too few draws for any.
    """
    reached = np.cumsum(counts)
    n = int(reached[-1])
    outside = math.floor((1 - confidence) * (n + 1))  # draws that may lie outside, in all
    rank = outside // 2
    if not rank:
        return None
    low = int(np.searchsorted(reached, rank))
    high = int(np.searchsorted(reached, n + 1 - rank))
    below = int(reached[low] - counts[low])
    above = n - int(reached[high])
    while low < high:  # where ties leave room
        left, right = below + int(counts[low]), above + int(counts[high])
        if left <= right and left + above <= outside - 2:
            low, below = low + 1, left
        elif right + below <= outside - 2:
            high, above = high - 1, right
        elif left + above <= outside - 2:
            low, below = low + 1, left
        else:
            break
    return int(errors[low]), int(errors[high])


def share_inside(errors: IntArray, counts: IntArray, ends: tuple[int, int]) -> float:
    """Share of errors within two ends, both included."""
    inside = (errors >= ends[0]) & (errors <= ends[1])
    return float(counts[inside].sum() / counts.sum())


def class_intervals(
    first: Compared, second: Compared, confidence: Fraction
) -> dict[int, ClassInterval]:
    """Intervals of all classes of one query at one geolevel.

    Args:
      first: A release and all replicates of it.
      second: The same one step further: replicates and replicates of them.
      confidence: Of the intervals.
    """
    released = {one: int(counts.sum()) for one, (_, counts) in first.by_release.by_class().items()}
    deeper = second.by_replicate.by_class()
    found = {}
    for one, (errors, counts) in first.by_replicate.by_class().items():
        n = int(counts.sum())
        ends = central(errors, counts, confidence)
        if ends is None:
            found[one] = ClassInterval(int(errors[0]), int(errors[-1]), n, None, Mark.UNKNOWN)
            continue
        checked = central(*deeper[one], confidence) if one in deeper else None
        if checked is None:
            found[one] = ClassInterval(*ends, n, None, Mark.UNKNOWN)
            continue
        expected = share_inside(errors, counts, checked)
        mark = mark_of(expected, confidence)
        if mark is Mark.WITHIN and is_shifted((errors, counts), deeper[one], released.get(one, 0)):
            mark = Mark.SHIFTED
        found[one] = ClassInterval(*ends, n, expected, mark)
    return found


def is_shifted(
    first: tuple[IntArray, IntArray], second: tuple[IntArray, IntArray], released: int
) -> bool:
    """Whether a class changes from a release to its replicates, or from these to the next.

    Args:
      first: Errors of the class among replicates and how often each.
      second: The same one step further.
      released: Answers of the class in the release, once for each replicate.
    """
    mean, spread = _moments(*first)
    n, number = int(first[1].sum()), int(second[1].sum())
    chance = _CHANCE / math.sqrt(number)
    drift = abs(mean - _moments(*second)[0]) / max(spread, _LEAST_SPREAD)
    change = abs(math.log(n / released)) if released else math.inf
    return drift > max(MOST_DRIFT, chance) or change > max(MOST_CHANGE, chance)


def _moments(errors: IntArray, counts: IntArray) -> tuple[float, float]:
    """Mean and standard deviation, of exact sums."""
    n, total = int(counts.sum()), int((errors * counts).sum())
    squares = int((errors * errors * counts).sum())
    return total / n, math.sqrt(max(0, n * squares - total * total)) / n


def mark_of(coverage: float, confidence: Fraction) -> Mark:
    """What a coverage means for intervals of a confidence."""
    if coverage < confidence - TOLERANCE:
        return Mark.BELOW
    return Mark.ABOVE if coverage > confidence + TOLERANCE else Mark.WITHIN


@dataclass(frozen=True, eq=False)
class OwnIntervals:
    """Intervals of answers from replicates of these very answers.

    Attributes:
      lower: int64[A, m], least true answer that is held.
      upper: int64[A, m], largest.
      bias: float64[A, m], mean of replicate - release.
      spread: float64[A, m], standard deviation of it.
    """

    lower: IntArray
    upper: IntArray
    bias: FloatArray
    spread: FloatArray


def own_intervals(seen: IntArray, replicated: IntArray, confidence: float) -> OwnIntervals:
    """Intervals of sums over areas, from how far replicates of the same sums are from the release.

    seen -+ t root mean squared error sqrt(1 + 1 / R), t of Student's law with R - 1 degrees of
    freedom; the integers in it. The mean error widens the interval and does not move it: which way
    solving leans in an area depends on what was rounded there, and does so the other way as often.

    Args:
      seen: int64[A, m], answers of the release.
      replicated: int64[R, A, m], answers of R replicates, R >= 2.
      confidence: Of the intervals.

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
