"""Part files of datasets as CSV with a header row."""

from __future__ import annotations

import hashlib
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv

from das.errors import OutputError
from jobs.storage.dataset import PartFile
from jobs.storage.files import writing
from jobs.storage.modes import make_closed_file, make_closed_folder


class CsvPartWriter:
    """Writes one CSV part file with a header row."""

    def __init__(self, dataset: Path) -> None:
        try:
            make_closed_folder(dataset)
        except OSError as error:
            raise OutputError(str(dataset), "cannot be created", got=error.strerror) from None
        self._path = dataset / f"part-{uuid.uuid4().hex}.csv"
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
            with writing(self._path, self._path):
                make_closed_file(self._path)
                self._writer = pa_csv.CSVWriter(self._path, plain.schema)
        if plain.num_rows:
            self._low = self._low or plain.column(0)[0].as_py()
            self._high = plain.column(0)[-1].as_py()
        self._rows += plain.num_rows
        with writing(self._path, self._path):
            self._writer.write_table(plain)

    def close(self) -> PartFile:
        """Finish the file and describe it."""
        if self._writer is not None:
            with writing(self._path, self._path):
                self._writer.close()
        with self._path.open("rb") as handle:
            digest = hashlib.file_digest(handle, "sha256").hexdigest()
            size = handle.tell()
        return PartFile(self._path.name, self._rows, self._low, self._high, size, digest)
