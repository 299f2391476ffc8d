"""CSV and Parquet files as chunks that tasks read on their own, with row numbers for errors.

Row numbers count from 1: for CSV they are line numbers, the header being line 1; for Parquet they
are data rows. A quoted CSV field may not hold a line break.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import IO, Literal

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from das.errors import InputError
from jobs.config.data import FILE_KINDS
from jobs.storage.place import Place, found_under, names_below, open_input

CHUNK_BYTES = 64 << 20
CHUNK_ROWS = 1 << 20
BATCH_ROWS = 1 << 15
_BLOCK_BYTES = 1 << 20
_LONGEST_LINE = 8 << 20  # bytes; a header of a million columns fits
_TEXT = pa.string()


@dataclass(frozen=True)
class Table:
    """Which columns to read, from where.

    Attributes:
      path: A CSV or Parquet file, or a folder of such files.
      columns: Columns wanted.
      delimiter: Field separator of CSV files.
      setting: Key of the run file that sets it; empty if none does.
      zeros_lost: Whether geocodes are numbers, whose leading zeros have to be put back.
    """

    path: Place
    columns: tuple[str, ...]
    delimiter: str = ","
    setting: str = ""
    zeros_lost: bool = False


@dataclass(frozen=True)
class Chunk:
    """A contiguous part of one file.

    Attributes:
      path: The file.
      kind: Its format.
      start: First byte (CSV, always the start of a line) or first row group (Parquet).
      stop: End of that range, exclusive; a CSV line belongs to the chunk in which it starts.
      first_row: Parquet only: row number of the first row.
      header: CSV only: all columns of the file.
    """

    path: Place
    kind: Literal["csv", "parquet"]
    start: int
    stop: int
    first_row: int = 1
    header: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Batch:
    """Some rows of a chunk.

    Attributes:
      table: The rows.
      chunk: Where they come from.
      offset: How many data rows of the chunk come before them.
      source: The table they are read from.
    """

    table: pa.Table = field(repr=False)
    chunk: Chunk
    offset: int
    source: Table

    def where(self, index: int) -> str:
        """File and row number of the row at `index`; for errors only, as it may be slow."""
        return f"{self.chunk.path}, row {self.row_number(index)}"

    def row_number(self, index: int) -> int:
        """Row number in the file of the row at `index`."""
        chunk, before = self.chunk, self.offset + int(index)
        if chunk.kind == "parquet":
            return chunk.first_row + before
        for number, line in _lines(chunk.path, chunk.start):
            if line.strip(b"\r\n"):
                if before == 0:
                    return number
                before -= 1
        raise InputError(str(chunk.path), "changed while it was read")


def find_files(path: Place) -> list[Place]:
    """List the data files of a file or folder, in order of their names.

    Raises:
      InputError: There is no such file, no data file in the folder, or both formats in it;
        or it cannot be listed.
    """
    if path.is_file():
        if path.suffix.lower() not in FILE_KINDS:
            raise InputError(
                str(path), "has an unknown file type", want=f"a name ending in {list(FILE_KINDS)}"
            )
        return [path]
    if not path.is_dir():
        raise InputError(str(path), "does not exist")
    try:
        files = [
            file
            for file in found_under(path, "*")
            if file.suffix.lower() in FILE_KINDS
            and file.is_file()
            and not any(part[0] in "._" for part in names_below(file, path).parts)
        ]
    except OSError as error:
        raise InputError(str(path), "cannot be listed", got=error.strerror) from None
    if not files:
        raise InputError(str(path), "is a folder without data files", want="CSV or Parquet files")
    kinds = {FILE_KINDS[file.suffix.lower()] for file in files}
    if len(kinds) > 1:
        raise InputError(str(path), "holds files of two formats", got=sorted(kinds), want="one")
    return files


def plan_chunks(table: Table) -> list[Chunk]:
    """Split the files of a table into chunks of bounded size, checking that its columns exist.

    Raises:
      InputError: A file cannot be read, lacks a column, or there is no data row at all.
    """
    files = find_files(table.path)
    chunks: list[Chunk] = []
    for file in files:
        plan = _parquet_chunks if FILE_KINDS[file.suffix.lower()] == "parquet" else _csv_chunks
        chunks += plan(file, table)
    if not chunks:
        raise InputError(str(table.path), "is empty", want="at least one data row")
    return chunks


def read_chunk(chunk: Chunk, table: Table, text: pa.DataType = _TEXT) -> Iterator[Batch]:
    """Stream a chunk; CSV columns come as text, Parquet columns as they are.

    Args:
      chunk: Part of a file.
      table: Which columns of it.
      text: Type of CSV columns: pa.binary() where some may not be UTF-8.

    Raises:
      InputError: The file cannot be read, or a CSV line has the wrong number of fields.
    """
    failure = ""
    try:
        offset = 0
        is_parquet = chunk.kind == "parquet"
        for rows in _parquet_rows(chunk, table) if is_parquet else _csv_rows(chunk, table, text):
            if rows.num_rows:
                yield Batch(rows, chunk, offset, table)
                offset += rows.num_rows
    except (OSError, pa.ArrowException) as error:
        failure = type(error).__name__
    if failure:  # outside of the handler: the text of the error may quote the data
        if chunk.kind == "csv":
            _explain_csv(chunk, table.delimiter)
        raise InputError(str(chunk.path), "cannot be read", got=failure)


def read_table(table: Table) -> Iterator[Batch]:
    """Stream all chunks of a table, in order."""
    for chunk in plan_chunks(table):
        yield from read_chunk(chunk, table)


def header_of(file: Place, delimiter: str) -> tuple[str, ...]:
    """Names of the columns of a file; nothing else of it is read.

    Raises:
      InputError: It cannot be read, or a CSV file is empty or not UTF-8.
    """
    if FILE_KINDS[file.suffix.lower()] == "parquet":
        return tuple(field.name for field in parquet_schema(file))
    return _csv_header(file, delimiter)[0]


def parquet_schema(file: Place) -> pa.Schema:
    """Names and types of the columns of a Parquet file.

    Raises:
      InputError: It is not readable.
    """
    try:
        with pq.ParquetFile(open_input(file)) as parquet:
            return parquet.schema_arrow
    except (OSError, pa.ArrowException) as error:
        raise InputError(
            str(file), "is not a readable Parquet file", got=type(error).__name__
        ) from None


def _csv_header(file: Place, delimiter: str) -> tuple[tuple[str, ...], int]:
    """Names of the columns, and where the line after them begins."""
    try:
        with file.open("rb") as handle:
            first = read_line(handle, f"{file}, row 1")
            begin = handle.tell()
        header = tuple(_fields(first.decode("utf-8-sig"), delimiter))
    except OSError as error:
        raise InputError(str(file), "cannot be read", got=error.strerror) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{file}, row 1", _not_readable(error)) from None
    if not first.strip():
        raise InputError(str(file), "is empty", want="a header line")
    return header, begin


def _check_columns(file: Place, present: Sequence[str], table: Table) -> None:
    missing = [column for column in dict.fromkeys(table.columns) if column not in present]
    if missing and len(present) == 1:
        other = _other_delimiter(present[0], table)
        if other is not None:
            raise InputError(
                str(file),
                f"has one column if {table.delimiter!r} separates them",
                want=missing,
                remedy=f"its columns are separated by {other!r}: "
                + (f"set {table.setting}" if table.setting else "write it with commas"),
            )
    if missing and set(missing) == set(table.columns):
        # Perhaps a file without a header: do not quote its data.
        raise InputError(
            str(file),
            "lacks columns",
            got=f"{len(present)} other{'s' * (len(present) != 1)}",
            want=missing,
            remedy="the first line of a CSV file must hold the names of its columns",
        )
    if missing:
        raise InputError(
            str(file), "lacks columns", got=f"columns {list(present)}", want=f"also {missing}"
        )
    twice = [column for column in table.columns if list(present).count(column) > 1]
    if twice:
        raise InputError(str(file), "has a column twice", got=twice)


def _other_delimiter(line: str, table: Table) -> str | None:
    """The separator that makes wanted columns of a header line which is one column, if any."""
    for delimiter in (",", ";", "\t", "|"):
        if set(_fields(line, delimiter)) & set(table.columns):
            return delimiter
    return None


def _parquet_chunks(file: Place, table: Table) -> list[Chunk]:
    try:
        with pq.ParquetFile(open_input(file)) as parquet:
            names = parquet.schema_arrow.names
            groups = [
                parquet.metadata.row_group(index).num_rows
                for index in range(parquet.metadata.num_row_groups)
            ]
    except (OSError, pa.ArrowException) as error:
        raise InputError(
            str(file), "is not a readable Parquet file", got=type(error).__name__
        ) from None
    _check_columns(file, names, table)
    chunks = []
    start, rows, first = 0, 0, 1
    for index, size in enumerate(groups):
        rows += size
        if rows >= CHUNK_ROWS or index == len(groups) - 1:
            if rows:
                chunks.append(Chunk(file, "parquet", start, index + 1, first))
            start, rows, first = index + 1, 0, first + rows
    return chunks


def _parquet_rows(chunk: Chunk, table: Table) -> Iterator[pa.Table]:
    with pq.ParquetFile(open_input(chunk.path)) as parquet:
        for batch in parquet.iter_batches(
            batch_size=BATCH_ROWS,
            row_groups=list(range(chunk.start, chunk.stop)),
            columns=list(dict.fromkeys(table.columns)),
            use_threads=False,
        ):
            yield pa.Table.from_batches([batch])


def _csv_chunks(file: Place, table: Table) -> list[Chunk]:
    header, begin = _csv_header(file, table.delimiter)
    _check_columns(file, header, table)
    try:
        with file.open("rb") as handle:
            size = handle.seek(0, io.SEEK_END)
            edges = [begin]
            for edge in range(begin + CHUNK_BYTES, size, CHUNK_BYTES):
                handle.seek(edge - 1)
                read_line(handle, str(file))
                edges.append(handle.tell())
    except OSError as error:
        raise InputError(str(file), "cannot be read", got=error.strerror) from None
    edges = [*sorted(set(edges)), size]
    return [
        Chunk(file, "csv", start, stop, header=header)
        for start, stop in pairwise(edges)
        if _has_line(file, start, stop)
    ]


def _has_line(file: Place, start: int, stop: int) -> bool:
    with file.open("rb") as handle:
        handle.seek(start)
        while handle.tell() < stop:
            if handle.readline(_BLOCK_BYTES).strip(b"\r\n"):
                return True
    return False


def _csv_rows(chunk: Chunk, table: Table, text: pa.DataType) -> Iterator[pa.Table]:
    columns = list(dict.fromkeys(table.columns))
    with chunk.path.open("rb") as handle:
        handle.seek(chunk.start)
        reader = pa_csv.open_csv(
            io.BufferedReader(_Limited(handle, chunk.stop - chunk.start)),
            pa_csv.ReadOptions(
                use_threads=False,
                block_size=_BLOCK_BYTES,
                column_names=[f"{index}" for index in range(len(chunk.header))],
            ),
            pa_csv.ParseOptions(delimiter=table.delimiter),
            pa_csv.ConvertOptions(
                column_types={f"{chunk.header.index(name)}": text for name in columns},
                include_columns=[f"{chunk.header.index(name)}" for name in columns],
                strings_can_be_null=False,
            ),
        )
        for batch in reader:
            yield pa.Table.from_arrays(batch.columns, names=columns)


class _Limited(io.RawIOBase):
    """The next bytes of a file as a file of their own."""

    def __init__(self, handle: io.BufferedReader, size: int) -> None:
        super().__init__()
        self._handle = handle
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._handle.read(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)


def _lines(file: Place, start: int) -> Iterator[tuple[int, bytes]]:
    """Line numbers and lines from a byte on."""
    with file.open("rb") as handle:
        left, number = start, 1
        while left:
            data = handle.read(min(left, _BLOCK_BYTES))
            number += data.count(b"\n")
            left -= len(data)
        while line := read_line(handle, f"{file}, row {number}"):
            yield number, line
            number += 1


def read_line(handle: IO[bytes], where: str) -> bytes:
    """Read a line with its end; b"" after the last.

    Raises:
      InputError: It is longer than 8 MiB, which no line of a table is; memory stays bounded.
    """
    line = handle.readline(_LONGEST_LINE + 1)
    if len(line) > _LONGEST_LINE:
        raise InputError(where, "has a line that does not end", want="at most 8 MiB a line")
    return line


def _fields(line: str, delimiter: str) -> list[str]:
    return next(csv.reader([line.rstrip("\r\n")], delimiter=delimiter), [])


def _not_readable(error: UnicodeDecodeError | csv.Error) -> str:
    return "is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else "is not a CSV line"


def _explain_csv(chunk: Chunk, delimiter: str) -> None:
    """Raise for the first malformed line of a chunk, if there is one."""
    position = chunk.start
    for number, line in _lines(chunk.path, chunk.start):
        if position >= chunk.stop:
            return
        position += len(line)
        if not line.strip(b"\r\n"):
            continue
        where = f"{chunk.path}, row {number}"
        try:
            fields = len(_fields(line.decode("utf-8"), delimiter))
        except (UnicodeDecodeError, csv.Error) as error:
            raise InputError(where, _not_readable(error)) from None
        if fields != len(chunk.header):
            raise InputError(
                where,
                "has the wrong number of fields",
                got=fields,
                want=f"{len(chunk.header)}, as in the header",
            )
