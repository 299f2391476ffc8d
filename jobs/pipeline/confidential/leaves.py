"""External sort: turn unordered input entries into leaf histograms sorted by geocode.

First, each task reads one piece of the input, adds up equal entries and writes runs sorted by
geocode. Then each task reads one range of geocodes from all runs and adds them up. Both steps
write committed datasets, so retries do not read the input again. Only descriptors pass through the
driver.
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

_RUN_ENTRIES = 4_000_000  # entries sorted in memory by a task; default, not measured
_ROWS = 200_000  # entries per Arrow table of a run; default, not measured


def gather_leaves(
    reader: Reader[Any, Any],
    codes: Geocodes,
    *,
    n_cells: int,
    dataset: Place,
    tasks: Tasks,
    census: CensusCodes | None = None,
) -> None:
    """Write the histograms of all leaf geounits with records, and publish them.

    Args:
      reader: Reader of the input.
      codes: bytes[G], all leaf geocodes, sorted.
      n_cells: Number of cells of the schema.
      dataset: Output folder; its sibling folder `runs` holds the sorted runs until publication.
      tasks: Runs the tasks; all workers see the folders.
      census: Geocodes of the leaves in the input, where `codes` differ from them.

    Raises:
      InputError: The input breaks its format, or holds an unknown leaf geocode.
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
        sorted_parts = [part for parts in written for part in parts]
        if sum(int(part.facts["persons"]) for part in sorted_parts) >= TOTAL_LIMIT:
            remove_runs(dataset)
            raise InputError(
                "data.path",
                "the counts of all files add up to too many",
                want=f"fewer than {TOTAL_LIMIT} in all",
                remedy="correct the counts; none can be that large",
            )
        publish(runs, sorted_parts, {"n_cells": n_cells})
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
    finally:  # after the input is corrected, it must be read again
        remove_runs(dataset)


def remove_runs(dataset: Place) -> None:
    """Remove the sorted runs, which a killed driver may have left."""
    remove_tree(_runs_of(dataset))


def _runs_of(dataset: Place) -> Place:
    return dataset.with_name("runs")


def _ranges(codes: Geocodes, slots: int, most: int) -> list[tuple[str, str]]:
    """Return contiguous, ascending ranges that cover every possible geocode.

    One range per slot, since each range opens every sorted run; more if one exceeds `most` codes.
    """
    n_ranges = max(1, min(len(codes), max(slots, -(-len(codes) // most))))
    starts = [codes[i * len(codes) // n_ranges].decode() for i in range(n_ranges)]
    lows = ["", *starts[1:]]
    # A range ends at the greatest string of that length below the start of the next range.
    highs = [start[:-1] + chr(ord(start[-1]) - 1) + "\x7f" for start in starts[1:]]
    return list(zip(lows, [*highs, "\x7f"], strict=True))


def _sorted_runs(
    batches: Iterator[pa.RecordBatch], n_cells: int, runs: Place
) -> Iterator[PartFile]:
    """Write sorted runs of bounded size, with equal entries added up."""
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
    """Write the histograms of some entries, and return their number of records."""
    codes, histograms = _added_up(entries, n_cells)
    for start in range(0, len(codes), _ROWS):
        stop = min(start + _ROWS, len(codes))
        writer.write(sparse_table(codes[start:stop], histograms.slice(start, stop)))
    return int(histograms.counts.sum())


def _added_up(entries: pa.Table, n_cells: int) -> tuple[npt.NDArray[np.object_], Histograms]:
    """Return the sorted unique geocodes of some entries, and their histograms."""
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
        geocodes = pa.array(np.repeat(codes, lengths), pa.string())
        entries = pa.table({"geocode": geocodes, "cell": cells, "n": counts})
        if census is not None:
            entries = _on_the_spine(entries, *census.read(*bounds))
        persons = _write_added(writer, entries, n_cells)
    return writer.close(persons=persons)


def _on_the_spine(entries: pa.Table, spine: Geocodes, census: Geocodes) -> pa.Table:
    """Replace the census geocodes of entries by geocodes of the spine; all must be known."""
    known = pa.array(census.astype(np.str_), pa.string())
    at = pc.index_in(entries.column("geocode"), value_set=known)
    codes = pa.array(spine.astype(np.str_), pa.string()).take(at.combine_chunks())
    return entries.set_column(0, "geocode", codes)


@redact_errors
def _refuse_unknown(
    dataset: Place, leaves: Sequence[PartFile], codes: Geocodes, places: Callable[[str], list[str]]
) -> None:
    """Raise InputError if a leaf of some part files is not among the known geounits."""
    for part in leaves:
        if not part.rows:
            continue
        column = Dataset(dataset, (part,), {}).read(columns=("geocode",)).column("geocode")
        present = column.to_numpy(zero_copy_only=False).astype(codes.dtype)
        at = np.minimum(np.searchsorted(codes, present), len(codes) - 1)
        unknown = present[codes[at] != present]
        if unknown.size:  # further geocodes, and their number, are confidential
            raise InputError(
                places(unknown[0].decode())[0],
                "geocode is not in the list of geounits",
                remedy="correct the data, or complete the list",
            )
