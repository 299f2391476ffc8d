"""Person records: one row per person, with a geocode and one column per attribute."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from das.schema import Schema
from jobs.pipeline.config.data import legal_codes
from jobs.pipeline.config.models.data import RecordsData
from jobs.pipeline.config.models.values import names_of
from jobs.pipeline.input import values
from jobs.pipeline.input.files import Chunk, Table, read_chunk


def table_of(data: RecordsData, schema: Schema) -> Table:
    """Name the files and columns that hold the records.

    Raises:
      ConfigError: `columns` does not name every attribute of the schema once, or `codes` maps to
        a level that does not exist.
    """
    legal_codes(data, schema)
    names = [_column(data, attribute.name) for attribute in schema.attributes]
    lost = data.leading_zeros == "lost"
    columns = (*names_of(data.geocode), *names)
    return Table(data.path, columns, data.delimiter, "data.delimiter", lost, data.quoting)


def read_entries(
    chunk: Chunk, data: RecordsData, *, schema: Schema, digits: int
) -> Iterator[pa.RecordBatch]:
    """Count the persons of a chunk by geocode and cell, batch by batch.

    Args:
      chunk: Part of a file.
      data: Configuration of the records.
      schema: Numbers the cells.
      digits: Length of a leaf geocode.

    Yields:
      Entries; a (geocode, cell) appears once per batch.

    Raises:
      InputError: A geocode or code does not fit.
    """
    table = table_of(data, schema)
    legal = legal_codes(data, schema)
    for batch in read_chunk(chunk, table):
        geocodes = values.geocodes(batch, data.geocode, digits)
        cells = schema.cells_of(
            {
                name: values.codes(batch, _column(data, name), codes, _remedy(name))
                for name, codes in legal.items()
            }
        )
        persons = pa.table({"geocode": geocodes, "cell": pa.array(cells, pa.int64())})
        sums = persons.group_by(["geocode", "cell"], use_threads=False).aggregate(
            [([], "count_all")]
        )
        counts = np.asarray(sums["count_all"], np.int64)
        yield from (
            pa.table(
                [sums["geocode"], sums["cell"], pa.array(counts)], schema=values.ENTRIES
            ).to_batches()
        )


def _remedy(attribute: str) -> str:
    return f"say under data.columns.{attribute}.codes what each code of the file means"


def _column(data: RecordsData, attribute: str) -> str:
    entry = data.columns[attribute]
    return entry if isinstance(entry, str) else entry.column
