"""Where a command writes what it found: a Parquet or CSV file that the command line names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from das.errors import ConfigError, OutputError
from jobs.pipeline.storage.csv import without_formulas
from jobs.pipeline.storage.files import refuse_foreign

_OTHERS = (
    ("--parquet", {".csv": "--csv", ".txt": "--csv", ".tsv": "--csv"}),
    ("--csv", {".parquet": "--parquet", ".pq": "--parquet"}),
)


@dataclass(frozen=True)
class ResultFile:
    """The file for the result of a command, if one is named.

    Attributes:
      command: Such as `das estimate`.
      parquet: For `--parquet`.
      csv: For `--csv`.
    """

    command: str
    parquet: Path | None
    csv: Path | None

    @property
    def path(self) -> Path | None:
        """The file."""
        return self.parquet or self.csv

    def check(self, header: bytes) -> None:
        """Check, before any work, that it can be written.

        Args:
          header: How CSV files of the command start; those and Parquet files are written over.

        Raises:
          ConfigError: Both are given, or a name ends as that of another format.
          OutputError: The folder does not exist, or another file has the name.
        """
        if self.parquet is not None and self.csv is not None:
            raise ConfigError(self.command, "takes --parquet or --csv, not both")
        starts = (b"PAR1", header)
        for (option, others), path, start in zip(
            _OTHERS, (self.parquet, self.csv), starts, strict=True
        ):
            if path is None:
                continue
            other = others.get(path.suffix.lower())
            if other is not None:
                raise ConfigError(
                    f"{self.command} {option}",
                    "names a file of another format",
                    got=path.name,
                    remedy=f"use {other} {path}",
                )
            check_place(path, start, f"what `{self.command} {option}` wrote before")

    def write(self, table: pa.Table) -> None:
        """Write a table.

        Raises:
          OutputError: It cannot be written.
        """
        try:
            if self.parquet is not None:
                pq.write_table(table, self.parquet)
            elif self.csv is not None:
                pa_csv.write_csv(without_formulas(table), self.csv)
        except OSError as error:
            raise OutputError(str(self.path), "cannot be written", got=error.strerror) from None


def check_place(path: Path, start: bytes, kind: str) -> None:
    """Check, before any work, that a file can be written.

    Raises:
      OutputError: The folder does not exist, or another file has the name.
    """
    if not path.parent.is_dir():
        raise OutputError(str(path.parent), "is not a folder", remedy="make it first")
    refuse_foreign(path, start, kind)
