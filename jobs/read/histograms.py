"""Sparse histograms: one row per leaf geounit with its nonzero cells."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from das.errors import InputError
from das.schema.schema import Schema
from jobs.config.models import HistogramsData
from jobs.read import values
from jobs.read.files import Batch, Chunk, Table, read_chunk

IntArray = npt.NDArray[np.int64]


def table_of(data: HistogramsData) -> Table:
    """Name the files and columns that hold the histograms."""
    return Table(data.path, ("geocode", "cells", "counts"))


def read_entries(
    chunk: Chunk, data: HistogramsData, *, schema: Schema, digits: int
) -> Iterator[pa.RecordBatch]:
    """Turn the rows of a chunk into entries.

    Args:
      chunk: Part of a file.
      data: Configuration of the histograms.
      schema: Bounds the cells.
      digits: Length of a leaf geocode.

    Yields:
      Entries with positive counts.

    Raises:
      InputError: A geocode, cell or count does not fit.
    """
    for batch in read_chunk(chunk, table_of(data)):
        geocodes = values.geocodes(batch, "geocode", digits)
        cells, lengths = _lists(batch, "cells")
        counts, other = _lists(batch, "counts")
        differs = np.flatnonzero(lengths != other)
        if len(differs):
            raise InputError(batch.where(differs[0]), "cells and counts differ in length")
        rows = np.repeat(np.arange(len(lengths)), lengths)
        _refuse(
            batch,
            rows[(cells < 0) | (cells >= schema.size)],
            "cells",
            f"holds a cell outside 0..{schema.size - 1}",
        )
        _refuse(batch, rows[counts < 0], "counts", "count is negative")
        keep = counts > 0
        yield values.entries(geocodes, rows[keep], cells[keep], counts[keep])


def _refuse(batch: Batch, rows: IntArray, column: str, what: str) -> None:
    if len(rows):
        raise InputError(f"{batch.where(rows[0])}, column {column}", what)


def _lists(batch: Batch, column: str) -> tuple[IntArray, IntArray]:
    """Flat values and the length of every row's list."""
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
    lengths = np.asarray(pc.fill_null(pc.list_value_length(array), -1), np.int64)
    _refuse(batch, np.flatnonzero(lengths < 0), column, "list is missing")
    flat = array.flatten()
    if flat.null_count:
        at = np.flatnonzero(np.asarray(pc.is_null(flat)))
        rows = np.repeat(np.arange(len(lengths)), lengths)
        _refuse(batch, rows[at], column, "holds a missing value")
    return np.asarray(flat.cast(pa.int64()), np.int64), lengths
