"""Check and convert columns: geocodes, counts, codes.

Errors name file, row and column. They quote no value and count no rows, since geocodes, codes and
numbers of rows disclose facts about persons.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from das.arrays import BoolArray, Geocodes, IntArray
from das.errors import InputError
from das.histograms import TOTAL_LIMIT
from jobs.pipeline.config.models.values import GeocodeColumns, GeocodePart, GeocodeTable
from jobs.pipeline.input.files import Batch, Table, read_table
from jobs.pipeline.storage.place import Place

Fault = tuple[str, BoolArray]  # what is wrong, and bool[m] with which rows

ENTRIES = pa.schema([("geocode", pa.string()), ("cell", pa.int64()), ("n", pa.int64())])
LARGEST_COUNT = 10**18 - 1
CODE_END = "\x1f"  # between the codes of several columns
_MOST_DIGITS = 15
_WHOLE_NUMBER = rf"^-?[0-9]{{1,{_MOST_DIGITS}}}(\.0+)?$"
_UNKNOWN, _MISSING = -1, -2  # positions of codes that are no level


def entries(
    geocodes: pa.Array, rows: IntArray, cells: IntArray, counts: IntArray
) -> pa.RecordBatch:
    """Build a batch of entries.

    Args:
      geocodes: One geocode per row of the input.
      rows: int64[m], input row of each of m entries.
      cells: int64[m], cell of each entry.
      counts: int64[m], number of records of each entry, positive.
    """
    return pa.RecordBatch.from_arrays(
        [geocodes.take(pa.array(rows)), pa.array(cells), pa.array(counts)], schema=ENTRIES
    )


def refuse(
    batch: Batch,
    column: str,
    faults: Callable[[Batch], Sequence[Fault]],
    *,
    want: str | None = None,
    remedy: str | None = None,
) -> None:
    """Refuse a batch with a fault: raise for the first faulty row of its file.

    The error does not state the number of faulty rows, which would be an exact count of records.

    Args:
      batch: Rows of a file; with a fault, the file is read again up to the first.
      column: The column or columns, for the message.
      faults: Finds the faults of any batch of the file.
      want: What would be legal.
      remedy: What to do.

    Raises:
      InputError: A row of the batch has a fault.
    """
    if not any(mask.any() for _, mask in faults(batch)):
        return
    path = batch.chunk.path
    for part in read_table(replace(batch.source, path=path)):
        found = [(int(np.argmax(mask)), what) for what, mask in faults(part) if mask.any()]
        if found:
            first, what = min(found)
            raise InputError(f"{part.where(first)}, {column}", what, want=want, remedy=remedy)
    raise InputError(str(path), "changed while it was read")


def geocodes(batch: Batch, column: GeocodeColumns, digits: int) -> pa.Array:
    """Read geocodes, with leading zeros restored if the table states that they were lost.

    Args:
      batch: Rows of a file.
      column: Name of the column, or the columns whose texts are put together.
      digits: Required length of a geocode. For several columns, the sum of their lengths.

    Returns:
      string[m] without nulls.

    Raises:
      InputError: A geocode, or the part of it in a column, is null, is not text, has another
        length, or holds characters other than ASCII letters and digits.
    """
    if isinstance(column, GeocodeTable):
        return _translated(batch, column, digits)
    if isinstance(column, str):
        return _geocodes(batch, column, digits, "the leaf geolevel")
    of = "the digits of this column"
    parts = [_geocodes(batch, part.column, part.digits, of) for part in column]
    return pc.binary_join_element_wise(*parts, "")


def _translated(batch: Batch, coded: GeocodeTable, digits: int) -> pa.Array:
    """Translate codes of any kind to geocodes, by their public table."""
    known = geocodes_of_codes(coded, digits)

    def find(part: Batch) -> pa.Array:
        encoded = joined(part, coded.columns).dictionary_encode()
        geocodes = [known.get(codes) for codes in encoded.dictionary.to_pylist()]
        return pa.array(geocodes, pa.string()).take(encoded.indices)

    found = find(batch)
    if found.null_count:
        refuse(
            batch,
            f"column {', '.join(coded.columns)}",
            lambda part: [("place has no geocode", _mask(pc.is_null(find(part))))],
            want=f"codes of a row of {coded.table}",
            remedy="correct the code, or add the place to the public table, empty or not",
        )
    return found


@lru_cache(maxsize=2)  # every batch of a task needs it, of at most two products
def _read_codes(
    path: Place, columns: tuple[str, ...], digits: int, changed: int
) -> Mapping[str, str]:
    """Read the table of codes, again if its time of change is another."""
    known: dict[str, str] = {}
    for batch in read_table(Table(path, ("geocode", *columns))):
        codes = joined(batch, columns).to_pylist()
        rows = zip(codes, geocodes(batch, "geocode", digits).to_pylist(), strict=True)
        for row, (code, geocode) in enumerate(rows):
            if known.setdefault(code, geocode) != geocode:
                raise InputError(batch.where(row), "repeats the codes of another geocode")
    return known


def geocodes_of_codes(coded: GeocodeTable, digits: int) -> Mapping[str, str]:
    """Read the public table of codes: codes as `joined` gives them, to geocodes.

    Raises:
      InputError: The table cannot be read, or gives two geocodes for the same codes.
    """
    path = coded.table
    changed = path.stat().st_mtime_ns if isinstance(path, Path) and path.exists() else 0
    return _read_codes(path, tuple(coded.columns), digits, changed)


def joined(batch: Batch, columns: Sequence[str]) -> pa.Array:
    """Return string[m], the trimmed texts of columns, joined by a character that no text holds."""
    return pc.binary_join_element_wise(
        *(pc.utf8_trim_whitespace(texts(batch, column)) for column in columns), CODE_END
    )


def _geocodes(batch: Batch, column: str, digits: int, of: str) -> pa.Array:
    """Read and check a column of geocodes or parts of them; `of` names the required length."""
    array = _geocode_texts(batch, column, digits)
    if not pa.types.is_string(array.type):
        raise InputError(
            f"{batch.chunk.path}, column {column}",
            "holds geocodes that are not text",
            got=array.type,
            want="text, so that leading zeros are kept",
            remedy=_NUMBERS if pa.types.is_integer(array.type) else None,
        )
    if not _all_fit(array, digits):

        def faults(part: Batch) -> list[Fault]:
            array = _geocode_texts(part, column, digits)
            missing = _mask(pc.equal(pc.fill_null(pc.binary_length(array), 0), 0))
            fits = pc.and_(pc.equal(pc.binary_length(array), digits), pc.ascii_is_alnum(array))
            rounded = _mask(pc.fill_null(pc.match_substring_regex(array, _ROUNDED), False))
            wrong = ~_mask(pc.fill_null(fits, False)) & ~missing & ~rounded
            return [
                ("geocode is missing", missing),
                ("geocode was rounded by a spreadsheet: take the column as text", rounded),
                (f"geocode does not fit {of}", wrong),
            ]

        shorter = _mask(pc.less(pc.fill_null(pc.binary_length(array), digits), digits)).any()
        refuse(
            batch,
            f"column {column}",
            faults,
            want=f"{digits} letters or digits",
            remedy=_NUMBERS if shorter and not batch.source.zeros_lost else None,
        )
    return array


_ROUNDED = r"^[0-9]+[.,][0-9]+E\+[0-9]+$"  # such as 1.70310E+14
_NUMBERS = (
    "programs that read geocodes as numbers drop leading zeros: write them as text, or say "
    "`leading_zeros: lost` beside the path"
)


def _geocode_texts(batch: Batch, column: str, digits: int) -> pa.Array:
    """Read a column of geocodes, with leading zeros restored if they were lost."""
    array = _plain(batch.table.column(column))
    if not batch.source.zeros_lost:
        return array
    if pa.types.is_integer(array.type):
        array = array.cast(pa.string())
    if not pa.types.is_string(array.type):
        return array
    return _with_zeros(array, digits)


def _with_zeros(array: pa.Array, digits: int) -> pa.Array:
    """Pad texts of digits only with leading zeros to `digits` digits; keep all other texts."""
    number = pc.match_substring_regex(array, "^[0-9]+$")
    return pc.if_else(number, pc.utf8_lpad(array, digits, "0"), array)


def _all_fit(array: pa.Array, digits: int) -> bool:
    """Return whether all geocodes are valid, from their bytes: Arrow scalars import pandas."""
    if array.null_count or not len(array):
        return not len(array)
    _, ends, text = array.buffers()
    offsets = np.frombuffer(ends, np.int32, len(array) + 1, array.offset * 4)
    if (np.diff(offsets) != digits).any():
        return False
    characters = np.frombuffer(text, np.uint8, len(array) * digits, offsets[0])
    return bool(_IS_ALPHANUMERIC[characters].all())


_IS_ALPHANUMERIC = np.array([byte < 128 and chr(byte).isalnum() for byte in range(256)])


def geocode_bytes(array: pa.Array, digits: int) -> Geocodes:
    """Convert checked geocodes to bytes[m] of dtype S<digits>."""
    fixed = array.cast(pa.binary()).cast(pa.binary(digits))
    start = fixed.offset * digits
    size = len(fixed)
    return np.frombuffer(fixed.buffers()[1], f"S{digits}", size, start).copy()


def counts(batch: Batch, column: str) -> IntArray:
    """Read a column of counts.

    Returns:
      int64[m], nonnegative.

    Raises:
      InputError: A count is missing, negative, not an integer or above `LARGEST_COUNT`.
    """
    array = _plain(batch.table.column(column))
    kind = array.type
    known = (pa.types.is_string, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    if not any(is_kind(kind) for is_kind in known):
        raise InputError(
            f"{batch.chunk.path}, column {column}",
            "does not hold counts",
            got=f"values of type {kind}",
            want="integers",
        )
    refuse(
        batch,
        f"column {column}",
        lambda part: _count_faults(_plain(part.table.column(column))),
        want="a nonnegative integer",
    )
    return np.asarray(array.cast(pa.int64()).to_numpy(zero_copy_only=False), np.int64)


def _count_faults(array: pa.Array) -> list[Fault]:
    kind = array.type
    if pa.types.is_string(kind):
        text = pc.fill_null(array, "")
        missing = _mask(pc.match_substring_regex(text, r"^\s*$"))
        negative = _mask(pc.starts_with(text, "-"))
        large = _mask(pc.match_substring_regex(text, r"^[0-9]{19,}$"))
        legal = _mask(pc.match_substring_regex(text, r"^[0-9]{1,18}$"))
        other = ~(missing | negative | large | legal)
    else:
        missing = _mask(pc.is_null(array))
        exact = array.cast(pa.float64()) if pa.types.is_floating(kind) else array
        exact = exact.fill_null(pa.scalar(0, exact.type))
        other = np.zeros(len(array), np.bool_)
        rough = exact
        if not pa.types.is_integer(kind):
            rough = exact.cast(pa.float64())
            other = ~_mask(pc.and_(pc.equal(pc.floor(exact), exact), pc.is_finite(rough)))
        numbers = rough.to_numpy(zero_copy_only=False)
        negative, large = (numbers < 0) & ~other, (numbers > LARGEST_COUNT) & ~other
    return [
        ("count is missing", missing),
        ("count is negative", negative),
        ("count is not an integer", other),
        ("count is too large", large),
    ]


def add_rows(
    before: float,
    rows: npt.NDArray[np.floating],
    where: Callable[[int], str],
    limit: int = TOTAL_LIMIT,
) -> float:
    """Add the counts of some rows to a running sum, and refuse the row that reaches the limit.

    Floats suffice: below the limit every sum is exact, and sums only grow.

    Args:
      before: Sum of the rows before.
      rows: float64[m] sum of every row.
      where: Returns file and row number of a row, for the message.
      limit: Smallest refused sum.

    Returns:
      The sum of all rows.

    Raises:
      InputError: The sum reaches the limit.
    """
    running = before + np.cumsum(rows, dtype=np.float64)
    above = np.flatnonzero(running >= limit)
    if len(above):
        raise InputError(
            where(int(above[0])),
            "the counts of the file up to this row add up to too many",
            want=f"fewer than {limit} in all",
            remedy="correct the counts; none can be that large",
        )
    return float(running[-1]) if len(running) else before


def codes(
    batch: Batch, column: str, legal: Mapping[str, int], remedy: str | None = None
) -> IntArray:
    """Read a column of codes.

    Args:
      batch: Rows of a file.
      column: Name of the column.
      legal: Level position of every legal code.
      remedy: What to do about codes that are not legal.

    Returns:
      int64[m] level positions.

    Raises:
      InputError: A code is missing or not legal, or the column holds neither text nor numbers.
    """
    found = _positions(batch, column, legal)
    if (found < 0).any():

        def faults(part: Batch) -> list[Fault]:
            positions = _positions(part, column, legal)
            return [
                ("code is missing", positions == _MISSING),
                ("unknown code", positions == _UNKNOWN),
            ]

        refuse(batch, f"column {column}", faults, want=f"one of {list(legal)}", remedy=remedy)
    return found


def numbers(
    batch: Batch, column: str, absent: Mapping[str, int], remedy: str | None = None
) -> tuple[IntArray, IntArray]:
    """Read a column of whole numbers, some of which may be missing.

    Args:
      batch: Rows of a file.
      column: Name of the column.
      absent: Values that stand for no number; "" is also a null.
      remedy: What to do about values that are neither.

    Returns:
      int64[m] numbers, 0 where there is none; int64[m] the value of `absent`, -1 where there is a
      number.

    Raises:
      InputError: A value is neither a whole number nor absent, or is too large.
    """
    found, which, faults = _numbers(batch, column, absent)
    if any(mask.any() for _, mask in faults):
        refuse(
            batch,
            f"column {column}",
            lambda part: _numbers(part, column, absent)[2],
            want=f"a whole number of at most {_MOST_DIGITS} digits",
            remedy=remedy,
        )
    return found, which


def _numbers(
    batch: Batch, column: str, absent: Mapping[str, int]
) -> tuple[IntArray, IntArray, list[Fault]]:
    array = _one(batch.table.column(column))
    _check_codes(batch, column, getattr(array.type, "value_type", array.type))
    text = _number_texts(_plain(batch.table.column(column)))
    legal = _mask(pc.match_substring_regex(text, _WHOLE_NUMBER))
    encoded = text.dictionary_encode()
    of_value = [absent.get(value, -1) for value in encoded.dictionary.to_pylist()]
    which = np.array([*of_value, -1], np.int64)[np.asarray(encoded.indices)]
    is_absent = which >= 0
    found = np.zeros(len(text), np.int64)
    rows = legal & ~is_absent
    whole = pc.replace_substring_regex(text.filter(pa.array(rows)), r"\.0+$", "")
    found[rows] = np.asarray(whole.cast(pa.int64()))
    empty = _mask(pc.equal(text, "")) & ~is_absent
    other = ~(legal | is_absent | empty)
    return found, which, [("number is missing", empty), ("is no whole number", other)]


def _number_texts(array: pa.Array) -> pa.Array:
    """Format values as text, "" for null; whole floats without fraction or exponent."""
    if not pa.types.is_floating(array.type):
        return pc.fill_null(array.cast(pa.string()), "")
    values = np.asarray(array.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
    is_whole = np.isfinite(values) & (np.floor(values) == values)
    is_whole &= np.abs(values) < 10.0**_MOST_DIGITS
    whole = pa.array(np.where(is_whole, values, 0.0).astype(np.int64)).cast(pa.string())
    other = pc.if_else(pa.array(np.isnan(values)), "", "no whole number")
    return pc.if_else(pa.array(is_whole), whole, other)


def _positions(batch: Batch, column: str, legal: Mapping[str, int]) -> IntArray:
    """Return int64[m], level positions of m rows; `_UNKNOWN` or `_MISSING` for other values."""
    kind = batch.table.column(column).type
    _check_codes(batch, column, kind.value_type if pa.types.is_dictionary(kind) else kind)
    encoded = _encoded(batch, column)
    of_value = [
        legal.get(text or "", _UNKNOWN if text else _MISSING) for text in _texts(encoded.dictionary)
    ]
    positions = np.array([*of_value, legal.get("", _MISSING)], np.int64)
    # A dictionary column of the file keeps its nulls as indices.
    indices = pc.fill_null(encoded.indices.cast(pa.int64()), len(of_value))
    return np.asarray(positions[np.asarray(indices)], np.int64)


def _check_codes(batch: Batch, column: str, kind: pa.DataType) -> None:
    known = (
        *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
        *(pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null),
    )
    if not any(is_kind(kind) for is_kind in known):
        raise InputError(
            f"{batch.chunk.path}, column {column}",
            "holds codes that are not text",
            got=f"values of type {kind}",
            want="text or integers",
        )


def distinct(batch: Batch, column: str) -> set[str]:
    """Return the distinct values of a column of codes as text, "" for missing values.

    Text that is not UTF-8 has surrogates, which no code of a run file has.
    """
    encoded = _encoded(batch, column)
    found = {text or "" for text in _texts(encoded.dictionary)}
    return found | {""} if encoded.indices.null_count else found


def texts(batch: Batch, column: str) -> pa.Array:
    """Return string[m], a column of codes as text; "" for missing values, "?" for non-UTF-8."""
    encoded = _encoded(batch, column)
    known = [(text or "").encode(errors="replace").decode() for text in _texts(encoded.dictionary)]
    missing = len(known)
    indices = pc.fill_null(encoded.indices.cast(pa.int64()), missing)
    return pa.array([*known, ""], pa.string()).take(indices)


def put_together(batch: Batch, parts: Sequence[GeocodePart]) -> pa.Array:
    """Return string[m], geocodes joined from columns, zero-padded; nothing is checked."""
    arrays = [_with_zeros(texts(batch, part.column), part.digits) for part in parts]
    return pc.binary_join_element_wise(*arrays, "")


def _encoded(batch: Batch, column: str) -> pa.DictionaryArray:
    array = _one(batch.table.column(column))
    if pa.types.is_dictionary(array.type):
        return array
    return array.dictionary_encode(null_encoding="encode")


def _texts(array: pa.Array) -> list[str | None]:
    """Format values as text; text that is not UTF-8 gets surrogates and is no legal code."""
    numeric = pa.types.is_primitive(array.type) or pa.types.is_null(array.type)
    found = (array if numeric else array.cast(pa.binary())).to_pylist()
    return [
        None if v is None else v.decode(errors="surrogateescape") if not numeric else str(v)
        for v in found
    ]


def _one(column: pa.ChunkedArray) -> pa.Array:
    """Combine the chunks into one array."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    return array


def _plain(column: pa.ChunkedArray) -> pa.Array:
    """Combine the chunks into one array, with text as string and dictionaries decoded."""
    array = _one(column)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_large_string(array.type) or pa.types.is_string_view(array.type):
        array = array.cast(pa.string())
    return array


def _mask(array: pa.Array) -> BoolArray:
    return np.asarray(array, np.bool_)
