"""Failsafe: the nearest counts of a parent that its children's constraints allow.

If no children keep their constraints and add up to the parent, the equality sum_c x_c = p becomes a
penalty of infinite weight. The parent moves to integers p' with the least sum_j |p'_j - p_j| among
those that some children can add up to, and the node is solved for p'. The geounits above change by
the same difference, so the tree stays consistent. Exact sums of the parent do not change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from das.arrays import FloatArray, IntArray
from das.errors import InfeasibleError, SolverError
from solvers.constraints import (
    given_sums,
    leaf_rows,
    limits,
    linear_rows,
    sum_of_children,
    sums_of_groups,
)
from solvers.problem import LeastSquaresTerm, NodeProblem
from solvers.rounding.mixed_integer import (
    MixedIntegerProgram,
    MixedIntegerSolver,
    Outcome,
    solve_mixed_integer,
)

_TIME_LIMIT = 600.0  # seconds; reaching it is an error, not a solution


@dataclass(frozen=True, eq=False)
class KeptSums:
    """Sums that a parent must keep when its counts change, since they hold in geolevels above.

    Attributes:
      partitions: int64[k] each, the group of every cell; sums of groups are kept.
      rows: int64[k] each, coefficients of sums that are kept.
    """

    partitions: tuple[IntArray, ...] = ()
    rows: tuple[IntArray, ...] = ()


def nearest_parent(
    problem: NodeProblem,
    parent: IntArray,
    kept: KeptSums,
    solve: MixedIntegerSolver = solve_mixed_integer,
) -> IntArray:
    """Return the counts nearest to the parent's, in L1, that children can add up to.

    Cells that no constraint distinguishes form a class. Only the sums of classes matter for
    feasibility. A class that grows or shrinks does so in proportion to its counts. A class without
    persons gets them in the cell with the largest noisy answers.

    Args:
      problem: The node on all cells that may have persons; its parent's counts are not used.
      parent: int64[k], p, zeros included.
      kept: Sums that p must keep.
      solve: Solver of mixed-integer programs.

    Returns:
      int64[k], p'.

    Raises:
      InfeasibleError: No parent with the same kept sums has feasible children.
      SolverError: The solver did not finish; its best point is not used.
    """
    classes, first = _classes(problem, kept)
    sums = np.bincount(classes, parent, len(first)).astype(np.int64)
    program = _program(problem, kept, first, sums)
    solution = solve(program, _TIME_LIMIT)
    if solution.outcome is Outcome.INFEASIBLE:
        raise InfeasibleError(
            f"node {problem.geocode}",
            "no counts of the parent with the same invariants have children that keep theirs",
            remedy="the invariants contradict each other: check them on the input, or impose the "
            "implied constraints",
        )
    if solution.x is None or solution.outcome is not Outcome.SOLVED:
        raise SolverError(
            f"node {problem.geocode}",
            f"the nearest feasible parent was not found in {_TIME_LIMIT:.0f} s",
            got=f"gap {solution.gap:.1e}",
        )
    C, m = problem.n_children, len(first)
    counts = np.rint(solution.x[: C * m]).astype(np.int64).reshape(C, m)
    support = _support(problem)
    shifted: IntArray = parent.copy()
    for index, change in enumerate(counts.sum(0) - sums):
        if change:
            cells = np.flatnonzero(classes == index)
            shifted[cells] = _resized(parent[cells], int(change), support[cells])
    return shifted


def _support(problem: NodeProblem) -> FloatArray:
    """Return float64[k]: sum_c w_c Q'y_c, evidence of the noisy answers for persons in a cell."""
    support = np.zeros(problem.n_cells)
    for term in problem.terms:
        if isinstance(term, LeastSquaresTerm):
            support += term.weights @ term.answers[:, term.groups]
        else:
            support += term.weights @ term.adjoint
    return support


def _classes(problem: NodeProblem, kept: KeptSums) -> tuple[IntArray, IntArray]:
    """Return the class of each cell, and one cell of each class."""
    keys = [*(term.groups for term in problem.exact), *kept.partitions, *kept.rows]
    keys += [row for term in problem.rows for row in term.coefficients]
    if problem.leaves is not None:
        keys.append(problem.leaves.groups)
    if not keys:
        keys.append(np.zeros(problem.n_cells, np.int64))
    _, first, classes = np.unique(np.array(keys).T, axis=0, return_index=True, return_inverse=True)
    return classes.reshape(-1).astype(np.int64), first


def _program(
    problem: NodeProblem, kept: KeptSums, first: IntArray, sums: IntArray
) -> MixedIntegerProgram:
    """Write the program: children x classes, increase and decrease per class, leaves x types."""
    C, m = problem.n_children, len(first)
    n = C * m
    up, down = n, n + m
    leaf_sizes = [0] if problem.leaves is None else [z.least.size for z in problem.leaves.leaves]
    total = n + 2 * m + sum(leaf_sizes)
    rows: list[sp.csr_array] = []
    low: list[FloatArray] = []
    high: list[FloatArray] = []

    def add(block: sp.sparray, start: int, least: npt.ArrayLike, most: npt.ArrayLike) -> None:
        after = total - start - block.shape[1]
        zeros = (sp.csr_array((block.shape[0], width)) for width in (start, after))
        rows.append(sp.hstack([next(zeros), block, next(zeros)], format="csr"))
        low.append(np.asarray(least, float))
        high.append(np.asarray(most, float))

    eye = sp.eye_array(m)
    add(sp.hstack([sum_of_children(C, m), -eye, eye]), 0, sums, sums)
    constraints = [given_sums(term.groups[first], term.targets) for term in problem.exact]
    for row in problem.rows:
        constraints.append(linear_rows(replace(row, coefficients=row.coefficients[:, first])))
    for constraint in constraints:
        add(constraint.A, 0, constraint.lower, constraint.upper)
    fixed = [sums_of_groups(groups[first], int(groups.max()) + 1) for groups in kept.partitions]
    fixed += [sp.csr_array(row[first][None]) for row in kept.rows]
    for M in fixed:
        add(sp.hstack([M, -M]), up, np.zeros(M.shape[0]), np.zeros(M.shape[0]))
    lower, upper = np.zeros(total), np.full(total, np.inf)
    start = down + m
    if problem.leaves is not None:
        for c, leaves in enumerate(problem.leaves.leaves):
            n_leaves, t = leaves.least.size, leaves.least.shape[1]
            types = sums_of_groups(problem.leaves.groups[first], t)
            lower[start : start + n_leaves] = leaves.least.ravel()
            upper[start : start + n_leaves] = leaves.most.ravel()
            by_type, by_pattern = leaf_rows(leaves)
            add(by_pattern, start, limits(leaves.low), limits(leaves.high))
            between = sp.csr_array((t, start - (c + 1) * m))
            add(sp.hstack([types, between, -by_type]), c * m, np.zeros(t), np.zeros(t))
            start += n_leaves
    cost = np.zeros(total)
    cost[up : down + m] = 1.0
    return MixedIntegerProgram(
        c=cost,
        integrality=np.ones(total, bool),
        least=lower,
        most=upper,
        A=sp.csr_array(sp.vstack(rows)),
        lower=np.concatenate(low),
        upper=np.concatenate(high),
    )


def _resized(counts: IntArray, change: int, score: FloatArray) -> IntArray:
    """Add `change` persons to a class by largest remainder; ties by position."""
    total = int(counts.sum())
    if total == 0:
        counts = counts.copy()
        counts[int(score.argmax())] += change
        return counts
    share = counts * ((total + change) / total)
    whole: IntArray = np.floor(share).astype(np.int64)
    missing = total + change - int(whole.sum())
    whole[np.argsort(whole - share, kind="stable")[:missing]] += 1
    return whole
