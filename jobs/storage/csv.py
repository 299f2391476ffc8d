"""Part files of datasets as CSV with a header row."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pyarrow.csv as pa_csv

from das.errors import OutputError
from jobs.storage.dataset import PartFile, PartSink
from jobs.storage.files import writing
from jobs.storage.place import Place


class CsvPartWriter:
    """Writes one CSV part file with a header row."""

    def __init__(self, dataset: Place) -> None:
        self._path = dataset / f"part-{uuid.uuid4().hex}.csv"
        self._sink: PartSink | None = None
        self._writer: pa_csv.CSVWriter | None = None
        self._rows = 0
        self._low = ""
        self._high = ""

    def write(self, table: pa.Table) -> None:
        """Append rows sorted by geocode."""
        plain = pa.table(
            {
                field.name: column.cast(pa.string())
                if pa.types.is_dictionary(field.type)
                else column
                for field, column in zip(table.schema, table.columns, strict=True)
            }
        )
        if self._writer is None:
            self._sink = PartSink(self._path)
            with writing(self._path, self._path):
                self._writer = pa_csv.CSVWriter(self._sink.opened, plain.schema)
        if plain.num_rows:
            self._low = self._low or plain.column(0)[0].as_py()
            self._high = plain.column(0)[-1].as_py()
        self._rows += plain.num_rows
        with writing(self._path, self._path):
            self._writer.write_table(plain)

    def close(self) -> PartFile:
        """Finish the file and describe it.

        Raises:
          OutputError: It cannot be written, or nothing was.
        """
        if self._writer is None or self._sink is None:
            raise OutputError(str(self._path), "holds no table, not even one without rows")
        with writing(self._path, self._path):
            self._writer.close()
        size, digest = self._sink.close()
        return PartFile(self._path.name, self._rows, self._low, self._high, size, digest)
