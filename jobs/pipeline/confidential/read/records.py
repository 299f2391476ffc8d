"""Person records: one row per person, with a geocode and one column per attribute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from das.errors import InputError
from jobs.pipeline.confidential.read.reader import (
    GEOCODE,
    Invented,
    Legal,
    TableReader,
    Wrong,
    written_geocodes,
)
from jobs.pipeline.config.models.data import RecordsData
from jobs.pipeline.input import values
from jobs.pipeline.input.files import Chunk, Table, plan_chunks, read_chunk
from jobs.pipeline.input.geounits import table_of


class RecordsReader(TableReader[RecordsData]):
    """Reader of person records."""

    has_repeats: ClassVar[bool] = True

    def table(self) -> Table:
        """Name the files and columns that hold the records.

        Raises:
          ConfigError: `columns` does not name every attribute of the schema once, or `codes` maps
            to a level that does not exist.
        """
        legal = self.data.legal_codes(self.schema)
        columns = [self.data.column_of(name) for name in legal]
        return table_of(self.data, columns, "data.delimiter")

    def entries(self, piece: Chunk) -> Iterator[pa.RecordBatch]:
        """Count the persons of a chunk by geocode and cell, batch by batch.

        Yields:
          Entries; a (geocode, cell) appears once per batch.

        Raises:
          InputError: A geocode or code does not fit.
        """
        data, legal = self.data, self.data.legal_codes(self.schema)
        for batch in read_chunk(piece, self.table()):
            geocodes = values.geocodes(batch, data.geocode, self.digits)
            cells = self.schema.cells_of(
                {
                    name: values.codes(batch, data.column_of(name), codes, _remedy(name))
                    for name, codes in legal.items()
                }
            )
            persons = pa.table({"geocode": geocodes, "cell": pa.array(cells, pa.int64())})
            sums = persons.group_by(["geocode", "cell"], use_threads=False).aggregate(
                [([], "count_all")]
            )
            counts = np.asarray(sums["count_all"], np.int64)
            columns = [sums["geocode"], sums["cell"], pa.array(counts)]
            yield from pa.table(columns, schema=values.ENTRIES).to_batches()

    def wrong(self, piece: Chunk) -> Iterator[Wrong]:
        """Yield the mistakes of all columns of a chunk, with all codes that are not legal."""
        legal, found = self.data.legal_codes(self.schema), dict[str, Wrong]()
        for batch in read_chunk(piece, self.table()):
            try:
                values.geocodes(batch, self.data.geocode, self.digits)
            except InputError as error:
                found.setdefault(GEOCODE, Wrong.of(GEOCODE, error))
            for name, codes in legal.items():
                column = self.data.column_of(name)
                try:
                    values.codes(batch, column, codes)
                except InputError as error:
                    strange = values.distinct(batch, column) - codes.keys()
                    found.setdefault(name, Wrong.of(name, error)).codes.update(strange)
        yield from found.values()

    def repeated(self) -> Wrong | None:
        """Return the first row that repeats the columns `data.unique`."""
        names, seen = self.data.unique, set[str]()
        table = replace(self.table(), columns=tuple(names))
        for piece in plan_chunks(table) if names else ():
            for batch in read_chunk(piece, table):
                for index, text in enumerate(values.joined(batch, names).to_pylist()):
                    if text in seen:
                        first = f"{batch.where(index)}: repeats the record of an earlier row"
                        return Wrong(", ".join(names), first)
                    seen.add(text)
        return None

    def legal(self) -> Legal:
        """Map each column to its attributes, and each attribute from legal texts to levels."""
        columns: dict[str, dict[str, Mapping[str, int]]] = {}
        legal = self.data.legal_codes(self.schema)
        for name in self.data.columns:
            columns.setdefault(self.data.column_of(name), {})[name] = legal[name]
        return columns

    def write(self, persons: Invented) -> pa.Table:
        """Make one row per person."""
        written = written_geocodes(persons.geocodes, self.data)
        geocodes = {name: array.take(pa.array(persons.rows)) for name, array in written.items()}
        return pa.table(geocodes | dict(persons.texts))


def _remedy(attribute: str) -> str:
    return (
        f"map each code of the file to a level, under data.columns.{attribute}.codes; das validate "
        "--data lists the codes of all columns"
    )
