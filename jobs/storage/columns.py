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
