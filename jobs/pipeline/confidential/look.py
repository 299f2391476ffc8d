"""What a file of person records looks like: columns, their codes, its geocodes. Nothing is counted.

`das init` proposes a run file from it. What is found comes from confidential data: it is shown to
whoever may read the file, and proposed, never published.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from das.confidential import redact_errors
from das.errors import InputError
from jobs.pipeline.config.data import FILE_KINDS
from jobs.pipeline.config.models.values import GeocodeColumns, names_of
from jobs.pipeline.input import values
from jobs.pipeline.input.files import (
    Batch,
    Table,
    find_files,
    header_of,
    parquet_schema,
    plan_chunks,
    read_chunk,
)
from jobs.pipeline.input.lines import read_line, split_fields, without_end
from jobs.pipeline.storage.place import Place

MOST_CODES = 200  # of a column that is proposed as an attribute
_DELIMITERS = (",", ";", "\t", "|")
_LONGEST_NUMBER = 100  # digits
_LONGEST_NAME = 200  # characters
_FEW_ROWS = 20  # of so many, columns without repetition may be anything
_ROWS_PER_GEOCODE = 5  # with fewer, a column may follow from the geocode by chance


@dataclass(frozen=True)
class Column:
    """A column as the rows that were looked at have it.

    Attributes:
      name: In the header.
      codes: Its values as text, "" for what is missing; None if there are too many for levels.
      fault: Why no run can read it; empty if one can.
      has_missing: Some row has no value.
      is_unique: No value comes twice.
      shortest: Characters of its shortest value that is not missing.
      longest: Of its longest.
      is_code: All values that are there consist of ASCII letters and digits.
      is_number: They are whole numbers.
      least: The least of these numbers.
      most: The largest.
      is_text: Of a CSV file, or text in a Parquet file.
    """

    name: str
    codes: frozenset[str] | None = None
    fault: str = ""
    has_missing: bool = False
    is_unique: bool = False
    shortest: int = 0
    longest: int = 0
    is_code: bool = False
    is_number: bool = False
    least: int = 0
    most: int = 0
    is_text: bool = True


@dataclass(frozen=True)
class Look:
    """A file of records.

    Attributes:
      delimiter: Separates the columns of a CSV file; None of a Parquet file.
      columns: In the order of the file.
      is_whole: Whether all rows were looked at.
    """

    delimiter: str | None
    columns: tuple[Column, ...]
    is_whole: bool

    def column(self, name: str) -> Column | None:
        """A column by name; None if there is no such."""
        return next((one for one in self.columns if one.name == name), None)


@dataclass(frozen=True)
class Geography:
    """The geocodes of a file, and what other columns say of them.

    Attributes:
      geocodes: All that were looked at, as text.
      following: Columns with one value in every geounit.
      prefixes: Columns that repeat the beginning of the geocode, to its length.
      said: Columns whose values do not contradict that they follow from the geocode, to these.
    """

    geocodes: frozenset[str]
    following: frozenset[str] = frozenset()
    prefixes: Mapping[str, int] = field(default_factory=dict)
    said: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)


@redact_errors
def look_at(path: Place, rows: int, delimiter: str | None = None, *, alone: bool = False) -> Look:
    """Look at the columns of a file, or of a folder of files.

    Args:
      path: CSV or Parquet.
      rows: How many to look at, from the first on.
      delimiter: Of a CSV file; found out if None.
      alone: Whether one column is enough, as in a list of geounits.

    Raises:
      InputError: It cannot be read, is not UTF-8, or has one column, no row or no header.
    """
    first = find_files(path)[0]
    is_csv = FILE_KINDS[first.suffix.lower()] == "csv"
    faults: dict[str, str] = {}
    if is_csv:
        delimiter = delimiter or _delimiter_of(first, alone=alone)
        header = header_of(first, delimiter)
        _refuse_no_header(first, header)
    else:
        delimiter, schema = None, parquet_schema(first)
        header = tuple(schema.names)
        for one in schema:
            if not _is_readable(one.type):
                faults[one.name] = f"has values of type {one.type}"
    for name in header:
        if header.count(name) > 1:
            faults[name] = "stands in the header twice"
        elif not name.strip() or not name.isprintable() or len(name) > _LONGEST_NAME:
            faults[name] = "has no name that a run file can hold"
    usable = [name for name in header if name not in faults]
    seen = {name: _Seen() for name in usable}
    batches = _Batches(Table(path, tuple(usable), delimiter or ",", "--delimiter"), rows)
    for batch in batches:
        for name, one in seen.items():
            one.add(values.distinct(batch, name))
    text = {} if is_csv else {one.name: _is_text(one.type) for one in schema}
    columns = [
        seen[name].column(name, batches.done, text.get(name, True))
        if name in seen
        else Column(name, fault=faults[name])
        for name in dict.fromkeys(header)
    ]
    return Look(delimiter, tuple(columns), batches.is_whole)


@redact_errors
def look_at_geocodes(
    path: Place, look: Look, geocode: GeocodeColumns, others: Sequence[str], rows: int
) -> Geography:
    """Look at the geocodes of a file, and at which other columns say something about geounits.

    Args:
      path: The file.
      look: What `look_at` found.
      geocode: Column of the geocodes, or the columns that are put together.
      others: Columns that may.
      rows: How many to look at.

    Raises:
      InputError: It cannot be read.
    """
    columns = (*names_of(geocode), *others)
    table = Table(path, columns, look.delimiter or ",", "--delimiter")
    found: set[str] = set()
    following: dict[str, dict[str, str]] = {name: {} for name in others}
    batches = _Batches(table, rows)
    for batch in batches:
        codes: pa.Array | None = None
        if isinstance(geocode, str):
            found |= values.distinct(batch, geocode)
        else:
            codes = values.put_together(batch, geocode)
            found |= {*codes.unique().to_pylist()}
        for name in [*following]:
            codes = values.texts(batch, names_of(geocode)[0]) if codes is None else codes
            if not _follows(following[name], codes, values.texts(batch, name)):
                del following[name]
    if batches.done < _FEW_ROWS:
        following = {}
    prefixes = {}
    longest = max((len(code) for code in found), default=0)
    for name, of_code in following.items():
        digits = max(len(text) for text in of_code.values())
        if 0 < digits < longest and all(
            code.zfill(longest)[:digits] == text.zfill(digits) for code, text in of_code.items()
        ):
            prefixes[name] = digits
    is_sure = batches.done >= _ROWS_PER_GEOCODE * len(found)
    sure = frozenset(following if is_sure else prefixes)
    return Geography(frozenset(found), sure, prefixes, following)


def _follows(of_code: dict[str, str], codes: pa.Array, texts: pa.Array) -> bool:
    """Whether every geocode has one value of a column, with those before it in `of_code`."""
    pairs = pa.table([codes, texts], ["geocode", "text"])
    for pair in pairs.group_by(["geocode", "text"], use_threads=False).aggregate([]).to_pylist():
        if of_code.setdefault(pair["geocode"], pair["text"]) != pair["text"]:
            return False
    return True


class _Batches:
    """The first rows of a table, batch by batch.

    Attributes:
      done: Rows that were handed out.
      is_whole: Whether these were all.
    """

    def __init__(self, table: Table, rows: int) -> None:
        self._table = table
        self._rows = rows
        self.done = 0
        self.is_whole = True

    def __iter__(self) -> Iterator[Batch]:
        for chunk in plan_chunks(self._table):
            for batch in read_chunk(chunk, self._table, pa.binary()):
                if self.done >= self._rows:
                    self.is_whole = False
                    return
                self.done += batch.table.num_rows
                yield batch


class _Seen:
    """What was seen of a column so far."""

    def __init__(self) -> None:
        self._codes: set[str] | None = set()  # None once there are too many for levels
        self._missing = False
        self._is_utf8 = self._is_code = self._is_number = self._is_shown = True
        self._lengths: tuple[int, int] | None = None
        self._numbers: tuple[int, int] | None = None

    def add(self, found: set[str]) -> None:
        """Add the distinct values of some rows."""
        new = found - (self._codes or set())
        if self._codes is not None:
            self._codes |= new
            if len(self._codes) > MOST_CODES:
                self._codes = None
        self._missing |= "" in new
        there = [text for text in new if text]
        if not there:
            return
        self._is_utf8 &= not any("\ud800" <= c <= "\udfff" for text in there for c in text)
        self._is_shown &= all(text.isprintable() for text in there)
        self._is_code &= all(text.isascii() and text.isalnum() for text in there)
        self._lengths = _widened(self._lengths, [len(text) for text in there])
        self._is_number &= all(_is_number(text) for text in there)
        if self._is_number:
            self._numbers = _widened(
                self._numbers, [int(text.removesuffix(".0")) for text in there]
            )

    def column(self, name: str, rows: int, is_text: bool) -> Column:
        """The column, after that many rows."""
        codes = None if self._codes is None else frozenset(self._codes)
        fault = ""
        if not self._is_utf8:
            fault = "holds text that is not UTF-8"
        elif not self._is_shown:
            fault = "holds control characters"
        shortest, longest = self._lengths or (0, 0)
        least, most = self._numbers or (0, 0)
        return Column(
            name,
            codes,
            fault,
            self._missing,
            codes is not None and len(codes) == rows >= _FEW_ROWS,
            shortest,
            longest,
            self._is_code and longest > 0 and not self._missing,
            self._is_number and longest > 0,
            least,
            most,
            is_text,
        )


def _widened(before: tuple[int, int] | None, more: list[int]) -> tuple[int, int]:
    least, most = min(more), max(more)
    return (least, most) if before is None else (min(before[0], least), max(before[1], most))


def _is_number(text: str) -> bool:
    whole = text.removesuffix(".0").removeprefix("-")
    return whole.isascii() and whole.isdigit() and len(whole) <= _LONGEST_NUMBER


def _is_text(kind: pa.DataType) -> bool:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    known = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(is_kind(plain) for is_kind in known)


def _is_readable(kind: pa.DataType) -> bool:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    known = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    return _is_text(kind) or any(is_kind(plain) for is_kind in known)


def _delimiter_of(file: Place, *, alone: bool) -> str:
    """The separator that makes most columns of the first line."""
    try:
        with file.open("rb") as handle:
            line = read_line(handle, f"{file}, row 1")
    except OSError as error:
        raise InputError(str(file), "cannot be read", got=error.strerror) from None
    is_wide = b"\0" in line
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = ""
    if is_wide or (line and not text):
        raise InputError(
            f"{file}, row 1",
            "is not UTF-8 text",
            got="UTF-16" if is_wide else "another encoding, such as Windows-1252",
            remedy="save it as CSV in UTF-8: spreadsheets offer it, and so does `iconv`",
        )
    if not text.strip():
        raise InputError(str(file), "is empty", want="a header line")
    first = without_end(text.encode())
    sizes = {mark: len(split_fields(first, mark, quotes=True) or []) for mark in _DELIMITERS}
    found = max(_DELIMITERS, key=lambda mark: sizes[mark])
    if sizes[found] < 2 and not alone:
        raise InputError(
            str(file),
            f"has one column, if any of {list(_DELIMITERS)} separates them",
            want="a geocode and at least one attribute",
            remedy="name another separator by --delimiter, or remove lines above the header",
        )
    return found


def _refuse_no_header(file: Place, header: Sequence[str]) -> None:
    """Refuse a first line that is one of data; it is not quoted."""
    bare = [name for name in header if not name.strip() or _is_number(name.strip())]
    if 2 * len(bare) >= len(header):
        raise InputError(
            f"{file}, row 1",
            "looks like data: half of its fields are numbers or empty",
            want="names of columns",
            remedy="put a line with the names of the columns before it",
        )
