"""Intervals of released counts from the errors of replicates; public.

A replicate repeats the run with released counts as its truth; its errors are the differences.
Only a histogram of errors by size class is kept of each replicate, in one small file. Histograms
are integers, so those of several replicates add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from das.arrays import IntArray
from das.errors import OutputError
from das.histograms import Histograms
from das.metrics.accuracy import (
    SIZE_EDGES,
    SIZE_LABELS,
    TRUE_EDGES,
    TRUE_LABELS,
    bins_of,
    pack,
    unpack,
)
from das.metrics.replicates import (
    LEAF_SHARES,
    ONE_SHARE,
    TOTAL_SHARES,
    ClassErrors,
    Compared,
    Mark,
    add_compared,
    add_errors,
    class_intervals,
    compare,
)
from das.metrics.statistics import moments
from das.queries.query import Query
from jobs.pipeline.config.product import Product
from jobs.pipeline.documents.document import adapter
from jobs.pipeline.documents.intervals import Intervals, Marked, SeenInterval, SizeErrors, digest_of
from jobs.pipeline.plan import Plan
from jobs.pipeline.release.covariate import is_sampled
from jobs.pipeline.release.public_bounds import Bounds
from jobs.pipeline.storage.columns import chosen, texts
from jobs.pipeline.storage.dataset import MANIFEST, Dataset
from jobs.pipeline.storage.files import read_bytes, replace_file
from jobs.pipeline.storage.geography import read_geography
from jobs.pipeline.storage.histograms import read_histograms
from jobs.pipeline.storage.layout import ReleaseLayout, ReplicateLayout
from jobs.pipeline.storage.place import Place
from jobs.pipeline.tasks.batches import Piece, even_pieces
from jobs.pipeline.tasks.executor import Tasks

_GEOUNITS = 20_000  # geounits compared at a time, as in `das verify`; default, not measured
_BOTH = ("by_release", "by_replicate")
_PLACE = ("generation", "product", "geolevel", "query", "seen")
_ERRORS = pa.schema(
    [
        ("generation", pa.int8()),
        *((name, pa.string()) for name in _PLACE[1:]),
        ("error", pa.int64()),
        ("size_bin", pa.int8()),
        ("count_bin", pa.int8()),
        ("count", pa.int64()),
    ]
)
MARKS: tuple[Marked, ...] = ("within", "above", "below", "unknown", "shifted")  # of each `Mark`


@dataclass(frozen=True, order=True)
class Asked:
    """Key of a comparison between a replicate and the counts it took for the truth.

    Attributes:
      generation: 1 for a replicate of the release, 2 for one of such a replicate.
      product: Name of the product.
      geolevel: Name of the geolevel.
      query: Canonical name of the query.
    """

    generation: int
    product: str
    geolevel: str
    query: str


Errors = Mapping[Asked, Compared]


def compare_level(
    plan: Plan,
    geolevel: str,
    queries: Sequence[Query],
    release: ReleaseLayout,
    replicate: ReplicateLayout,
    tasks: Tasks,
) -> dict[str, Compared]:
    """Compare queries in all solved geounits of a geolevel; keys are names of queries."""
    share = replicate.share if geolevel == plan.leaf.name else 1.0
    ours, theirs = (Dataset.open(one.counts(geolevel)) for one in (release, replicate))

    def run(piece: Piece) -> list[Compared]:
        geounits = read_geography(release, geolevel, *piece, columns=("geocode", "parent"))
        solved = [is_sampled(parent, share) for parent in texts(geounits, "parent")]
        codes = texts(geounits)[np.array(solved)]
        first, second = (read_histograms(one, codes, plan.schema.size) for one in (ours, theirs))
        return [compare(query, first, second) for query in queries]

    pieces = [*even_pieces(release, geolevel, _GEOUNITS)]
    parts = tasks.run(f"compare {geolevel}", pieces, run)
    found = zip(queries, zip(*parts, strict=True), strict=True)
    return {query.name: add_compared(compared) for query, compared in found}


def write_errors(path: Place, errors: Errors) -> None:
    """Write the errors of a replicate, atomically.

    Raises:
      OutputError: The file cannot be written.
    """
    rows = [
        (one, name, getattr(compared, name)) for one, compared in errors.items() for name in _BOTH
    ]
    sizes = [len(counted.keys) for _, _, counted in rows]
    values = [unpack(counted.keys) for _, _, counted in rows]
    of_row = np.repeat(np.arange(len(rows), dtype=np.int32), sizes)
    columns = [
        pa.array(np.repeat([one.generation for one, _, _ in rows], sizes), pa.int8()),
        *(
            chosen(of_row, [getattr(one, name) for one, _, _ in rows]).cast(pa.string())
            for name in ("product", "geolevel", "query")
        ),
        chosen(of_row, [name for _, name, _ in rows]).cast(pa.string()),
        *(
            np.concatenate([value[i] for value in values]).astype(kind)
            for i, kind in enumerate((np.int64, np.int8, np.int8))
        ),
        np.concatenate([counted.counts for _, _, counted in rows]),
    ]
    file = pa.BufferOutputStream()
    pq.write_table(pa.table(columns, schema=_ERRORS), file, compression="zstd")
    replace_file(path, file.getvalue().to_pybytes())


def read_errors(path: Place) -> pa.Table:
    """Read the errors of a replicate, as rows of `_ERRORS`.

    Raises:
      OutputError: The file is missing or damaged.
    """
    remedy = "remove it, and run `das replicate` again"
    data = read_bytes(path, remedy)
    try:
        table = pq.read_table(pa.BufferReader(data)).cast(_ERRORS)
    except (pa.ArrowException, ValueError) as error:
        raise OutputError(
            str(path), "is damaged", got=type(error).__name__, remedy=remedy
        ) from None
    return table


def gather_errors(replicates: Sequence[pa.Table]) -> dict[Asked, Compared]:
    """Sum the errors of several replicates; `replicates` are results of `read_errors`."""
    names = _ERRORS.names
    table = pa.concat_tables(replicates).group_by(names[:-1]).aggregate([("count", "sum")])
    order = [(name, "ascending") for name in (*_PLACE, "size_bin", "count_bin", "error")]
    table = table.sort_by(order)
    codes = [np.asarray(pc.rank(table.column(name), tiebreaker="dense")) for name in _PLACE]
    found: dict[Asked, dict[str, ClassErrors]] = {}
    if not len(table):
        return {}
    changes = np.any([np.diff(code) != 0 for code in codes], axis=0)
    edges = np.concatenate(([0], np.flatnonzero(changes) + 1, [len(table)]))
    values = [table.column(name).to_numpy() for name in ("error", "size_bin", "count_bin")]
    keys = pack(*(np.asarray(value, np.int64) for value in values))
    counts = np.asarray(table.column("count_sum").to_numpy(), np.int64)
    for first, last in pairwise(edges.tolist()):
        generation, product, geolevel, query, seen = (
            table.column(name)[first].as_py() for name in _PLACE
        )
        errors = add_errors([ClassErrors(keys[first:last], counts[first:last])])
        found.setdefault(Asked(generation, product, geolevel, query), {})[seen] = errors
    return {one: Compared(both[_BOTH[0]], both[_BOTH[1]]) for one, both in found.items()}


# --- intervals ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Made:
    """Settings of replicates.

    Attributes:
      replicates: Number of replicates.
      checked: Number of replicates that were themselves replicated.
      seed: Seed of their noise.
      bytes: Size of the stored errors.
      confidence: Confidence of the intervals, between 0 and 1.
    """

    replicates: int
    checked: int
    seed: int
    bytes: int
    confidence: Fraction


def describe_intervals(
    product: Product, gathered: Mapping[Asked, Compared], made: Made
) -> Intervals:
    """Compute errors and intervals of a product from the errors of its replicates."""
    leaf = product.plan.leaf.name
    totals = [query.name for query in product.tabulated.values() if query.size == 1]
    none = np.zeros(0, np.int64)
    nothing = Compared(ClassErrors(none, none), ClassErrors(none, none))
    errors: list[dict[str, object]] = []
    intervals: list[SeenInterval] = []
    for key, compared in gathered.items():
        if key.product != product.name or key.generation != 1:
            continue
        place = {"geolevel": key.geolevel, "query": key.query}
        errors += [{**place, **row} for row in _by_count(compared.by_release)]
        second = gathered.get(Asked(2, product.name, key.geolevel, key.query), nothing)
        shares = TOTAL_SHARES if key.query in totals else LEAF_SHARES
        shares = shares if key.geolevel == leaf else ONE_SHARE
        found = class_intervals(compared, second, made.confidence, shares)
        intervals += [
            SeenInterval(
                **place,
                geounit=SIZE_LABELS[one // len(TRUE_EDGES)],
                count=TRUE_LABELS[one % len(TRUE_EDGES)],
                low=interval.low,
                high=interval.high,
                answers=interval.answers,
                expected=interval.expected,
                mark=MARKS[interval.mark],
            )
            for one, interval in found.items()
        ]
    return Intervals(
        format=1,
        manifest=digest_of(product.release.counts(leaf) / MANIFEST),
        not_for_release=product.plan.not_for_release,
        confidence=str(made.confidence),
        replicates=made.replicates,
        checked=made.checked,
        seed=made.seed,
        bytes=made.bytes,
        errors=adapter(tuple[SizeErrors, ...]).validate_python(errors),
        intervals=tuple(intervals),
    )


def _by_count(errors: ClassErrors) -> list[dict[str, object]]:
    """Summarize errors by range of the released count."""
    values, _, bins = unpack(errors.keys)
    return [
        {"bin": TRUE_LABELS[one], **moments(values[inside], errors.counts[inside]).means()}
        for one in np.unique(bins).tolist()
        for inside in [bins == one]
    ]


@dataclass(frozen=True, eq=False)
class ClassTable:
    """The intervals of one query at one geolevel as arrays by (size bin, count bin).

    Attributes:
      low: int64[6, 7], lower end of truth minus released count.
      high: int64[6, 7], upper end.
      mark: int8[6, 7], positions in `MARKS`.
    """

    low: IntArray
    high: IntArray
    mark: np.ndarray[tuple[int, int], np.dtype[np.int8]]

    @classmethod
    def of(cls, intervals: Sequence[SeenInterval]) -> ClassTable:
        """Arrange the intervals of a query as a table.

        A class without an interval gets the interval of the nearest class, marked as unknown. The
        nearest class has the fewest count bins, then size bins, in between.
        """
        shape = (len(SIZE_EDGES), len(TRUE_EDGES))
        places = np.array(
            [(SIZE_LABELS.index(i.geounit), TRUE_LABELS.index(i.count)) for i in intervals]
        )
        grid = np.indices(shape).reshape(2, -1).T
        apart = np.abs(grid[:, None] - places[None])
        nearest = (apart @ np.array([1, shape[0]])).argmin(1)
        known = apart.sum(2).min(1) == 0
        low, high, mark = (
            np.array([value(one) for one in intervals], np.int64)[nearest]
            for value in (
                lambda one: one.low,
                lambda one: one.high,
                lambda one: MARKS.index(one.mark),
            )
        )
        mark = np.where(known, mark, Mark.UNKNOWN).astype(np.int8)
        return cls(low.reshape(shape), high.reshape(shape), mark.reshape(shape))

    @property
    def is_unknown(self) -> bool:
        """Return whether nothing is known about the coverage of any class."""
        return bool((self.mark == Mark.UNKNOWN).all())

    def at(
        self, query: Query, counts: Histograms, bounds: Bounds
    ) -> tuple[IntArray, IntArray, IntArray, np.ndarray[tuple[int, int], np.dtype[np.int8]]]:
        """Return the intervals of the released answers to the query.

        Args:
          query: The query.
          counts: Released counts of G geounits.
          bounds: Public bounds of the true answers, as from `PublicBounds.of`.

        Returns:
          int64[G, m] answers, lower and upper ends, inclusive, and int8[G, m] marks. Intervals lie
          within the bounds.
        """
        answers = query.answer(counts)
        place = bins_of(counts.totals(), SIZE_EDGES)[:, None], bins_of(answers, TRUE_EDGES)
        lower = np.clip(answers + self.low[place], *bounds)
        return answers, lower, np.clip(answers + self.high[place], *bounds), self.mark[place]


def class_tables(document: Intervals | None) -> dict[tuple[str, str], ClassTable]:
    """Group the intervals of a document by geolevel and query; none without a document."""
    found: dict[tuple[str, str], list[SeenInterval]] = {}
    for interval in () if document is None else document.intervals:
        found.setdefault((interval.geolevel, interval.query), []).append(interval)
    return {place: ClassTable.of(intervals) for place, intervals in found.items()}
