"""ErrorSummary: released minus true answers of one query, counted exactly and mergeable.

All statistics follow from one joint integer histogram of (size of the geounit, true count, error),
so summaries of disjoint batches merge without any rounding, in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from das.arrays import IntArray, sums_at
from das.errors import SchemaError
from das.histograms import Histograms, freeze_arrays
from das.queries.query import Query

SIZE_EDGES = (0, 1, 10, 100, 1_000, 10_000)  # least true population of each bin of geounits
SIZE_LABELS = ("0", "1 to 9", "10 to 99", "100 to 999", "1,000 to 9,999", "10,000 or more")
TRUE_EDGES = (0, 1, 2, 5, 10, 50, 200)  # least true count of each bin of answers
TRUE_LABELS = ("0", "1", "2 to 4", "5 to 9", "10 to 49", "50 to 199", "200 or more")
TOP = 20  # how many most-changed geounits are kept

_GROUPS = len(SIZE_EDGES) * len(TRUE_EDGES)
_DENSE = 8  # range per key up to which sums use a dense array, else sorting; not measured


@dataclass(frozen=True, order=True, slots=True, repr=False)
class Change:
    """The change of the answers of one geounit. Orders by decreasing `l1`, then by geocode.

    Attributes:
      rank: -l1, so that the natural order puts the most changed first.
      geocode: Geocode of the geounit.
      true_total: Persons in truth.
      net: Sum of the errors of all answers; for a partition query, the change of the total.
    """

    rank: int
    geocode: str
    true_total: int
    net: int

    @property
    def l1(self) -> int:
        """Return the sum of the absolute errors of all answers."""
        return -self.rank


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class ErrorSummary:
    """Errors of one query in a set of geounits.

    Attributes:
      geounits: int64[6]; geounits by bin of true population, see SIZE_EDGES.
      persons: True persons in all compared geounits.
      keys: int64[k]; distinct (error, size bin, true-count bin) packed by `pack`, increasing.
      counts: int64[k]; answers with each key, positive.
      appeared: Answers that are zero in truth and not in the release.
      vanished: Answers that are not zero in truth and are in the release.
      top: The most changed geounits, most changed first, at most TOP; unchanged ones left out.
    """

    geounits: IntArray
    persons: int
    keys: IntArray
    counts: IntArray
    appeared: int
    vanished: int
    top: tuple[Change, ...]

    def __post_init__(self) -> None:
        freeze_arrays(self, "geounits", "keys", "counts")

    @property
    def answers(self) -> int:
        """Return the number of compared answers."""
        return int(self.counts.sum())


def unpack(keys: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Undo `pack`: (error, size bin, true-count bin) of every key, each int64[k]."""
    group = keys % _GROUPS
    return keys // _GROUPS, group // len(TRUE_EDGES), group % len(TRUE_EDGES)


def pack(errors: IntArray, size_bins: IntArray, true_bins: IntArray) -> IntArray:
    """Number the triples (error, size bin, true-count bin), int64[k]; |error| < 2^57.

    Args:
      errors: int64[k], the error of each answer.
      size_bins: int64[k], bin of the size of the geounit.
      true_bins: int64[k], bin of the true count.
    """
    return errors * _GROUPS + size_bins * len(TRUE_EDGES) + true_bins


def empty_summary() -> ErrorSummary:
    """Return the summary of no geounits, the neutral element of `merge`."""
    none = np.zeros(0, np.int64)
    return ErrorSummary(np.zeros(len(SIZE_EDGES), np.int64), 0, none, none, 0, 0, ())


def merge(first: ErrorSummary, second: ErrorSummary) -> ErrorSummary:
    """Combine the summaries of one query over two disjoint sets of geounits.

    Exactly associative and commutative: every part is a sum of integers or the least TOP elements
    of a total order.
    """
    keys, counts = gather(
        np.concatenate((first.keys, second.keys)), np.concatenate((first.counts, second.counts))
    )
    return ErrorSummary(
        first.geounits + second.geounits,
        first.persons + second.persons,
        keys,
        counts,
        first.appeared + second.appeared,
        first.vanished + second.vanished,
        tuple(sorted(first.top + second.top)[:TOP]),
    )


def summarize(
    geocodes: Sequence[str], totals: IntArray, truth: IntArray, released: IntArray
) -> ErrorSummary:
    """Compare dense answers of any query.

    Args:
      geocodes: G distinct geounits.
      totals: int64[G]; true persons in each.
      truth: int64[G, m]; true answers.
      released: int64[G, m]; released answers.

    Raises:
      SchemaError: The shapes do not fit together.
    """
    fits = truth.ndim == 2 and truth.shape == released.shape
    if not fits or len(totals) != len(truth) or len(geocodes) != len(truth):
        raise SchemaError(
            "accuracy",
            "answers do not fit together",
            got=f"{len(geocodes)} geocodes, shapes {truth.shape} and {released.shape}",
        )
    owners, columns = np.nonzero((truth != 0) | (released != 0))
    pairs = np.stack((truth[owners, columns], released[owners, columns])).astype(np.int64)
    return _summarize(geocodes, totals, truth.shape[1], owners.astype(np.int64), pairs)


def summarize_query(
    query: Query, geocodes: Sequence[str], truth: Histograms, released: Histograms
) -> ErrorSummary:
    """Compare a query of true and released histograms; work and memory follow their nonzeros.

    Args:
      query: The query; a partition query stays sparse, any other is answered densely.
      geocodes: G distinct geounits, the rows of both histograms.
      truth: True histograms of the G geounits.
      released: Released histograms of the same geounits.

    Returns:
      What `summarize` returns for the dense answers.

    Raises:
      SchemaError: The histograms do not fit the query or each other.
    """
    fits = truth.n_cells == released.n_cells == query.n_cells
    if not query.is_partition or not fits:
        return summarize(geocodes, truth.totals(), query.answer(truth), query.answer(released))
    if len(geocodes) != truth.n_geounits or len(geocodes) != released.n_geounits:
        raise SchemaError("accuracy", "truth and release hold different geounits")
    keys = [h.owners() * query.size + query.rows_of(h.cells) for h in (truth, released)]
    spots, position = _numbered(np.concatenate(keys))
    split, size = len(truth.cells), len(spots)
    of_truth = sums_at(position[:split], truth.counts, size)
    pairs = np.stack([of_truth, sums_at(position[split:], released.counts, size)])
    seen = pairs.any(axis=0)  # counts are positive, so nothing cancels
    spots, pairs = spots[seen], pairs[:, seen]
    return _summarize(geocodes, truth.totals(), query.size, spots // query.size, pairs)


def _summarize(
    geocodes: Sequence[str], totals: IntArray, size: int, owners: IntArray, pairs: IntArray
) -> ErrorSummary:
    """Summarise errors of answers; answers without an entry are zero in truth and release.

    Args:
      geocodes: Geocode of each of G geounits.
      totals: int64[G], true persons of each geounit.
      size: Number of answers per geounit.
      owners: int64[k], the geounit of each entry.
      pairs: int64[2, k], true and released answer of each entry.
    """
    n_geounits = len(totals)
    truth, released = pairs
    errors = released - truth
    size_bin = bins_of(totals, SIZE_EDGES)
    by_size = np.bincount(size_bin, minlength=len(SIZE_EDGES)).astype(np.int64)
    entries = np.bincount(size_bin[owners], minlength=len(SIZE_EDGES)).astype(np.int64)
    zeros = np.zeros(len(SIZE_EDGES), np.int64)
    keys, counts = gather(
        np.concatenate(
            (
                pack(errors, size_bin[owners], bins_of(truth, TRUE_EDGES)),
                pack(zeros, np.arange(len(SIZE_EDGES)), zeros),
            )
        ),
        np.concatenate((np.ones(len(errors), np.int64), by_size * size - entries)),
    )
    l1 = sums_at(owners, np.abs(errors), n_geounits)
    return ErrorSummary(
        by_size,
        int(totals.sum()),
        keys,
        counts,
        int(np.count_nonzero((truth == 0) & (released != 0))),
        int(np.count_nonzero((truth != 0) & (released == 0))),
        _most_changed(geocodes, totals, l1, sums_at(owners, errors, n_geounits)),
    )


def _most_changed(
    geocodes: Sequence[str], totals: IntArray, l1: IntArray, net: IntArray
) -> tuple[Change, ...]:
    """Return the at most TOP geounits with the largest positive L1 error, largest first.

    Args:
      geocodes: Geocode of each geounit.
      totals: int64[G], true persons of each geounit.
      l1: int64[G], sum of absolute errors of each geounit.
      net: int64[G], sum of errors of each geounit.
    """
    wanted = min(TOP, int(np.count_nonzero(l1)))
    if wanted == 0:
        return ()
    bound = np.partition(l1, -wanted)[-wanted]  # includes all ties at the bound
    changed = np.flatnonzero(l1 >= max(int(bound), 1)).tolist()
    changes = [Change(-int(l1[g]), str(geocodes[g]), int(totals[g]), int(net[g])) for g in changed]
    return tuple(sorted(changes)[:TOP])


def gather(keys: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """Sum the counts of equal keys; return increasing keys and their sums other than 0.

    Args:
      keys: int64[k], keys in any order.
      counts: int64[k], the count of each key.
    """
    candidates, position = _numbered(keys)
    sums = sums_at(position, counts, len(candidates))
    return candidates[sums != 0], sums[sums != 0]


def _numbered(keys: IntArray) -> tuple[IntArray, IntArray]:
    """List increasing numbers that contain all keys; return them and the index of each key."""
    least, most = (int(keys.min()), int(keys.max())) if len(keys) else (0, 0)
    span = most - least + 1
    if span <= _DENSE * len(keys):
        return np.arange(least, least + span), keys - least
    distinct, position = np.unique(keys, return_inverse=True)
    return distinct, position.reshape(-1).astype(np.int64)


def bins_of(values: IntArray, edges: tuple[int, ...]) -> IntArray:
    """Return the bin of each value, int64; values below the first edge are in the first bin.

    Args:
      values: int64[k], the values.
      edges: Least value of each bin, ascending.
    """
    bins = np.searchsorted(np.asarray(edges), values, side="right") - 1
    return np.maximum(bins, 0).astype(np.int64)
