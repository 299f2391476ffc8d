"""Hand a node problem to the compiled active-set iterations; needs the package numba."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvers import active_set, kernels
from solvers.active_set import Guess
from solvers.optimality import Point
from solvers.problem import FloatArray
from solvers.structure import Quadratic


def iterate(q: Quadratic, guess: Guess, start: Point, tolerance: float) -> tuple[Point, float, int]:
    """See `active_set.iterate`."""
    x, coupling, rows = (np.array(a, order="C") for a in (start.x, start.coupling, start.rows))
    sums = _padded(q, start.sums)
    residual, steps = kernels.active_set(
        np.array(guess.support, order="C"),
        np.array(guess.sides, order="C"),
        x,
        coupling,
        sums,
        rows,
        _arrays(q),
        tolerance,
        active_set.MOST_STEPS,
        active_set.STALE_STEPS,
    )
    widths = (e.targets.shape[1] for e in q.equalities)
    unpadded = tuple(mu[:, :m] for mu, m in zip(sums, widths, strict=True))
    return Point(x, coupling, unpadded, rows), float(residual), int(steps)


def _padded(q: Quadratic, arrays: tuple[FloatArray, ...]) -> FloatArray:
    """float64[equalities, C, largest m]."""
    most = max((e.targets.shape[1] for e in q.equalities), default=0)
    out = np.zeros((len(arrays), len(q.linear), most))
    for number, array in enumerate(arrays):
        out[number, :, : array.shape[1]] = array
    return out


def _arrays(q: Quadratic) -> tuple[Any, ...]:
    """The fields of a node problem in the order of `kernels`, blocks end to end."""
    k = q.linear.shape[1]
    present = q.cells < k
    starts = np.zeros(len(q.cells) + 1, np.int64)
    np.cumsum(present.sum(1), out=starts[1:])
    return (
        q.scale,
        np.ascontiguousarray(q.linear),
        np.zeros(k) if q.parent is None else q.parent,
        q.parent is not None,
        starts,
        q.cells[present],
        np.ascontiguousarray(q.blocks),
        np.ascontiguousarray(q.outside),
        np.ascontiguousarray(q.diagonal),
        np.ascontiguousarray(q.free),
        np.array([e.groups for e in q.equalities], np.int64).reshape(-1, k),
        _padded(q, tuple(e.targets for e in q.equalities)),
        np.array([e.targets.shape[1] for e in q.equalities], np.int64),
        np.array(q.is_inside, np.bool_),
        np.ascontiguousarray(q.coefficients),
        np.ascontiguousarray(q.least),
        np.ascontiguousarray(q.most),
        q.penalty,
    )
