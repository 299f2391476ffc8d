"""Part files of datasets as CSV with a header row.

UTF-8 without a byte order mark; texts in quotes; a line ends in a line feed. Spreadsheets take a
text that begins with =, +, - or @ for a formula and compute it: here an apostrophe stands before
it. They also drop leading zeros and read points and commas as the country has it, against which no
CSV helps: for them there is `jobs.pipeline.storage.xlsx`.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from das.errors import OutputError
from jobs.pipeline.storage.dataset import PartFile, PartSink
from jobs.pipeline.storage.files import writing
from jobs.pipeline.storage.place import Place

_FORMULA = re.compile(r"[=+\-@\t\r]")


def without_formula(text: str) -> str:
    """A text that no spreadsheet computes.

    >>> without_formula("=1+1"), without_formula("5-17")
    ("'=1+1", '5-17')
    """
    return f"'{text}" if _FORMULA.match(text) else text


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Rows as one small CSV text; fields are quoted where they must be."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def cell(value: object) -> object:
    """A value as a published CSV file has it: flags in lower case, and no formula."""
    if isinstance(value, bool):
        return str(value).lower()
    return without_formula(value) if isinstance(value, str) else value


def without_formulas(table: pa.Table) -> pa.Table:
    """A table as CSV has it: dictionaries as their texts, none of which is computed."""
    names = [without_formula(name) for name in table.column_names]
    return pa.table([_plain(column) for column in table.columns], names)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column as CSV has it: dictionaries as their texts, none of which is a formula."""
    if pa.types.is_dictionary(column.type):
        return pa.chunked_array([_spelled(chunk) for chunk in column.chunks], pa.string())
    if not pa.types.is_string(column.type):
        return column
    guarded = pc.match_substring_regex(column, f"^{_FORMULA.pattern}")
    if not pc.any(guarded).as_py():
        return column
    return pc.if_else(guarded, pc.binary_join_element_wise("'", column, ""), column)


def _spelled(chunk: pa.DictionaryArray) -> pa.Array:
    texts = [without_formula(text) for text in chunk.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(chunk.indices)


class CsvPartWriter:
    """Writes one CSV part file with a header row."""

    def __init__(self, dataset: Place, *, spooled: bool = False) -> None:
        self._sink = PartSink(dataset, "csv", spooled=spooled)
        self._writer: pa_csv.CSVWriter | None = None

    def write(self, table: pa.Table) -> None:
        """Append rows sorted by geocode."""
        plain = without_formulas(table)
        names = plain.column_names
        self._sink.note(plain, "geocode" if "geocode" in names else names[0])
        with writing(self._sink.path, self._sink.path):
            if self._writer is None:
                self._writer = pa_csv.CSVWriter(self._sink.opened, plain.schema)
            self._writer.write_table(plain)

    def close(self) -> PartFile:
        """Finish the file and describe it.

        Raises:
          OutputError: It cannot be written, or nothing was.
        """
        if self._writer is None:
            raise OutputError(str(self._sink.path), "holds no table, not even one without rows")
        with writing(self._sink.path, self._sink.path):
            self._writer.close()
        return self._sink.close()
