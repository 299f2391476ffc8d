"""Types of arrays, by what they hold; shapes stand in docstrings."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]  # counts, positions, ids
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
WordArray = npt.NDArray[np.uint64]  # words of a random stream
# Geocodes of whole geolevels, as lattices and lists of geounits hold them: of fixed width, sorted
# and cut to prefixes without a loop, in a quarter of the memory of numpy's text.
Geocodes = npt.NDArray[np.bytes_]
# str: geocodes and other text of a range of geounits, as it is read from files and written to them.
ObjectArray = npt.NDArray[np.object_]


def kron(factors: Iterable[FloatArray]) -> FloatArray:
    """Return the Kronecker product of matrices, of which there is at least one."""
    return reduce(lambda one, other: np.asarray(np.kron(one, other)), factors)
