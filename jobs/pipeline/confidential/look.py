"""Inspect a file of person records: columns, their codes and geocodes. Nothing is counted.

`das init` drafts a run file from the result. The result comes from confidential data: it is shown
to users who may read the file, and is never published.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from das.confidential import redact_errors
from das.errors import InputError
from jobs.pipeline.config.data import FILE_KINDS
from jobs.pipeline.config.models.values import GeocodeColumns, GeocodeTable, names_of
from jobs.pipeline.input import values
from jobs.pipeline.input.files import (
    Batch,
    Table,
    find_files,
    header_of,
    opened_csv,
    parquet_schema,
    plan_chunks,
    read_chunk,
)
from jobs.pipeline.input.lines import read_line, split_fields, without_end
from jobs.pipeline.storage.place import Place

MOST_CODES = 200  # most codes of a column that `das init` proposes as an attribute; default
_DELIMITERS = (",", ";", "\t", "|")
NOT_UTF8 = "holds text that is not UTF-8"
_LONGEST_NUMBER = 100  # digits; longer texts count as no numbers
_LONGEST_NAME = 200  # characters of a column name
_FEW_ROWS = 20  # with fewer rows, unique values do not show that a column is a key; default
FEW_RECORDS = 10  # mean rows of a geocode, above those of a household; default, not measured
_ROWS_PER_GEOCODE = 5  # with fewer rows, a column may follow from geocodes by chance; default


@dataclass(frozen=True)
class Column:
    """A column, as seen in the inspected rows.

    Attributes:
      name: Name in the header.
      codes: Values as text, "" if missing; None if there are too many for an attribute.
      fault: Reason why a run cannot read the column; empty if it can.
      has_missing: Whether some row has no value.
      is_unique: Whether no value repeats.
      shortest: Characters of the shortest value that is not missing.
      longest: Characters of the longest value.
      is_code: Whether no value is missing and all consist of ASCII letters and digits.
      is_number: Whether all values that are not missing are integers.
      least: Smallest of these integers.
      most: Largest of these integers.
      has_zeros: Whether some value of several characters begins with 0.
      is_text: Whether the column is in a CSV file, or is text in a Parquet file.
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
    has_zeros: bool = False
    is_text: bool = True

    def after(self, texts: set[str]) -> Column:
        """Return the column after some more rows, given their distinct values."""
        new = texts - (self.codes or frozenset())
        codes = None if self.codes is None else self.codes | new
        if codes is not None and len(codes) > MOST_CODES:
            codes = None
        has_missing = self.has_missing or "" in new
        there = [text for text in new if text]
        if not there:
            is_code = self.is_code and not has_missing
            return replace(self, codes=codes, has_missing=has_missing, is_code=is_code)
        is_first, fault = not self.longest, self.fault
        if any("\ud800" <= c <= "\udfff" for text in there for c in text):
            fault = NOT_UTF8
        elif not all(text.isprintable() for text in there):
            fault = fault or "holds control characters"
        lengths = [len(text) for text in there]
        is_alphanumeric = all(text.isascii() and text.isalnum() for text in there)
        is_number = (is_first or self.is_number) and all(_is_number(text) for text in there)
        numbers = [int(text.removesuffix(".0")) for text in there] if is_number else [0]
        return replace(
            self,
            codes=codes,
            fault=fault,
            has_missing=has_missing,
            shortest=min(lengths) if is_first else min(self.shortest, *lengths),
            longest=max(self.longest, *lengths),
            is_code=(is_first or self.is_code) and is_alphanumeric and not has_missing,
            is_number=is_number,
            least=min(numbers) if is_first else min(self.least, *numbers),
            most=max(numbers) if is_first else max(self.most, *numbers),
            has_zeros=self.has_zeros or any(text[0] == "0" and len(text) > 1 for text in there),
        )


@dataclass(frozen=True)
class Look:
    """The columns of an inspected file.

    Attributes:
      delimiter: Delimiter of a CSV file; None for a Parquet file.
      columns: Columns in the order of the file.
      is_whole: Whether all rows were inspected.
      rows: Number of inspected rows.
    """

    delimiter: str | None
    columns: tuple[Column, ...]
    is_whole: bool
    rows: int = 0

    def column(self, name: str) -> Column | None:
        """Return a column by name; None if the file lacks it."""
        return next((column for column in self.columns if column.name == name), None)


@dataclass(frozen=True)
class Geography:
    """The geocodes of an inspected file, and the columns that depend on them.

    Attributes:
      geocodes: Geocodes of the inspected rows, as text.
      following: Columns with one value per geounit.
      prefixes: Columns that repeat the first digits of the geocode, with the number of digits.
      of_geocodes: Columns with at most one value per inspected geocode: column -> geocode -> value.
      is_sparse: Whether a geocode has few rows on average, as that of a household has.
    """

    geocodes: frozenset[str]
    following: frozenset[str] = frozenset()
    prefixes: Mapping[str, int] = field(default_factory=dict)
    of_geocodes: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    is_sparse: bool = False


@redact_errors
def look_at(path: Place, rows: int, delimiter: str | None = None, *, alone: bool = False) -> Look:
    """Inspect the columns of a file, or of a folder of files.

    Args:
      path: CSV or Parquet file, or a folder of them.
      rows: Number of rows to inspect, from the first on.
      delimiter: Delimiter of a CSV file; detected if None.
      alone: Whether one column is enough, as in a list of geounits.

    Raises:
      InputError: The file cannot be read, is not UTF-8, or has one column, no row or no header.
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
        for column in schema:
            if not _is_readable(column.type):
                faults[column.name] = f"has values of type {column.type}"
    for name in header:
        if header.count(name) > 1:
            faults[name] = "occurs twice in the header"
        elif not name.strip() or not name.isprintable() or len(name) > _LONGEST_NAME:
            faults[name] = "has a name that a run file cannot hold"
    text = {} if is_csv else {column.name: _is_text(column.type) for column in schema}
    columns = {
        name: Column(name, fault=faults[name])
        if name in faults
        else Column(name, frozenset(), is_text=text.get(name, True))
        for name in header
    }
    usable = tuple(name for name in header if name not in faults)
    batches = _Batches(Table(path, usable, delimiter or ",", "--delimiter"), rows)
    for batch in batches:
        for name in usable:
            columns[name] = columns[name].after(values.distinct(batch, name))
    for name in usable:
        codes = columns[name].codes
        is_unique = codes is not None and len(codes) == batches.done >= _FEW_ROWS
        columns[name] = replace(columns[name], is_unique=is_unique)
    return Look(delimiter, tuple(columns.values()), batches.is_whole, batches.done)


@redact_errors
def look_at_geocodes(
    path: Place, look: Look, geocode: GeocodeColumns, others: Sequence[str], rows: int
) -> Geography:
    """Inspect the geocodes of a file, and find the columns that depend on them.

    Args:
      path: The file.
      look: Result of `look_at`.
      geocode: Column of geocodes, or the columns that are concatenated to geocodes.
      others: Columns that may depend on the geocode.
      rows: Number of rows to inspect.

    Raises:
      InputError: The file cannot be read.
    """
    columns = (*names_of(geocode), *others)
    table = Table(path, columns, look.delimiter or ",", "--delimiter")
    geocodes: set[str] = set()
    following: dict[str, dict[str, str]] = {name: {} for name in others}
    batches = _Batches(table, rows)
    for batch in batches:
        codes: pa.Array | None = None
        if isinstance(geocode, str):
            geocodes |= values.distinct(batch, geocode)
        else:
            codes = (
                values.joined(batch, geocode.columns)
                if isinstance(geocode, GeocodeTable)
                else values.put_together(batch, geocode)
            )
            geocodes |= {*codes.unique().to_pylist()}
        for name in [*following]:
            codes = values.texts(batch, names_of(geocode)[0]) if codes is None else codes
            if not _follows(following[name], codes, values.texts(batch, name)):
                del following[name]
    if batches.done < _FEW_ROWS:
        following = {}
    prefixes = {}
    longest = max((len(code) for code in geocodes), default=0)
    for name, of_code in following.items():
        digits = max(len(text) for text in of_code.values())
        if 0 < digits < longest and all(
            code.zfill(longest)[:digits] == text.zfill(digits) for code, text in of_code.items()
        ):
            prefixes[name] = digits
    is_sure = batches.done >= _ROWS_PER_GEOCODE * len(geocodes)
    sure = frozenset(following if is_sure else prefixes)
    is_sparse = batches.done < FEW_RECORDS * len(geocodes)
    return Geography(frozenset(geocodes), sure, prefixes, following, is_sparse)


def _follows(of_code: dict[str, str], codes: pa.Array, texts: pa.Array) -> bool:
    """Return whether every geocode has one value, also with earlier rows; updates `of_code`."""
    pairs = pa.table([codes, texts], ["geocode", "text"])
    for pair in pairs.group_by(["geocode", "text"], use_threads=False).aggregate([]).to_pylist():
        if of_code.setdefault(pair["geocode"], pair["text"]) != pair["text"]:
            return False
    return True


class _Batches:
    """The first rows of a table, batch by batch.

    Attributes:
      done: Number of rows yielded so far.
      is_whole: Whether no row was left out.
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
    """Return the separator that splits the first line into most columns."""
    with opened_csv(file) as handle:
        line = read_line(handle, f"{file}, row 1")
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
            remedy="save it as CSV in UTF-8, from a spreadsheet or with `iconv`",
        )
    if not text.strip():
        raise InputError(str(file), "is empty or begins with an empty line", want="a header line")
    first = without_end(text.encode())
    sizes = {mark: len(split_fields(first, mark, quotes=True) or []) for mark in _DELIMITERS}
    delimiter = max(_DELIMITERS, key=lambda mark: sizes[mark])
    if sizes[delimiter] < 2 and not alone:
        raise InputError(
            str(file),
            f"has one column, with any separator of {list(_DELIMITERS)}",
            want="a geocode and at least one attribute",
            remedy="name another separator by --delimiter, or remove lines above the header",
        )
    return delimiter


def _refuse_no_header(file: Place, header: Sequence[str]) -> None:
    """Refuse a first line that looks like data; the error does not quote it."""
    bare = [name for name in header if not name.strip() or _is_number(name.strip())]
    if 2 * len(bare) >= len(header):
        raise InputError(
            f"{file}, row 1",
            "looks like data: half of its fields are numbers or empty",
            want="column names",
            remedy="insert a header line with the column names",
        )
