"""Hand a node problem to the compiled functions; needs the package numba."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvers import active_set, kernels
from solvers.active_set import Guess
from solvers.optimality import Point
from solvers.problem import BoolArray, FloatArray, IntArray
from solvers.structure import Quadratic
from solvers.term_sums import Partitions, TermSums


def iterate(q: Quadratic, guess: Guess, start: Point, tolerance: float) -> tuple[Point, float, int]:
    """See `active_set.iterate`."""
    order = q.cells[q.cells < q.linear.shape[1]]  # blocks end to end
    x = np.ascontiguousarray(start.x[:, order])
    coupling, rows = start.coupling[order], np.array(start.rows, order="C")
    sums = _padded(q, start.sums)
    residual, steps = kernels.active_set(
        np.ascontiguousarray(guess.support[:, order]),
        np.array(guess.sides, order="C"),
        x,
        coupling,
        sums,
        rows,
        _arrays(q, order),
        tolerance,
        active_set.MOST_STEPS,
        active_set.STALE_STEPS,
    )
    widths = (e.targets.shape[1] for e in q.equalities)
    unpadded = tuple(mu[:, :m] for mu, m in zip(sums, widths, strict=True))
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    point = Point(np.ascontiguousarray(x[:, back]), coupling[back], unpadded, rows)
    return point, float(residual), int(steps)


def _padded(q: Quadratic, arrays: tuple[FloatArray, ...]) -> FloatArray:
    """float64[equalities, C, largest m]."""
    most = max((e.targets.shape[1] for e in q.equalities), default=0)
    out = np.zeros((len(arrays), len(q.linear), most))
    for number, array in enumerate(arrays):
        out[number, :, : array.shape[1]] = array
    return out


def _arrays(q: Quadratic, order: IntArray) -> tuple[Any, ...]:
    """The fields of a node problem in the order of `kernels`, blocks end to end."""
    k = len(order)
    starts = np.zeros(len(q.cells) + 1, np.int64)
    np.cumsum((q.cells < k).sum(1), out=starts[1:])
    groups = np.array([e.groups for e in q.equalities], np.int64).reshape(-1, k)
    return (
        q.scale,
        np.ascontiguousarray(q.linear[:, order]),
        np.zeros(k) if q.parent is None else q.parent[order],
        q.parent is not None,
        starts,
        np.ascontiguousarray(q.blocks),
        np.ascontiguousarray(q.outside[..., order]),
        np.ascontiguousarray(q.diagonal[:, order]),
        np.ascontiguousarray(q.free[:, order]),
        np.ascontiguousarray(groups[:, order]),
        _padded(q, tuple(e.targets for e in q.equalities)),
        np.array([e.targets.shape[1] for e in q.equalities], np.int64),
        np.array(q.is_inside, np.bool_),
        np.ascontiguousarray(q.coefficients[:, order]),
        np.ascontiguousarray(q.least),
        np.ascontiguousarray(q.most),
        q.penalty,
    )


def _pull(every: Partitions, weights: FloatArray) -> FloatArray:
    return np.asarray(kernels.pull(every.index, every.answers, np.ascontiguousarray(weights)))


def _join(index: IntArray, weights: FloatArray, cells: IntArray) -> FloatArray:
    return np.asarray(kernels.join(index, np.ascontiguousarray(weights), cells))


def _push(
    every: Partitions, weights: FloatArray, x: FloatArray
) -> tuple[FloatArray, FloatArray, float, float]:
    g, coarse, quadratic, linear = kernels.push(
        every.index, every.ends, every.answers, np.ascontiguousarray(weights), x
    )
    return g, coarse, float(quadratic), float(linear)


def _deal(
    x: FloatArray, give: FloatArray, free: BoolArray, parent: FloatArray
) -> tuple[FloatArray, BoolArray]:
    moved, held = kernels.deal(x, np.ascontiguousarray(give), free, parent)
    return moved, held


TERM_SUMS = TermSums(_pull, _join, _push, _deal)
