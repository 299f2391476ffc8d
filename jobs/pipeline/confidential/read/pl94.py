"""Official 2020 PL 94-171 summary files: a geographic header and three segments per state.

The files are pipe-delimited Latin-1 text without a header line, all four in the order of the
logical record number; they are streamed together, directly from the zip.

References:
  U.S. Census Bureau, 2020 Census State Redistricting Data (Public Law 94-171) Summary File,
  Technical Documentation, chapter 6 (data dictionary).
"""

from __future__ import annotations

import io
import lzma
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from das.arrays import IntArray
from das.errors import InputError
from jobs.pipeline.confidential.read import pl94_tables
from jobs.pipeline.confidential.read.reader import Reader
from jobs.pipeline.config.models.data import Pl94Data
from jobs.pipeline.input import values
from jobs.pipeline.input.files import parse_block
from jobs.pipeline.input.lines import count_rows, parse_line, read_blocks, read_line
from jobs.pipeline.storage.place import Place, StoredPlace

BLOCK = "750"  # summary level of blocks
BATCH_ROWS = 4096  # lines read from each of the four files at a time; default, not measured
_NAME = re.compile(
    r"(?P<state>[a-z]{2})(?:geo|0000(?P<segment>[123]))(?P<rest>\d{4}.*)\.pl", re.IGNORECASE
)
_GEO = ("FILEID", "STUSAB", "SUMLEV", "GEOVAR", "GEOCOMP", "CHARITER", "CIFSN", "LOGRECNO",
        "GEOID", "GEOCODE")  # fmt: skip
_GEO_FIELDS = 97
_LEAD = ("FILEID", "STUSAB", "CHARITER", "CIFSN", "LOGRECNO")


@dataclass(frozen=True)
class StateFiles:
    """The four files of one state.

    Attributes:
      holder: Zip file or folder that holds the files.
      names: File names: geographic header, segments 1, 2, 3.
    """

    holder: Place
    names: tuple[str, str, str, str]

    def where(self, file: int) -> str:
        """Return the path of a file for messages; 0 is the header, 1 to 3 are segments."""
        return f"{self.holder}/{self.names[file]}"


def find_files(path: Place) -> list[StateFiles]:
    """Find the files of every state: in a zip, in a folder, or in the zips of a folder.

    Raises:
      InputError: The path does not exist, a zip is damaged, or a state lacks one of its files.
    """
    if path.is_file():
        return _states_of(path, _zip_names(path))
    if not path.is_dir():
        raise InputError(str(path), "does not exist")
    names = sorted(file.name for file in path.iterdir() if file.is_file())
    zips = [path / name for name in names if name.lower().endswith(".zip")]
    plain = [name for name in names if name.lower().endswith(".pl")]
    states = [state for file in zips for state in _states_of(file, _zip_names(file))]
    if plain or not zips:
        states += _states_of(path, plain)
    headers = [state.names[0].rpartition("/")[2].lower() for state in states]
    twice = sorted({name for name in headers if headers.count(name) > 1})
    if twice:
        raise InputError(str(path), "holds a state twice", got=twice)
    return states


class Pl94Reader(Reader[Pl94Data, StateFiles]):
    """Reader of the block records of summary files."""

    def pieces(self) -> Sequence[StateFiles]:
        """Find the files of every state, as `find_files` does.

        Raises:
          ConfigError: The schema does not have the attributes of the product.
          InputError: The path does not exist, a zip is damaged, or a state lacks one of its files.
        """
        self.data.check(self.schema)
        return find_files(self.data.path)

    def entries(self, piece: StateFiles) -> Iterator[pa.RecordBatch]:
        """Turn the block records of a state into entries.

        Raises:
          InputError: A line or a table does not fit; names file and line.
        """
        segments = pl94_tables.SEGMENTS[self.data.product]
        total = 0.0
        for first, geo, parts in _side_by_side(piece, segments):
            rows, geocodes = _blocks(piece, geo, first, self.digits)
            tables = {
                name: _table(piece, segment, parts[segment], name, rows, first)
                for segment in segments
                for name in pl94_tables.SIZES[segment]
            }
            wrong = partial(_wrong, piece, rows + first)
            counts = pl94_tables.cells_of(self.data.product, tables, wrong)
            total = values.add_rows(
                total,
                counts.sum(1, dtype=np.float64),
                lambda index, lines=rows + first: f"{piece.where(0)}, row {lines[index]}",  # type: ignore[misc]
            )
            at, cells = np.nonzero(counts)
            yield values.entries(geocodes, at, cells, counts[at, cells])

    def geocodes(self, piece: StateFiles) -> Iterator[pa.Array]:
        """Stream the geocodes of all block records of a state.

        Raises:
          InputError: A line does not fit, or the state has no block records.
        """
        blocks = 0
        for first, geo, _ in _side_by_side(piece, ()):
            rows, geocodes = _blocks(piece, geo, first, self.digits)
            blocks += len(rows)
            yield geocodes
        if not blocks:
            raise InputError(piece.where(0), f"has no block records (SUMLEV {BLOCK})")

    def places(self, geocode: str) -> list[str]:
        """Find the line of the geographic header that holds a block; the path if there is none."""
        for state in find_files(self.data.path):
            for first, geo, _ in _side_by_side(state, ()):
                is_block = pc.and_(
                    pc.equal(geo["GEOCODE"], geocode), pc.equal(geo["SUMLEV"], BLOCK)
                )
                rows = np.flatnonzero(np.asarray(is_block))
                if len(rows):
                    return [f"{state.where(0)}, row {first + rows[0]}"]
        return [str(self.data.path)]


def _zip_names(path: Place) -> list[str]:
    try:
        with zipfile.ZipFile(_openable(path)) as archive:
            return archive.namelist()
    except _UNREADABLE as error:
        raise InputError(
            str(path), "is not a readable zip file", got=type(error).__name__
        ) from None


def _states_of(holder: Place, names: Sequence[str]) -> list[StateFiles]:
    sets: dict[tuple[str, str, str], dict[int, str]] = {}
    for name in names:
        folder, _, base = name.rpartition("/")
        match = _NAME.fullmatch(base)
        if match:
            key = (folder, match["state"].lower(), match["rest"])
            of_state = sets.setdefault(key, {})
            segment = int(match["segment"] or 0)
            if segment in of_state:  # else one of them would be ignored
                raise InputError(str(holder), "has a file twice", got=[of_state[segment], name])
            of_state[segment] = name
    wanted = ("{}geo{}.pl", "{}00001{}.pl", "{}00002{}.pl", "{}00003{}.pl")
    if not sets:
        raise InputError(
            str(holder),
            "holds no PL 94-171 files",
            want=[text.format("<state>", "2020") for text in wanted],
        )
    for (_, state, rest), files in sets.items():
        missing = [wanted[i].format(state, rest) for i in range(4) if i not in files]
        if missing:
            raise InputError(
                str(holder), "lacks files", got=sorted(files.values()), want=f"also {missing}"
            )
    return [StateFiles(holder, (f[0], f[1], f[2], f[3])) for _, f in sorted(sets.items())]


@contextmanager
def _opened(state: StateFiles, file: int) -> Iterator[IO[bytes]]:
    with ExitStack() as stack:
        try:
            handle: IO[bytes]
            if state.holder.is_dir():
                handle = stack.enter_context((state.holder / state.names[file]).open("rb"))
            else:
                archive = stack.enter_context(zipfile.ZipFile(_openable(state.holder)))
                handle = stack.enter_context(archive.open(state.names[file]))
        except _UNREADABLE as error:
            raise _unreadable(state, file, error) from None
        yield io.BufferedReader(_Checked(handle, state, file))


def _openable(path: Place) -> Path | IO[bytes]:
    """Return an argument for zipfile: the path, or a handle of a file in a store."""
    return path.open("rb") if isinstance(path, StoredPlace) else path


# Raised by zipfile for a zip that is damaged, encrypted or compressed by an unknown method.
_UNREADABLE = (
    OSError,
    EOFError,
    KeyError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    lzma.LZMAError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


def _unreadable(state: StateFiles, file: int, error: BaseException) -> InputError:
    if isinstance(error, NotImplementedError):
        got, remedy = "an unknown compression method", "unpack it and compress it again"
    elif isinstance(error, RuntimeError):
        got, remedy = "an encrypted file", "unpack it and give the folder"
    else:
        got, remedy = type(error).__name__, None
    return InputError(state.where(file), "cannot be read", got=got, remedy=remedy)


class _Checked(io.RawIOBase):
    """A file of a zip or folder, whose read errors name the file."""

    def __init__(self, handle: IO[bytes], state: StateFiles, file: int) -> None:
        super().__init__()
        self._handle, self._state, self._file = handle, state, file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            data = self._handle.read(len(buffer))
        except _UNREADABLE as error:
            raise _unreadable(self._state, self._file, error) from None
        buffer[: len(data)] = data
        return len(data)


def _fields(file: int) -> tuple[str, ...]:
    """Return the names of all fields of a file."""
    if file == 0:
        return _GEO + tuple(f"field {i + 1}" for i in range(len(_GEO), _GEO_FIELDS))
    sizes = pl94_tables.SIZES[file]
    return _LEAD + tuple(
        pl94_tables.variable(table, i) for table, size in sizes.items() for i in range(size)
    )


def _side_by_side(
    state: StateFiles, segments: Sequence[int]
) -> Iterator[tuple[int, pa.Table, dict[int, pa.Table]]]:
    """Stream the header and some segments in step: first line number, header, segments."""
    with ExitStack() as stack:
        streams = [
            _rows(state, file, stack.enter_context(_opened(state, file))) for file in (0, *segments)
        ]
        first = 1
        while True:
            parts = [next(stream, None) for stream in streams]
            geo = parts[0]
            for file, part in zip(segments, parts[1:], strict=True):
                _check_step(state, file, geo, part, first)
            if geo is None:
                break
            yield (
                first,
                geo,
                {f: p for f, p in zip(segments, parts[1:], strict=True) if p is not None},
            )
            first += geo.num_rows
        if first == 1:
            raise InputError(state.where(0), "is empty")


def _check_step(
    state: StateFiles, file: int, geo: pa.Table | None, part: pa.Table | None, first: int
) -> None:
    want = [] if geo is None else geo["LOGRECNO"].to_pylist()
    got = [] if part is None else part["LOGRECNO"].to_pylist()
    if want == got:
        return
    row = next(
        (i for i, (a, b) in enumerate(zip(want, got, strict=False)) if a != b),
        min(len(want), len(got)),
    )
    raise InputError(
        f"{state.where(file)}, row {first + row}",
        "is of another record than the same row of the geographic header",
        got="another LOGRECNO" if row < len(got) else "the end of the file",
        want="the same LOGRECNO" if row < len(want) else "the end of the file",
    )


def _rows(state: StateFiles, file: int, handle: IO[bytes]) -> Iterator[pa.Table]:
    """Stream the needed fields of a file, BATCH_ROWS lines at a time."""
    waiting: list[pa.Table] = []
    for block in read_blocks(handle, state.where(file)):
        rows = _parse(file, block)
        if rows is None:
            _explain(state, file)
            raise InputError(state.where(file), "cannot be read")
        waiting.append(rows)
        while sum(table.num_rows for table in waiting) >= BATCH_ROWS:
            table = pa.concat_tables(waiting)
            yield table.slice(0, BATCH_ROWS).combine_chunks()
            waiting = [table.slice(BATCH_ROWS)]
    if sum(table.num_rows for table in waiting):
        yield pa.concat_tables(waiting).combine_chunks()


def _parse(file: int, block: bytes) -> pa.Table | None:
    """Parse the needed fields of whole lines; None if a line is malformed."""
    n_rows, n_blank = count_rows(block, "|", quotes=False) or (-1, 0)
    if n_rows < 0 or n_blank:
        return None
    names = _fields(file)
    wanted = ("SUMLEV", "LOGRECNO", "GEOCODE") if file == 0 else names[4:]
    kinds = {name: pa.string() if name in _GEO else pa.int64() for name in wanted}
    encoding = "utf8" if file else "latin-1"
    rows = parse_block(block, names, kinds, "|", quotes=False, encoding=encoding)
    return None if rows is None or rows.num_rows != n_rows else rows


def _explain(state: StateFiles, file: int) -> None:
    """Raise InputError for the first malformed line, without quoting it."""
    fields = _fields(file)
    size = 0
    with _opened(state, file) as handle:
        while line := read_line(handle, f"{state.where(file)}, row {size + 1}"):
            size += 1
            where = f"{state.where(file)}, row {size}"
            parts = parse_line(line, where, "|", quotes=False)
            if len(parts) != len(fields):
                raise InputError(
                    where, "has the wrong number of fields", got=len(parts), want=len(fields)
                )
            for name, text in zip(fields[5:], parts[5:], strict=True):
                if file and not re.fullmatch(rb"-?[0-9]{1,18}", text):
                    raise InputError(f"{where}, {name}", "count is not an integer")
    if size == 0:
        raise InputError(state.where(file), "is empty")


def _blocks(state: StateFiles, geo: pa.Table, first: int, digits: int) -> tuple[IntArray, pa.Array]:
    """Return the rows of blocks in a part of the header, and their checked geocodes."""
    rows = np.flatnonzero(np.asarray(pc.equal(geo["SUMLEV"], BLOCK)))
    array = geo["GEOCODE"].combine_chunks().take(pa.array(rows))
    fits = pc.and_(pc.equal(pc.binary_length(array), digits), pc.ascii_is_alnum(array))
    bad = np.flatnonzero(~np.asarray(fits, np.bool_))
    if len(bad):
        raise InputError(
            f"{state.where(0)}, row {rows[bad[0]] + first}, GEOCODE",
            "geocode does not fit the leaf geolevel",
            want=f"{digits} letters or digits",
        )
    return rows, array


def _table(
    state: StateFiles, file: int, part: pa.Table, name: str, rows: IntArray, first: int
) -> IntArray:
    """Return one table as int64[blocks, columns]."""
    columns = []
    for index in range(pl94_tables.SIZES[file][name]):
        variable = pl94_tables.variable(name, index)
        column = part[variable].combine_chunks().take(pa.array(rows))
        if column.null_count:
            at = int(np.flatnonzero(np.asarray(pc.is_null(column)))[0])
            _wrong(state, rows + first, file, at, f"{variable}: count is missing")
        columns.append(np.asarray(column, np.int64))
    return np.stack(columns, axis=1) if columns else np.zeros((len(rows), 0), np.int64)


def _wrong(state: StateFiles, lines: IntArray, file: int, index: int, what: str) -> NoReturn:
    variable, _, text = what.partition(": ")
    raise InputError(f"{state.where(file)}, row {lines[index]}, {variable}", text)
