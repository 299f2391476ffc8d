"""Failsafe: the nearest counts of a parent that its children's constraints allow.

Where no children keep their constraints and add up to the parent, the equality sum_c x_c = p
becomes a penalty of infinite weight: the parent moves to integers p' with the least
sum_j |p'_j - p_j| among those that some children can add up to, and the node is solved for p'. The
geounits above take up the difference, so the tree stays consistent; what is exact for the parent
stays exact.
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
    linear_rows,
    sum_of_children,
    sums_of_groups,
)
from solvers.problem import ExactTerm, LeavesTerm, RowsTerm
from solvers.rounding.mixed_integer import (
    MixedIntegerProgram,
    MixedIntegerSolver,
    Outcome,
    solve_mixed_integer,
)

_TIME_LIMIT = 600.0  # seconds; reaching it is an error, not a solution


@dataclass(frozen=True, eq=False)
class FamilyConstraints:
    """Constraints on the children of one parent, on all cells the schema allows them.

    Attributes:
      geocode: The parent's label; not interpreted.
      parent: int64[n], the parent's counts, zeros included.
      exact: Equality invariants of the children.
      rows: Linear rows of the children.
      leaves: Constraints on the leaves below the children, or None.
      fixed: Partitions int64[n] of the cells whose sums must stay what they are in the parent.
      score: float64[n], how much the measurements speak for persons in a cell; decides where
        persons go that no live cell can take.
      fixed_rows: Coefficients int64[n] of rows whose sums must stay what they are in the parent.
    """

    geocode: str
    parent: IntArray
    exact: tuple[ExactTerm, ...]
    rows: tuple[RowsTerm, ...]
    leaves: LeavesTerm | None
    fixed: tuple[IntArray, ...]
    score: FloatArray
    fixed_rows: tuple[IntArray, ...] = ()

    @property
    def n_children(self) -> int:
        """C; 0 where nothing constrains the children."""
        for term in self.exact:
            return len(term.targets)
        for row in self.rows:
            return len(row.least)
        return len(self.leaves.leaves) if self.leaves is not None else 0


def nearest_parent(
    family: FamilyConstraints, solve: MixedIntegerSolver = solve_mixed_integer
) -> IntArray:
    """The counts nearest to the parent's, in L1, that children can add up to.

    Cells that every constraint treats alike form a class; only the classes' sums matter for
    feasibility. A class that grows or shrinks does so in proportion to its counts; one that was
    empty gets its persons in the cell that the measurements speak for most.

    Args:
      family: The parent and the constraints on its children.
      solve: Solver of mixed-integer programs.

    Returns:
      int64[n], p'.

    Raises:
      InfeasibleError: No parent with the same held sums has such children.
      SolverError: The solver did not finish; its best point is not used.
    """
    classes, first = _classes(family)
    sums = np.bincount(classes, family.parent, len(first)).astype(np.int64)
    program = _program(family, first, sums)
    solution = solve(program, _TIME_LIMIT)
    if solution.outcome is Outcome.INFEASIBLE:
        raise InfeasibleError(
            f"node {family.geocode}",
            "no counts of the parent with the same invariants have children that keep theirs",
            remedy="the invariants contradict each other: check them on the input, or impose the "
            "implied constraints",
        )
    if solution.x is None or solution.outcome is not Outcome.SOLVED:
        raise SolverError(
            f"node {family.geocode}",
            f"the nearest feasible parent was not found in {_TIME_LIMIT:.0f} s",
            got=f"gap {solution.gap:.1e}",
        )
    C, m = family.n_children, len(first)
    counts = np.rint(solution.x[: C * m]).astype(np.int64).reshape(C, m)
    shifted: IntArray = family.parent.copy()
    for index, change in enumerate(counts.sum(0) - sums):
        if change:
            cells = np.flatnonzero(classes == index)
            shifted[cells] = _resized(family.parent[cells], int(change), family.score[cells])
    return shifted


def _classes(family: FamilyConstraints) -> tuple[IntArray, IntArray]:
    """Class of each cell, and one cell of each class."""
    seen = [term.groups for term in family.exact] + list(family.fixed)
    seen += family.fixed_rows
    seen += [row for term in family.rows for row in term.coefficients]
    if family.leaves is not None:
        seen.append(family.leaves.groups)
    if not seen:
        seen.append(np.zeros(len(family.parent), np.int64))
    _, first, classes = np.unique(np.array(seen).T, axis=0, return_index=True, return_inverse=True)
    return classes.reshape(-1).astype(np.int64), first


def _program(family: FamilyConstraints, first: IntArray, sums: IntArray) -> MixedIntegerProgram:
    """Variables: children x classes, up and down of every class, leaves x types per child."""
    C, m = family.n_children, len(first)
    n = C * m
    up, down = n, n + m
    leaf_sizes = [0] if family.leaves is None else [z.least.size for z in family.leaves.leaves]
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
    constraints = [given_sums(term.groups[first], term.targets) for term in family.exact]
    for row in family.rows:
        constraints.append(linear_rows(replace(row, coefficients=row.coefficients[:, first])))
    for one in constraints:
        add(one.A, 0, one.lower, one.upper)
    fixed = [sums_of_groups(groups[first], int(groups.max()) + 1) for groups in family.fixed]
    fixed += [sp.csr_array(row[first][None]) for row in family.fixed_rows]
    for M in fixed:
        add(sp.hstack([M, -M]), up, np.zeros(M.shape[0]), np.zeros(M.shape[0]))
    lower, upper = np.zeros(total), np.full(total, np.inf)
    start = down + m
    if family.leaves is not None:
        for c, leaves in enumerate(family.leaves.leaves):
            n_leaves, t = leaves.least.size, leaves.least.shape[1]
            types = sums_of_groups(family.leaves.groups[first], t)
            lower[start : start + n_leaves] = leaves.least.ravel()
            upper[start : start + n_leaves] = leaves.most.ravel()
            own = leaf_rows(leaves)
            add(own.by_pattern, start, own.low, own.high)
            between = sp.csr_array((t, start - (c + 1) * m))
            add(sp.hstack([types, between, -own.by_type]), c * m, np.zeros(t), np.zeros(t))
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
    """Counts of a class with `change` more persons, by largest remainder; ties by position."""
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
