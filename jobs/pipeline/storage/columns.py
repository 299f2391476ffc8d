"""Columns of Arrow tables made of arrays, and arrays of columns.

Whole numbers as bytes: as few for each as most of them need, and apart those that need more.

Noise is a few units wide, so nearly every noisy answer fits into a byte; Parquet's lists of numbers
of 8 bytes take eight times as long to write and to read, and no fewer bytes when compressed.
A row has `width`, the bytes of each of its numbers (1, 2 or 8); `answers`, the numbers one after
the other, little-endian, two's complement; and `escaped`, those that `width` bytes cannot hold, 8
bytes each, in order. The least number of `width` bytes, such as -128, stands in their places, and
is itself escaped.
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
"""What a column of texts holds, in words."""


def check_columns(
    table: pa.Table, wanted: Sequence[pa.Field], required: Sequence[str] = ()
) -> None:
    """Check what a part file holds before it is computed with; whoever wrote it may be hostile.

    Args:
      table: The columns that were read.
      wanted: Names and types that they may have. Without nulls, and geocodes strictly ascending.
      required: Names that must be there.

    Raises:
      ValueError: A column is missing, is not among them, is of another type or has nulls, or
        geocodes do not ascend; names the column.
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
    """object[G]: a column of text as str."""
    return np.asarray(table.column(name).to_numpy(zero_copy_only=False), object)


def lists(rows: npt.NDArray[Any]) -> pa.ListArray:
    """[G, m] as G lists of m values."""
    return ragged_lists(rows.shape[1] * np.arange(len(rows) + 1), rows)


def ragged_lists(offsets: IntArray, values: npt.NDArray[Any]) -> pa.ListArray:
    """G lists; list g holds entries offsets[g]:offsets[g + 1] of the flattened values."""
    flat = pa.array(np.ascontiguousarray(values).ravel())
    return pa.ListArray.from_arrays(offsets.astype(np.int32), flat)


def repeated(text: str, n: int) -> pa.DictionaryArray:
    """A text n times, stored once."""
    which = pa.array(np.zeros(n, np.int32))
    return pa.DictionaryArray.from_arrays(which, pa.array([text], pa.string()))


def chosen(index: npt.NDArray[np.int32], texts: Sequence[str]) -> pa.DictionaryArray:
    """texts[index[g]] of every row g, each text stored once even if it is listed twice."""
    distinct = list(dict.fromkeys(texts))
    place = np.array([distinct.index(text) for text in texts], np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(place[index]), pa.array(distinct, pa.string()))


def flattened(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """The values of all lists of a column, one list after the other."""
    return np.asarray(pc.list_flatten(column).to_numpy())


def lengths(column: pa.ChunkedArray) -> IntArray:
    """int64[G]: how many values each list of a column holds."""
    return np.asarray(pc.list_value_length(column).to_numpy(), np.int64)


def type_words(kind: pa.DataType) -> str:
    """An Arrow type as a reader of any language calls it."""
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
_PIECE = 1 << 14  # numbers of 8 bytes that stay in a second-level cache
_MOST_BYTES = (1 << 31) - 1  # that offsets of 4 bytes tell apart
_MOST_ESCAPED = 64  # one in so many costs as much as a wider byte would


def packed(values: npt.NDArray[np.integer], offsets: IntArray) -> list[pa.Array | pa.ChunkedArray]:
    """The columns PACKED of G rows of numbers, all of one width.

    Args:
      values: Of any integer type that int64 holds, rows one after the other.
      offsets: int64[G + 1]; row g holds values[offsets[g]:offsets[g + 1]].

    Raises:
      ValueError: A row has more bytes than Arrow and Parquet can hold in one place, 2 GiB.
    """
    flat = np.ascontiguousarray(values).ravel()
    width, held, far = _narrowest(flat)
    held[far] = _least(width)
    ends = np.searchsorted(far, offsets)
    return [
        pa.array(np.full(len(offsets) - 1, width, np.int8)),
        _binary(held, offsets),
        _binary(flat[far].astype("<i8"), ends),
    ]


def unpacked(rows: pa.Table, *, narrow: bool = False) -> IntArray:
    """The numbers of all rows, one row after the other; also of columns that hold lists of them.

    Args:
      rows: With columns PACKED, or `answers` as lists.
      narrow: Whether they may be integers of 2 or 4 bytes where those hold them all, for who adds
        them up in wider ones.

    Raises:
      ValueError: Escaped numbers are missing or left over.
    """
    if "width" not in rows.column_names:
        return np.asarray(flattened(rows.column("answers")), np.int64)
    runs = [_unpacked(run, width, narrow=narrow) for run, width in _runs(rows)]
    return np.concatenate(runs) if len(runs) > 1 else [*runs, np.empty(0, np.int64)][0]


def row_sizes(rows: pa.Table) -> IntArray:
    """int64[G]: how many numbers each row holds."""
    if "width" not in rows.column_names:
        return lengths(rows.column("answers"))
    sizes = [np.diff(_ends(chunk)) for chunk in rows.column("answers").chunks]
    widths = np.asarray(rows.column("width"), np.int64)
    return np.concatenate([np.empty(0, np.int64), *sizes]) // widths


def with_lists(rows: pa.Table) -> pa.Table:
    """The same rows with `answers` as a list of int64 in place of the columns PACKED.

    Tables without packed columns, such as those of older releases, are returned as they are.
    """
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
    """The width of fewest bytes, the numbers in it, and the places of those it cannot hold."""
    for width in _WIDTHS:
        held, far = _of_width(values, width)
        if len(far) * _MOST_ESCAPED <= len(values):
            return width, held, far
    return 8, values.astype("<i8"), np.empty(0, np.int64)


def _of_width(
    values: npt.NDArray[np.integer], width: int
) -> tuple[npt.NDArray[np.integer], IntArray]:
    """Numbers in so many bytes, and the places of those that are none; piece by piece, in cache."""
    held, far = np.empty(len(values), f"<i{width}"), []
    least = _least(width)
    for start in range(0, len(values), _PIECE):
        piece = values[start : start + _PIECE]
        held[start : start + _PIECE] = piece
        far.append(np.flatnonzero((piece <= least) | (piece >= -least)) + start)
    return held, np.concatenate([np.empty(0, np.int64), *far])


def _least(width: int) -> int:
    return -(1 << (8 * width - 1))


def _binary(values: npt.NDArray[np.integer], offsets: IntArray) -> pa.ChunkedArray:
    """Rows of numbers as bytes; no bytes are copied.

    Raises:
      ValueError: A row has more bytes than Arrow and Parquet can hold in one place.
    """
    ends = offsets * values.itemsize
    chunks: list[pa.Array] = []
    data, first = pa.py_buffer(values), 0
    while first < len(ends) - 1 or not chunks:
        last = int(np.searchsorted(ends, ends[first] + _MOST_BYTES, side="right")) - 1
        if last == first < len(ends) - 1:
            got = ends[first + 1] - ends[first]
            raise ValueError(f"a row of {got} bytes, more than {_MOST_BYTES}")
        own = (ends[first : last + 1] - ends[first]).astype(np.int32)
        held = data.slice(int(ends[first]), int(ends[last] - ends[first]))
        buffers = [None, pa.py_buffer(own), held]
        chunks.append(pa.Array.from_buffers(pa.binary(), last - first, buffers))
        first = last
    return pa.chunked_array(chunks, pa.binary())


def _runs(rows: pa.Table) -> Iterator[tuple[pa.Table, int]]:
    """Runs of rows of one width."""
    widths = np.asarray(rows.column("width"), np.int64)
    edges = [*np.flatnonzero(np.diff(widths, prepend=0)).tolist(), len(widths)]
    for start, stop in pairwise(edges):
        yield rows.slice(start, stop - start), int(widths[start])


def _unpacked(rows: pa.Table, width: int, *, narrow: bool) -> IntArray:
    escaped = _bytes_of(rows.column("escaped")).view("<i8")
    kind = next(k for k in _KINDS if _holds(k, width, escaped)) if narrow else np.int64
    held: npt.NDArray[Any] = _bytes_of(rows.column("answers")).view(f"<i{width}").astype(kind)
    if width == np.dtype(np.int64).itemsize:
        return held
    far = np.flatnonzero(held == _least(width))
    if len(far) != len(escaped):
        raise ValueError(f"{len(escaped)} escaped numbers in {len(far)} places")
    held[far] = escaped
    return held


def _holds(kind: type[np.signedinteger[Any]], width: int, escaped: IntArray) -> bool:
    """Whether integers hold all numbers of a width, and these."""
    limits = np.iinfo(kind)
    ends = escaped.min(initial=0), escaped.max(initial=0)
    return limits.bits >= 8 * width and ends[0] >= limits.min and ends[1] <= limits.max


def _bytes_of(column: pa.ChunkedArray) -> npt.NDArray[np.uint8]:
    """uint8: the bytes of all rows; those of one chunk are not copied."""
    found = []
    for chunk in column.chunks:
        ends, data = _ends(chunk), chunk.buffers()[2]
        if len(chunk) and data is not None:
            found.append(np.frombuffer(data, np.uint8)[ends[0] : ends[-1]])
    return found[0] if len(found) == 1 else np.concatenate([np.empty(0, np.uint8), *found])


def _ends(chunk: pa.Array) -> IntArray:
    """int64[n + 1]: where the bytes of each row begin, and where the last ones end."""
    offsets = np.frombuffer(chunk.buffers()[1], np.int32)
    return offsets[chunk.offset : chunk.offset + len(chunk) + 1].astype(np.int64)
