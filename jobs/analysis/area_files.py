"""Read area files: CSV files of offices that list the leaf geounits of each area.

Each line holds a geocode, or an area and a geocode in either order, separated by a comma, tab, bar
or semicolon. A header line, quotes and a byte order mark are optional. The column of geocodes is
the one with most geocodes of the public list of leaf geounits.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from das.arrays import Geocodes, IntArray
from das.errors import InputError
from jobs.pipeline.input.lines import split_fields
from jobs.pipeline.printable import counted
from jobs.pipeline.storage.place import Place

_DELIMITERS = (",", "\t", "|", ";")
_SAMPLE_ROWS = 1000  # from which delimiter and columns are inferred; default, not measured
_EXAMPLES = 3
_BLANK = re.compile(rb"^[ \t]+(?=\r?$)", re.MULTILINE)


@dataclass(frozen=True)
class AreaFile:
    """Contents of an area file.

    Attributes:
      areas: Leaf geocodes by area, distinct and ascending; areas in the order of the file.
      notes: Warnings about leaves that are in no area, twice in one area, or in several areas.
    """

    areas: Mapping[str, Geocodes]
    notes: Sequence[str]


@dataclass(frozen=True, eq=False)
class _Leaves:
    """All leaf geounits of a release."""

    codes: Geocodes
    level: str

    @cached_property
    def texts(self) -> pa.Array:
        return pa.array(self.codes, pa.binary()).cast(pa.string())

    def positions(self, fields: pa.ChunkedArray) -> npt.NDArray[np.int64]:
        """Return int64[R], the index in `codes` of the geocode in each row, or -1 if it is unknown.

        Args:
          fields: One geocode per row of the area file.
        """
        index_of = pc.index_in(fields, value_set=self.texts)
        return np.asarray(pc.fill_null(index_of, -1).to_numpy(), np.int64)

    def known(self, fields: Sequence[str]) -> int:
        """Count the fields that are geocodes of leaves."""
        some = np.array([field.encode("ascii", "replace") for field in fields], np.bytes_)
        spots = np.searchsorted(self.codes, some) if len(some) else np.zeros(0, np.int64)
        return int(np.sum(self.codes[np.minimum(spots, len(self.codes) - 1)] == some))


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of a file, as columns of trimmed text fields, with their line numbers."""

    path: Place
    content: bytes
    columns: tuple[pa.ChunkedArray, ...]  # of text
    skipped: int = 0

    def __len__(self) -> int:
        return len(self.columns[0])

    @cached_property
    def _lines(self) -> list[int]:
        lines = self.content.splitlines()
        return [number for number, line in enumerate(lines, 1) if line.strip()]

    def line(self, row: int) -> int:
        """Return the line number of a row, from 1."""
        return self._lines[row + self.skipped]

    def where(self, row: int) -> str:
        return f"{self.path}, row {self.line(row)}"


def read_areas(path: Place, leaves: Geocodes, leaf: str, column: str | None = None) -> AreaFile:
    """Read an area file.

    Args:
      path: The file. Without a column of areas it is one area, named after the file.
      leaves: bytes[G] geocodes of all leaf geounits, ascending.
      leaf: Name of the leaf geolevel.
      column: Heading of the column of areas; optional if there is only one besides the geocodes.

    Raises:
      InputError: The file cannot be read, no column holds geocodes, the column of areas is
        ambiguous, or a geocode does not exist. The message names row and code, which are public.
    """
    known = _Leaves(leaves, leaf)
    rows = _rows(path, known)
    codes = _code_column(rows, known)
    names = None
    if _has_header(rows.columns[codes], known):
        names = [field[0].as_py() for field in rows.columns]
        rows = replace(rows, columns=tuple(field.slice(1) for field in rows.columns), skipped=1)
    return _assigned(rows, _area_column(rows, codes, names, column), codes, known)


def _rows(path: Place, known: _Leaves) -> _Rows:
    try:
        content = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
        content.decode()
    except OSError as error:
        raise InputError(str(path), "cannot be read", got=error.strerror) from None
    except UnicodeDecodeError:
        raise InputError(str(path), "is not UTF-8 text", remedy="save it as UTF-8") from None
    content = _BLANK.sub(b"", content)
    lines = islice(re.finditer(rb"[^\r\n]+", content), _SAMPLE_ROWS)
    head = [line.group().decode() for line in lines]
    if not head:
        raise InputError(str(path), "is empty", want="geocodes, one a line")
    fields = {delimiter: _split(path, head, delimiter) for delimiter in _DELIMITERS}
    fitting = {
        delimiter: sum(known.known(row) > 0 for row in rows if len(row) > 1)
        for delimiter, rows in fields.items()
    }
    delimiter = max(_DELIMITERS, key=fitting.__getitem__)
    return _parse(path, content, delimiter, max(map(len, fields[delimiter])))


def _split(path: Place, lines: Sequence[str], delimiter: str) -> list[list[str]]:
    try:
        rows = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
        return [[field.strip() for field in row] for row in rows]
    except csv.Error as error:
        raise InputError(str(path), "is not CSV", got=str(error)) from None


def _parse(path: Place, content: bytes, delimiter: str, width: int) -> _Rows:
    """Parse the content of a file; refuse a row with more or fewer fields than the first."""
    mark = re.escape(delimiter.encode())
    # Blanks between a separator and a quote: a quote opens a field at its very beginning only.
    text = re.sub(mark + rb'[ \t]+"', delimiter.encode() + b'"', content)
    for number, line in enumerate(text.splitlines() if b'"' in text else (), 1):
        # Else the field would continue in the next lines.
        if split_fields(line, delimiter, quotes=True) is None:
            raise InputError(
                f"{path}, row {number}",
                "has a quotation mark that opens a field and does not close it in the same line",
                remedy="close the field, or remove the mark from the row",
            )
    odd: list[pv.InvalidRow] = []

    def keep(row: pv.InvalidRow) -> str:
        odd.append(row)
        return "skip"

    names = [f"f{index}" for index in range(width)]
    try:
        table = pv.read_csv(
            pa.BufferReader(text),
            # One thread: rows have numbers.
            read_options=pv.ReadOptions(autogenerate_column_names=True, use_threads=False),
            parse_options=pv.ParseOptions(delimiter=delimiter, invalid_row_handler=keep),
            convert_options=pv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid as error:
        raise InputError(str(path), "is not CSV", got=str(error)) from None
    columns = tuple(pc.utf8_trim_whitespace(column) for column in table.columns)
    rows = _Rows(path, content, columns)
    if odd:
        is_first = len(odd) > len(table)  # the first row is the odd one
        row, sizes = odd[0], (odd[0].actual_columns, odd[0].expected_columns)
        got, want = sizes[::-1] if is_first else sizes
        raise InputError(
            rows.where(0 if is_first else row.number - 1),
            "has another number of fields than other rows",
            got=f"{got}, separated by {delimiter!r}",
            want=want,
            remedy="put quotes around names that hold the separator",
        )
    return rows


def _code_column(rows: _Rows, known: _Leaves) -> int:
    """Return the column with most known geocodes among the first rows."""
    heads = [column.slice(0, _SAMPLE_ROWS).to_pylist() for column in rows.columns]
    fits = [known.known(head) for head in heads]
    if max(fits):
        return fits.index(max(fits))
    example = known.codes[0].decode() if len(known.codes) else ""
    # Without a known geocode the delimiter is not known either.
    filled = [word.zfill(len(example)) for head in heads for word in re.findall(r"\w+", str(head))]
    what, remedy = f"no row holds a geocode of the geolevel {known.level}", None
    if known.known(filled):
        what = f"the geocodes of the geolevel {known.level} lost their leading zeros"
        remedy = "programs that read geocodes as numbers drop leading zeros: write them as text"
    raise InputError(
        rows.where(len(rows) - 1),
        what,
        got=", ".join(column[-1].as_py() for column in rows.columns),
        want=f"geocodes such as {example}",
        remedy=remedy,
    )


def _has_header(codes: pa.ChunkedArray, known: _Leaves) -> bool:
    """Return whether the first entry of the column of geocodes is a heading."""
    code = codes[0].as_py()
    if known.known([code]) or len(codes) == 1:
        return False
    is_numeric = bool(pc.all(pc.utf8_is_digit(known.texts)).as_py())
    has_length = pc.any(pc.equal(pc.utf8_length(known.texts), len(code))).as_py()
    return not (has_length and (code.isdecimal() or not is_numeric))


def _area_column(
    rows: _Rows, codes: int, names: Sequence[str] | None, wanted: str | None
) -> int | None:
    """Return the index of the column of areas, or None if the file has only geocodes.

    Args:
      rows: Rows of the area file.
      codes: Index of the column of geocodes.
      names: Names of the columns, from the first line; None if the file has no header.
      wanted: Name of the requested column; None for the only column besides the geocodes.
    """
    width = len(rows.columns)
    if wanted is not None:
        others = {name: index for index, name in enumerate(names or ()) if index != codes}
        if wanted not in others:
            raise InputError(
                str(rows.path),
                "has no such column of areas",
                got=wanted,
                want=f"one of {[*others]}" if names else "a first line with names of columns",
            )
        return others[wanted]
    if width > 2:
        raise InputError(
            rows.where(0),
            "has several columns besides the geocodes",
            got=f"{width} columns",
            want="one column of areas and one of geocodes",
            remedy="remove the other columns, or name one: das areas --column NAME",
        )
    return None if width == 1 else 1 - codes


def _assigned(rows: _Rows, area_column: int | None, column: int, known: _Leaves) -> AreaFile:
    spots = known.positions(rows.columns[column])
    unknown = np.flatnonzero(spots < 0)
    if len(unknown):
        raise InputError(
            rows.where(int(unknown[0])),
            f"names no {known.level} of the release ({len(unknown)} such rows)",
            got=rows.columns[column][int(unknown[0])].as_py() or "nothing",
            want=f"geocodes such as {known.codes[0].decode()}",
            remedy="correct the row, or remove it",
        )
    names, area = _areas(rows, area_column)
    at = np.flatnonzero(area >= 0)  # rows of leaves that are assigned to an area
    if not len(at):
        raise InputError(str(rows.path), "assigns no geocode to an area", want="names of areas")
    order = at[np.lexsort((at, spots[at], area[at]))]  # by area, leaf and row
    again = _same_as_before(area[order], spots[order])
    once = order[~again]
    edges = np.flatnonzero(np.diff(area[once])) + 1
    groups = np.split(known.codes[spots[once]], edges)
    areas = dict(zip([names[index] for index in area[once[np.r_[0, edges]]]], groups, strict=True))
    by_leaf = once[np.lexsort((once, spots[once]))]
    shared = _same_as_before(spots[by_leaf])

    def code(row: int) -> str:
        return str(known.codes[spots[row]].decode())

    notes = []
    missing = np.flatnonzero(np.bincount(spots[at], minlength=len(known.codes)) == 0)
    if len(missing) and area_column is not None:
        examples = ", ".join(known.codes[spot].decode() for spot in missing[:_EXAMPLES])
        of = f"of {len(known.codes)} geounits of {known.level} in no area"
        notes.append(f"{len(missing)} {of}, such as {examples}")
    for before, row in _first_again(again, order):
        lines = f"rows {rows.line(before)} and {rows.line(row)}"
        what = f"geounits of {known.level} twice in one area, counted once"
        notes.append(f"{counted(int(again.sum()), what)}, the first is {code(row)} in {lines}")
    for pair in _first_again(shared, by_leaf):
        both = ", and ".join(f"{names[area[row]]}, row {rows.line(row)}" for row in pair)
        what = f"geounits of {known.level} in more than one area, counted in each"
        notes.append(f"{counted(int(shared.sum()), what)}, the first is {code(pair[1])} in {both}")
    return AreaFile(areas, notes)


def _areas(rows: _Rows, column: int | None) -> tuple[list[str], IntArray]:
    """Return names of areas as they first occur, and int64[R], the area index of each row.

    Args:
      rows: Rows of the area file.
      column: Index of the column of areas; None if all rows belong to one area, which is then
        named after the file. A row without a name has the index -1.
    """
    if column is None:
        return [rows.path.stem], np.zeros(len(rows), np.int64)
    encoded = pc.dictionary_encode(rows.columns[column].combine_chunks())
    names = encoded.dictionary.to_pylist()
    indices = np.asarray(encoded.indices.to_numpy(), np.int64)
    return names, np.where(indices == names.index(""), -1, indices) if "" in names else indices


def _same_as_before(*keys: IntArray) -> npt.NDArray[np.bool_]:
    """Return bool[R], whether a row of the sorted file equals the previous row in all keys."""
    same = [np.append(False, key[1:] == key[:-1]) for key in keys]
    return np.asarray(np.logical_and.reduce(same), np.bool_)


def _first_again(again: npt.NDArray[np.bool_], rows: IntArray) -> list[tuple[int, int]]:
    """Return the first repeated row of the file as [(original row, repeated row)], or [].

    Args:
      again: Whether a row equals the previous row in sorted order.
      rows: Row of the file at each place in sorted order.
    """
    spots = np.flatnonzero(again)
    if not len(spots):
        return []
    spot = int(spots[np.argmin(rows[spots])])
    return [(int(rows[np.flatnonzero(~again[:spot])[-1]]), int(rows[spot]))]
