"""A table on a terminal: the same value that the pages render."""

from __future__ import annotations

from rich import table as rich_table
from rich.box import SIMPLE
from rich.text import Text

from jobs.pipeline.printable import printable
from jobs.pipeline.report.table import Table


def terminal_table(table: Table) -> rich_table.Table:
    """Return a table for a terminal; control characters in names are escaped.

    The caption stands above it and the note below.
    """
    shown = rich_table.Table(
        title=Text(printable(table.caption), "bold"),
        title_justify="left",
        caption=Text(printable(table.note)) if table.note else None,
        caption_justify="left",
        box=SIMPLE,
    )
    for column in table.columns:
        heading = "\n".join(filter(None, (printable(column.title), printable(column.hint))))
        shown.add_column(Text(heading), justify="right" if column.numeric else "left")
    for row in table.rows:
        shown.add_row(*(Text(printable(cell.plain or cell.text)) for cell in row))
    return shown
