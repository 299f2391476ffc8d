"""Where a command writes what it found: a Parquet or CSV file that the command line names."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from das.errors import ConfigError, OutputError
from jobs.pipeline.storage.files import refuse_foreign, writing

if TYPE_CHECKING:
    import pyarrow as pa

_OPTIONS = {
    **dict.fromkeys((".csv", ".txt", ".tsv"), "--csv"),
    **dict.fromkeys((".parquet", ".pq"), "--parquet"),
}


@dataclass(frozen=True)
class ResultFile:
    """The file for the result of a command, if one is named.

    Attributes:
      parquet: Write this Parquet file.
      csv: Write this CSV file.
    """

    parquet: Path | None = None
    csv: Path | None = None

    @property
    def path(self) -> Path | None:
        """The file."""
        return self.parquet or self.csv

    def check(self, command: str, header: bytes) -> None:
        """Check, before any work, that it can be written.

        Args:
          command: Such as `das estimate`.
          header: How CSV files of the command start; those and Parquet files are written over.

        Raises:
          ConfigError: Both are given, or a name ends as that of another format.
          OutputError: The folder does not exist, or another file has the name.
        """
        if self.parquet is not None and self.csv is not None:
            raise ConfigError(command, "takes --parquet or --csv, not both")
        for option, path, start in (
            ("--parquet", self.parquet, b"PAR1"),
            ("--csv", self.csv, header),
        ):
            if path is None:
                continue
            other = _OPTIONS.get(path.suffix.lower(), option)
            if other != option:
                raise ConfigError(
                    f"{command} {option}",
                    "names a file of another format",
                    got=path.name,
                    remedy=f"use {other} {path}",
                )
            check_place(path, start, f"what `{command} {option}` wrote before")

    def write(self, table: pa.Table) -> None:
        """Write a table.

        Raises:
          OutputError: It cannot be written.
        """
        import pyarrow.csv as pa_csv
        import pyarrow.parquet as pq

        from jobs.pipeline.storage.csv import without_formulas

        if self.path is None:
            raise ValueError("no file is named")
        with writing(self.path):
            if self.parquet is not None:
                pq.write_table(table, self.parquet)
            else:
                pa_csv.write_csv(without_formulas(table), self.csv)


def check_place(path: Path, start: bytes, kind: str) -> None:
    """Check, before any work, that a file can be written.

    Raises:
      OutputError: The folder does not exist, or another file has the name.
    """
    if not path.parent.is_dir():
        raise OutputError(str(path.parent), "is not a folder", remedy="make it first")
    refuse_foreign(path, start, kind)


def shared_mode() -> int:
    """Return the mode that programs give a new file, by the mask of this process."""
    mask = os.umask(0o022)
    os.umask(mask)
    return 0o666 & ~mask


def print_rows(titles: Iterable[str], rows: Iterable[Iterable[str]], caption: str = "") -> None:
    """Print a table of printable texts on standard output."""
    from rich.box import SIMPLE
    from rich.table import Table

    from jobs.pipeline.printable import result_console

    shown = Table(*titles, title=caption or None, box=SIMPLE)
    for row in rows:
        shown.add_row(*row)
    result_console().print(shown)
