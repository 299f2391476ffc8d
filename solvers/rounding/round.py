"""Integer stage: round the continuous solution to integers, keeping every constraint.

Every cell is rounded to a neighboring integer, and so is every sum of a rounding query (controlled
rounding). Where the sets with bounded sums nest, this is a network flow (`rounding.flow`): the
continuous solution is a feasible point with integer bounds, so an integral one exists. Where sets
cross, it is a mixed-integer program (`rounding.program`), which may be infeasible. A flow that
ignores leaves comes first: counts that keep them need no program.

If it is infeasible, sums may leave the interval from floor to ceiling of their real values. The
total distance is as small as possible, and the result states it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from das.arrays import FloatArray, IntArray
from das.errors import InfeasibleError, SolverError
from invariants.implied import can_be_assigned
from solvers.problem import NodeProblem, Status
from solvers.rounding.cost import on_grid
from solvers.rounding.flow import solve_flow
from solvers.rounding.mixed_integer import MixedIntegerSolver, Outcome, solve_mixed_integer
from solvers.rounding.program import write_program
from solvers.rounding.sums import Penalty, Sums, gather_sums, with_leaves_as_rows

TIME_LIMIT = 600.0  # seconds of one integer program; reaching it is an error, not a solution

_Solve = Callable[[Sums, IntArray, IntArray, Penalty, IntArray], IntArray | None]


class Method(StrEnum):
    """Method by which a node was rounded."""

    FLOW = "flow"
    MIXED_INTEGER = "mixed-integer"


@dataclass(frozen=True, eq=False)
class Rounding:
    """Rounded counts.

    Attributes:
      counts: int64[C, k], nonnegative.
      widened: Persons by which sums leave the interval from floor to ceiling of their real values;
        the smallest possible total.
      gap: Largest gap of any mixed-integer program; 0 for flows, which are optimal.
      method: Method of rounding.
      status: LIMIT if a mixed-integer program reached its time limit: no solution.
    """

    counts: IntArray
    widened: int
    gap: float
    method: Method
    status: Status


def round_counts(
    problem: NodeProblem,
    values: FloatArray,
    *,
    method: Method | None = None,
    solver: MixedIntegerSolver = solve_mixed_integer,
    time_limit: float = TIME_LIMIT,
) -> Rounding:
    """Round to integers with the least L1 distance, pass by pass.

    Each pass minimises the sum over its queries of |rounded sum - continuous sum|, with continuous
    sums rounded to a ten-thousandth of a person. Its sums are fixed in later passes. The result is
    deterministic and depends on the order of children only if children have equal values, since
    they are sorted by value. Ties between cells depend on the order of the cells, which is that of
    the schema. The last digits of the input do not matter, see `cost.on_grid`.

    Args:
      problem: The node problem; its terms are not used.
      values: float64[C, k], the continuous solution.
      method: Method; None for a flow where the sums are one.
      solver: Solver of mixed-integer programs.
      time_limit: Seconds for all mixed-integer programs of the node together.

    Returns:
      The rounding. Callers must check its status.

    Raises:
      InfeasibleError: No nonnegative integers keep the invariants.
      SolverError: The time limit came before any counts were found, or a solver failed.
    """
    # Children in the order of their values on the grid, first cell first.
    on_steps = np.ascontiguousarray(on_grid(np.maximum(values, 0.0)).astype(">i8"))
    children = np.argsort(on_steps.view(f"V{8 * values.shape[1]}").ravel(), kind="stable")
    sums = gather_sums(problem, values, children)
    if method is None and not sums.is_flow:
        with_rows = with_leaves_as_rows(problem)
        nested = None if with_rows is None else gather_sums(with_rows, values, children)
        sums = sums if nested is None or not nested.is_flow else nested
    counts = None
    if method is None:
        counts = None if sums.is_flow else _round_without_leaves(problem, values, sums)
        is_flow = sums.is_flow or counts is not None
        method = Method.FLOW if is_flow else Method.MIXED_INTEGER
    programs = _Programs(problem.geocode, solver, time.monotonic() + time_limit)
    solve: _Solve = solve_flow if method is Method.FLOW else programs.solve
    low, high = _bounds(sums)
    if counts is None and method is Method.FLOW:
        counts = _round_as_flow(sums, low, high)
    elif counts is None:
        counts = _round_in_passes(sums, low, high, solve)
    if counts is None:
        counts = _round_widened(problem, sums, low, high, solve)
    rounded = sums.of_counts(counts)
    beyond = np.maximum(rounded - sums.next_whole, 0) + np.maximum(sums.whole - rounded, 0)
    return Rounding(
        counts[np.argsort(children)],
        int(beyond[:, sums.rounded].sum()),
        programs.gap,
        method,
        programs.status,
    )


@dataclass
class _Programs:
    """Solver of roundings as mixed-integer programs, with the worst gap and status so far."""

    geocode: str
    solver: MixedIntegerSolver
    deadline: float
    gap: float = 0.0
    status: Status = Status.SOLVED

    def solve(
        self, sums: Sums, low: IntArray, high: IntArray, penalty: Penalty, finest: IntArray
    ) -> IntArray | None:
        """Find integer sums by a mixed-integer program, for sets that need not nest.

        Arguments and result are those of `solve_flow`. Single cells are always considered.
        """
        if (low > high).any():
            return None
        program = write_program(sums, low, high, penalty)
        x, gap, outcome = self.solver(program, self.deadline - time.monotonic())
        if outcome is Outcome.INFEASIBLE:
            return None
        if x is None:
            raise SolverError(
                f"node {self.geocode}",
                "the time limit of the integer stage came before any counts were found",
                remedy="raise the time limit, or round queries whose groups nest",
            )
        self.gap = max(self.gap, gap)
        if outcome is Outcome.LIMIT:
            self.status = Status.LIMIT
        base = low[:, sums.family.n_sets :]
        counts = base + np.rint(x[: base.size]).astype(np.int64).reshape(base.shape)
        return sums.of_counts(counts)[:, finest]


def _bounds(sums: Sums) -> tuple[IntArray, IntArray]:
    """Return the bounds of all sums, int64[C, I] each: rounded sums are floor or ceiling."""
    low = np.where(sums.rounded, np.maximum(sums.least, sums.whole), sums.least)
    high = np.where(sums.rounded, np.minimum(sums.most, sums.next_whole), sums.most)
    return low, high


def _round_without_leaves(problem: NodeProblem, values: FloatArray, sums: Sums) -> IntArray | None:
    """Round by a flow that ignores leaves; None if it is no flow, or its counts break leaves.

    The distance of every pass is at most that with leaves. So counts that keep them are a solution.
    """
    if sums.leaves is None:
        return None
    free = gather_sums(replace(problem, leaves=None), values, sums.children)
    counts = _round_as_flow(free, *_bounds(free)) if free.is_flow else None
    if counts is None:
        return None
    by_type = np.where(sums.types < 0, 0, sums.of_counts(counts)[:, sums.types])
    kept = all(map(can_be_assigned, sums.leaves, by_type))
    return counts if kept else None


def _round_as_flow(sums: Sums, low: IntArray, high: IntArray) -> IntArray | None:
    """Round by flows; None if the bounds are infeasible."""
    counts = _round_coarsely(sums, low, high)
    return _round_in_passes(sums, low, high, solve_flow) if counts is None else counts


def _round_in_passes(sums: Sums, low: IntArray, high: IntArray, solve: _Solve) -> IntArray | None:
    """Round pass after pass over all cells; None if the bounds are infeasible."""
    counts = None
    for number in range(len(sums.weights)):
        counts = solve(sums, low, high, Penalty.of_distance(sums, number), _cells(sums))
        if counts is None:
            return None
        items = np.flatnonzero(sums.weights[number])
        low, high = low.copy(), high.copy()
        low[:, items] = high[:, items] = sums.of_counts(counts)[:, items]
    return counts


def _round_coarsely(sums: Sums, low: IntArray, high: IntArray) -> IntArray | None:
    """Round the sums of the finest query of each pass as if they were cells.

    The last pass rounds the cells. Each pass before it is a relaxation: it costs at most as
    much as the same pass over all cells. So if the last pass is feasible, every pass has the least
    cost. If a pass is infeasible, rounding in passes over all cells may still be feasible.

    Args:
      sums: Sums of the node, with the finest query of each pass.
      low: int64[C, I], lower bounds of all sums, cells included.
      high: int64[C, I], upper bounds of all sums, cells included.

    Returns:
      int64[C, k], rounded counts of all cells; None if a pass is infeasible.
    """
    for number, finest in enumerate(sums.finest):
        rounded = solve_flow(sums, low, high, Penalty.of_distance(sums, number), finest)
        if rounded is None or number + 1 == len(sums.finest):
            return rounded
        items = np.flatnonzero(sums.weights[number])
        low, high = low.copy(), high.copy()
        low[:, items] = high[:, items] = sums.from_parts(items, finest, rounded)
    return None


def _round_widened(
    problem: NodeProblem, sums: Sums, low: IntArray, high: IntArray, solve: _Solve
) -> IntArray:
    """Let as few persons as possible be outside the bounds, then round within those bounds."""
    zero = np.zeros_like(sums.above)
    widening = Penalty(sums.rounded.astype(np.int64), zero, zero)
    widened = solve(sums, sums.least, sums.most, widening, _cells(sums))
    if widened is None:
        raise InfeasibleError(
            f"node {problem.geocode}", "no nonnegative integers keep the invariants"
        )
    needed = sums.of_counts(widened)
    low, high = np.minimum(low, needed), np.maximum(high, needed)
    counts = _round_in_passes(sums, low, high, solve)
    return widened if counts is None else counts


def _cells(sums: Sums) -> IntArray:
    """Return int64[k]: the items that are single cells."""
    return np.arange(sums.family.n_sets, sums.whole.shape[1])
