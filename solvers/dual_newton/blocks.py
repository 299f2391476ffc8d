"""Block diagonal systems of many small positive definite blocks, each of a size of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from das.arrays import BoolArray, FloatArray, IntArray
from solvers.least_squares.machine_code import kernels


@dataclass(frozen=True, eq=False)
class Factors:
    """Factors of every block, one after the other in one array.

    Attributes:
      flat: float64[sum of s_b^2], per block row after row: the lower Cholesky factor, or the
        inverse of a block that has none for rounding.
      starts: int64[B + 1], where each begins.
      ends: int64[B + 1], where its unknowns begin.
      is_inverse: bool[B].
    """

    flat: FloatArray
    starts: IntArray
    ends: IntArray
    is_inverse: BoolArray


def factorise(flat: FloatArray, sizes: IntArray) -> Factors:
    """Factorise symmetric blocks, positive definite but for rounding.

    Args:
      flat: float64[sum of s_b^2], the blocks one after the other; overwritten.
      sizes: int64[B], s_b.
    """
    from scipy.linalg.lapack import dpotrf

    starts = np.append(0, np.cumsum(sizes**2))
    ends = np.append(0, np.cumsum(sizes))
    is_inverse = np.zeros(len(sizes), bool)
    for number in np.flatnonzero(sizes):
        block = flat[starts[number] : starts[number + 1]].reshape(sizes[number], sizes[number])
        # The upper factor of the transpose, column after column, is the lower one, row after row.
        factor, failed = dpotrf(block.T, lower=0)
        if failed:
            factor = np.linalg.inv(block)
            is_inverse[number] = True
        block[:] = factor.T
    return Factors(flat, starts, ends, is_inverse)


def substitute(factors: Factors, right: FloatArray) -> FloatArray:
    """Solve with all blocks.

    Args:
      factors: From `factorise`.
      right: float64[sum of s_b].

    Returns:
      The unknowns, likewise.
    """
    place = factors.starts, factors.ends, factors.is_inverse
    return np.asarray(kernels().substitute(factors.flat, *place, right))
