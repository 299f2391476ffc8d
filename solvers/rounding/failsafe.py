"""Failsafe: the nearest counts of a parent that its children's promises allow.

Where no children keep their promises and add up to the parent, the equality sum_c x_c = p becomes
a penalty of infinite weight: the parent moves to integers p' with the least sum_j |p'_j - p_j|
among those that some children can add up to, and the node is solved for p'. The geounits above
take up the difference, so the tree stays consistent; what is exact for the parent stays exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from das.arrays import FloatArray, IntArray
from das.errors import InfeasibleError, SolverError
from solvers.problem import NO_LIMIT, ExactTerm, LeavesTerm, RowsTerm
from solvers.rounding.mixed_integer import (
    MixedIntegerProgram,
    MixedIntegerSolver,
    Outcome,
    solve_mixed_integer,
)

_TIME_LIMIT = 600.0  # seconds; reaching it is an error, not a solution


@dataclass(frozen=True, eq=False)
class Promises:
    """What the children of one parent promise, on all cells the schema allows them.

    Attributes:
      geocode: The parent's label; not interpreted.
      parent: int64[n], the parent's counts, zeros included.
      exact: Equality invariants of the children.
      rows: Linear rows of the children.
      leaves: Promises about the leaves below the children, or None.
      held: Partitions int64[n] of the cells whose sums must stay what they are in the parent.
      score: float64[n], how much the measurements speak for persons in a cell; decides where
        persons go that no live cell can take.
      held_rows: Coefficients int64[n] of rows whose sums must stay what they are in the parent.
    """

    geocode: str
    parent: IntArray
    exact: tuple[ExactTerm, ...]
    rows: tuple[RowsTerm, ...]
    leaves: LeavesTerm | None
    held: tuple[IntArray, ...]
    score: FloatArray
    held_rows: tuple[IntArray, ...] = ()

    @property
    def n_children(self) -> int:
        """C; promises without any term have none to break."""
        for term in self.exact:
            return len(term.targets)
        for row in self.rows:
            return len(row.least)
        return len(self.leaves.leaves) if self.leaves is not None else 0


def nearest_parent(promises: Promises, solve: MixedIntegerSolver = solve_mixed_integer) -> IntArray:
    """The counts nearest to the parent's, in L1, that children can add up to.

    Cells that every promise treats alike form a class; only the classes' sums matter for
    feasibility. A class that grows or shrinks does so in proportion to its counts; one that was
    empty gets its persons in the cell that the measurements speak for most.

    Args:
      promises: What the children promise.
      solve: Solver of mixed-integer programs.

    Returns:
      int64[n], p'.

    Raises:
      InfeasibleError: No parent with the same held sums has such children.
      SolverError: The solver did not finish; its best point is not used.
    """
    classes, first = _classes(promises)
    sums = np.bincount(classes, promises.parent, len(first)).astype(np.int64)
    program = _program(promises, first, sums)
    solution = solve(program, _TIME_LIMIT)
    if solution.outcome is Outcome.INFEASIBLE:
        raise InfeasibleError(
            f"node {promises.geocode}",
            "no counts of the parent with the same invariants have children that keep theirs",
            remedy="the invariants contradict each other: check them on the input, or impose the "
            "implied constraints",
        )
    if solution.x is None or solution.outcome is not Outcome.SOLVED:
        raise SolverError(
            f"node {promises.geocode}",
            f"the nearest feasible parent was not found in {_TIME_LIMIT:.0f} s",
            got=f"gap {solution.gap:.1e}",
        )
    C, m = promises.n_children, len(first)
    dealt = np.rint(solution.x[: C * m]).astype(np.int64).reshape(C, m)
    moved: IntArray = promises.parent.copy()
    for index, change in enumerate(dealt.sum(0) - sums):
        if change:
            cells = np.flatnonzero(classes == index)
            moved[cells] = _resized(promises.parent[cells], int(change), promises.score[cells])
    return moved


def _classes(promises: Promises) -> tuple[IntArray, IntArray]:
    """Class of each cell, and one cell of each class."""
    seen = [term.groups for term in promises.exact] + list(promises.held)
    seen += promises.held_rows
    seen += [row for term in promises.rows for row in term.coefficients]
    if promises.leaves is not None:
        seen.append(promises.leaves.groups)
    if not seen:
        seen.append(np.zeros(len(promises.parent), np.int64))
    _, first, classes = np.unique(np.array(seen).T, axis=0, return_index=True, return_inverse=True)
    return classes.reshape(-1).astype(np.int64), first


def _program(promises: Promises, first: IntArray, sums: IntArray) -> MixedIntegerProgram:
    """Variables: children x classes, up and down of every class, leaves x types per child."""
    C, m = promises.n_children, len(first)
    n = C * m
    up, down = n, n + m
    leaf_sizes = [0] if promises.leaves is None else [z.least.size for z in promises.leaves.leaves]
    total = n + 2 * m + sum(leaf_sizes)
    rows: list[sp.csr_matrix] = []
    low: list[FloatArray] = []
    high: list[FloatArray] = []

    def add(block: sp.spmatrix, start: int, least: npt.ArrayLike, most: npt.ArrayLike) -> None:
        wide = sp.hstack(
            [
                sp.csr_matrix((block.shape[0], start)),
                block,
                sp.csr_matrix((block.shape[0], total - start - block.shape[1])),
            ],
            format="csr",
        )
        rows.append(wide)
        low.append(np.asarray(least, float))
        high.append(np.asarray(most, float))

    balance = sp.hstack([sp.kron(np.ones((1, C)), sp.eye(m)), -sp.eye(m), sp.eye(m)])
    add(balance, 0, sums, sums)
    for term in promises.exact:
        M = _sums(term.groups[first], term.targets.shape[1])
        add(sp.kron(sp.eye(C), M), 0, term.targets.ravel(), term.targets.ravel())
    for row in promises.rows:
        add(
            sp.kron(sp.eye(C), sp.csr_matrix(row.coefficients[:, first])),
            0,
            np.where(row.least <= -NO_LIMIT, -np.inf, row.least).ravel(),
            np.where(row.most >= NO_LIMIT, np.inf, row.most).ravel(),
        )
    held = [_sums(groups[first], int(groups.max()) + 1) for groups in promises.held]
    held += [sp.csr_matrix(row[first][None]) for row in promises.held_rows]
    for M in held:
        add(sp.hstack([M, -M]), up, np.zeros(M.shape[0]), np.zeros(M.shape[0]))
    lower, upper = np.zeros(total), np.full(total, np.inf)
    start = down + m
    if promises.leaves is not None:
        for c, leaves in enumerate(promises.leaves.leaves):
            R, t = leaves.least.shape
            lower[start : start + R * t] = leaves.least.ravel()
            upper[start : start + R * t] = leaves.most.ravel()
            add(sp.kron(sp.eye(R), np.ones((1, t))), start, leaves.low, leaves.high)
            types = _sums(promises.leaves.groups[first], t)
            link = sp.lil_matrix((t, total))
            link[:, c * m : (c + 1) * m] = types
            link[:, start : start + R * t] = -sp.kron(np.ones((1, R)), sp.eye(t))
            add(sp.csr_matrix(link), 0, np.zeros(t), np.zeros(t))
            start += R * t
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


def _sums(groups: IntArray, size: int) -> sp.csr_matrix:
    cells = len(groups)
    return sp.csr_matrix((np.ones(cells), (groups, np.arange(cells))), shape=(size, cells))


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
