"""Sums of answers over families."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from das.arrays import IntArray
from solvers.least_squares.machine_code import ANSWERS, kernels


def family_sums(answers: npt.NDArray[np.integer], starts: IntArray) -> IntArray:
    """Add up the answers of families.

    Args:
      answers: int16, int32 or int64[G, m], families one after the other.
      starts: int64[F], first row of every family.

    Returns:
      int64[F, m], exact as long as no sum reaches 2^63.
    """
    sums = np.zeros((len(starts), answers.shape[1]), np.int64)
    ends = np.append(starts[1:], len(answers))
    kernels(ANSWERS).add_runs(np.require(answers, None, ["C", "W"]), starts, ends, sums)
    return sums
