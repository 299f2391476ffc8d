"""The dual Newton method in compiled loops, for nodes whose layers are a chain and few others.

The same iterates as `solve.solve_matrix_free`, up to rounding, and the same certificate. It takes
every node of that solver but those with linear rows and those of more than `_CROSSING` groups that
are in no chain; these, and what stops short of its tolerance, are for that solver.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from das.arrays import FloatArray, IntArray
from solvers.dual_newton.layers import Layer, Lifted, lift
from solvers.dual_newton.solve import (
    _ITERATIONS,
    _LOOSE,
    _NEWTON_STEPS,
    _STALE_STEPS,
    _TIGHT,
    _TRIALS,
    DAMPED_STALE,
    DAMPED_STEPS,
    DualPoint,
    certify,
    dampings,
)
from solvers.least_squares.blocks import Fixed
from solvers.least_squares.machine_code import CLIMBING, kernels
from solvers.problem import Estimate, NodeProblem, Status, coarsening

_CROSSING = 1_000  # groups of the layers outside the chain: a matrix of 8 MB per child at most
_OVERSHOOT = 1e-2  # of the tolerance: the certificate adds up what the layers are off by


@dataclass(frozen=True, eq=False)
class _Division:
    """Which layers are eliminated how.

    Attributes:
      chain: Layers each of which refines the next, fine before coarse.
      lower: How many of them refine all other layers.
      crossing: The layers outside the chain.
      maps: Per crossing layer, its group of each group of the last of these (of each cell).
    """

    chain: tuple[int, ...]
    lower: int
    crossing: tuple[int, ...]
    maps: tuple[IntArray, ...]


def _divide(q: Lifted) -> _Division | None:
    """The chain from the finest layer on; None if too many groups are left."""
    groups = np.arange(q.base.shape[1])
    chain: list[int] = []
    for number, layer in enumerate(q.layers):
        if not all(_refines(layer, other) for other in q.layers[number + 1 :]):
            break
        chain.append(number)
        groups = layer.groups
    lower = len(chain)
    for number, layer in enumerate(q.layers[lower:], lower):
        if len(chain) == lower or _refines(q.layers[chain[-1]], layer):
            chain.append(number)
    crossing = tuple(number for number in range(len(q.layers)) if number not in chain)
    if sum(q.layers[number].size for number in crossing) > _CROSSING:
        return None
    maps = [coarsening(groups, q.layers[number].groups) for number in crossing]
    return _Division(
        tuple(chain), lower, crossing, tuple(map_ for map_ in maps if map_ is not None)
    )


def _refines(fine: Layer, coarse: Layer) -> bool:
    return coarsening(fine.groups, coarse.groups) is not None


def solve_compiled(problem: NodeProblem, tolerance: float, fixed: Fixed = ()) -> Estimate | None:
    """Solve the continuous stage of a node as `solve_matrix_free` does, in compiled loops.

    Args:
      problem: The node problem; as there.
      tolerance: Largest accepted certificate residual, for example 1e-7.
      fixed: Further partition sums that are given; as there.

    Returns:
      The estimate; its status is LIMIT if the tolerance was not reached. None for a node that is
      not taken: one with linear rows, or with too many groups outside a chain.

    Raises:
      SolverError: A query is not a partition, or some child has no detailed answers.
    """
    if problem.rows:
        return None
    q = lift(problem, fixed)
    division = _divide(q)
    if division is None:
        return None
    estimate = None
    for damping in dampings(q):
        estimate = _climb(problem, q, division, damping, tolerance)
        if estimate.status is Status.SOLVED:
            break
    return estimate


def _climb(
    problem: NodeProblem, q: Lifted, division: _Division, damping: float, tolerance: float
) -> Estimate:
    C, k = q.base.shape
    sizes = np.array([layer.size for layer in q.layers], np.int64)
    ends = np.append(0, np.cumsum(sizes))
    u, x = np.zeros((C, ends[-1])), np.empty((C, k))
    level = np.full(k, 0.0 if q.parent is None else -np.inf)
    most, stale = (DAMPED_STEPS, DAMPED_STALE) if damping else (_NEWTON_STEPS, _STALE_STEPS)
    steps, iterations, _ = kernels(CLIMBING).climb(
        q.base.copy(),
        level,
        u,
        x,
        np.zeros(k) if q.parent is None else q.parent,
        q.parent is not None,
        q.unit,
        *_in_arrays(q, sizes, ends),
        *_roles(q, division),
        sizes,
        tolerance * _OVERSHOOT,
        damping,
        (most, _ITERATIONS, _TRIALS, stale, _LOOSE, _TIGHT),
    )
    multipliers = np.split(u, ends[1:-1], axis=1) if len(sizes) else []
    point = DualPoint(q, x, multipliers, np.zeros((C, 0)), level)
    certificate = certify(problem, point)
    status = Status.SOLVED if certificate.residual <= tolerance else Status.LIMIT
    return Estimate(x, certificate, status, int(iterations), int(steps))


def _in_arrays(q: Lifted, sizes: IntArray, ends: IntArray) -> tuple[FloatArray | IntArray, ...]:
    """The layers as `kernels.climb` takes them, end to end."""
    C = len(q.base)
    none = np.zeros(0, np.int64)
    lengths = [len(layer.index) for layer in q.layers]
    return (
        np.concatenate([np.zeros((C, 0)), *(layer.answers for layer in q.layers)], axis=1),
        np.array([layer.variance for layer in q.layers]).reshape(len(sizes), C),
        ends,
        np.array([layer.on for layer in q.layers], np.int64),
        np.concatenate([none, *(layer.index for layer in q.layers)]),
        np.append(0, np.cumsum(lengths))[:-1].astype(np.int64),
    )


def _roles(q: Lifted, division: _Division) -> tuple[IntArray | int, ...]:
    """Chain, crossing layers and their maps as `kernels.climb` takes them."""
    steps: list[IntArray] = []
    below = np.arange(q.base.shape[1])
    base = len(below)
    for place, number in enumerate(division.chain):
        layer = q.layers[number]
        index = coarsening(below, layer.groups)
        if index is None:
            raise AssertionError("a layer of the chain does not refine the next")
        steps.append(index)
        below = layer.groups
        base = layer.size if place < division.lower else base
    chain_index = np.zeros((len(steps), max(map(len, steps), default=0)), np.int64)
    for row, index in zip(chain_index, steps, strict=True):
        row[: len(index)] = index
    return (
        np.array(division.chain, np.int64),
        division.lower,
        np.array(division.crossing, np.int64),
        np.array(division.maps, np.int64).reshape(len(division.crossing), base),
        chain_index,
    )
