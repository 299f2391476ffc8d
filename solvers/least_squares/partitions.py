"""Sums over all partition queries of a node at once: what targets, matrices and gradients are of.

The functions here are the definition, in arrays. `compiled` has the same ones compiled, for nodes
that make up for loading them; `TermSums` says which are used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from das.arrays import BoolArray, FloatArray, IntArray
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


def pull(every: Partitions, weights: FloatArray) -> FloatArray:
    """sum_q w_cq Q_q' y_cq, float64[C, k], with weights float64[T, C]."""
    out = np.zeros((len(every.answers), every.index.shape[1]))
    for index, weight in zip(every.index, weights, strict=True):
        out += weight[:, None] * every.answers[:, index]
    return out


def join(index: IntArray, weights: FloatArray, cells: IntArray) -> FloatArray:
    """sum_q w_pq Q_q' Q_q on blocks of cells, float64[B, P, s, s].

    Args:
      index: int64[T, k], group of each cell.
      weights: float64[T, P].
      cells: int64[B, s], the cells of each block; k where a block has fewer than s.
    """
    B, s = cells.shape
    out = np.zeros((B, weights.shape[1], s, s))
    for groups, weight in zip(index, weights, strict=True):
        padded = np.append(groups, -1)[cells]
        out += weight[None, :, None, None] * (padded[:, :, None] == padded[:, None])[:, None]
    present = cells < index.shape[1]
    if not present.all():
        out *= (present[:, :, None] & present[:, None])[:, None]
    return out


def push(
    every: Partitions, weights: FloatArray, x: FloatArray
) -> tuple[FloatArray, FloatArray, float, float]:
    """Gradient of sum_cq w_cq |Q_q x_c - y_cq|^2 / 2.

    Returns:
      float64[C, k], the gradient; float64[C, M], w (Q x - y); the sums of w (Q x)^2 and w y Q x.
    """
    g, sums = np.zeros_like(x), np.empty_like(every.answers)
    for index, start, end in zip(every.index, every.ends[:-1], every.ends[1:], strict=True):
        sums[:, start:end] = partition_sums(x, index - start, int(end - start))
    wide = np.repeat(weights, np.diff(every.ends), axis=0).T
    weighted = wide * sums
    coarse = weighted - wide * every.answers
    for index in every.index:
        g += coarse[:, index]
    return g, coarse, float((weighted * sums).sum()), float((weighted * every.answers).sum())


def partition_sums(x: FloatArray, groups: IntArray, m: int) -> FloatArray:
    """Sum columns by group: [C, k] -> [C, m]."""
    C = len(x)
    index = (np.arange(C)[:, None] * m + groups).ravel()
    return np.asarray(np.bincount(index, x.ravel(), minlength=C * m).reshape(C, m), float)


def deal(
    x: FloatArray, give: FloatArray, free: BoolArray, parent: FloatArray
) -> tuple[FloatArray, BoolArray]:
    """The nearest x >= 0 that sums to the parent in every cell, and its support.

    Args:
      x: float64[C, k].
      give: float64[C, k], how far a price moves each cell.
      free: bool[C, k], cells that may be positive.
      parent: float64[k].

    References:
      Michelot, J. Optim. Theory Appl. 50 (1986), 195-200.
    """
    held = free
    while True:
        shares = np.where(held, give, 0.0)
        gap = parent - np.where(held, x, 0.0).sum(0)
        moved = x + give * (gap / np.maximum(shares.sum(0), np.finfo(float).tiny))
        positive = held & (moved > 0)
        if np.array_equal(positive, held):
            return np.where(held, moved, 0.0), held
        held = positive


@dataclass(frozen=True)
class TermSums:
    """The functions of this module, or the same compiled."""

    pull: Callable[[Partitions, FloatArray], FloatArray] = pull
    join: Callable[[IntArray, FloatArray, IntArray], FloatArray] = join
    push: Callable[
        [Partitions, FloatArray, FloatArray], tuple[FloatArray, FloatArray, float, float]
    ] = push
    deal: Callable[
        [FloatArray, FloatArray, BoolArray, FloatArray], tuple[FloatArray, BoolArray]
    ] = deal


IN_ARRAYS = TermSums()
