"""Dual ascent: the continuous stage for nodes with many live cells, without matrices over cells.

Dual Newton method. Every query except the detailed one has multipliers u_q, one per child and
group. For given u the best cells are known in closed form: each live cell assigns the parent's
persons to the children by a projection onto a simplex,

    x_cj = max(0, d_cj + (sum_q u_cq[j] + lambda_j) / w_c),   sum_c x_cj = p_j,

with d the detailed answers and w_c their precision. So every iterate keeps x >= 0 and
sum_c x_c = p. The dual function is concave, piecewise quadratic and once differentiable; its
gradient is y_q - u_q / w_q - Q_q x. Newton steps with a line search maximise it, in the loops of
`kernels`.

Every query except the detailed one is a layer: sums by group of the cells, or of a finer layer that
refines it. Sums go from the cells up, multipliers from the coarsest layer down, and no matrix over
cells is formed. An exact invariant is a layer with noise variance zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from das.arrays import FloatArray, IntArray
from das.errors import SolverError
from solvers.constraints import limits
from solvers.least_squares.certificate import Conditions, Rows, judge
from solvers.least_squares.machine_code import DUAL_ASCENT, Fields, kernels
from solvers.problem import (
    Certificate,
    Estimate,
    Fixed,
    LeastSquaresTerm,
    NodeProblem,
    Status,
    coarsening,
    group_sums,
    is_constant,
)

# Damping of given sums, over the variance of a cell. Many given sums contradict each other on most
# sets of positive cells, and undamped steps are then far too long. Of 12 nodes of persons pinned to
# redistricting counts, with 16 to 97 given sums per child, all were solved with 0.1 to 3, fastest
# with 1. With 0.01 and with 10 some did not reach the tolerance, and 11 of 12 did not without
# damping. With one given sum per child, counties and tracts of the redistricting data take 2.5 to 3
# times as long with damping. But 64 of 65 nodes of blocks' households, whose cells are nearly all
# noise, diverge without it, so it is tried second.
_DAMPING = 1.0
# Of 31 nodes of persons of blocks, one of 92 children and 1,469 cells took 236 steps, over 100 of
# them without a smaller residual before the last few; the others took at most 140.
_DAMPED_STEPS, _DAMPED_STALE = 1_000, 300
# Defaults, not measured, up to _OVERSHOOT.
_NEWTON_STEPS = 200  # then the status is LIMIT
_STALE_STEPS = 100  # without a smaller residual
_TRIALS = 8  # of the line search
_ITERATIONS = 300  # of conjugate gradients in a step
_LOOSE, _TIGHT = 0.3, 1e-3  # relative residuals of conjugate gradients
_CROSSING = 1_000  # groups of the layers outside the chain: a matrix of at most 8 MB per child
_OVERSHOOT = 1e-2  # over the tolerance: the certificate adds up the residuals of the layers
# Continuation for noisy nodes. If the noise of a cell is many times the parent's count, nearly all
# persons of a cell go to the child with the largest answer, and steps move few of them to other
# children. With the squares of single cells weighted by these factors, persons are spread over more
# children. Such a node is solved roughly in few steps, and its multipliers are close to those of
# the next factor. 10 nodes of persons of blocks, pinned to redistricting counts, took 250 steps
# with these factors and 982 without, 0.75 and 1.87 s; 9 of households 174 and 319 steps, 0.25 and
# 0.60 s. Starting at 10, the households took twice as long.
_STIFFER = (30.0, 10.0, 3.0)
_ROUGHLY = 0.1  # residual of the first factors, over the largest count
_ROUGH_STEPS = 50  # the same nodes took at most 11
# Standard deviation of a cell over the parent's mean count, from which on the continuation is used.
# Nodes of blocks had 8 to 24. Those of block groups, with 0.7 to 3.4, took the same time with and
# without it, or a third longer; those of tracts and counties, below 1, 1.5 times as long.
_NOISE = 5.0

CELLS = -1  # `Layer.on` of a layer that sums cells
FORBIDDEN = -1e200  # detailed answer of a cell that a given sum of zero forces to zero


@dataclass(frozen=True, eq=False)
class Layer:
    """Partition query.

    Attributes:
      groups: int64[k], group of each cell.
      size: m, number of groups.
      on: Number of the layer whose sums it adds up, or CELLS.
      index: int64[size of `on`], group of each group of `on` (of each cell).
      answers: float64[C, m], noisy or exact.
      variance: float64[C], of the noise; 0 if exact, inf if not measured.
    """

    groups: IntArray
    size: int
    on: int
    index: IntArray
    answers: FloatArray
    variance: FloatArray

    @property
    def is_exact(self) -> bool:
        """Return whether the answers are given exactly."""
        return not self.variance.any()


@dataclass(frozen=True, eq=False)
class Lifted:
    """Node problem in layers.

    Attributes:
      unit: float64[C], precision of the detailed answers.
      base: float64[C, k], detailed answers; FORBIDDEN where a given sum is zero.
      parent: float64[k] or None.
      layers: Fine before coarse.
      settled: Per term of the problem, whether it is left out because given sums imply it.
      rows: float64[r, k] coefficients of linear rows.
      least: float64[C, r], -inf for no bound.
      most: float64[C, r], inf for no bound.
      slack_variance: float64[C, r], first variance of the slack of a row around its last value.
        This proximal term makes the dual function differentiable.
    """

    unit: FloatArray
    base: FloatArray
    parent: FloatArray | None
    layers: tuple[Layer, ...]
    settled: tuple[bool, ...]
    rows: FloatArray
    least: FloatArray
    most: FloatArray
    slack_variance: FloatArray

    def spread(self, multipliers: list[FloatArray], onto: FloatArray) -> FloatArray:
        """Add sum_q Q_q' u_q to `onto`, float64[C, k], in place."""
        pending = [u.copy() for u in multipliers]
        for number in reversed(range(len(self.layers))):
            layer = self.layers[number]
            target = onto if layer.on == CELLS else pending[layer.on]
            for c in range(len(target)):
                target[c] += pending[number][c][layer.index]
        return onto


@dataclass(frozen=True, eq=False)
class _Part:
    """Partition query before nesting; attributes as in `Layer`."""

    groups: IntArray
    answers: FloatArray
    variance: FloatArray


def lift(problem: NodeProblem, fixed: Fixed = ()) -> Lifted:
    """Write a node problem in layers.

    Queries of the same partition are merged. Noisy queries and given sums that follow from the
    finest given sums are left out.

    Args:
      problem: The node problem; of its exact sums and those of `fixed`, one refines all others.
      fixed: Further given partition sums, as in `least_squares.solve_quadratic`.

    Raises:
      SolverError: A query is not a partition, or some child has no detailed answers.
    """
    where = f"node {problem.geocode}"
    k, C = problem.n_cells, problem.n_children
    unit, base = np.zeros(C), np.zeros((C, k))
    given = [*((exact.groups, exact.targets.astype(float)) for exact in problem.exact), *fixed]
    finest, sums = max(given, key=lambda sums: sums[1].shape[1], default=(None, None))
    parts: list[_Part] = []
    settled = []
    for term in problem.terms:
        if not isinstance(term, LeastSquaresTerm):
            raise SolverError(
                where, "a query is not a partition", remedy="use the structured solver"
            )
        is_detailed = term.answers.shape[1] == k
        answered = finest is not None and coarsening(finest, term.groups) is not None
        settled.append(answered and not is_detailed)
        if is_detailed:
            unit += term.weights
            base += term.weights[:, None] * term.answers[:, term.groups]
        elif not answered:
            with np.errstate(divide="ignore"):
                parts.append(_Part(term.groups, term.answers, 1 / term.weights))
    if unit.min() <= 0:
        raise SolverError(where, "a child has no detailed answers", remedy="measure detailed")
    base /= unit[:, None]
    for groups, targets in given:
        base[targets[:, groups] == 0] = FORBIDDEN
    if finest is not None and sums is not None:
        parts.append(_Part(finest, sums, np.zeros(C)))
    coefficients = [row.coefficients.astype(float) for row in problem.rows]
    rows = np.concatenate([np.zeros((0, k)), *coefficients])
    least = np.concatenate([np.zeros((C, 0)), *(limits(r.least) for r in problem.rows)], axis=1)
    most = np.concatenate([np.zeros((C, 0)), *(limits(r.most) for r in problem.rows)], axis=1)
    slack_variance = np.maximum((rows**2).max(1, initial=0.0), 1e-300) / unit[:, None]
    return Lifted(
        unit,
        base,
        None if problem.parent is None else problem.parent.astype(float),
        _nest(_merge(parts)),
        tuple(settled),
        rows,
        least,
        most,
        slack_variance,
    )


def _merge(parts: list[_Part]) -> list[_Part]:
    """Sort fine before coarse; equal partitions become one, weighted by precision."""
    merged: list[_Part] = []
    for part in sorted(parts, key=lambda part: -part.answers.shape[1]):
        for at, first in enumerate(merged):
            same = first.answers.shape == part.answers.shape
            index = coarsening(first.groups, part.groups) if same else None
            if index is not None:
                precisions = 1 / first.variance, 1 / part.variance
                total = precisions[0] + precisions[1]
                share = np.divide(precisions[1], total, where=total > 0, out=np.zeros_like(total))
                mixed = first.answers + share[:, None] * (part.answers[:, index] - first.answers)
                with np.errstate(divide="ignore"):
                    merged[at] = _Part(first.groups, mixed, 1 / total)
                break
        else:
            merged.append(part)
    return merged


def _nest(parts: list[_Part]) -> tuple[Layer, ...]:
    """Add up every layer from the coarsest finer layer that refines it."""
    layers: list[Layer] = []
    for part in parts:
        on, index = CELLS, part.groups
        for number in reversed(range(len(layers))):
            nested = coarsening(layers[number].groups, part.groups)
            if nested is not None:
                on, index = number, nested
                break
        size = part.answers.shape[1]
        layers.append(Layer(part.groups, size, on, index, part.answers, part.variance))
    return tuple(layers)


def _refines(fine: Layer, coarse: Layer) -> bool:
    return coarsening(fine.groups, coarse.groups) is not None


def solve_compiled(problem: NodeProblem, tolerance: float, fixed: Fixed = ()) -> Estimate | None:
    """Solve the continuous stage of a node with many live cells by dual ascent.

    Args:
      problem: The node problem; partition queries only, the detailed one measured in every child.
      tolerance: Largest accepted certificate residual, for example 1e-7.
      fixed: Further given partition sums, as in `least_squares.solve_quadratic`; one of all given
        sums refines the others.

    Returns:
      The estimate. Its status is LIMIT if the tolerance was not reached, also if the node is
      infeasible; callers must not use it as a solution. None for a node without rows that has too
        many
      groups outside a chain.

    Raises:
      SolverError: A query is not a partition, or some child has no detailed answers.
    """
    q = lift(problem, fixed)
    roles = _roles(q)
    if roles is None:
        return None
    estimate = None
    for damping in _dampings(q):
        estimate = _ascend(problem, q, roles, damping, tolerance)
        if estimate.status is Status.SOLVED:
            break
    return estimate


def _dampings(q: Lifted) -> tuple[float, ...]:
    """Return the dampings of given sums to try, in this order."""
    given = [layer.size for layer in q.layers if layer.is_exact]
    if any(size > 1 for size in given):
        return (_DAMPING,)
    return (0.0, _DAMPING) if given else (0.0,)


def _ascend(
    problem: NodeProblem, q: Lifted, roles: Fields, damping: float, tolerance: float
) -> Estimate:
    code = kernels(DUAL_ASCENT)
    C, k = q.base.shape
    ends = np.append(0, np.cumsum([layer.size for layer in q.layers])).astype(np.int64)
    u = np.zeros((C, ends[-1] + len(q.rows)))
    x, level = np.empty((C, k)), np.full(k, 0.0 if q.parent is None else -np.inf)
    center, slack = np.clip(np.zeros_like(q.least), q.least, q.most), q.slack_variance.copy()
    most, stale = (_DAMPED_STEPS, _DAMPED_STALE) if damping else (_NEWTON_STEPS, _STALE_STEPS)
    steps, iterations = 0, 0
    for stiffness in _stiffnesses(q):
        is_last = stiffness == 1.0
        limit = most if is_last else min(most, _ROUGH_STEPS)
        unit = q.unit * stiffness
        # At the start (w d + sum_q Q_q' u_q) / (w stiffness); the kernel adds the multipliers.
        pushed = q.spread(np.split(u, ends[1:], axis=1)[:-1], np.zeros((C, k)))
        moved = (q.base + pushed / q.unit[:, None]) / stiffness
        field = np.where(q.base <= FORBIDDEN, q.base, moved)
        more = code.dual_ascent(
            (
                field,
                np.zeros((C, k)),
                level,
                u,
                np.zeros_like(u),
                x,
                np.empty_like(u),
                center,
                slack,
            ),
            _in_arrays(q, unit, ends),
            roles,
            tolerance * _OVERSHOOT if is_last else _ROUGHLY,
            damping,
            (limit, _ITERATIONS, _TRIALS, stale, _LOOSE, _TIGHT),
        )
        steps, iterations = steps + int(more[0]), iterations + int(more[1])
    certificate = certify(problem, q, x, np.split(u, ends[1:], axis=1), level)
    status = Status.SOLVED if certificate.residual <= tolerance else Status.LIMIT
    return Estimate(x, certificate, status, iterations, steps)


def _stiffnesses(q: Lifted) -> tuple[float, ...]:
    """Return the factors of the squares of single cells to solve with in turn; the last is 1."""
    if q.parent is None or not q.layers or len(q.rows):
        return (1.0,)
    is_noisy = 1 / float(np.median(q.unit)) > (_NOISE * float(q.parent.mean())) ** 2
    return (*_STIFFER, 1.0) if is_noisy else (1.0,)


def _in_arrays(q: Lifted, unit: FloatArray, ends: IntArray) -> Fields:
    """Return the fields of `kernels.Node`, layers end to end."""
    C, k = q.base.shape
    none = np.zeros(0, np.int64)
    lengths = [len(layer.index) for layer in q.layers]
    return (
        np.zeros(k) if q.parent is None else q.parent,
        q.parent is not None,
        unit,
        1.0 / unit,
        np.concatenate([np.zeros((C, 0)), *(layer.answers for layer in q.layers)], axis=1),
        np.array([layer.variance for layer in q.layers]).reshape(len(q.layers), C),
        ends,
        np.array([layer.on for layer in q.layers], np.int64),
        np.concatenate([none, *(layer.index for layer in q.layers)]),
        np.append(0, np.cumsum(lengths))[:-1].astype(np.int64),
        q.rows,
        q.least,
        q.most,
        q.slack_variance,
    )


def _roles(q: Lifted) -> Fields | None:
    """Return the fields of `kernels.Roles`; the chain starts at the finest layer.

    None if too many groups are outside the chain. Nodes with rows are accepted with any number of
    groups, since no other matrix-free solver accepts rows.
    """
    k = q.base.shape[1]
    base, chain, steps = np.arange(k), [], []
    for number, layer in enumerate(q.layers):
        if not all(_refines(layer, other) for other in q.layers[number + 1 :]):
            break
        if not all(is_constant(row, layer.groups) for row in q.rows):
            break
        chain.append(number)
        base = layer.groups
    lower = len(chain)
    for number, layer in enumerate(q.layers[lower:], lower):
        if len(chain) == lower or _refines(q.layers[chain[-1]], layer):
            chain.append(number)
    crossing = [number for number in range(len(q.layers)) if number not in chain]
    if sum(q.layers[number].size for number in crossing) > _CROSSING and not len(q.rows):
        return None
    below = np.arange(k)
    for number in chain:
        steps.append(_index(below, q.layers[number].groups))
        below = q.layers[number].groups
    chain_index = np.zeros((len(steps), max(map(len, steps), default=0)), np.int64)
    for row, index in zip(chain_index, steps, strict=True):
        row[: len(index)] = index
    size = int(base.max()) + 1
    coefficients = np.zeros((len(q.rows), size))
    coefficients[:, base] = q.rows
    maps = [_index(base, q.layers[number].groups) for number in crossing]
    return (
        np.array(chain, np.int64),
        lower,
        np.array(crossing, np.int64),
        np.array(maps, np.int64).reshape(len(maps), size),
        coefficients,
        chain_index,
    )


def _index(fine: IntArray, coarse: IntArray) -> IntArray:
    """Return the coarse group of each group of a layer that refines the other."""
    index = coarsening(fine, coarse)
    if index is None:
        raise AssertionError("a layer does not refine a coarser one")
    return index


def certify(
    problem: NodeProblem, q: Lifted, x: FloatArray, u: list[FloatArray], coupling: FloatArray
) -> Certificate:
    """Compute the certificate of counts and multipliers, from the problem itself.

    Args:
      problem: The node problem.
      q: The node problem in layers.
      x: float64[C, k], counts of the children.
      u: Multipliers float64[C, m] of every layer, then those of the rows.
      coupling: float64[k], multipliers of the sum of the children.
    """
    up = np.where(np.isfinite(q.least), np.maximum(u[-1], 0), 0.0)
    down = np.where(np.isfinite(q.most), np.maximum(-u[-1], 0), 0.0)
    gradient = -(up - down) @ q.rows
    objective = 0.0
    terms = [term for term in problem.terms if isinstance(term, LeastSquaresTerm)]
    for term, settled in zip(terms, q.settled, strict=True):
        weights = term.weights[:, None]
        sums = group_sums(x, term.groups, term.answers.shape[1])
        objective += float((weights * sums * (0.5 * sums - term.answers)).sum())
        if not settled:  # else the multiplier of the given sums includes it
            gradient += (weights * (sums - term.answers))[:, term.groups]
    equalities = []
    for layer, multipliers in zip(q.layers, u, strict=False):
        if layer.is_exact:
            off = group_sums(x, layer.groups, layer.size) - layer.answers
            equalities.append((multipliers, off))
            gradient -= multipliers[:, layer.groups]
    if q.parent is not None:
        equalities.append((coupling, x.sum(0) - q.parent))
        gradient -= coupling
    gradient[q.base <= FORBIDDEN] = 0.0
    rows = Rows(x @ q.rows.T, q.least, q.most, up - down)
    return judge(Conditions(x, gradient, q.unit, objective, equalities, rows))
