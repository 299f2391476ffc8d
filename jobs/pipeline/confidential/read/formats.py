"""The input formats, by their names in run files."""

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
    """Return the reader of an input.

    Args:
      data: Format and path of the input.
      schema: Schema of the product.
      digits: Length of a leaf geocode.

    Raises:
      ConfigError: The input holds noisy answers, not records or counts.
    """
    if data.input_format not in _READERS:
        raise ConfigError(
            f"data.path {data.path}",
            "holds noisy answers, which only `das nmf import` reads",
        )
    return _READERS[data.input_format](data, schema, digits)


def writer_of(data: DataConfig, schema: Schema, where: str) -> TableReader[Any]:
    """Return the writer of synthetic persons in an input format.

    Raises:
      ConfigError: The format has no writer.
    """
    kind = _READERS.get(data.input_format)
    if kind is None or not issubclass(kind, TableReader):
        written = [name for name, reader in _READERS.items() if issubclass(reader, TableReader)]
        want = " or ".join([", ".join(written[:-1]), written[-1]])
        raise ConfigError(where, "is not invented", got=data.input_format, want=want)
    return kind(data, schema, 0)


def check_columns(data: DataConfig, schema: Schema) -> None:
    """Check that the files of an input exist and have the required columns; reads no row.

    Raises:
      ConfigError, SchemaError: The configuration does not fit the schema.
      InputError: A file is missing, unreadable, empty, or lacks a column.
    """
    if data.input_format in _READERS:
        reader_of(data, schema, 0).pieces()


@redact_errors
def read_geocodes(reader: Reader[Any, Any], tasks: Tasks) -> Geocodes:
    """List the leaf geocodes of an input, including empty geounits of tables.

    Args:
      reader: Reader of the input.
      tasks: Runs the tasks.

    Returns:
      bytes[G], sorted, unique.

    Raises:
      InputError: A geocode is missing, has the wrong length, or appears twice in a
        format with one row per geounit.
    """
    digits = reader.digits

    @redact_errors
    def listed(piece: object) -> Geocodes:
        parts = [np.zeros(0, f"S{digits}")]
        for codes in reader.geocodes(piece):
            kept = pc.unique(codes) if reader.has_repeats else codes
            parts.append(values.geocode_bytes(kept, digits))
        geocodes = np.concatenate(parts)
        return np.unique(geocodes) if reader.has_repeats else geocodes

    codes = np.sort(np.concatenate(tasks.run("list geounits", reader.pieces(), listed)))
    if reader.has_repeats:
        return np.unique(codes)
    refuse_twice(codes, reader.places)
    return codes
