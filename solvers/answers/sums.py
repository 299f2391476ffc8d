"""Sums of noisy answers over families and over groups of equivalent answers.

Compiled loops, or NumPy where numba is missing, such as in an installation for releases only. Both
give the same integers.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from das.arrays import IntArray
from das.tree import coordinates
from solvers.least_squares.machine_code import ANSWERS, has_compiler, kernels


def family_sums(answers: npt.NDArray[np.integer], starts: IntArray) -> IntArray:
    """Add up the answers of the geounits of each family.

    Args:
      answers: int16, int32 or int64[G, m], families one after the other.
      starts: int64[F], first row of every family.

    Returns:
      int64[F, m], exact as long as no sum reaches 2^63.
    """
    sums = np.zeros((len(starts), answers.shape[1]), np.int64)
    ends = np.append(starts[1:], len(answers))
    if not has_compiler():
        some = np.flatnonzero(ends > starts)  # `reduceat` would return a row for empty families
        if len(some):
            sums[some] = np.add.reduceat(answers, starts[some], axis=0, dtype=np.int64)
        return sums
    kernels(ANSWERS).add_runs(np.require(answers, None, ["C", "W"]), starts, ends, sums)
    return sums


def group_sums(
    answers: npt.NDArray[np.integer], axis: int, group: IntArray
) -> npt.NDArray[np.integer]:
    """Add up answers along an axis by group, like `das.tree.coordinates.group_sums`.

    Args:
      answers: int16, int32 or int64[G, ...], answers of G geounits.
      axis: Axis along which answers are summed, at least 1.
      group: int64[n], group of each of the n answers along the axis, from 0; all occur.
    """
    if not has_compiler():
        return coordinates.group_sums(answers, axis, group)
    shape = answers.shape
    kind = coordinates.sum_type(answers)
    sums = np.zeros((*shape[:axis], int(group.max()) + 1, *shape[axis + 1 :]), kind)
    before, after = math.prod(shape[1:axis]), math.prod(shape[axis + 1 :])
    kernels(ANSWERS).add_groups(
        np.require(answers, None, ["C", "W"]).reshape(len(answers), before, len(group), after),
        group,
        sums.reshape(len(answers), before, sums.shape[axis], after),
    )
    return sums
