"""Workbooks of Excel, by XlsxWriter, and part files of datasets as workbooks.

In a workbook text stays text: leading zeros are kept, nothing is computed, and numbers do not
depend on the locale. A part file is a bare sheet that is streamed by way of temporary files: it
can have a million rows.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from das.errors import OutputError
from jobs.pipeline.storage.dataset import PartFile, PartSink
from jobs.pipeline.storage.files import writing
from jobs.pipeline.storage.place import Place, remove_tree

MOST_ROWS = 1_048_576  # of a sheet, the header included
MOST_COLUMNS = 16_384  # of a sheet
_LONGEST_TITLE = 31
_NOT_IN_TITLES = re.compile(r"[\[\]:*?/\\']")
_CREATED = datetime(1980, 1, 1)  # as in the zip, so that equal tables are equal files


def new_workbook(target: Path | io.BytesIO, title: str, room: Path | None = None) -> Any:  # noqa: ANN401 - untyped
    """Begin a workbook, an `xlsxwriter.Workbook`; texts are neither formulas nor addresses.

    Args:
      target: The file or buffer that `close_workbook` writes.
      title: Title of the document.
      room: Folder of temporary files; rows are then written in order and leave memory at once.
        None to hold all rows in memory.
    """
    import xlsxwriter  # only where a workbook is written

    options: dict[str, Any] = {"strings_to_formulas": False, "strings_to_urls": False}
    options |= {"in_memory": True} if room is None else {"constant_memory": True, "tmpdir": room}
    book = xlsxwriter.Workbook(target, options)
    book.set_properties({"title": title, "created": _CREATED})
    return book


def close_workbook(book: Any) -> None:  # noqa: ANN401 - untyped
    """Write a workbook to its target.

    Raises:
      OSError: The target or a temporary file cannot be written.
    """
    from xlsxwriter.exceptions import FileCreateError

    try:
        book.close()
    except FileCreateError as error:  # stands for an OSError, but is none
        raise error.args[0] from None


class XlsxPartWriter:
    """Writer of one workbook; rows beyond the limit of a sheet continue in the next sheet.

    Temporary files lie in a folder beside the workbook, and are removed with it on failure.
    """

    def __init__(self, dataset: Place, title: str, *, spooled: bool = False) -> None:
        """Begin a file.

        Args:
          dataset: Folder of the dataset.
          title: Title of the sheet.
          spooled: Passed to `PartSink`.

        Raises:
          OutputError: The file cannot be written.
        """
        self._title = _NOT_IN_TITLES.sub(" ", title)[: _LONGEST_TITLE - 6]
        self._sink = PartSink(dataset, "xlsx", spooled=spooled)
        target = self._sink.opened
        self._room = target.with_suffix(".rows") if isinstance(target, Path) else None
        if self._room is not None:
            with writing(self._sink.path, self._sink.path):
                self._room.mkdir()
        self._book = new_workbook(target, title, self._room)
        self._sheets, self._next = 0, MOST_ROWS  # the next row of the last sheet

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with writing(self._sink.path, self._sink.path):
                yield
        except OutputError:
            self._remove_room()
            raise

    def _remove_room(self) -> None:
        """Remove the temporary files, of which those of sheets that are given up are open."""
        if self._room is not None:
            for sheet in self._book.worksheets():
                with suppress(OSError):
                    sheet.row_data_fh.close()
            remove_tree(self._room)

    def write(self, table: pa.Table) -> None:
        """Append rows sorted by geocode."""
        self._sink.note(table, "geocode")
        with self._writing():
            for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
                if self._next == MOST_ROWS:
                    self._begin(table.column_names)
                self._sheet.write_row(self._next, 0, row)
                self._next += 1

    def close(self) -> PartFile:
        """Finish the file and describe it.

        Raises:
          OutputError: The file cannot be written.
        """
        with self._writing():
            close_workbook(self._book)
        self._remove_room()
        return self._sink.close()

    def _begin(self, names: list[str]) -> None:
        self._sheets += 1
        name = self._title if self._sheets == 1 else f"{self._title} {self._sheets}"
        self._sheet, self._next = self._book.add_worksheet(name), 1
        self._sheet.freeze_panes(1, 0)  # the header stays in sight
        self._sheet.write_row(0, 0, names)
