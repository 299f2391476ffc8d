"""A node whose equality with the parent is a penalty: the failsafe of the 2018 and 2020 systems.

Where no children keep their constraints and add up to the parent p, the equality gives way:

    minimise    sum_c ( 1/2 x_c' G_c x_c - b_c' x_c )  +  w/2 |sum_c x_c - p|^2,
    subject to  x_c >= 0, all constraints of the children, and the sums that p must keep.

It is a node problem again. With K >= sum_c x_c in every cell, what is left, z = K - sum_c x_c, is
one more child: all sum to K, z is fitted to K - p with weight w, and it must keep what the parent
must. K is none of the problem: where no cell of z is used up, the solution is that without K, since
the objective is strictly convex. Source: Leclerc (JSM 2019), slide 20, who states the penalty
without a norm or a weight.
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
    KroneckerTerm,
    LeastSquaresTerm,
    LeavesTerm,
    NodeProblem,
    RowsTerm,
    Term,
    coarsening,
    group_sums,
)
from solvers.rounding.failsafe import Kept


def loosen(
    problem: NodeProblem, parent: IntArray, kept: Kept, *, room: int, weight: float
) -> NodeProblem:
    """The node with one more child, what is left of the parent's counts and some room.

    Args:
      problem: The node; its parent's counts are not used.
      parent: int64[k], p, zeros included.
      kept: What p must keep.
      room: K - p in every cell, persons; at least 1.
      weight: w, over the largest weight that the noisy answers of a child give to a single cell.

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
            *map(_with_nothing, problem.terms),
            LeastSquaresTerm(np.arange(k), answers, weights),
        ),
        exact=tuple(_with_rest(term, whole) for term in problem.exact),
        rows=(*map(_with_free, problem.rows), *_kept_rows(problem, whole, parent, kept)),
        leaves=None if leaves is None else _with_anybody(leaves, whole),
        order=(),
    )


def _diagonal(term: Term) -> FloatArray:
    """float64: the largest weight of a single cell that a term gives in each child."""
    if isinstance(term, LeastSquaresTerm):
        return term.weights
    squares = np.diag(term.gram) if isinstance(term, GeneralTerm) else term.squares
    return term.weights * float(squares.max(initial=0.0))


def _with_nothing(term: Term) -> Term:
    """The term of the children, with a child that was not asked."""
    weights = np.append(term.weights, 0.0)
    if isinstance(term, LeastSquaresTerm):
        return replace(term, answers=_with_row(term.answers), weights=weights)
    if isinstance(term, KroneckerTerm):
        return KroneckerTerm(term.query, term.cells, _with_row(term.adjoint), weights)
    return replace(term, adjoint=_with_row(term.adjoint), weights=weights)


def _with_row(values: FloatArray) -> FloatArray:
    return np.vstack([values, np.zeros(values.shape[1])])


def _with_rest(term: ExactTerm, whole: IntArray) -> ExactTerm:
    """The children's exact sums, and what they leave of K."""
    sums = group_sums(whole[None], term.groups, term.targets.shape[1])[0]
    return replace(term, targets=np.vstack([term.targets, sums - term.targets.sum(0)]))


def _with_free(term: RowsTerm) -> RowsTerm:
    """The children's rows, none of which binds what is left."""
    free = np.full(len(term.names), NO_LIMIT)
    return replace(term, least=np.vstack([term.least, -free]), most=np.vstack([term.most, free]))


def _with_anybody(term: LeavesTerm, whole: IntArray) -> LeavesTerm:
    """The children's leaves, and one for what is left, which anybody may be in."""
    types = term.leaves[0].n_types
    most = group_sums(whole[None], term.groups, types)
    nobody = np.zeros_like(most)
    rest = Leaves(nobody, most, nobody.sum(1), most.sum(1))
    return replace(term, leaves=(*term.leaves, rest))


def _kept_rows(
    problem: NodeProblem, whole: IntArray, parent: IntArray, kept: Kept
) -> tuple[RowsTerm, ...]:
    """What the parent must keep, as rows of what is left; not what the children's sums imply."""
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
    return (RowsTerm(coefficients, least, most, ("what holds above",) * len(rows)),)
