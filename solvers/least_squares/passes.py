"""Multi-pass least squares: some answers first, then the rest around them.

A pass minimises the squares of its own queries alone. Its answers are unique even where its
queries are short of full column rank, and they become equalities of the passes after it. The
solution of a pass satisfies them and everything else exactly as well as its certificate says, so
later passes are feasible within a tolerance that was found, not chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from das.arrays import FloatArray, IntArray
from das.errors import SolverError
from solvers.problem import (
    Estimate,
    ExactTerm,
    LeastSquaresTerm,
    LeavesTerm,
    NodeProblem,
    RowsTerm,
    Status,
    Term,
    group_sums,
)

Fixed = tuple[tuple[IntArray, FloatArray], ...]
Solve = Callable[[NodeProblem, float, Fixed], Estimate]

_MOST_PROXIMAL_STEPS = 60  # then the status is LIMIT
_PROXIMAL_WEIGHT = 1e-3  # of the smallest weight of the pass; steps shrink the error by as much


def solve_in_passes(problem: NodeProblem, tolerance: float, solve: Solve) -> Estimate:
    """Solve the continuous stage pass by pass, in the problem's `order`.

    Args:
      problem: The node problem; the last pass of its order takes all terms not named before it.
      tolerance: Largest accepted certificate residual of every pass.
      solve: Solves one least-squares problem with further partition sums fixed, given as pairs of
        groups int64[k] and targets float64[C, m].

    Returns:
      The estimate of the last pass; the first one that was not solved, if any.
    """
    fixed: Fixed = ()
    for indices in problem.order[:-1]:
        terms = [problem.terms[index] for index in indices]
        kept = [_partition(problem, term) for term in terms]
        estimate, first = _solve_coarse(problem, kept, fixed, tolerance, solve)
        if estimate.status is not Status.SOLVED:
            return estimate
        for term in kept:
            sums = group_sums(estimate.values, term.groups[first], _size(term))
            fixed = (*fixed, (term.groups, sums))
    last = replace(problem, terms=tuple(problem.terms[i] for i in problem.order[-1]), order=())
    return solve(_with_full_rank(last, problem), tolerance, fixed)


def _partition(problem: NodeProblem, term: Term) -> LeastSquaresTerm:
    """A term for a pass before the last, with a weight in every child.

    Targets of a subtree may give a query no weight of its own; then its answers count as little as
    the least that do.
    """
    if not isinstance(term, LeastSquaresTerm):
        raise SolverError(
            f"node {problem.geocode}",
            "only partition queries can be fixed by an earlier pass",
            remedy="leave the planned queries of this geolevel to the last pass",
        )
    least = np.min([np.where(t.weights > 0, t.weights, np.inf) for t in problem.terms], axis=0)
    return replace(term, weights=np.where(term.weights > 0, term.weights, least))


def _size(term: LeastSquaresTerm) -> int:
    return int(term.answers.shape[1])


def _with_full_rank(last: NodeProblem, problem: NodeProblem) -> NodeProblem:
    """The last pass with the terms of earlier ones, if it needs them for full column rank.

    Fixed sums make the terms of earlier passes constants, so adding them changes no solution.
    """
    separates = any(
        isinstance(t, LeastSquaresTerm) and _size(t) == problem.n_cells and (t.weights > 0).all()
        for t in last.terms
    )
    return last if separates else replace(problem, order=())


def _solve_coarse(
    problem: NodeProblem,
    terms: list[LeastSquaresTerm],
    fixed: Fixed,
    tolerance: float,
    solve: Solve,
) -> tuple[Estimate, IntArray]:
    """Solve a pass on the coarsest partition of the cells that its terms and constraints can see.

    Where the terms are short of full column rank on it, proximal steps stand in: each adds a small
    square around the last point, and their limit solves the pass without it (Rockafellar, SIAM
    J. Control Optim. 14 (1976), Theorem 2: linear convergence at the rate of the added weight).

    Returns:
      An estimate of the groups, and the first cell of each group.
    """
    C, k = problem.n_children, problem.n_cells
    seen = [t.groups for t in terms] + [e.groups for e in problem.exact] + [g for g, _ in fixed]
    seen += [row for rows in problem.rows for row in rows.coefficients]
    if problem.leaves is not None:
        seen.append(problem.leaves.groups)
    _, first, groups = np.unique(np.array(seen).T, axis=0, return_index=True, return_inverse=True)
    groups = groups.reshape(k).astype(np.int64)
    m = len(first)
    coarse = NodeProblem(
        problem.geocode,
        m,
        None if problem.parent is None else group_sums(problem.parent[None], groups, m)[0],
        tuple(LeastSquaresTerm(t.groups[first], t.answers, t.weights) for t in terms),
        tuple(ExactTerm(e.groups[first], e.targets) for e in problem.exact),
        (),
        tuple(RowsTerm(r.coefficients[:, first], r.least, r.most, r.names) for r in problem.rows),
        None
        if problem.leaves is None
        else LeavesTerm(problem.leaves.groups[first], problem.leaves.leaves),
    )
    within = tuple((g[first], targets) for g, targets in fixed)
    if any(_size(term) == m for term in terms):
        return solve(coarse, tolerance, within), first
    center = (
        np.zeros((C, m))
        if problem.parent is None
        else np.outer(np.full(C, 1 / C), np.asarray(coarse.parent, float))
    )
    weight = _PROXIMAL_WEIGHT * np.min([t.weights for t in terms], axis=0)
    answers = _answers(terms, center, first)
    for _ in range(_MOST_PROXIMAL_STEPS):
        near = LeastSquaresTerm(np.arange(m), center, weight)
        estimate = solve(replace(coarse, terms=(*coarse.terms, near)), tolerance, within)
        if estimate.status is not Status.SOLVED:
            return estimate, first
        center, before = estimate.values, answers
        answers = _answers(terms, center, first)
        if np.abs(answers - before).max() <= tolerance * max(1.0, np.abs(answers).max()):
            return estimate, first
    return replace(estimate, status=Status.LIMIT), first


def _answers(terms: list[LeastSquaresTerm], values: FloatArray, first: IntArray) -> FloatArray:
    """Answers of all terms side by side."""
    return np.hstack([group_sums(values, t.groups[first], _size(t)) for t in terms])
