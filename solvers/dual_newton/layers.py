"""Node problem as layers of partitions over single cells: the lifted form of the objective.

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
from solvers.least_squares.blocks import Fixed
from solvers.problem import LeastSquaresTerm, NodeProblem, coarsening

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
