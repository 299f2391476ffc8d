"""Read any input format as entries (geocode, cell, n), and the geocodes of all leaf geounits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from das.arrays import Geocodes
from das.confidential import redact_errors
from das.errors import ConfigError
from das.schema import Schema
from geography.lattice import Spine
from jobs.pipeline.confidential.leaves import EntrySource
from jobs.pipeline.confidential.read import block_table, histograms, pl94, records
from jobs.pipeline.confidential.read.columns import table_of
from jobs.pipeline.config.data import check_data
from jobs.pipeline.config.models.data import (
    BlockTableData,
    DataConfig,
    HistogramsData,
    NmfData,
    Pl94Data,
    RecordsData,
)
from jobs.pipeline.config.models.run import GeounitsFile
from jobs.pipeline.config.models.values import GeocodeColumns, names_of
from jobs.pipeline.input import values
from jobs.pipeline.input.files import Chunk, Table, plan_chunks, read_chunk
from jobs.pipeline.input.geounits import (
    geocode_column,
    list_geounits,
    refuse_twice,
    rows_of,
    sorted_unique,
)
from jobs.pipeline.tasks.executor import Tasks


def read_entries(data: DataConfig, schema: Schema, *, spine: Spine) -> EntrySource[Any]:
    """Cut the confidential input into pieces that tasks read as entries.

    Nothing is read here apart from file names and columns.

    Args:
      data: Format and place of the input.
      schema: Numbers the cells.
      spine: Its last prefix length is the length of a leaf geocode.

    Returns:
      Pieces, and a function that streams a piece as (geocode, cell, n) with n > 0; entries of
      equal (geocode, cell) add up. The stream raises InputError for a value that does not fit,
      with file and row.

    Raises:
      ConfigError: The configuration does not fit the schema.
      InputError: A file is missing, unreadable, empty, or lacks a column.
    """
    digits = spine.digits[-1]
    place = partial(_place, data)
    if isinstance(data, Pl94Data):
        check_data(data, schema)
        states = partial(pl94.read_entries, data=data, digits=digits)
        return EntrySource(pl94.find_files(data.path), states, place)
    stream: Callable[[Chunk], Iterator[pa.RecordBatch]]
    if isinstance(data, RecordsData):
        stream = partial(records.read_entries, data=data, schema=schema, digits=digits)
    elif isinstance(data, BlockTableData):
        stream = partial(block_table.read_entries, data=data, schema=schema, digits=digits)
    elif isinstance(data, NmfData):
        raise _is_measured(data)
    else:
        stream = partial(histograms.read_entries, data=data, schema=schema, digits=digits)
    return EntrySource(plan_chunks(table_of(data, schema)), stream, place)


def read_geocodes(
    data: DataConfig, geounits: GeounitsFile | None, *, spine: Spine, tasks: Tasks
) -> Geocodes:
    """List the geocodes of all leaf geounits.

    Args:
      data: The confidential input; read only if there is no public list.
      geounits: Public list of all leaf geounits; without it the geocodes of the data count,
        empty geounits of tables and histograms included.
      spine: Its last prefix length is the length of a leaf geocode.
      tasks: What runs them; used for person records only.

    Returns:
      bytes[G], sorted, unique.

    Raises:
      InputError: A geocode is missing, has the wrong length, or appears twice where each row is a
        geounit.
    """
    digits = spine.digits[-1]
    return (
        _data_geocodes(data, digits, tasks) if geounits is None else list_geounits(geounits, spine)
    )


@redact_errors
def _data_geocodes(data: DataConfig, digits: int, tasks: Tasks) -> Geocodes:
    if isinstance(data, RecordsData):
        return _record_geocodes(data, digits, tasks)
    if isinstance(data, Pl94Data):
        arrays = [
            values.geocode_bytes(array, digits)
            for state in pl94.find_files(data.path)
            for array in pl94.read_geocodes(state, digits=digits)
        ]
        codes = np.sort(np.concatenate(arrays))
        refuse_twice(codes, lambda code: [_place(data, code)])
        return codes
    if isinstance(data, NmfData):
        raise _is_measured(data)
    table, column = _geocode_table(data)
    return sorted_unique(geocode_column(table, column, digits), table, column, digits)


def _is_measured(data: NmfData) -> ConfigError:
    return ConfigError(
        f"data.path {data.path}",
        "holds noisy answers, which are read by `das import-nmf` alone",
    )


def _geocode_table(
    data: RecordsData | BlockTableData | HistogramsData,
) -> tuple[Table, GeocodeColumns]:
    if isinstance(data, HistogramsData):
        return Table(data.path, ("geocode",)), "geocode"
    columns, lost = names_of(data.geocode), data.leading_zeros == "lost"
    table = Table(data.path, columns, data.delimiter, "data.delimiter", lost, data.quoting)
    return table, data.geocode


def _record_geocodes(data: RecordsData, digits: int, tasks: Tasks) -> Geocodes:
    table, column = _geocode_table(data)

    @redact_errors
    def distinct(chunk: Chunk) -> Geocodes:
        parts = [
            values.geocode_bytes(pc.unique(values.geocodes(batch, column, digits)), digits)
            for batch in read_chunk(chunk, table)
        ]
        return np.unique(np.concatenate(parts)) if parts else np.zeros(0, f"S{digits}")

    found = tasks.run("list geounits", plan_chunks(table), distinct)
    return np.unique(np.concatenate(found))


def _place(data: DataConfig, code: str) -> str:
    """File and row of a geocode of the data."""
    if isinstance(data, Pl94Data):
        for state in pl94.find_files(data.path):
            line = pl94.line_of(state, code)
            if line is not None:
                return f"{state.where(0)}, row {line}"
        return str(data.path)
    if isinstance(data, NmfData):
        return str(data.path)
    table, column = _geocode_table(data)
    return rows_of(table, column, code, len(code))[0]
