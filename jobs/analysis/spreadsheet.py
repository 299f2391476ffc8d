"""Workbooks for readers: a cover sheet, notes, and one named Excel table on each further sheet.

Tables of a run are bare sheets, because they are streamed and have up to a million rows
(`jobs/pipeline/storage/xlsx.py`). A workbook of `das export` has formats and tables, and is made in
memory.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from das.errors import ConfigError, OutputError
from jobs.pipeline.storage.xlsx import MOST_COLUMNS, MOST_ROWS, close_workbook, new_workbook

_COMMAND = "das export --format xlsx"
_MOST_CELLS = 2_000_000  # take 0.5 GB of memory, 15 core seconds and 26 MB (XlsxWriter 3.2.9)
_WIDEST, _PARAGRAPH = 40, 80  # characters of a column of a table, and of text


def write_workbook(
    path: Path,
    title: str,
    facts: Mapping[str, str],
    notes: Sequence[str],
    sheets: Mapping[str, pa.Table],
) -> None:
    """Write a workbook.

    Args:
      path: The file.
      title: Title of the cover sheet.
      facts: Labels and texts of the cover sheet.
      notes: Paragraphs of the sheet of notes.
      sheets: Rows of each further sheet, by its name.

    Raises:
      OutputError: A name is none that a sheet or a column can have, or the file cannot be written.
    """
    from xlsxwriter.exceptions import XlsxWriterException

    contents = {"Notes": "how to read the tables"}
    for name, rows in sheets.items():
        contents[name] = f"{rows.num_rows:,} rows, {rows.num_columns:,} columns"
    numbered = {f"Note {number}": note for number, note in enumerate(notes, 1)}
    try:
        book = new_workbook(path, title)
        _add_text(book, "Cover", title, {**facts, **contents}, contents)
        _add_text(book, "Notes", "Notes", numbered)
        for name, rows in sheets.items():
            _add_table(book, name, rows)
        close_workbook(book)
    except XlsxWriterException as error:
        raise OutputError(str(path), "cannot be a workbook", got=error) from None


def _add_text(
    book: Any,  # noqa: ANN401 - untyped
    name: str,
    title: str,
    rows: Mapping[str, str],
    links: Collection[str] = (),
) -> None:
    """Add a sheet of labels and texts, as wide as a page; labels that name a sheet lead to it."""
    sheet, wrapped = book.add_worksheet(name), book.add_format({"text_wrap": True, "valign": "top"})
    sheet.write(0, 0, title, book.add_format({"bold": True, "font_size": 15}))
    sheet.set_column(0, 0, 12)
    sheet.set_column(1, 1, _PARAGRAPH)
    for row, (label, text) in enumerate(rows.items(), 1):
        # Excel fits the height of a row to wrapped text, LibreOffice does not.
        sheet.set_row(row, 15 * (1 + len(text) // _PARAGRAPH))
        sheet.write(row, 1, text, wrapped)
        if label in links:
            sheet.write_url(row, 0, f"internal:'{label}'!A1", string=label)
        else:
            sheet.write(row, 0, label, wrapped)
    sheet.fit_to_pages(1, 0)


def _add_table(book: Any, name: str, rows: pa.Table) -> None:  # noqa: ANN401 - untyped
    """Add a sheet with a named table; its header and its columns of text stay in sight."""
    if len({title.lower() for title in rows.column_names}) < rows.num_columns:
        raise OutputError(
            name, "cannot be an Excel table", want="names of columns that differ by more than case"
        )
    sheet, columns = book.add_worksheet(name), []
    bold = book.add_format({"bold": True, "bottom": 1})
    for place, (title, column) in enumerate(zip(rows.column_names, rows.columns, strict=True)):
        is_text = pa.types.is_string(column.type)
        kind = "@" if is_text else "#,##0" if pa.types.is_integer(column.type) else "#,##0.0"
        form = book.add_format({"num_format": kind})
        longest = pc.max(pc.utf8_length(column)).as_py() if is_text else 8
        sheet.set_column(place, place, min(_WIDEST, max(longest or 0, len(title) + 2) + 2), form)
        sheet.write_column(1, place, column.to_pylist(), form)
        columns.append({"header": title, "header_format": bold, "format": form})
    is_text = [pa.types.is_string(field.type) for field in rows.schema]
    first = is_text.index(False) if False in is_text else 0
    sheet.freeze_panes(1, first)
    if first:
        sheet.repeat_columns(0, first - 1)
    sheet.set_landscape()
    sheet.repeat_rows(0)
    # A name such as P001 would be that of a cell.
    options = {"name": f"table_{re.sub(r'[^A-Za-z0-9_]', '_', name)}", "columns": columns}
    sheet.add_table(0, 0, rows.num_rows, rows.num_columns - 1, options)


def require_room(where: str, rows: int, columns: Sequence[int]) -> None:
    """Check before a workbook is made that it can be written.

    Args:
      where: What is written, for messages.
      rows: Number of rows of the largest sheet.
      columns: Number of columns of each sheet.

    Raises:
      ConfigError: A sheet or the workbook would be too large.
    """
    cells, widest = rows * sum(columns), max(columns)
    if rows >= MOST_ROWS or widest > MOST_COLUMNS or cells > _MOST_CELLS:
        raise ConfigError(
            f"{_COMMAND}, {where}",
            "would have more rows, columns or cells than a workbook holds",
            got=f"{rows} rows, {widest} columns, {cells} cells",
            want=f"at most {MOST_ROWS - 1} rows, {MOST_COLUMNS} columns and {_MOST_CELLS} cells",
            remedy="choose with --geolevel and --leave-out, or write Parquet",
        )
