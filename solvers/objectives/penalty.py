"""Node problem with a penalty for leaving the parent: the failsafe of the 2018 and 2020 systems.

If no children keep their constraints and add up to the parent p, the equality is relaxed:

    minimise    sum_c ( 1/2 x_c' G_c x_c - b_c' x_c )  +  w/2 |sum_c x_c - p|^2,
    subject to  x_c >= 0, all constraints of the children, and the sums that p must keep.

It is a node problem again. With K >= sum_c x_c in every cell, the remainder z = K - sum_c x_c is
one more child. All children sum to K, z is fitted to K - p with weight w, and z keeps the sums that
the parent must keep. The solution does not depend on K if no cell of z is used up, since the
objective is strictly convex. Source: Leclerc (JSM 2019), slide 20, who states the penalty without a
norm or a weight.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from das.arrays import FloatArray, IntArray
from invariants.leaves import Leaves
from solvers.problem import (
    NO_LIMIT,
    ExactTerm,
    GeneralTerm,
    LeastSquaresTerm,
    LeavesTerm,
    NodeProblem,
    RowsTerm,
    Term,
    coarsening,
    group_sums,
)
from solvers.rounding.failsafe import KeptSums


def loosen(
    problem: NodeProblem, parent: IntArray, kept: KeptSums, *, room: int, weight: float
) -> NodeProblem:
    """Return the node with one more child, the remainder of the parent's counts plus some room.

    Args:
      problem: The node; its parent's counts are not used.
      parent: int64[k], p, zeros included.
      kept: Sums that p must keep.
      room: K - p in every cell, persons; at least 1.
      weight: w, relative to the largest weight of a single cell in the noisy answers of a child.

    Returns:
      A node of C + 1 children and the parent K, to be solved in a single pass.
    """
    whole = parent + room
    stiffness = weight * max(float(_diagonal(term).max(initial=0.0)) for term in problem.terms)
    C, k = problem.n_children, problem.n_cells
    answers, weights = np.zeros((C + 1, k)), np.zeros(C + 1)
    answers[C], weights[C] = room, stiffness  # K - p
    leaves = problem.leaves
    return replace(
        problem,
        parent=whole,
        terms=(
            *map(_with_unmeasured, problem.terms),
            LeastSquaresTerm(np.arange(k), answers, weights),
        ),
        exact=tuple(_with_remainder(term, whole) for term in problem.exact),
        rows=(*map(_with_unbounded, problem.rows), *_kept_rows(problem, whole, parent, kept)),
        leaves=None if leaves is None else _with_open_leaves(leaves, whole),
        order=(),
    )


def _diagonal(term: Term) -> FloatArray:
    """Return float64[C] or scalar: the largest weight of a single cell in each child."""
    if isinstance(term, LeastSquaresTerm):
        return term.weights
    squares = np.diag(term.gram) if isinstance(term, GeneralTerm) else term.squares
    return term.weights * float(squares.max(initial=0.0))


def _with_unmeasured(term: Term) -> Term:
    """Return the term of the children, extended by a child that was not measured."""
    weights = np.append(term.weights, 0.0)
    if isinstance(term, LeastSquaresTerm):
        return replace(term, answers=_with_row(term.answers), weights=weights)
    return replace(term, adjoint=_with_row(term.adjoint), weights=weights)


def _with_row(values: FloatArray) -> FloatArray:
    return np.vstack([values, np.zeros(values.shape[1])])


def _with_remainder(term: ExactTerm, whole: IntArray) -> ExactTerm:
    """Return the exact sums of the children, and the sums of the remainder of K."""
    sums = group_sums(whole[None], term.groups, term.targets.shape[1])[0]
    return replace(term, targets=np.vstack([term.targets, sums - term.targets.sum(0)]))


def _with_unbounded(term: RowsTerm) -> RowsTerm:
    """Return the rows of the children, without bounds on the remainder."""
    free = np.full(len(term.names), NO_LIMIT)
    return replace(term, least=np.vstack([term.least, -free]), most=np.vstack([term.most, free]))


def _with_open_leaves(term: LeavesTerm, whole: IntArray) -> LeavesTerm:
    """Return the leaves of the children, and leaves without bounds for the remainder."""
    types = term.leaves[0].n_types
    most = group_sums(whole[None], term.groups, types)
    least = np.zeros_like(most)
    rest = Leaves(least, most, least.sum(1), most.sum(1))
    return replace(term, leaves=(*term.leaves, rest))


def _kept_rows(
    problem: NodeProblem, whole: IntArray, parent: IntArray, kept: KeptSums
) -> tuple[RowsTerm, ...]:
    """Return the kept sums of the parent as rows of the remainder, except sums of exact terms."""
    rows = list(kept.rows)
    for groups in kept.partitions:
        if any(coarsening(term.groups, groups) is not None for term in problem.exact):
            continue
        rows += [(groups == group).astype(np.int64) for group in np.unique(groups)]
    if not rows:
        return ()
    coefficients = np.array(rows)
    least = np.full((problem.n_children + 1, len(rows)), -NO_LIMIT)
    most = np.full_like(least, NO_LIMIT)
    least[-1] = most[-1] = coefficients @ (whole - parent)
    return (RowsTerm(coefficients, least, most, ("sum that the parent keeps",) * len(rows)),)
