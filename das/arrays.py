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


def kron(factors: Iterable[FloatArray]) -> FloatArray:
    """Return the Kronecker product of at least one matrix."""
    return reduce(lambda left, right: np.asarray(np.kron(left, right)), factors)
