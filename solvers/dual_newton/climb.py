"""The dual Newton method in compiled loops, for nodes whose layers are a chain and few others.

The same solutions as of `solve.solve_matrix_free`, with the same certificate; the same iterates
too, up to rounding, but where there is much noise. It takes every node of that solver but those
with linear rows and those of more than `_CROSSING` groups that are in no chain; these, and what
stops short of its tolerance, are for that solver.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from das.arrays import FloatArray, IntArray
from solvers.dual_newton.layers import FORBIDDEN, Layer, Lifted, lift
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
# Where the noise of a cell is many times what the parent has in one, cells are all but given to the
# child with the largest answer, and steps from there find the way to other children one by one. A
# node in which the squares of single cells weigh so many times as much, and their answers the same,
# spreads its persons over more children, is soon solved roughly, and its multipliers are near those
# of the next. 10 nodes of persons of blocks, bound to redistricting counts, took 250 steps with
# these and 982 without, 0.75 and 1.87 s, and 9 of households 174 and 319, 0.25 and 0.60 s; begun at
# 10 the households took twice as long.
_STIFFER = (30.0, 10.0, 3.0)
_ROUGHLY = 0.1  # residual, in a part of the largest count
_ROUGH_STEPS = 50  # the same nodes took 11 at most
# Standard deviations of a cell over the parent's mean count. Nodes of blocks had 8 to 24. Those of
# block groups, with 0.7 to 3.4, took the same time with and without, or a third longer; those of
# tracts and counties, below 1, half as long again.
_NOISE = 5.0


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
    layers, roles = _in_arrays(q, sizes, ends), _roles(q, division)
    steps, iterations = 0, 0
    for stiffness in _stiffnesses(q):
        is_last = stiffness == 1.0
        limit = most if is_last else min(most, _ROUGH_STEPS)
        more = kernels(CLIMBING).climb(
            _field(q, u, ends, stiffness),
            level,
            u,
            x,
            np.zeros(k) if q.parent is None else q.parent,
            q.parent is not None,
            q.unit * stiffness,
            *layers,
            *roles,
            sizes,
            tolerance * _OVERSHOOT if is_last else _ROUGHLY,
            damping,
            (limit, _ITERATIONS, _TRIALS, stale, _LOOSE, _TIGHT),
        )
        steps, iterations = steps + int(more[0]), iterations + int(more[1])
    multipliers = np.split(u, ends[1:-1], axis=1) if len(sizes) else []
    point = DualPoint(q, x, multipliers, np.zeros((C, 0)), level)
    certificate = certify(problem, point)
    status = Status.SOLVED if certificate.residual <= tolerance else Status.LIMIT
    return Estimate(x, certificate, status, iterations, steps)


def _stiffnesses(q: Lifted) -> tuple[float, ...]:
    """Factors of the squares of single cells with which a node is climbed, the last of them 1."""
    if q.parent is None or not q.layers:
        return (1.0,)
    is_noisy = 1 / float(np.median(q.unit)) > (_NOISE * float(q.parent.mean())) ** 2
    return (*_STIFFER, 1.0) if is_noisy else (1.0,)


def _field(q: Lifted, u: FloatArray, ends: IntArray, stiffness: float) -> FloatArray:
    """float64[C, k], where a climb begins: (w d + sum_q Q_q' u_q) / (w stiffness).

    `kernels.climb` moves it as the multipliers move, see `solve.project`.
    """
    pushed = q.spread(np.split(u, ends[1:-1], axis=1), np.zeros(q.base.shape)) if u.any() else 0.0
    moved = (q.base + pushed / q.unit[:, None]) / stiffness
    return np.where(q.base <= FORBIDDEN, q.base, moved)


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
