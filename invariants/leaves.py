"""What the leaves below a geounit can hold, by type: the source of implied constraints."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Leaves:
    """The leaves below one geounit, those of equal pattern added up.

    Counts s in N^t by type can be dealt to the leaves iff some z in N^(R x t) has
    least <= z <= most, low <= sum_i z[:, i] <= high and sum_R z = s. Adding up the leaves whose
    `most` is positive for the same types loses nothing (Leclerc; sums of such sets of counts are
    again of this form).

    Attributes:
      least: int64[R, t], fewest persons of each type.
      most: int64[R, t], most persons of each type; 0 where the leaves have no such facility.
      low: int64[R], fewest persons in all.
      high: int64[R], most persons in all.
    """

    least: IntArray
    most: IntArray
    low: IntArray
    high: IntArray
