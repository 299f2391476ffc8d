"""Gather: entries in any order to leaf histograms sorted by geocode, in two steps of tasks.

First each task reads one piece of the input, adds up equal entries and writes runs sorted by
geocode. Then each task reads one range of geocodes from all runs and adds them up. Both steps are
committed datasets, so the input is read once whatever is retried, and nothing passes through the
driver but descriptors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from das.arrays import Geocodes
from das.confidential import redact_errors
from das.errors import InputError
from das.histograms import TOTAL_LIMIT, Histograms
from jobs.pipeline.confidential.read.reader import Reader
from jobs.pipeline.release.census import CensusCodes
from jobs.pipeline.storage.dataset import Dataset, PartFile, PartWriter, is_published, publish
from jobs.pipeline.storage.histograms import SPARSE_SCHEMA, sparse_arrays, sparse_table
from jobs.pipeline.storage.place import Place, remove_tree
from jobs.pipeline.tasks.executor import Tasks

_RUN_ENTRIES = 4_000_000  # entries sorted at once in a task
_ROWS = 200_000  # entries per Arrow table of a run


def gather_leaves(
    reader: Reader[Any, Any],
    codes: Geocodes,
    *,
    n_cells: int,
    dataset: Place,
    tasks: Tasks,
    census: CensusCodes | None = None,
) -> None:
    """Write the histograms of all leaf geounits that have persons, and publish them.

    Args:
      reader: Of the input.
      codes: bytes[G], all leaf geocodes, sorted.
      n_cells: Cells of the schema.
      dataset: Where to write; its sibling `runs` holds the first step until this is published.
      tasks: What runs both steps; all workers see the folders.
      census: The leaves under the geocodes of the input, where those of `codes` are others.

    Raises:
      InputError: The input breaks its format, or holds a geocode that is not of a leaf.
      OutputError: A folder cannot be written.
    """
    runs = _runs_of(dataset)
    most = tasks.sizing.merge_leaves.most
    ranges = _ranges(codes, tasks.slots, most) if census is None else census.ranges(most)
    if not is_published(runs):

        @redact_errors
        def sort_piece(piece: object) -> list[PartFile]:
            return list(_sorted_runs(reader.entries(piece), n_cells, runs))

        written = tasks.run("read input", reader.pieces(), sort_piece)
        found = [part for parts in written for part in parts]
        if sum(int(part.facts["persons"]) for part in found) >= TOTAL_LIMIT:
            remove_runs(dataset)
            raise InputError(
                "data.path",
                "the counts of all files add up to too many",
                want=f"fewer than {TOTAL_LIMIT} in all",
                remedy="correct the counts; none can be that large",
            )
        publish(runs, found, {"n_cells": n_cells})
    entries = Dataset.open(runs)
    if census is not None:
        try:
            _refuse_unknown(runs, entries.parts, np.sort(census.read()[1]), reader.places)
        except InputError:
            remove_runs(dataset)
            raise

    @redact_errors
    def merge(bounds: tuple[str, str]) -> PartFile:
        return _merge_range(bounds, entries, n_cells, dataset, census)

    leaves = tasks.run("merge input", ranges, merge)
    try:
        if census is None:
            _refuse_unknown(dataset, leaves, codes, reader.places)
        publish(dataset, leaves, {"n_cells": n_cells})
    finally:  # whoever mends the input must not find what was read before
        remove_runs(dataset)


def remove_runs(dataset: Place) -> None:
    """Remove the first step's output, which a driver that died may have left."""
    remove_tree(_runs_of(dataset))


def _runs_of(dataset: Place) -> Place:
    return dataset.with_name("runs")


def _ranges(codes: Geocodes, slots: int, most: int) -> list[tuple[str, str]]:
    """Contiguous ranges of geocodes that cover every possible code, in order.

    One a slot, since each opens every sorted run; more where one would hold more than `most` codes.
    """
    n_ranges = max(1, min(len(codes), max(slots, -(-len(codes) // most))))
    starts = [codes[i * len(codes) // n_ranges].decode() for i in range(n_ranges)]
    lows = ["", *starts[1:]]
    # A range ends just before the next one starts: the greatest string below it of that length.
    highs = [start[:-1] + chr(ord(start[-1]) - 1) + "\x7f" for start in starts[1:]]
    return list(zip(lows, [*highs, "\x7f"], strict=True))


def _sorted_runs(
    batches: Iterator[pa.RecordBatch], n_cells: int, runs: Place
) -> Iterator[PartFile]:
    """Write sorted runs of bounded size, equal entries added up."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.num_rows
        if size >= _RUN_ENTRIES:
            yield _write_run(waiting, n_cells, runs)
            waiting, size = [], 0
    if size:
        yield _write_run(waiting, n_cells, runs)


def _write_run(batches: Sequence[pa.RecordBatch], n_cells: int, runs: Place) -> PartFile:
    writer = PartWriter(runs, SPARSE_SCHEMA)
    return writer.close(persons=_write_added(writer, pa.Table.from_batches(batches), n_cells))


def _write_added(writer: PartWriter, entries: pa.Table, n_cells: int) -> int:
    """Write the histograms of some entries; returns how many persons."""
    codes, histograms = _added_up(entries, n_cells)
    for start in range(0, len(codes), _ROWS):
        stop = min(start + _ROWS, len(codes))
        writer.write(sparse_table(codes[start:stop], histograms.slice(start, stop)))
    return int(histograms.counts.sum())


def _added_up(entries: pa.Table, n_cells: int) -> tuple[npt.NDArray[np.object_], Histograms]:
    """Sorted unique geocodes and their histograms."""
    encoded = entries.column("geocode").combine_chunks().dictionary_encode()
    values = encoded.dictionary.to_numpy(zero_copy_only=False)
    order = np.argsort(values.astype(np.str_), kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    owners = rank[encoded.indices.to_numpy()]
    histograms = Histograms.from_entries(
        n_cells,
        len(order),
        owners,
        entries.column("cell").to_numpy(),
        entries.column("n").to_numpy(),
    )
    return values[order], histograms


def _merge_range(
    bounds: tuple[str, str],
    runs: Dataset,
    n_cells: int,
    dataset: Place,
    census: CensusCodes | None,
) -> PartFile:
    writer = PartWriter(dataset, SPARSE_SCHEMA)
    persons = 0
    table = runs.read(*bounds)
    if table.num_rows:
        codes, lengths, cells, counts = sparse_arrays(table)
        own = pa.array(np.repeat(codes, lengths), pa.string())
        entries = pa.table({"geocode": own, "cell": cells, "n": counts})
        if census is not None:
            entries = _on_the_spine(entries, *census.read(*bounds))
        persons = _write_added(writer, entries, n_cells)
    return writer.close(persons=persons)


def _on_the_spine(entries: pa.Table, spine: Geocodes, census: Geocodes) -> pa.Table:
    """Entries under the geocodes of the spine; all are known."""
    known = pa.array(census.astype(np.str_), pa.string())
    at = pc.index_in(entries.column("geocode"), value_set=known)
    codes = pa.array(spine.astype(np.str_), pa.string()).take(at.combine_chunks())
    return entries.set_column(0, "geocode", codes)


@redact_errors
def _refuse_unknown(
    dataset: Place, leaves: Sequence[PartFile], codes: Geocodes, places: Callable[[str], list[str]]
) -> None:
    """Stop if a leaf of some parts of the data is not among the known geounits."""
    for part in leaves:
        if not part.rows:
            continue
        found = Dataset(dataset, (part,), {}).read(columns=("geocode",)).column("geocode")
        present = found.to_numpy(zero_copy_only=False).astype(codes.dtype)
        at = np.minimum(np.searchsorted(codes, present), len(codes) - 1)
        unknown = present[codes[at] != present]
        if unknown.size:  # which ones, and how many, is confidential: it says where somebody lives
            raise InputError(
                places(unknown[0].decode())[0],
                "geocode is not in the list of geounits",
                remedy="correct the data, or complete the list",
            )
