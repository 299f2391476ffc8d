"""Compiled loops over noisy answers: integer arithmetic, so the order of sums does not matter.

Loaded on first use, by `machine_code`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from das.arrays import IntArray
from solvers.least_squares.machine_code import compiled


@compiled
def add_runs(
    answers: npt.NDArray[np.integer], starts: IntArray, ends: IntArray, sums: IntArray
) -> None:
    """Add rows starts[f]..ends[f]-1 of `answers` to row f of `sums`, in place.

    Args:
      answers: integers[G, m], answers of G geounits.
      starts: int64[F], first row of each of F families.
      ends: int64[F], end of the rows of each family.
      sums: int64[F, m], to which the rows are added.
    """
    m = answers.shape[1]
    for f in range(len(starts)):
        for g in range(starts[f], ends[f]):
            for j in range(m):
                sums[f, j] += answers[g, j]


@compiled
def add_groups(
    answers: npt.NDArray[np.integer], group: IntArray, sums: npt.NDArray[np.integer]
) -> None:
    """Add answers[:, :, i] to sums[:, :, group[i]], in place.

    Args:
      answers: integers[G, B, n, A].
      group: int64[n], the group of each index of the third axis.
      sums: integers[G, B, groups, A], of a type at least as wide.
    """
    G, B, n, A = answers.shape
    k = sums.shape[2]
    for g in range(G):
        for b in range(B):
            if A == 1 and k == 1:
                whole = sums[g, b, 0, 0]
                for i in range(n):
                    whole += answers[g, b, i, 0]
                sums[g, b, 0, 0] = whole
            else:
                for i in range(n):
                    row = group[i]
                    for a in range(A):
                        sums[g, b, row, a] += answers[g, b, i, a]


def compile_all() -> None:
    """Compile every kernel by calls with the argument types of its callers."""
    one, sums = np.array([0]), np.zeros((1, 1), np.int64)
    for kind in (np.int16, np.int32, np.int64):
        add_runs(np.ones((1, 1), kind), one, one + 1, sums)
    for narrow, wide in ((2, 4), (2, 8), (4, 8), (8, 8)):
        add_groups(np.ones((1, 1, 1, 1), f"i{narrow}"), one, np.zeros((1, 1, 1, 1), f"i{wide}"))
