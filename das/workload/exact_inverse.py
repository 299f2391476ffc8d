"""Exact inverses of integer matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from das.arrays import IntArray
from das.errors import SchemaError


def invert_exactly(matrix: IntArray) -> tuple[npt.NDArray[Any], int]:
    """Invert an integer matrix without rounding, by fraction-free elimination.

    Args:
      matrix: int64[n, n].

    Returns:
      Python integers object[n, n] and an integer d with inverse = numerators / d.

    Raises:
      SchemaError: The matrix is singular.

    References:
      Bareiss, Sylvester's identity and multistep integer-preserving Gaussian elimination,
      Mathematics of Computation 22, 1968.

    >>> numerators, denominator = invert_exactly(np.array([[1, 1], [1, -1]]))
    >>> numerators.tolist(), denominator
    ([[-1, -1], [-1, 1]], -2)
    """
    n = len(matrix)
    rows = np.concatenate([matrix, np.eye(n, dtype=np.int64)], axis=1).astype(object)
    previous = 1
    for column in range(n):
        usable = np.flatnonzero(rows[column:, column] != 0)
        if not len(usable):
            raise SchemaError("integer matrix", "is singular", got=f"rank {column} of {n}")
        if usable[0]:
            swap = column + usable[0]
            rows[[column, swap]] = rows[[swap, column]]
        pivot = rows[column, column]
        others = np.arange(n) != column
        # Every entry is a minor of the matrix, so the division leaves no remainder.
        rows[others] = (
            rows[others] * pivot - np.outer(rows[others, column], rows[column])
        ) // previous
        previous = pivot
    return rows[:, n:], int(previous)
