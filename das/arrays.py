"""Array types by element type; docstrings state the shapes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]  # counts, positions, ids
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
WordArray = npt.NDArray[np.uint64]  # words of a random stream
# Geocodes of whole geolevels, of fixed width: they can be sorted and cut to prefixes without a
# loop, in a quarter of the memory of numpy's text.
Geocodes = npt.NDArray[np.bytes_]
# str: geocodes and other text of a range of geounits, as read from and written to files.
ObjectArray = npt.NDArray[np.object_]


def sums_at(indexes: IntArray, values: IntArray, size: int) -> IntArray:
    """Return int64[size]: the exact sum of the values at each index.

    Args:
      indexes: int64[n], the index of each value, 0..size-1.
      values: int64[n], the values.
      size: Number of sums.
    """
    out = np.zeros(size, np.int64)
    np.add.at(out, indexes, values)
    return out


def run_starts(*columns: npt.NDArray[np.generic]) -> IntArray:
    """Return the index, from 0, of the first entry of every run of rows equal in all columns.

    >>> run_starts(np.array([7, 7, 7, 8]), np.array([0, 0, 1, 1])).tolist()
    [0, 2, 3]
    """
    is_new = np.arange(len(columns[0])) == 0
    for column in columns:
        is_new[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(is_new)


def joined_ranges(starts: IntArray, sizes: IntArray) -> tuple[IntArray, IntArray]:
    """Concatenate ranges of integers: for each entry, return its range and the integer.

    Args:
      starts: int64[m], first integer of each range.
      sizes: int64[m], length of each range, 0 or more.

    >>> [part.tolist() for part in joined_ranges(np.array([5, 0]), np.array([2, 3]))]
    [[0, 0, 1, 1, 1], [5, 6, 0, 1, 2]]
    """
    owner = np.repeat(np.arange(len(sizes)), sizes)
    return owner, np.arange(len(owner)) + (starts - np.cumsum(sizes) + sizes)[owner]


def read_only(values: npt.ArrayLike) -> FloatArray:
    """Return a read-only copy of numbers as float64."""
    array = np.array(values, np.float64, order="C")
    array.flags.writeable = False
    return array


def kron(factors: Iterable[FloatArray]) -> FloatArray:
    """Return the Kronecker product of at least one matrix."""
    return reduce(lambda left, right: np.asarray(np.kron(left, right)), factors)
