"""Write part files of datasets as CSV with a header row.

Files are UTF-8 without a byte order mark, with quoted texts and line feeds. Spreadsheets compute a
text that begins with =, +, - or @ as a formula, so an apostrophe is put before it. Spreadsheets
also drop leading zeros and read decimal points by locale, which CSV cannot prevent; workbooks of
`jobs.pipeline.storage.xlsx` can.
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
    """Escape a text that a spreadsheet would compute as a formula.

    >>> without_formula("=1+1"), without_formula("5-17")
    ("'=1+1", '5-17')
    """
    return f"'{text}" if _FORMULA.match(text) else text


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Format rows as one small CSV text; fields are quoted if necessary."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def cell(value: object) -> object:
    """Format a value for a published CSV file: booleans in lower case, no formulas."""
    if isinstance(value, bool):
        return str(value).lower()
    return without_formula(value) if isinstance(value, str) else value


def without_formulas(table: pa.Table) -> pa.Table:
    """Convert a table for CSV: dictionaries become texts, and formulas are escaped."""
    names = [without_formula(name) for name in table.column_names]
    return pa.table([_plain(column) for column in table.columns], names)


def with_commas(table: pa.Table) -> pa.Table:
    """Convert fractional numbers to texts with decimal commas."""
    for index, column in enumerate(table.columns):
        if pa.types.is_floating(column.type):
            texts = pc.replace_substring(column.cast(pa.string()), ".", ",")
            table = table.set_column(index, table.column_names[index], texts)
    return table


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert a column for CSV: dictionaries become texts, and formulas are escaped."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(pa.string())
    if not pa.types.is_string(column.type):
        return column
    guarded = pc.match_substring_regex(column, f"^{_FORMULA.pattern}")
    if not pc.any(guarded).as_py():
        return column
    return pc.if_else(guarded, pc.binary_join_element_wise("'", column, ""), column)


class CsvPartWriter:
    """Writer of one CSV part file with a header row.

    Args:
      dataset: The folder.
      spooled: As for `PartSink`.
      has_commas: Whether to write decimal commas, and semicolons between fields.
    """

    def __init__(self, dataset: Place, *, spooled: bool = False, has_commas: bool = False) -> None:
        self._sink = PartSink(dataset, "csv", spooled=spooled)
        self._has_commas = has_commas
        self._writer: pa_csv.CSVWriter | None = None

    def write(self, table: pa.Table) -> None:
        """Append rows sorted by geocode."""
        plain = without_formulas(table)
        names = plain.column_names
        plain = with_commas(plain) if self._has_commas else plain
        self._sink.note(plain, "geocode" if "geocode" in names else names[0])
        with writing(self._sink.path, self._sink.path):
            if self._writer is None:
                options = pa_csv.WriteOptions(delimiter=";" if self._has_commas else ",")
                self._writer = pa_csv.CSVWriter(
                    self._sink.opened, plain.schema, write_options=options
                )
            self._writer.write_table(plain)

    def close(self) -> PartFile:
        """Finish the file and describe it.

        Raises:
          OutputError: The file cannot be written, or no table was written.
        """
        if self._writer is None:
            raise OutputError(str(self._sink.path), "holds no table, not even one without rows")
        with writing(self._sink.path, self._sink.path):
            self._writer.close()
        return self._sink.close()
