"""Check and convert columns: geocodes, counts, codes. Errors name file, row and column."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from das.errors import InputError
from jobs.read.files import Batch, Table, read_table

IntArray = npt.NDArray[np.int64]
Codes = npt.NDArray[np.bytes_]

ENTRIES = pa.schema([("geocode", pa.string()), ("cell", pa.int64()), ("n", pa.int64())])


def entries(
    geocodes: pa.Array, rows: IntArray, cells: IntArray, counts: IntArray
) -> pa.RecordBatch:
    """Build a batch of entries.

    Args:
      geocodes: One geocode per row of the input.
      rows: int64[m] input row of every entry.
      cells: int64[m].
      counts: int64[m], positive.
    """
    return pa.RecordBatch.from_arrays(
        [geocodes.take(pa.array(rows)), pa.array(cells), pa.array(counts)], schema=ENTRIES
    )


def geocodes(batch: Batch, column: str, digits: int) -> pa.Array:
    """Read a column of geocodes.

    Args:
      batch: Rows of a file.
      column: Name of the column.
      digits: Length every geocode must have.

    Returns:
      string[m] without nulls.

    Raises:
      InputError: A geocode is null, not text, has another length, or holds anything but ASCII
        letters and digits.
    """
    array = _plain(batch.table.column(column))
    if not pa.types.is_string(array.type):
        raise InputError(
            f"{batch.chunk.path}, column {column}",
            "holds geocodes that are not text",
            got=array.type,
            want="text, so that leading zeros are kept",
        )
    fits = pc.and_(pc.equal(pc.binary_length(array), digits), pc.ascii_is_alnum(array))
    bad = _first(pc.invert(pc.fill_null(fits, False)))
    if bad is not None:
        value = array[bad].as_py()
        raise InputError(
            f"{batch.where(bad)}, column {column}",
            "geocode is missing" if not value else "geocode does not fit the leaf geolevel",
            got=None if not value else f"{value!r} ({len(value)} characters)",
            want=f"{digits} letters or digits",
        )
    return array


def geocode_bytes(array: pa.Array, digits: int) -> Codes:
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
      InputError: A count is missing, negative or not an integer; the value is not quoted.
    """
    array = _plain(batch.table.column(column))
    what, bad = _bad_count(array)
    if bad is not None:
        raise InputError(f"{batch.where(bad)}, column {column}", what, want="a nonnegative integer")
    if what:
        raise InputError(
            f"{batch.chunk.path}, column {column}",
            what,
            got=f"values of type {array.type}",
            want="integers",
        )
    return np.asarray(array.cast(pa.int64()).to_numpy(zero_copy_only=False), np.int64)


def _bad_count(array: pa.Array) -> tuple[str, int | None]:
    """What is wrong and at which row; ("", None) if nothing, (text, None) if the type is."""
    kind = array.type
    if pa.types.is_string(kind):
        missing = _first(pc.equal(pc.utf8_trim_whitespace(pc.fill_null(array, "")), ""))
        if missing is not None:
            return "count is missing", missing
        legal = pc.match_substring_regex(array, r"^[0-9]{1,18}$")
        bad = _first(pc.invert(legal))
        if bad is None:
            return "", None
        negative = array[bad].as_py().startswith("-")
        return "count is negative" if negative else "count is not an integer", bad
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if not numeric:
        return "does not hold counts", None
    if array.null_count:
        return "count is missing", _first(pc.is_null(array))
    if not pa.types.is_integer(kind):
        floats = array.cast(pa.float64())
        bad = _first(pc.invert(pc.and_(pc.is_finite(floats), pc.equal(pc.floor(floats), floats))))
        if bad is not None:
            return "count is not an integer", bad
    bad = _first(pc.less(array, pa.scalar(0, kind)))
    if bad is not None:
        return "count is negative", bad
    return "", None


def codes(batch: Batch, table: Table, column: str, legal: Mapping[str, int]) -> IntArray:
    """Read a column of codes.

    Args:
      batch: Rows of a file.
      table: The table the rows belong to, for the error path.
      column: Name of the column.
      legal: Level position of every legal code.

    Returns:
      int64[m] level positions.

    Raises:
      InputError: A code is not legal; names the first row and how many rows hold it.
    """
    encoded = _one(batch.table.column(column))
    if not pa.types.is_dictionary(encoded.type):
        encoded = encoded.dictionary_encode(null_encoding="encode")
    values = _texts(encoded.dictionary)
    positions = np.array([-1 if v is None else legal.get(v, -1) for v in values], np.int64)
    indices = encoded.indices
    unknown = -1
    if indices.null_count:  # a dictionary column of the file keeps its nulls as indices
        positions = np.append(positions, unknown)
        indices = pc.fill_null(indices.cast(pa.int64()), len(positions) - 1)
    out = positions[np.asarray(indices)]
    if (out == unknown).any():
        _raise_unknown_code(batch, table, column, legal)
    return np.asarray(out, np.int64)


def _raise_unknown_code(batch: Batch, table: Table, column: str, legal: Mapping[str, int]) -> None:
    """Read the file again to say which unknown code comes first, where, and how often."""
    path = batch.chunk.path
    value: str | None = None
    where = ""
    rows = 0
    for part in read_table(Table(path, (column,), table.delimiter)):
        for index, text in enumerate(_texts(_one(part.table.column(column)))):
            if not where and (text is None or text not in legal):
                value, where = text, part.where(index)
            rows += bool(where) and text == value
    raise InputError(
        f"{where or path}, column {column}",
        f"unknown code ({rows} {'row' if rows == 1 else 'rows'} of the file hold it)",
        got="nothing" if value is None else repr(value),
        want=f"one of {list(legal)}",
    )


def _texts(array: pa.Array) -> list[str | None]:
    """Values as text; integers in decimal."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return [None if v is None else v if isinstance(v, str) else str(v) for v in array.to_pylist()]


def _one(column: pa.ChunkedArray) -> pa.Array:
    """The chunks as one array."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    return array


def _plain(column: pa.ChunkedArray) -> pa.Array:
    """One array; text as string, dictionaries decoded."""
    array = _one(column)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_large_string(array.type) or pa.types.is_string_view(array.type):
        array = array.cast(pa.string())
    return array


def _first(mask: pa.Array) -> int | None:
    """Index of the first true value."""
    found = np.flatnonzero(np.asarray(mask))
    return int(found[0]) if len(found) else None
