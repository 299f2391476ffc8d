"""Columns of Arrow tables made of arrays, and arrays of columns."""

from __future__ import annotations

from collections.abc import Sequence
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
        if column.type != kinds.get(name) or column.null_count or _null_elements(column):
            raise ValueError(f"column {name} has another type, or nulls")
    if "geocode" in table.column_names:
        codes = table.column("geocode")
        if len(codes) > 1 and not pc.all(pc.less(codes[:-1], codes[1:])).as_py():
            raise ValueError("geocodes do not ascend")


def _null_elements(column: pa.ChunkedArray) -> int:
    return pc.list_flatten(column).null_count if pa.types.is_list(column.type) else 0


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
