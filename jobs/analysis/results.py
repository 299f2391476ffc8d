"""Results of commands: written to a named Parquet or CSV file, or printed as a table."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from das.errors import ConfigError, OutputError
from jobs.pipeline.storage.files import refuse_foreign, writing

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.pipeline.tasks.progress import Reporter

_CSV, _PARQUET = (".csv", ".txt", ".tsv"), (".parquet", ".pq")


@dataclass(frozen=True)
class ResultFile:
    """Output file of a command, if one is named.

    Attributes:
      output: Write this file, CSV or Parquet by its suffix, and print nothing.
    """

    output: Path | None = None

    def check(self, command: str, header: bytes) -> None:
        """Check in advance that the file can be written.

        Args:
          command: The command, such as `das estimate`.
          header: First bytes of CSV files of the command; only such files are replaced.

        Raises:
          ConfigError: The suffix is of no known format.
          OutputError: The folder does not exist, or another file has the name.
        """
        if self.output is None:
            return
        suffix = self.output.suffix.lower()
        if suffix not in (*_CSV, *_PARQUET):
            raise ConfigError(
                f"{command} --output",
                "has an unknown suffix",
                got=self.output.name,
                want=f"one of {', '.join((*_CSV, *_PARQUET))}",
            )
        start = b"PAR1" if suffix in _PARQUET else header
        check_place(self.output, start, f"what `{command} --output` wrote before")

    def write(self, table: pa.Table) -> None:
        """Write a table.

        Raises:
          OutputError: The file cannot be written.
        """
        import pyarrow.csv as pa_csv
        import pyarrow.parquet as pq

        from jobs.pipeline.storage.csv import without_formulas

        if self.output is None:
            raise ValueError("no file is named")
        with writing(self.output):
            if self.output.suffix.lower() in _PARQUET:
                pq.write_table(table, self.output)
            else:
                pa_csv.write_csv(without_formulas(table), self.output)


def check_place(path: Path, start: bytes, kind: str) -> None:
    """Check in advance that a file can be written.

    Raises:
      OutputError: The folder does not exist, or another file has the name.
    """
    if not path.parent.is_dir():
        raise OutputError(str(path.parent), "is not a folder", remedy="make it first")
    refuse_foreign(path, start, kind)


@contextmanager
def drafts_in(
    folder: Path, command: str, reporter: Reporter
) -> Iterator[tuple[Path, Callable[[int, int], None]]]:
    """Make a folder, and yield a folder of drafts inside it and a function that shows progress.

    The drafts are on the file system of the folder, so moving them replaces files atomically.
    Drafts that were not moved are removed.

    Args:
      folder: Folder of the results.
      command: Name of the command in the progress line, such as `export`.
      reporter: Receives progress.

    Raises:
      OutputError: The folder or a draft cannot be written.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with (
        reporter.line(command, str(folder)) as tick,
        writing(folder),
        tempfile.TemporaryDirectory(prefix=f".das-{command}-", dir=folder) as drafts,
    ):
        yield Path(drafts), tick


def shared_mode() -> int:
    """Return the default mode of new files, from the umask of this process."""
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
