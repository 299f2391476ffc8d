"""Cutting planes: the continuous stage with the bounds of the leaves below each child.

The implied constraints are one pair of bounds per set of types, exponentially many. Few matter. The
stage is solved with the bounds of single types and of all types together, then also with those of
the sets that its solution violates, until it violates none. Every row follows exactly from the
leaves, so rows exclude no counts that can be assigned to the leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from das.arrays import BoolArray, FloatArray
from das.errors import SolverError
from invariants.implied import lower_bounds, most_violated, upper_bounds
from solvers.problem import Estimate, LeavesTerm, NodeProblem, RowsTerm, Status, group_sums

_TOLERANCE = 1e-6  # in persons, over max(1, largest sum of a type); default, not measured


@dataclass(frozen=True, eq=False)
class CutEstimate:
    """Continuous solution whose sums by type can be assigned to the leaves.

    Attributes:
      estimate: The solution.
      problem: The problem with the cuts among its rows.
      cuts: Number of sets of types whose bounds were added.
      rounds: Number of times the continuous stage was solved.
    """

    estimate: Estimate
    problem: NodeProblem
    cuts: int
    rounds: int


def solve_with_cuts(problem: NodeProblem, solve: Callable[[NodeProblem], Estimate]) -> CutEstimate:
    """Solve the continuous stage, adding the most violated bounds until none is violated.

    A set found for one child bounds all children. The loop ends, since there are finitely many sets
    and each is added once. A set that is violated again is violated within the tolerance of `solve`
    only.

    Args:
      problem: A node problem with leaves.
      solve: Solver of the continuous stage with rows, which ignores leaves.

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
            violated = _violated_sets(leaves, estimate.values)
            new = [s for s in violated if not (s == sets).all(1).any()]
        if estimate.status is not Status.SOLVED or not new:
            return CutEstimate(estimate, replace(cut, leaves=leaves), len(sets) - first, rounds)
        sets = np.concatenate((sets, new))


def _violated_sets(term: LeavesTerm, values: FloatArray) -> BoolArray:
    """Return the most violated set of types of every child whose sums cannot be assigned.

    Args:
      term: The leaves of every child.
      values: float64[C, k], counts of the children.

    Returns:
      bool[m, t], distinct.
    """
    sums = group_sums(values, term.groups, term.leaves[0].n_types)
    violated = []
    for leaves, counts in zip(term.leaves, sums, strict=True):
        if leaves.n_rows == 1:
            continue  # bounds of single types and of all types suffice for one row
        cut = most_violated(leaves, counts)
        if cut.violation > _TOLERANCE * max(1.0, float(counts.max(initial=0))):
            violated.append(cut.chosen)
    return np.unique(np.array(violated, np.bool_).reshape(-1, sums.shape[1]), axis=0)


def bounds_of(term: LeavesTerm, sets: BoolArray) -> RowsTerm:
    """Return the bounds of some sets of types in every child as rows.

    Args:
      term: The leaves of every child.
      sets: bool[m, t], m sets of types.

    Returns:
      m rows; their coefficients are 1 on the live cells of the types of the set.
    """
    return RowsTerm(
        sets[:, term.groups].astype(np.int64),
        np.array([lower_bounds(leaves, sets) for leaves in term.leaves]),
        np.array([upper_bounds(leaves, sets) for leaves in term.leaves]),
        tuple(f"types {np.flatnonzero(chosen).tolist()}" for chosen in sets),
    )
