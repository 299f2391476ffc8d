"""Files in a layout of conf/export, read by whomever they were published.

Files are found by their names, or by their columns if their first line names these. They lie in a
folder or in zips, and are read block by block, so memory does not depend on their size.
"""

from __future__ import annotations

import io
import lzma
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import IO, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from das.errors import InputError
from jobs.pipeline.config.layouts import Layout, LayoutFile
from jobs.pipeline.input.files import parse_block
from jobs.pipeline.input.lines import count_rows, parse_line, read_blocks, read_line
from jobs.pipeline.storage.place import Place, StoredPlace

BATCH_ROWS = 4096  # rows read from each file of a set at a time; default, not measured
_PARQUET = ".parquet"
_ENDINGS = (".pl", ".csv", ".txt", _PARQUET)
_YEAR = re.compile(r"\d{4}$")  # at the end of a name: files of another year have another one
# Raised for files that are absent, damaged, encrypted or compressed by an unknown method.
_UNREADABLE = (
    OSError,
    EOFError,
    KeyError,
    RuntimeError,
    ValueError,
    lzma.LZMAError,
    pa.ArrowException,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
_KINDS = {pa.int64(): "an integer", pa.float64(): "a number", pa.string(): "text"}

Kinds = Mapping[str, pa.DataType]
"""Columns to read, with the types of their values."""


@dataclass(frozen=True)
class StoredFile:
    """A file, or a file in a zip.

    Attributes:
      holder: The file, or the zip.
      name: Name of the file in the zip; empty for a file that is in none.
    """

    holder: Place
    name: str = ""

    def __str__(self) -> str:
        return f"{self.holder}/{self.name}" if self.name else str(self.holder)

    @property
    def is_parquet(self) -> bool:
        """Return whether the file is Parquet; others are text."""
        return str(self).lower().endswith(_PARQUET)

    @contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """Open the file during the block, in which errors of reading become InputError.

        Raises:
          InputError: The file cannot be read.
        """
        got, remedy = "", None
        try:
            with ExitStack() as stack:
                if self.name:
                    archive = stack.enter_context(zipfile.ZipFile(_openable(self.holder)))
                    yield stack.enter_context(archive.open(self.name))
                else:
                    yield stack.enter_context(self.holder.open("rb"))
        except NotImplementedError:
            got, remedy = "an unknown compression method", "unpack it and compress it again"
        except RuntimeError:
            got, remedy = "an encrypted file", "unpack it and give the folder"
        except _UNREADABLE as error:
            got = type(error).__name__
        if got:  # outside of the handler: the text of the error may quote the data
            raise InputError(str(self), "cannot be read", got=got, remedy=remedy)

    def columns(self, layout: Layout) -> list[str]:
        """List the columns that the file names: in its first line, or as Parquet.

        Raises:
          InputError: The file cannot be read.
        """
        with self.opened() as handle:
            if self.is_parquet:
                return list(pq.read_schema(handle).names)
            where = f"{self}, row 1"
            line = read_line(handle, where).removeprefix(b"\xef\xbb\xbf")
            fields = parse_line(line, where, layout.delimiter, quotes=layout.quoted)
            return [name.decode(layout.encoding, "replace") for name in fields]


def stored_files(path: Place) -> list[StoredFile]:
    """List the files that a path names: a file, or the files of a folder or of zips.

    Raises:
      InputError: The path does not exist, or a zip cannot be read.
    """
    if not path.exists():
        raise InputError(str(path), "does not exist")
    found = list[StoredFile]()
    holders: list[Place] = sorted(path.iterdir(), key=str) if path.is_dir() else [path]
    for holder in holders:
        if holder.suffix.lower() != ".zip":
            found.append(StoredFile(holder))
            continue
        try:
            with zipfile.ZipFile(_openable(holder)) as archive:
                found += [StoredFile(holder, name) for name in archive.namelist()]
        except _UNREADABLE as error:
            what = "is not a readable zip file"
            raise InputError(str(holder), what, got=type(error).__name__) from None
    readable = [one for one in found if str(one).lower().endswith(_ENDINGS)]
    parquet = {str(one)[: -len(_PARQUET)] for one in readable if one.is_parquet}
    # A table that lies there in both formats is read once.
    return [one for one in readable if one.is_parquet or str(one).rpartition(".")[0] not in parquet]


def _openable(path: Place) -> Path | IO[bytes]:
    """Return an argument for zipfile: the path, or a handle of a file in a store."""
    return path.open("rb") if isinstance(path, StoredPlace) else path


@dataclass(frozen=True, eq=False)
class FileSet:
    """Files of a layout with the same rows, such as the header and the segments of a state.

    Attributes:
      layout: The layout.
      files: Files of the layout; the first has the geocodes.
      stored: The stored file of each.
      columns: All columns of each stored file.
    """

    layout: Layout
    files: Sequence[LayoutFile]
    stored: Sequence[StoredFile]
    columns: Sequence[Sequence[str]]

    def where(self, row: int, column: str) -> str:
        """Return file, row and column for messages; text may follow the name of the column."""
        name = column.split()[0]
        place = next(place for place, names in enumerate(self.columns) if name in names)
        return f"{self.stored[place]}, row {row}, {column}"

    def rows(self, kinds: Kinds) -> Iterator[tuple[int, pa.Table]]:
        """Stream columns of all files, joined row by row; BATCH_ROWS rows at a time.

        Yields:
          Number of the first row in its file, from 1, and the columns.

        Raises:
          InputError: A file lacks a column, has it twice, has other records than the first file, or
            has no rows.
        """
        number = self.files[0].column_of("{number}")
        key = number.name if number is not None and len(self.files) > 1 else ""
        keys, left = {key: pa.string()} if key else {}, dict(kinds)
        streams = list[tuple[StoredFile, Iterator[pa.Table]]]()
        for stored, names in zip(self.stored, self.columns, strict=True):
            some = {name: left.pop(name) for name in names if name in left}
            twice = [name for name in some if list(names).count(name) > 1]
            if twice:
                raise InputError(str(stored), "has a column twice", got=twice)
            if some or not streams:
                streams.append((stored, _batches(self.layout, stored, names, keys | some)))
        if left:
            raise InputError(str(self.stored[0]), "lacks columns", want=[*left])
        first = start = 1 + (self.layout.header and not self.stored[0].is_parquet)
        ended = pa.table({name: pa.array([], pa.string()) for name in keys})
        for parts in zip_longest(*(stream for _, stream in streams), fillvalue=ended):
            for (stored, _), part in zip(streams[1:], parts[1:], strict=True):
                _check_step(stored, key, parts[0], part, first)
            joined = {name: part[name] for part in parts for name in part.column_names}
            yield first, pa.table(joined)
            first += parts[0].num_rows
        if first == start:
            raise InputError(str(self.stored[0]), "is empty")


def find_sets(layout: Layout, stored: Sequence[StoredFile]) -> list[FileSet]:
    """Find the files of a layout among stored files.

    Raises:
      InputError: A file cannot be read; or of files without a header, some are missing, or two are
        of the same place.
    """
    if layout.header:
        sets = []
        for one in stored:
            names = one.columns(layout)
            able = [file for file in layout.files if {*needed_columns(file)} <= {*names}]
            if able:  # a file of records has the columns of one of geounits, and more
                file = max(able, key=lambda file: len(needed_columns(file)))
                sets.append(FileSet(layout, [file], [one], [names]))
        return sets
    groups: dict[tuple[str, str, str], dict[int, StoredFile]] = {}
    for one in stored:
        folder = str(one).rpartition("/")[0]
        for place, file in enumerate(layout.files):
            if split := _split_of(layout, file, one):
                group = groups.setdefault((folder, *split), {})
                if place in group:  # else one of them would be ignored
                    raise InputError(folder, "has a file twice", got=[str(group[place]), str(one)])
                group[place] = one
    for (folder, value, _), group in groups.items():
        lacking = [file for place, file in enumerate(layout.files) if place not in group]
        if lacking:
            got = sorted(str(one).rpartition("/")[2] for one in group.values())
            want = [layout.file_name(file.name, value, layout.endings[0]) for file in lacking]
            raise InputError(folder, "lacks files", got=got, want=f"also {want}")
    values = [value for _, value, _ in groups]
    if len({*values}) < len(values):
        twice = sorted({value for value in values if values.count(value) > 1})
        raise InputError(
            str(stored[0].holder.parent), f"holds a {layout.split.name} twice", got=twice
        )
    columns = [layout.columns(file) for file in layout.files]
    return [
        FileSet(layout, layout.files, [group[place] for place in sorted(group)], columns)
        for _, group in sorted(groups.items())
    ]


def needed_columns(file: LayoutFile) -> list[str]:
    """List the columns that a file with a header must have to be read."""
    return [c.name for c in (*file.geocode_columns(), *(c for c in file.columns if c.axis))]


def _split_of(layout: Layout, file: LayoutFile, stored: StoredFile) -> tuple[str, str] | None:
    """Return the value of the split and the edition in the name of a file; None for others."""
    parts = re.split(r"\{\w+\}", _YEAR.sub("", file.name))
    endings = "|".join(map(re.escape, layout.endings))
    pattern = r"(\w+?)".join(map(re.escape, parts)) + rf"(\d*.*?)({endings})"
    match = re.fullmatch(pattern, str(stored).rpartition("/")[2], re.IGNORECASE)
    return match and (match[1].lower(), match[2].lower())


# --- rows of one file -----------------------------------------------------------------------------


def _batches(
    layout: Layout, stored: StoredFile, columns: Sequence[str], kinds: Kinds
) -> Iterator[pa.Table]:
    """Stream some columns of a file, BATCH_ROWS rows at a time."""
    waiting: list[pa.Table] = []
    for rows in _rows(layout, stored, columns, kinds):
        waiting.append(rows)
        while sum(table.num_rows for table in waiting) >= BATCH_ROWS:
            table = pa.concat_tables(waiting)
            yield table.slice(0, BATCH_ROWS).combine_chunks()
            waiting = [table.slice(BATCH_ROWS)]
    if sum(table.num_rows for table in waiting):
        yield pa.concat_tables(waiting).combine_chunks()


def _rows(
    layout: Layout, stored: StoredFile, columns: Sequence[str], kinds: Kinds
) -> Iterator[pa.Table]:
    """Stream some columns of a file."""
    with stored.opened() as handle:
        if stored.is_parquet:
            for batch in pq.ParquetFile(handle).iter_batches(columns=[*kinds]):
                yield pa.Table.from_batches([batch]).cast(pa.schema(kinds.items()))
            return
        first = 1
        if layout.header:
            read_line(handle, f"{stored}, row 1")
            first += 1
        for block in read_blocks(handle, str(stored)):
            counted = count_rows(block, layout.delimiter, quotes=layout.quoted)
            n_rows, n_blank = counted or (-1, 0)
            rows = None
            if n_rows > 0 and (layout.header or not n_blank):
                quotes, encoding = layout.quoted, layout.encoding
                rows = parse_block(
                    block, columns, kinds, layout.delimiter, quotes=quotes, encoding=encoding
                )
            if rows is not None and rows.num_rows == n_rows:
                yield rows
            elif n_rows or not layout.header:
                _refuse(layout, stored, columns, kinds, first, block)
            first += n_rows + n_blank


def _refuse(
    layout: Layout,
    stored: StoredFile,
    columns: Sequence[str],
    kinds: Kinds,
    first: int,
    block: bytes,
) -> NoReturn:
    """Raise InputError for the first malformed line of a block, without quoting it."""
    lines = io.BytesIO(block)
    while line := read_line(lines, f"{stored}, row {first}"):
        where = f"{stored}, row {first}"
        fields = parse_line(line, where, layout.delimiter, quotes=layout.quoted)
        first += 1
        if fields == [b""] and layout.header:
            continue
        if len(fields) != len(columns):
            what = "has the wrong number of fields"
            raise InputError(where, what, got=len(fields), want=len(columns))
        for name, text in zip(columns, fields, strict=True):
            kind = kinds.get(name, pa.string()) if text else pa.string()
            try:
                pa.scalar(text.decode(layout.encoding)).cast(kind)
            except ValueError:
                raise InputError(f"{where}, {name}", f"is not {_KINDS[kind]}") from None
    raise InputError(str(stored), "cannot be read", want=f"text in {layout.encoding}")


def _check_step(stored: StoredFile, key: str, header: pa.Table, part: pa.Table, first: int) -> None:
    """Check that rows of a file are of the same records as those of the first file.

    Raises:
      InputError: A record differs.
    """
    want, got = header[key].to_pylist(), part[key].to_pylist()
    if want == got:
        return
    pairs = enumerate(zip(want, got, strict=False))
    row = next((i for i, (a, b) in pairs if a != b), min(len(want), len(got)))
    raise InputError(
        f"{stored}, row {first + row}",
        "is of another record than the same row of the first file",
        got=f"another {key}" if row < len(got) else "the end of the file",
        want=f"the same {key}" if row < len(want) else "the end of the file",
    )
