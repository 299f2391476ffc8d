"""Convert between arrays and columns of Arrow tables, and pack integers as bytes.

Noise has a standard deviation of a few units, so nearly every noisy answer fits into a byte.
Parquet lists of 8-byte numbers take eight times as long to write and read, and are no smaller after
compression.

A packed row has `width`, the bytes of each number (1, 2 or 8); `answers`, the numbers in order,
little-endian, two's complement; and `escaped`, the numbers that need more bytes, 8 bytes each, in
order. The least number of `width` bytes, such as -128, marks an escaped number, and is itself
escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from das.arrays import IntArray, ObjectArray

TEXT = "text"
"""Name of the type of text columns."""


def check_columns(
    table: pa.Table, wanted: Sequence[pa.Field], required: Sequence[str] = ()
) -> None:
    """Check the columns of a part file before use; the file can be hostile.

    Columns must have no nulls, and geocodes must be strictly ascending.

    Args:
      table: The columns that were read.
      wanted: Allowed names and types.
      required: Required names.

    Raises:
      ValueError: A column is missing, unknown, of another type or has nulls, or geocodes do not
        ascend; names the column.
    """
    for name in required:
        if name not in table.column_names:
            raise ValueError(f"column {name} is missing")
    kinds = {field.name: field.type for field in wanted}
    for name, column in zip(table.column_names, table.columns, strict=True):
        elements = pc.list_flatten(column) if pa.types.is_list(column.type) else column
        if column.type != kinds.get(name) or column.null_count or elements.null_count:
            raise ValueError(f"column {name} has another type, or nulls")
    if "geocode" in table.column_names:
        codes = table.column("geocode")
        if len(codes) > 1 and not pc.all(pc.less(codes[:-1], codes[1:])).as_py():
            raise ValueError("geocodes do not ascend")


def texts(table: pa.Table, name: str = "geocode") -> ObjectArray:
    """Return object[G], a column of text as str."""
    return np.asarray(table.column(name).to_numpy(zero_copy_only=False), object)


def lists(rows: npt.NDArray[Any]) -> pa.ListArray:
    """Make G lists of m values from an array [G, m]."""
    return ragged_lists(rows.shape[1] * np.arange(len(rows) + 1), rows)


def ragged_lists(offsets: IntArray, values: npt.NDArray[Any]) -> pa.ListArray:
    """Make G lists; list g holds entries offsets[g]:offsets[g + 1] of the flattened values."""
    flat = pa.array(np.ascontiguousarray(values).ravel())
    return pa.ListArray.from_arrays(offsets.astype(np.int32), flat)


def repeated(text: str, n: int) -> pa.DictionaryArray:
    """Make a dictionary column that repeats a text n times."""
    return chosen(np.zeros(n, np.int32), [text])


def chosen(index: npt.NDArray[np.int32], texts: Sequence[str]) -> pa.DictionaryArray:
    """Make a dictionary column of texts[index[g]] for every row g; equal texts are stored once."""
    distinct = list(dict.fromkeys(texts))
    code = np.array([distinct.index(text) for text in texts], np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(code[index]), pa.array(distinct, pa.string()))


def flattened(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return the values of all lists of a column, concatenated."""
    return np.asarray(pc.list_flatten(column).to_numpy())


def lengths(column: pa.ChunkedArray) -> IntArray:
    """Return int64[G], the length of the list in each of G rows."""
    return np.asarray(pc.list_value_length(column).to_numpy(), np.int64)


def type_words(kind: pa.DataType) -> str:
    """Describe an Arrow type in words for readers of any language."""
    if pa.types.is_dictionary(kind):
        return type_words(kind.value_type)
    if pa.types.is_list(kind):
        return f"list of {type_words(kind.value_type)}s"
    if pa.types.is_string(kind):
        return TEXT
    if pa.types.is_integer(kind):
        return "whole number"
    if pa.types.is_floating(kind):
        return "number"
    return "true or false" if pa.types.is_boolean(kind) else "bytes"


# --- packed numbers -------------------------------------------------------------------------------


PACKED = [("width", pa.int8()), ("answers", pa.binary()), ("escaped", pa.binary())]
_KINDS = (np.int16, np.int32, np.int64)  # of narrow numbers
_WIDTHS = (1, 2)  # tried before all 8 bytes
_PIECE = 1 << 14  # numbers of 8 bytes in 128 KB, so that they stay in a second-level cache
_MOST_BYTES = (1 << 31) - 1  # largest offset of 4 bytes
_MOST_ESCAPED = 64  # at most one number in 64 is escaped: 1/8 byte per number; not measured


def packed(values: npt.NDArray[np.integer], offsets: IntArray) -> list[pa.Array | pa.ChunkedArray]:
    """Pack G rows of numbers into the columns `PACKED`, all with one width.

    Args:
      values: Rows one after the other, of any integer type that fits int64.
      offsets: int64[G + 1]; row g holds values[offsets[g]:offsets[g + 1]].

    Raises:
      ValueError: A row has more bytes than Arrow and Parquet can hold in one place, 2 GiB.
    """
    flat = np.ascontiguousarray(values).ravel()
    width, narrow, far = _narrowest(flat)
    narrow[far] = _least(width)
    ends = np.searchsorted(far, offsets)
    return [
        pa.array(np.full(len(offsets) - 1, width, np.int8)),
        byte_rows(narrow, offsets),
        byte_rows(flat[far].astype("<i8"), ends),
    ]


def unpacked(rows: pa.Table, *, narrow: bool = False) -> IntArray:
    """Return the numbers of all rows, one row after the other.

    Args:
      rows: Rows with columns `PACKED`, or with `answers` as lists.
      narrow: Whether to return integers of 2 or 4 bytes if they fit; sums then need a wider dtype.

    Raises:
      ValueError: Escaped numbers are missing or left over.
    """
    if "width" not in rows.column_names:
        return np.asarray(flattened(rows.column("answers")), np.int64)
    runs = [_unpacked(run, width, narrow=narrow) for run, width in _runs(rows)]
    return np.concatenate(runs) if len(runs) > 1 else [*runs, np.empty(0, np.int64)][0]


def row_sizes(rows: pa.Table) -> IntArray:
    """Return int64[G], how many answers each of G packed rows holds."""
    sizes = [np.diff(_ends(chunk)) for chunk in rows.column("answers").chunks]
    widths = np.asarray(rows.column("width"), np.int64)
    return np.concatenate([np.empty(0, np.int64), *sizes]) // widths


def with_lists(rows: pa.Table) -> pa.Table:
    """Return rows with `answers` as a list of int64 in place of the columns `PACKED`, if any."""
    if "width" not in rows.column_names:
        return rows
    offsets = np.concatenate([[0], np.cumsum(row_sizes(rows))])
    listed = rows.set_column(
        rows.schema.get_field_index("answers"), "answers", ragged_lists(offsets, unpacked(rows))
    )
    return listed.drop_columns(["width", "escaped"])


def _narrowest(
    values: npt.NDArray[np.integer],
) -> tuple[int, npt.NDArray[np.integer], IntArray]:
    """Return the best width, the numbers in it, and positions of the numbers to escape."""
    for width in _WIDTHS:
        narrow, far = _of_width(values, width)
        if len(far) * _MOST_ESCAPED <= len(values):
            return width, narrow, far
    return 8, values.astype("<i8"), np.empty(0, np.int64)


def _of_width(
    values: npt.NDArray[np.integer], width: int
) -> tuple[npt.NDArray[np.integer], IntArray]:
    """Cast numbers to `width` bytes, and return positions of those that do not fit."""
    narrow, far = np.empty(len(values), f"<i{width}"), []
    least = _least(width)
    for start in range(0, len(values), _PIECE):
        piece = values[start : start + _PIECE]
        narrow[start : start + _PIECE] = piece
        far.append(np.flatnonzero((piece <= least) | (piece >= -least)) + start)
    return narrow, np.concatenate([np.empty(0, np.int64), *far])


def _least(width: int) -> int:
    return -(1 << (8 * width - 1))


def byte_rows(values: npt.NDArray[np.number], offsets: IntArray) -> pa.ChunkedArray:
    """View rows of numbers as bytes, without copying.

    Raises:
      ValueError: A row has more bytes than a value in Arrow and Parquet can have.
    """
    ends = offsets * values.itemsize
    chunks: list[pa.Array] = []
    data, first = pa.py_buffer(values), 0
    while first < len(ends) - 1 or not chunks:
        last = int(np.searchsorted(ends, ends[first] + _MOST_BYTES, side="right")) - 1
        if last == first < len(ends) - 1:
            got = ends[first + 1] - ends[first]
            raise ValueError(f"a row of {got} bytes, more than {_MOST_BYTES}")
        within = (ends[first : last + 1] - ends[first]).astype(np.int32)
        content = data.slice(int(ends[first]), int(ends[last] - ends[first]))
        buffers = [None, pa.py_buffer(within), content]
        chunks.append(pa.Array.from_buffers(pa.binary(), last - first, buffers))
        first = last
    return pa.chunked_array(chunks, pa.binary())


def _runs(rows: pa.Table) -> Iterator[tuple[pa.Table, int]]:
    """Yield runs of rows with one width."""
    widths = np.asarray(rows.column("width"), np.int64)
    edges = [*np.flatnonzero(np.diff(widths, prepend=0)).tolist(), len(widths)]
    for start, stop in pairwise(edges):
        yield rows.slice(start, stop - start), int(widths[start])


def _unpacked(rows: pa.Table, width: int, *, narrow: bool) -> IntArray:
    escaped = _bytes_of(rows.column("escaped")).view("<i8")
    kind = next(k for k in _KINDS if _holds(k, width, escaped)) if narrow else np.int64
    values: npt.NDArray[Any] = _bytes_of(rows.column("answers")).view(f"<i{width}").astype(kind)
    if width == np.dtype(np.int64).itemsize:
        return values
    far = np.flatnonzero(values == _least(width))
    if len(far) != len(escaped):
        raise ValueError(f"{len(escaped)} escaped numbers in {len(far)} places")
    values[far] = escaped
    return values


def _holds(kind: type[np.signedinteger[Any]], width: int, escaped: IntArray) -> bool:
    """Return whether an integer type holds all numbers of `width` bytes and the escaped numbers."""
    limits = np.iinfo(kind)
    ends = escaped.min(initial=0), escaped.max(initial=0)
    return limits.bits >= 8 * width and ends[0] >= limits.min and ends[1] <= limits.max


def _bytes_of(column: pa.ChunkedArray) -> npt.NDArray[np.uint8]:
    """Return uint8, the bytes of all rows; a single chunk is not copied."""
    pieces = []
    for chunk in column.chunks:
        ends, data = _ends(chunk), chunk.buffers()[2]
        if len(chunk) and data is not None:
            pieces.append(np.frombuffer(data, np.uint8)[ends[0] : ends[-1]])
    return pieces[0] if len(pieces) == 1 else np.concatenate([np.empty(0, np.uint8), *pieces])


def _ends(chunk: pa.Array) -> IntArray:
    """Return int64[n + 1], the offset of the bytes of each of n rows, and the end."""
    offsets = np.frombuffer(chunk.buffers()[1], np.int32)
    return offsets[chunk.offset : chunk.offset + len(chunk) + 1].astype(np.int64)
