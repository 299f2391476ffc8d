"""Block tables: one row per leaf geounit, one column per cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from jobs.pipeline.confidential.read.reader import (
    Invented,
    TableReader,
    written_geocodes,
)
from jobs.pipeline.config.models.data import BlockTableData
from jobs.pipeline.input import values
from jobs.pipeline.input.files import Batch, Chunk, Table, read_chunk
from jobs.pipeline.input.geounits import table_of


class BlockTableReader(TableReader[BlockTableData]):
    """Reader of block tables."""

    def table(self) -> Table:
        """Name the files and columns that hold the table.

        Raises:
          ConfigError, SchemaError: As for `BlockTableData.check`.
        """
        data, schema = self.data, self.schema
        columns = [*data.cells_of_columns(schema), *data.sums(schema)]
        return table_of(data, columns, "data.delimiter")

    def entries(self, piece: Chunk) -> Iterator[pa.RecordBatch]:
        """Turn the rows of a chunk into entries.

        Raises:
          InputError: A geocode or count does not fit, or a column of `checks` differs from its sum.
        """
        cell_of, sums = self.data.cells_of_columns(self.schema), self.data.sums(self.schema)
        cells = np.array(list(cell_of.values()), np.int64)
        total = 0.0
        for batch in read_chunk(piece, self.table()):
            geocodes = values.geocodes(batch, self.data.geocode, self.digits)
            counts = np.stack([values.counts(batch, name) for name in cell_of], axis=1)
            total = values.add_rows(total, counts.sum(1, dtype=np.float64), batch.where)
            for name, mask in sums.items():
                if (values.counts(batch, name) != counts[:, mask[cells]].sum(1)).any():
                    _refuse_sums(batch, name, [c for c, cell in cell_of.items() if mask[cell]])
            rows, columns = np.nonzero(counts)
            yield values.entries(geocodes, rows, cells[columns], counts[rows, columns])

    def write(self, persons: Invented) -> pa.Table:
        """Make one row per leaf."""
        dense = persons.histograms(self.schema.size).dense().T
        columns, done = written_geocodes(persons.geocodes, self.data), set[int]()
        for name, cell in self.data.cells_of_columns(self.schema).items():
            # Several columns may belong to one cell: the first gets all its records.
            columns[name] = pa.array(dense[cell] if cell not in done else 0 * dense[cell])
            done.add(cell)
        for name, mask in self.data.sums(self.schema).items():
            columns[name] = pa.array(dense[mask].sum(axis=0))
        return pa.table(columns)


def _refuse_sums(batch: Batch, name: str, parts: Sequence[str]) -> None:
    def faults(rows: Batch) -> list[values.Fault]:
        sums = sum(values.counts(rows, part) for part in parts)
        return [("is not the sum of its cells", values.counts(rows, name) != sums)]

    remedy = "correct the data, or the configuration of data.checks"
    values.refuse(batch, f"column {name}", faults, remedy=remedy)
