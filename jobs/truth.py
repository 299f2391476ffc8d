"""The truth: exact histograms of every geolevel, confidential.

The leaf geolevel is written from entries by one shuffle; every coarser geolevel is the sum of the
one below it, made by tasks over contiguous ranges of geocodes without any shuffle.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from das.confidential import Confidential
from das.errors import GeographyError, InputError, VerificationError
from das.histograms import Histograms
from das.schema.schema import Schema
from geography.lattice import ROOT_CODE, Lattice
from jobs.dataset import (
    PartFile,
    PartWriter,
    is_published,
    publish,
    read_manifest,
    read_range,
)
from jobs.layout import ConfidentialLayout
from jobs.read.carry import carrying, restoring
from jobs.read.values import geocode_bytes
from jobs.session import run_tasks, slots

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

IntArray = npt.NDArray[np.int64]
Codes = npt.NDArray[np.bytes_]
Progress = Callable[[str, int, int], None]

TRUTH = pa.schema(
    [
        ("geocode", pa.string()),
        ("cells", pa.list_(pa.int64())),
        ("counts", pa.list_(pa.int64())),
    ]
)
LEAVES_PER_BUCKET = 20_000
CHILDREN_PER_TASK = 50_000
CHILDREN_PER_SMALL_TASK = 2_000
_TASKS_PER_SLOT = 4


def write_truth(
    entries: DataFrame,
    lattice: Lattice,
    *,
    schema: Schema,
    layout: ConfidentialLayout,
    spark: SparkSession,
    progress: Progress | None = None,
) -> None:
    """Write the histograms of all geolevels, leaves first; published geolevels are skipped.

    Args:
      entries: From `jobs.read.read.read_entries`; not evaluated if the leaves are published.
      lattice: All geounits.
      schema: Its cells.
      layout: Where to write; all workers must see the folder.
      spark: The session.
      progress: Called with (geolevel, finished tasks, all tasks).

    Raises:
      InputError: The data breaks its format, or holds a geocode that is not in the lattice.
      OutputError: A folder cannot be written.
      VerificationError: Two geolevels do not hold the same persons.
    """
    levels = lattice.spine.levels
    if not is_published(layout.histograms(levels[-1])):
        _write_leaves(entries, lattice, schema, layout.histograms(levels[-1]), spark)
    if progress:
        progress(levels[-1], 1, 1)
    for level in range(len(levels) - 2, -1, -1):
        if not is_published(layout.histograms(levels[level])):
            _roll_up(lattice, level, schema=schema, layout=layout, spark=spark, progress=progress)


def read_truth(
    layout: ConfidentialLayout, geolevel: str, geocodes: Sequence[str] | Codes, n_cells: int
) -> Confidential[Histograms]:
    """Read the true histograms of some geounits.

    Args:
      layout: Where the truth lies.
      geolevel: Name of the geolevel.
      geocodes: G geocodes, sorted, best contiguous in the geolevel.
      n_cells: n, the number of cells of the schema.

    Returns:
      G histograms in the order of `geocodes`; geounits without persons are empty.

    Raises:
      OutputError: The geolevel was not written or a file is damaged.
      GeographyError: The geocodes are not sorted and unique.
    """
    codes = np.asarray(geocodes, np.bytes_)
    if len(codes) == 0:
        empty = np.zeros(0, np.int64)
        return Confidential(Histograms(n_cells, np.zeros(1, np.int64), empty, empty))
    if not (codes[1:] > codes[:-1]).all():
        raise GeographyError(f"truth, geolevel {geolevel}", "geocodes are not sorted and unique")
    dataset = layout.histograms(geolevel)
    parts, _ = read_manifest(dataset)
    table = read_range(dataset, parts, codes[0].decode(), codes[-1].decode())
    found, lengths, cells, counts = columns_of(table)
    owners = np.minimum(np.searchsorted(codes, found), len(codes) - 1)
    wanted = codes[owners] == found
    keep = np.repeat(wanted, lengths)
    kept = np.where(wanted, lengths, 0)
    sizes = np.zeros(len(codes), np.int64)
    sizes[owners[wanted]] = kept[wanted]
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    return Confidential(Histograms(n_cells, offsets, cells[keep], counts[keep]))


def columns_of(table: pa.Table) -> tuple[Codes, IntArray, IntArray, IntArray]:
    """Unpack rows of the truth: bytes[m] geocodes, int64[m] list lengths, int64 cells, counts."""
    if table.num_rows == 0:
        none = np.zeros(0, np.int64)
        return np.zeros(0, "S1"), none, none, none
    codes = np.asarray(table["geocode"].to_pylist(), np.bytes_)
    cells, counts = (table[name].combine_chunks() for name in ("cells", "counts"))
    lengths = np.asarray(cells.value_lengths(), np.int64)
    return codes, lengths, np.asarray(cells.flatten()), np.asarray(counts.flatten())


def table_of(codes: Codes, histograms: Histograms) -> pa.Table:
    """Pack histograms as rows of the truth, leaving out geounits without persons.

    Args:
      codes: bytes[G] geocodes, sorted.
      histograms: G histograms.
    """
    live = np.flatnonzero(np.diff(histograms.offsets))
    offsets = pa.array(np.append(histograms.offsets[live], histograms.offsets[-1]), pa.int32())
    return pa.table(
        [
            pa.array(codes[live].astype("U").tolist(), pa.string()),
            pa.ListArray.from_arrays(offsets, pa.array(histograms.cells)),
            pa.ListArray.from_arrays(offsets, pa.array(histograms.counts)),
        ],
        schema=TRUTH,
    )


# --- leaves -------------------------------------------------------------------------------------


def _write_leaves(
    entries: DataFrame, lattice: Lattice, schema: Schema, dataset: Path, spark: SparkSession
) -> None:
    from pyspark.sql import functions as sf

    codes = lattice.codes[-1]
    n_buckets = min(max(slots(spark), len(codes) // LEAVES_PER_BUCKET + 1), 1024, len(codes))
    starts = [codes[i * len(codes) // n_buckets].decode() for i in range(n_buckets)]
    n_cells, digits = schema.size, lattice.spine.digits[-1]

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with carrying():
            for part in write_sorted(batches, dataset, n_cells=n_cells, digits=digits):
                text = json.dumps(asdict(part))
                yield pa.RecordBatch.from_pydict({"part": [text]})

    rows = (
        entries.withColumn("bucket", _bucket(sf.col("geocode"), starts, 0, n_buckets))
        .repartition(n_buckets, "bucket")
        .sortWithinPartitions("geocode", "cell")
        .mapInArrow(write, "part string")
    )
    with restoring():
        parts = [PartFile(**json.loads(row["part"])) for row in rows.collect()]
    for part in parts:
        _check_known(dataset, part, codes)
    publish(dataset, parts, {"n_cells": n_cells})


def _bucket(geocode: Column, starts: Sequence[str], low: int, high: int) -> Column:
    """Number of the last start that is not above the geocode, by binary search."""
    from pyspark.sql import functions as sf

    if high - low == 1:
        return sf.lit(low)
    middle = (low + high) // 2
    return sf.when(
        geocode < sf.lit(starts[middle]), _bucket(geocode, starts, low, middle)
    ).otherwise(_bucket(geocode, starts, middle, high))


def write_sorted(
    batches: Iterable[pa.RecordBatch], dataset: Path, *, n_cells: int, digits: int
) -> Iterator[PartFile]:
    """Write entries sorted by geocode, one part file per bucket.

    Args:
      batches: Columns geocode, cell, n, bucket; sorted by geocode.
      dataset: Folder of the part files.
      n_cells: n.
      digits: Length of a leaf geocode.

    Yields:
      The finished files; `facts` holds the persons in them.
    """
    writer: PartWriter | None = None
    current, persons = -1, 0
    for bucket, codes, histograms in _geounits(batches, n_cells, digits):
        if writer is None or bucket != current:
            if writer is not None:
                yield writer.close(persons=persons)
            writer, current, persons = PartWriter(dataset, TRUTH), bucket, 0
        writer.write(table_of(codes, histograms))
        persons += int(histograms.counts.sum())
    if writer is not None:
        yield writer.close(persons=persons)


class _Rows(NamedTuple):
    """Entries sorted by geocode: bytes[m] geocodes, int64[m] cells, counts and buckets."""

    codes: Codes
    cells: IntArray
    counts: IntArray
    buckets: IntArray

    def cut(self, start: int, stop: int) -> _Rows:
        some = slice(start, stop)
        return _Rows(self.codes[some], self.cells[some], self.counts[some], self.buckets[some])

    def after(self, other: _Rows) -> _Rows:
        return _Rows(*(np.concatenate(pair) for pair in zip(other, self, strict=True)))


def _geounits(
    batches: Iterable[pa.RecordBatch], n_cells: int, digits: int
) -> Iterator[tuple[int, Codes, Histograms]]:
    """Whole geounits, of one bucket at a time."""
    rest: _Rows | None = None
    for batch in batches:
        numbers = [np.asarray(batch.column(name), np.int64) for name in ("cell", "n", "bucket")]
        rows = _Rows(geocode_bytes(batch.column("geocode"), digits), *numbers)
        if rest is not None:
            rows = rows.after(rest)
        if len(rows.codes):
            whole = int(np.searchsorted(rows.codes, rows.codes[-1]))
            rest = rows.cut(whole, len(rows.codes))
            yield from _by_bucket(rows.cut(0, whole), n_cells)
    if rest is not None:
        yield from _by_bucket(rest, n_cells)


def _by_bucket(rows: _Rows, n_cells: int) -> Iterator[tuple[int, Codes, Histograms]]:
    if len(rows.codes) == 0:
        return
    edges = [0, *(np.flatnonzero(np.diff(rows.buckets)) + 1), len(rows.codes)]
    for low, high in pairwise(edges):
        some = rows.cut(int(low), int(high))
        unique, owners = _owners(some.codes)
        histograms = Histograms.from_entries(n_cells, len(unique), owners, some.cells, some.counts)
        yield int(some.buckets[0]), unique, histograms


def _owners(codes: Codes) -> tuple[Codes, IntArray]:
    """Distinct codes of a sorted array, and the position of each code among them."""
    new = np.concatenate(([True], codes[1:] != codes[:-1]))
    return codes[new], np.cumsum(new) - 1


def _check_known(dataset: Path, part: PartFile, known: Codes) -> None:
    table = read_range(dataset, [part], columns=["geocode"])
    codes = np.asarray(table["geocode"].to_pylist(), known.dtype)
    at = np.minimum(np.searchsorted(known, codes), len(known) - 1)
    unknown = codes[known[at] != codes]
    if len(unknown):
        raise InputError(f"data, geocode {unknown[0].decode()}", "is not among the leaf geounits")


# --- roll-up ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RollUp:
    """One task: the geounits of a geolevel whose children lie in low..high.

    Attributes:
      fine: Dataset of the children.
      parts: Its part files that hold some of them.
      coarse: Dataset to write.
      low: Geocode of the first child.
      high: Geocode of the last child.
      digits: Prefix length of the coarse geolevel.
      n_cells: n.
    """

    fine: Path
    parts: tuple[PartFile, ...]
    coarse: Path
    low: str
    high: str
    digits: int
    n_cells: int


def roll_up(task: RollUp) -> PartFile:
    """Sum the children of some geounits and write them."""
    table = read_range(task.fine, task.parts, task.low, task.high)
    writer = PartWriter(task.coarse, TRUTH)
    persons = 0
    if table.num_rows:
        codes, lengths, cells, counts = columns_of(table)
        prefixes = (
            codes.astype(f"S{task.digits}") if task.digits else np.full(len(codes), ROOT_CODE, "S1")
        )
        unique, owners = _owners(prefixes)
        histograms = Histograms.from_entries(
            task.n_cells, len(unique), np.repeat(owners, lengths), cells, counts
        )
        writer.write(table_of(unique, histograms))
        persons = int(histograms.counts.sum())
    return writer.close(persons=persons)


def _roll_up(
    lattice: Lattice,
    level: int,
    *,
    schema: Schema,
    layout: ConfidentialLayout,
    spark: SparkSession,
    progress: Progress | None,
) -> None:
    names = lattice.spine.levels
    fine, coarse = (layout.histograms(names[index]) for index in (level + 1, level))
    parts, _ = read_manifest(fine)
    children, first = lattice.codes[level + 1], lattice.first_child[level]
    n_tasks = max(
        min(slots(spark) * _TASKS_PER_SLOT, len(children) // CHILDREN_PER_SMALL_TASK + 1),
        len(children) // CHILDREN_PER_TASK + 1,
    )
    edges = np.unique(
        np.searchsorted(first, np.linspace(0, len(children), min(n_tasks, len(first) - 1) + 1))
    )
    tasks = []
    for start, stop in zip(first[edges[:-1]], first[edges[1:]], strict=True):
        low, high = children[start].decode(), children[stop - 1].decode()
        inside = tuple(p for p in parts if p.rows and p.high >= low and p.low <= high)
        digits = lattice.spine.digits[level]
        tasks.append(RollUp(fine, inside, coarse, low, high, digits, schema.size))
    name = names[level]
    report = (lambda done, all_: progress(name, done, all_)) if progress else None
    written = run_tasks(spark, f"truth {name}", tasks, roll_up, progress=report)
    if _persons(written) != _persons(parts):
        raise VerificationError(str(coarse), "does not hold the persons of the geolevel below")
    publish(coarse, written, {"n_cells": schema.size})


def _persons(parts: Iterable[PartFile]) -> int:
    return sum(int(part.facts["persons"]) for part in parts)
