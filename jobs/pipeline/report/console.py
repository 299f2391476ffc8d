"""A table on a terminal: the same value that the pages render."""

from __future__ import annotations

import shutil
import sys

from rich import table as rich_table
from rich.box import SIMPLE
from rich.text import Text

from jobs.pipeline.printable import printable
from jobs.pipeline.report.table import Table

_NARROW = 100  # characters that the ten columns of measured queries need
_FEW = 6  # columns that fit 80 characters; default, seen with short names


def terminal_table(table: Table) -> rich_table.Table:
    """Return a table for a terminal; control characters in names are escaped.

    The caption stands above it and the note below. A narrow terminal shows wide tables without
    their exact fractions, which `--json` and the pages have.
    """
    shown = rich_table.Table(
        title=Text(printable(table.caption), "bold"),
        title_justify="left",
        caption=Text(printable(table.note)) if table.note else None,
        caption_justify="left",
        box=SIMPLE,
    )
    is_narrow = sys.stdout.isatty() and shutil.get_terminal_size().columns < _NARROW
    kept = [
        index
        for index, column in enumerate(table.columns)
        if not (is_narrow and len(table.columns) > _FEW and column.hint.startswith("exact"))
    ]
    for column in (table.columns[index] for index in kept):
        heading = "\n".join(filter(None, (printable(column.title), printable(column.hint))))
        shown.add_column(Text(heading), justify="right" if column.numeric else "left")
    for row in table.rows:
        shown.add_row(*(Text(printable(row[index].plain or row[index].text)) for index in kept))
    return shown
