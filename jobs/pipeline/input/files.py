"""Read CSV and Parquet files in independent chunks, with row numbers for errors.

Row numbers count from 1: lines of a CSV file, with the header as line 1, or data rows of a Parquet
file. Every row of a CSV file must be one line; other files are refused, in any chunk. A file whose
parser finds fewer rows than it states or shows is refused too.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import IO, Literal, NoReturn

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from das.errors import InputError
from jobs.pipeline.config.data import FILE_KINDS
from jobs.pipeline.config.models.values import Quoting
from jobs.pipeline.input.lines import (
    BLOCK_BYTES,
    count_rows,
    parse_line,
    read_blocks,
    read_line,
    split_fields,
    without_end,
)
from jobs.pipeline.storage.place import Place, found_under, names_below, open_input

CHUNK_BYTES = 64 << 20
CHUNK_ROWS = 1 << 20
BATCH_ROWS = 1 << 15
_TEXT = pa.string()
_MOST_NAMED = 3
_OTHER_DATA = frozenset(
    ".gz .zip .bz2 .xz .zst .lz4 .7z .tar .tgz .rar .dat .tab .psv .xlsx .xls .ods .dbf .dta .sav "
    ".sas7bdat .orc .avro .feather .arrow".split()
)
_NOT_UTF8 = "is not UTF-8 text"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Table:
    """Columns to read, and their file or folder.

    Attributes:
      path: A CSV or Parquet file, or a folder of such files.
      columns: Names of the columns to read.
      delimiter: Field separator of CSV files.
      setting: Key of the run file that sets the separator; empty if no key does.
      zeros_lost: Whether geocodes lost their leading zeros, which must be restored.
      quoting: Whether fields of CSV files may stand in quotation marks.
    """

    path: Place
    columns: tuple[str, ...]
    delimiter: str = ","
    setting: str = ""
    zeros_lost: bool = False
    quoting: Quoting = "double"

    @property
    def quotes(self) -> bool:
        """Return whether a quotation mark at the start of a field opens a quoted field."""
        return self.quoting == "double"


@dataclass(frozen=True)
class Chunk:
    """A contiguous part of one file.

    Attributes:
      path: The file.
      kind: Format of the file, CSV or Parquet.
      start: First byte (CSV, always the start of a line) or first row group (Parquet).
      stop: End of the range of bytes or row groups, exclusive. A CSV line belongs to the chunk in
        which it starts.
      first_row: Parquet only: row number of the first row.
      rows: Parquet only: number of rows in the row groups of the chunk.
      header: CSV only: all columns of the file.
    """

    path: Place
    kind: Literal["csv", "parquet"]
    start: int
    stop: int
    first_row: int = 1
    rows: int = 0
    header: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Batch:
    """Some rows of a chunk.

    Attributes:
      table: The rows.
      chunk: The chunk that contains the rows.
      offset: Number of data rows of the chunk before the rows of the batch.
      source: The table that is read.
    """

    table: pa.Table = field(repr=False)
    chunk: Chunk
    offset: int
    source: Table

    def where(self, index: int) -> str:
        """Return file and row number of the row at `index`; slow, for errors only."""
        return f"{self.chunk.path}, row {self.row_number(index)}"

    def row_number(self, index: int) -> int:
        """Return the number in the file, from 1, of a row of this batch.

        In CSV it is the line number, so the header and empty lines count.

        Args:
          index: Position of the row in `table`, from 0.

        Raises:
          InputError: The CSV file has fewer rows than when the batch was read.
        """
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
    """List the data files of a file or folder, sorted by name.

    Raises:
      InputError: The path is absent or cannot be listed, or the folder has no data files or files
        of both formats.
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
        _refuse_closed(path)
        found = [
            file
            for file in found_under(path, "*")
            if not any(part[0] in "._" for part in names_below(file, path).parts)
        ]
        files = [file for file in found if file.suffix.lower() in FILE_KINDS and file.is_file()]
        unread = [str(names_below(file, path)) for file in found if _is_unread(file)]
    except OSError as error:
        raise InputError(str(path), "cannot be listed", got=error.strerror) from None
    if unread:
        raise InputError(
            str(path),
            "holds data that would not be read",
            got=unread[:_MOST_NAMED],
            want=f"files whose names end in {list(FILE_KINDS)}",
            remedy="unpack or convert them, put folders in the place of links, or move them out",
        )
    if not files:
        raise InputError(str(path), "is a folder without data files", want="CSV or Parquet files")
    kinds = {FILE_KINDS[file.suffix.lower()] for file in files}
    if len(kinds) > 1:
        raise InputError(str(path), "holds files of two formats", got=sorted(kinds), want="one")
    return files


def _refuse_closed(folder: Place) -> None:
    """Raise OSError for a folder that cannot be listed, which `rglob` would skip."""

    def refuse(error: OSError) -> NoReturn:
        raise error

    if isinstance(folder, Path):
        for _ in os.walk(folder, onerror=refuse):
            pass


def _is_unread(file: Place) -> bool:
    """Return whether an entry of a data folder looks like data and would not be read."""
    if file.suffix.lower() in _OTHER_DATA:
        return file.is_file()
    if not isinstance(file, Path) or not file.is_symlink():
        return False
    is_lost = file.suffix.lower() in FILE_KINDS and not file.exists()
    return is_lost or file.is_dir()  # a search does not go on in the target


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
      table: Names the columns to read.
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
        raise InputError(str(chunk.path), "cannot be read", got=failure)


def read_table(table: Table) -> Iterator[Batch]:
    """Stream all chunks of a table, in order."""
    for chunk in plan_chunks(table):
        yield from read_chunk(chunk, table)


def header_of(file: Place, delimiter: str) -> tuple[str, ...]:
    """Read only the names of the columns of a file.

    Raises:
      InputError: The file cannot be read, or a CSV file is empty or not UTF-8.
    """
    if FILE_KINDS[file.suffix.lower()] == "parquet":
        return tuple(field.name for field in parquet_schema(file))
    return _csv_header(file, Table(file, (), delimiter))[0]


@contextmanager
def _opened_parquet(file: Place) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(open_input(file)) as parquet:
            yield parquet
    except (OSError, pa.ArrowException) as error:
        raise InputError(
            str(file), "is not a readable Parquet file", got=type(error).__name__
        ) from None


@contextmanager
def opened_csv(file: Place) -> Iterator[IO[bytes]]:
    """Open a CSV file for reading as bytes during the block.

    Raises:
      InputError: The file cannot be read.
    """
    try:
        with file.open("rb") as handle:
            yield handle
    except OSError as error:
        raise InputError(str(file), "cannot be read", got=error.strerror) from None


def parquet_schema(file: Place) -> pa.Schema:
    """Read names and types of the columns of a Parquet file.

    Raises:
      InputError: The file is not readable.
    """
    with _opened_parquet(file) as parquet:
        return parquet.schema_arrow


def _csv_header(file: Place, table: Table) -> tuple[tuple[str, ...], int]:
    """Read the names of the columns, and the byte position of the next line."""
    where = f"{file}, row 1"
    with opened_csv(file) as handle:
        first = read_line(handle, where)
        begin = handle.tell()
    first = first.removeprefix(_BYTE_ORDER_MARK)
    if not first:
        raise InputError(str(file), "is empty", want="a header line")
    if not first.strip():
        raise InputError(where, "is blank", want="names of columns")
    fields = parse_line(first, where, table.delimiter, quotes=table.quotes)
    if not all(map(_is_utf8, fields)):
        raise InputError(where, _NOT_UTF8)
    return tuple(name.decode() for name in fields), begin


def _is_utf8(text: bytes) -> bool:
    return text.decode(errors="ignore").encode() == text


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
    """Find a separator that splits a header into the columns to read; None if none does."""
    for delimiter in (",", ";", "\t", "|"):
        fields = split_fields(line.encode(), delimiter, quotes=table.quotes) or []
        if {name.decode() for name in fields} & set(table.columns):
            return delimiter
    return None


def _parquet_chunks(file: Place, table: Table) -> list[Chunk]:
    with _opened_parquet(file) as parquet:
        names, metadata = parquet.schema_arrow.names, parquet.metadata
        groups = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        stated = metadata.num_rows
    if stated != sum(groups):
        raise InputError(str(file), "states another number of rows than its row groups have")
    _check_columns(file, names, table)
    chunks = []
    start, rows, first = 0, 0, 1
    for index, size in enumerate(groups):
        rows += size
        if rows >= CHUNK_ROWS or index == len(groups) - 1:
            if rows:
                chunks.append(Chunk(file, "parquet", start, index + 1, first, rows))
            start, rows, first = index + 1, 0, first + rows
    return chunks


def _parquet_rows(chunk: Chunk, table: Table) -> Iterator[pa.Table]:
    rows = 0
    with pq.ParquetFile(open_input(chunk.path)) as parquet:
        for batch in parquet.iter_batches(
            batch_size=BATCH_ROWS,
            row_groups=list(range(chunk.start, chunk.stop)),
            columns=list(dict.fromkeys(table.columns)),
            use_threads=False,
        ):
            rows += batch.num_rows
            yield pa.Table.from_batches([batch])
    if rows != chunk.rows:
        raise InputError(str(chunk.path), "gives another number of rows than its row groups state")


def _csv_chunks(file: Place, table: Table) -> list[Chunk]:
    header, begin = _csv_header(file, table)
    _check_columns(file, header, table)
    with opened_csv(file) as handle:
        size = handle.seek(0, io.SEEK_END)
        edges = [begin]
        for edge in range(begin + CHUNK_BYTES, size, CHUNK_BYTES):
            handle.seek(edge - 1)
            read_line(handle, str(file))
            edges.append(handle.tell())
    edges = [*sorted(set(edges)), size]
    # A blank line of one column may be a row whose value is missing, so that none is passed over.
    return [
        Chunk(file, "csv", start, stop, header=header)
        for start, stop in pairwise(edges)
        if start < stop and (len(header) == 1 or _has_line(file, start, stop))
    ]


def _has_line(file: Place, start: int, stop: int) -> bool:
    with file.open("rb") as handle:
        handle.seek(start)
        while handle.tell() < stop:
            if without_end(handle.readline(BLOCK_BYTES)):
                return True
    return False


def _csv_rows(chunk: Chunk, table: Table, text: pa.DataType) -> Iterator[pa.Table]:
    """Parse a chunk block by block; every line that is not blank must give a row."""
    start = chunk.start
    with chunk.path.open("rb") as handle:
        handle.seek(start)
        for block in read_blocks(handle, str(chunk.path), chunk.stop - start):
            n_rows, n_blank = count_rows(block, table.delimiter, quotes=table.quotes) or (-1, 0)
            rows = None
            if n_rows > 0:
                rows = _parse(block, chunk, table, text)
            if (
                n_rows < 0
                or (n_blank and len(chunk.header) == 1)
                or (n_rows and (rows is None or rows.num_rows != n_rows))
            ):
                _explain_csv(chunk, table, text, start)
            if rows is not None:
                yield rows
            start += len(block)


def _parse(block: bytes, chunk: Chunk, table: Table, text: pa.DataType) -> pa.Table | None:
    """Parse whole lines; None if a line is not a valid row."""
    columns = list(dict.fromkeys(table.columns))
    names = [f"{index}" for index in range(len(chunk.header))]
    wanted = [names[chunk.header.index(name)] for name in columns]
    # Arrow drops a byte order mark at the start of what it reads. Here it is data.
    source = b"\n" + block if block.startswith(_BYTE_ORDER_MARK) else block
    kinds = dict.fromkeys(wanted, text)
    rows = parse_block(source, names, kinds, table.delimiter, quotes=table.quotes)
    return None if rows is None else rows.rename_columns(columns)


def parse_block(
    block: bytes,
    names: Sequence[str],
    kinds: Mapping[str, pa.DataType],
    delimiter: str,
    *,
    quotes: bool,
    encoding: str = "utf8",
) -> pa.Table | None:
    """Parse whole lines without a header; None if a line is no row.

    Args:
      block: The lines.
      names: Names of all fields.
      kinds: Fields to return, with the types of their values.
      delimiter: Field separator.
      quotes: Whether fields may stand in quotation marks.
      encoding: Encoding of the file.
    """
    try:
        return pa_csv.read_csv(
            pa.BufferReader(block),
            pa_csv.ReadOptions(
                use_threads=False,
                block_size=2 * len(block) + 1,  # in UTF-8, a character of Latin-1 has two bytes
                column_names=names,
                encoding=encoding,
            ),
            pa_csv.ParseOptions(delimiter=delimiter, quote_char='"' if quotes else False),
            pa_csv.ConvertOptions(
                column_types=kinds, include_columns=[*kinds], strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid:  # its text may quote the data
        return None


def _lines(file: Place, start: int) -> Iterator[tuple[int, bytes]]:
    """Yield line numbers and lines from byte `start` on."""
    with file.open("rb") as handle:
        left, number = start, 1
        while left:
            data = handle.read(min(left, BLOCK_BYTES))
            number += data.count(b"\n")
            left -= len(data)
        while line := read_line(handle, f"{file}, row {number}"):
            yield number, line
            number += 1


def _explain_csv(chunk: Chunk, table: Table, text: pa.DataType, start: int) -> NoReturn:
    """Raise InputError for the first line of a chunk, from byte `start` on, that is no row."""
    wanted = [] if text == pa.binary() else [chunk.header.index(name) for name in table.columns]
    for number, line in _lines(chunk.path, start):
        where = f"{chunk.path}, row {number}"
        fields = parse_line(
            line, where, table.delimiter, quotes=table.quotes, n_fields=len(chunk.header)
        )
        if fields and not all(_is_utf8(fields[index]) for index in wanted):
            raise InputError(where, _NOT_UTF8)
    raise InputError(str(chunk.path), "cannot be read", want="rows, each of one line")
