"""Sums over all partition queries of a node: what targets, matrices and gradients are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from das.arrays import BoolArray, FloatArray, IntArray
from solvers.least_squares.machine_code import kernels
from solvers.problem import LeastSquaresTerm


@dataclass(frozen=True, eq=False)
class Partitions:
    """T partition queries of the same cells, their answers side by side.

    Attributes:
      index: int64[T, k], column of `answers` in which each cell counts.
      ends: int64[T + 1], columns of query t are those from ends[t] to ends[t + 1].
      answers: float64[C, M].
    """

    index: IntArray
    ends: IntArray
    answers: FloatArray

    @classmethod
    def of(cls, terms: Sequence[LeastSquaresTerm], C: int, k: int) -> Partitions:
        """Put queries side by side."""
        ends = np.zeros(len(terms) + 1, np.int64)
        np.cumsum([t.answers.shape[1] for t in terms], out=ends[1:])
        index = np.array([t.groups for t in terms], np.int64).reshape(len(terms), k)
        answers = np.concatenate([np.zeros((C, 0)), *(t.answers for t in terms)], axis=1)
        return cls(index + ends[:-1, None], ends, answers)


def adjoint(partitions: Partitions, weights: FloatArray) -> FloatArray:
    """Right-hand side of the normal equations, sum_q w_cq Q_q' y_cq.

    Args:
      partitions: The queries.
      weights: float64[T, C], w.

    Returns:
      float64[C, k].
    """
    weights = np.ascontiguousarray(weights)
    return np.asarray(kernels().adjoint(partitions.index, partitions.answers, weights))


def gram_blocks(index: IntArray, weights: FloatArray, cells: IntArray) -> FloatArray:
    """Blocks of the Gram matrix sum_q w_pq Q_q' Q_q.

    Args:
      index: int64[T, k], group of each cell.
      weights: float64[T, P].
      cells: int64[B, s], the cells of each block; k where a block has fewer than s.

    Returns:
      float64[B, P, s, s].
    """
    return np.asarray(kernels().gram_blocks(index, np.ascontiguousarray(weights), cells))


def gradient(
    partitions: Partitions, weights: FloatArray, x: FloatArray
) -> tuple[FloatArray, FloatArray, float, float]:
    """Gradient of sum_cq w_cq |Q_q x_c - y_cq|^2 / 2.

    Args:
      partitions: The queries.
      weights: float64[T, C], w.
      x: float64[C, k].

    Returns:
      float64[C, k], the gradient; float64[C, M], w (Q x - y); the sums of w (Q x)^2 and w y Q x.
    """
    p = partitions
    g, coarse, quadratic, linear = kernels().gradient(
        p.index, p.ends, p.answers, np.ascontiguousarray(weights), x
    )
    return g, coarse, float(quadratic), float(linear)


def project(
    x: FloatArray, give: FloatArray, free: BoolArray, parent: FloatArray
) -> tuple[FloatArray, BoolArray]:
    """The nearest x >= 0 that sums to the parent in every cell, and its support.

    Args:
      x: float64[C, k].
      give: float64[C, k], positive, how far a multiplier of the sum moves each cell.
      free: bool[C, k], cells that may be positive.
      parent: float64[k].

    References:
      Michelot, J. Optim. Theory Appl. 50 (1986), 195-200 (projection onto a simplex).
    """
    projected, support = kernels().project_by_cell(x, np.ascontiguousarray(give), free, parent)
    return projected, support
