"""Block tables: one row per leaf geounit, one column per cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NoReturn

import numpy as np
import pyarrow as pa

from das.schema import Schema
from jobs.pipeline.config.data import layout_of
from jobs.pipeline.config.models.data import BlockTableData
from jobs.pipeline.config.models.values import names_of
from jobs.pipeline.input import values
from jobs.pipeline.input.files import Batch, Chunk, Table, read_chunk


def table_of(data: BlockTableData, schema: Schema) -> Table:
    """Name the files and columns that hold the table.

    Raises:
      ConfigError: As in `layout_of`.
    """
    layout = layout_of(data, schema)
    names = dict.fromkeys((*names_of(data.geocode), *layout.columns, *layout.checks))
    lost = data.leading_zeros == "lost"
    columns = tuple(names)
    return Table(data.path, columns, data.delimiter, "data.delimiter", lost, data.quoting)


def read_entries(
    chunk: Chunk, data: BlockTableData, *, schema: Schema, digits: int
) -> Iterator[pa.RecordBatch]:
    """Turn the rows of a chunk into entries.

    Args:
      chunk: Part of a file.
      data: Configuration of the table.
      schema: Numbers the cells.
      digits: Length of a leaf geocode.

    Yields:
      Entries with positive counts.

    Raises:
      InputError: A geocode or count does not fit, or a column of `checks` differs from its sum.
    """
    layout = layout_of(data, schema)
    table = table_of(data, schema)
    cell_of_column = np.array(list(layout.columns.values()), np.int64)
    total = 0.0
    for batch in read_chunk(chunk, table):
        geocodes = values.geocodes(batch, data.geocode, digits)
        counts = np.stack([values.counts(batch, name) for name in layout.columns], axis=1)
        total = values.add_rows(total, counts.sum(1, dtype=np.float64), batch.where)
        for name, mask in layout.checks.items():
            if (values.counts(batch, name) != counts[:, mask[cell_of_column]].sum(1)).any():
                _refuse_sums(batch, name, [c for c, cell in layout.columns.items() if mask[cell]])
        rows, columns = np.nonzero(counts)
        yield values.entries(geocodes, rows, cell_of_column[columns], counts[rows, columns])


def _refuse_sums(batch: Batch, name: str, parts: Sequence[str]) -> NoReturn:
    def faults(rows: Batch) -> list[values.Fault]:
        sums = sum(values.counts(rows, part) for part in parts)
        return [("is not the sum of its cells", values.counts(rows, name) != sums)]

    remedy = "correct the data, or the configuration of data.checks"
    values.refuse(batch, f"column {name}", faults, remedy=remedy)
