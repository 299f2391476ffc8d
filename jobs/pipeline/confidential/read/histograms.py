"""Sparse histograms: one row per leaf geounit with its nonzero cells."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from das.arrays import IntArray
from das.errors import InputError
from jobs.pipeline.confidential.read.reader import Invented, TableReader
from jobs.pipeline.config.models.data import HistogramsData
from jobs.pipeline.input import values
from jobs.pipeline.input.files import Batch, Chunk, Table, read_chunk

Integers = npt.NDArray[np.integer]


class HistogramsReader(TableReader[HistogramsData]):
    """Reader of sparse histograms."""

    def table(self) -> Table:
        """Name the files and columns that hold the histograms."""
        return Table(self.data.path, ("geocode", "cells", "counts"))

    def entries(self, piece: Chunk) -> Iterator[pa.RecordBatch]:
        """Turn the rows of a chunk into entries.

        Raises:
          InputError: A geocode, cell or count does not fit.
        """
        total = 0.0
        for batch in read_chunk(piece, self.table()):
            geocodes = values.geocodes(batch, "geocode", self.digits)
            faults = partial(_faults, size=self.schema.size)
            values.refuse(batch, "columns cells and counts", faults)
            (cells, lengths), (counts, _) = _lists(batch, "cells"), _lists(batch, "counts")
            rows = np.repeat(np.arange(len(lengths)), lengths)
            of_rows = np.bincount(rows, counts, len(lengths)).astype(np.float64)
            total = values.add_rows(total, of_rows, batch.where)
            keep = counts > 0
            yield values.entries(
                geocodes, rows[keep], cells[keep].astype(np.int64), counts[keep].astype(np.int64)
            )

    def write(self, persons: Invented) -> pa.Table:
        """Make one row per leaf, including empty leaves."""
        sparse = persons.histograms(self.schema.size)
        offsets = pa.array(sparse.offsets, pa.int32())
        columns = {"cells": pa.array(sparse.cells), "counts": pa.array(sparse.counts)}
        lists = {name: pa.ListArray.from_arrays(offsets, flat) for name, flat in columns.items()}
        return pa.table({"geocode": pa.array(persons.geocodes, pa.string()), **lists})


def _faults(batch: Batch, *, size: int) -> list[values.Fault]:
    """List the possible faults of the lists of cells and counts, with the rows that have each."""
    (cells, of_cells), (counts, of_counts) = _lists(batch, "cells"), _lists(batch, "counts")
    return [
        ("cells and counts differ in length", of_cells != of_counts),
        (
            f"holds a cell outside 0..{size - 1}",
            _rows_with((cells < 0) | (cells >= size), of_cells),
        ),
        ("count is negative", _rows_with(counts < 0, of_counts)),
        ("count is too large", _rows_with(counts > values.LARGEST_COUNT, of_counts)),
    ]


def _rows_with(mask: npt.NDArray[np.bool_], lengths: IntArray) -> npt.NDArray[np.bool_]:
    """Return bool[m], whether the list of each of m rows has an entry marked in `mask`.

    Args:
      mask: Marks among the entries of all lists, one list after the other.
      lengths: int64[m], length of each list.
    """
    rows = np.zeros(len(lengths), np.bool_)
    if mask.any():
        rows[np.repeat(np.arange(len(lengths)), lengths)[mask]] = True
    return rows


def _lists(batch: Batch, column: str) -> tuple[Integers, IntArray]:
    """Return the flat values, in the integer type of the file, and the list length of each row."""
    array = batch.table.column(column).combine_chunks()
    kind = array.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not is_list or not pa.types.is_integer(kind.value_type):
        raise InputError(
            f"{batch.chunk.path}, column {column}",
            "does not hold lists of integers",
            got=kind,
            want="list<int64>",
        )
    flat = array.flatten()
    if array.null_count or flat.null_count:
        values.refuse(batch, f"column {column}", partial(_missing, column=column))
    return flat.to_numpy(zero_copy_only=False), np.asarray(pc.list_value_length(array), np.int64)


def _missing(batch: Batch, *, column: str) -> list[values.Fault]:
    array = batch.table.column(column).combine_chunks()
    lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0), np.int64)
    return [
        ("list is missing", np.asarray(pc.is_null(array), np.bool_)),
        ("holds a missing value", _rows_with(np.asarray(pc.is_null(array.flatten())), lengths)),
    ]
