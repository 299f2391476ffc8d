"""Cutting planes: the continuous stage keeps to what the leaves below each child can hold.

The implied constraints are one pair of bounds per set of types, exponentially many. Few matter: the
stage is solved with the bounds of single types and of all types together, then with those of the
sets its solution misses, until it misses none. Every row is an exact consequence of the leaves, so
rows cut off no counts that could be assigned to them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from das.arrays import BoolArray, FloatArray
from das.errors import SolverError
from invariants.implied import lower_bounds, most_violated, upper_bounds
from solvers.problem import Estimate, LeavesTerm, NodeProblem, RowsTerm, Status, group_sums

_TOLERANCE = 1e-6  # in persons, over max(1, largest sum of a type)


@dataclass(frozen=True, eq=False)
class CutEstimate:
    """A continuous solution whose sums by type can be assigned to the leaves.

    Attributes:
      estimate: The solution.
      problem: The problem with the cuts among its rows.
      cuts: Sets of types whose bounds were added because a solution missed them.
      rounds: Times the continuous stage was solved.
    """

    estimate: Estimate
    problem: NodeProblem
    cuts: int
    rounds: int


def solve_with_cuts(problem: NodeProblem, solve: Callable[[NodeProblem], Estimate]) -> CutEstimate:
    """Solve the continuous stage, adding the most violated bounds until none is violated.

    A set found for one child bounds all children. Ends because there are finitely many sets and
    each is added once; a set that is violated again is missed by the tolerance of `solve` only.

    Args:
      problem: A node problem with leaves.
      solve: Solves the continuous stage with rows, without looking at leaves.

    Returns:
      The last estimate, not solved if `solve` did not solve it.

    Raises:
      SolverError: The problem has no leaves.
    """
    if problem.leaves is None:
        raise SolverError(f"node {problem.geocode}", "has no leaves to make cuts from")
    leaves = problem.leaves
    sets = np.eye(leaves.leaves[0].n_types, dtype=np.bool_)
    if not any(len(np.unique(term.groups)) == 1 for term in problem.exact):
        sets = np.vstack((sets, np.ones_like(sets[:1])))  # the total is not exact
    first = len(sets)
    rounds = 0
    while True:
        cut = replace(problem, rows=(*problem.rows, bounds_of(leaves, sets)), leaves=None)
        estimate = solve(cut)
        rounds += 1
        if estimate.status is Status.SOLVED:
            found = _missed_sets(leaves, estimate.values)
            new = [s for s in found if not (s == sets).all(1).any()]
        if estimate.status is not Status.SOLVED or not new:
            done = replace(cut, leaves=leaves)
            return CutEstimate(estimate, done, len(sets) - first, rounds)
        sets = np.concatenate((sets, new))


def _missed_sets(term: LeavesTerm, values: FloatArray) -> BoolArray:
    """Per child whose sums by type cannot be assigned, the set of types that shows it best.

    Args:
      term: The leaves of every child.
      values: float64[C, k].

    Returns:
      bool[m, t], distinct.
    """
    sums = group_sums(values, term.groups, term.leaves[0].n_types)
    found = []
    for leaves, counts in zip(term.leaves, sums, strict=True):
        if leaves.n_rows == 1:
            continue  # single types and all together say everything about one row
        cut = most_violated(leaves, counts)
        if cut.violation > _TOLERANCE * max(1.0, float(counts.max(initial=0))):
            found.append(cut.chosen)
    return np.unique(np.array(found, np.bool_).reshape(-1, sums.shape[1]), axis=0)


def bounds_of(term: LeavesTerm, sets: BoolArray) -> RowsTerm:
    """The bounds of some sets of types in every child.

    Args:
      term: The leaves of every child.
      sets: bool[m, t].

    Returns:
      m rows; their coefficients are 1 on the live cells of the types of the set.
    """
    return RowsTerm(
        sets[:, term.groups].astype(np.int64),
        np.array([lower_bounds(leaves, sets) for leaves in term.leaves]),
        np.array([upper_bounds(leaves, sets) for leaves in term.leaves]),
        tuple(f"types {np.flatnonzero(chosen).tolist()}" for chosen in sets),
    )
