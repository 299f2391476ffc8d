"""The input formats there are, by their names in run files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from das.arrays import Geocodes
from das.confidential import redact_errors
from das.errors import ConfigError
from das.schema import Schema
from jobs.pipeline.confidential.read.block_table import BlockTableReader
from jobs.pipeline.confidential.read.histograms import HistogramsReader
from jobs.pipeline.confidential.read.pl94 import Pl94Reader
from jobs.pipeline.confidential.read.reader import Reader, TableReader
from jobs.pipeline.confidential.read.records import RecordsReader
from jobs.pipeline.config.models.data import DataConfig
from jobs.pipeline.input import values
from jobs.pipeline.input.geounits import refuse_twice

if TYPE_CHECKING:  # validating loads no tasks
    from jobs.pipeline.tasks.executor import Tasks

_READERS: Mapping[str, type[Reader[Any, Any]]] = {
    "records": RecordsReader,
    "block_table": BlockTableReader,
    "pl94": Pl94Reader,
    "histograms": HistogramsReader,
}


def reader_of(data: DataConfig, schema: Schema, digits: int) -> Reader[Any, Any]:
    """Return what reads an input.

    Args:
      data: Format and place of the input.
      schema: Numbers the cells.
      digits: Length of a leaf geocode.

    Raises:
      ConfigError: The input holds no counts of records.
    """
    if data.input_format not in _READERS:
        raise ConfigError(
            f"data.path {data.path}",
            "holds noisy answers, which are read by `das nmf import` alone",
        )
    return _READERS[data.input_format](data, schema, digits)


def writer_of(data: DataConfig, schema: Schema, where: str) -> TableReader[Any]:
    """Return what writes invented persons as an input has them.

    Raises:
      ConfigError: The format is not written.
    """
    kind = _READERS.get(data.input_format)
    if kind is None or not issubclass(kind, TableReader):
        written = [name for name, one in _READERS.items() if issubclass(one, TableReader)]
        want = " or ".join([", ".join(written[:-1]), written[-1]])
        raise ConfigError(where, "is not invented", got=data.input_format, want=want)
    return kind(data, schema, 0)


def check_columns(data: DataConfig, schema: Schema) -> None:
    """Check that the files of an input are there and have the columns that it needs; read no row.

    Raises:
      ConfigError, SchemaError: The configuration does not fit the schema.
      InputError: A file is missing, unreadable, empty, or lacks a column.
    """
    if data.input_format in _READERS:
        reader_of(data, schema, 0).pieces()


@redact_errors
def read_geocodes(reader: Reader[Any, Any], tasks: Tasks) -> Geocodes:
    """List the geocodes of all leaf geounits in an input, empty ones of tables included.

    Args:
      reader: Of the input.
      tasks: What runs the step.

    Returns:
      bytes[G], sorted, unique.

    Raises:
      InputError: A geocode is missing, has the wrong length, or appears twice where each row is a
        geounit.
    """
    digits = reader.digits

    @redact_errors
    def listed(piece: object) -> Geocodes:
        parts = [np.zeros(0, f"S{digits}")]
        for codes in reader.geocodes(piece):
            kept = pc.unique(codes) if reader.has_repeats else codes
            parts.append(values.geocode_bytes(kept, digits))
        found = np.concatenate(parts)
        return np.unique(found) if reader.has_repeats else found

    codes = np.sort(np.concatenate(tasks.run("list geounits", reader.pieces(), listed)))
    if reader.has_repeats:
        return np.unique(codes)
    refuse_twice(codes, reader.places)
    return codes
