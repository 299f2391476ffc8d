"""Types of arrays, by what they hold; shapes stand in docstrings."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]  # counts, positions, ids
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
WordArray = npt.NDArray[np.uint64]  # words of a random stream
Geocodes = npt.NDArray[np.bytes_]  # fixed width, as geographies hold them in memory
ObjectArray = npt.NDArray[np.object_]  # str, as Arrow gives columns of text
