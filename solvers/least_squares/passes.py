"""Multi-pass least squares: some answers first, then the rest around them.

A pass minimises the squares of its queries only. Its answers are unique even where its queries lack
full column rank, and they become equalities of later passes. The solution of a pass satisfies all
constraints within the residual of its certificate, so later passes are feasible within that
residual. If answers are sums of finer answers of the same pass, only the finer ones are fixed.

Alternatively a pass is rounded before the next, as in 2020: its answers become integers, which
later passes keep exactly.
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
    Fixed,
    LeastSquaresTerm,
    LeavesTerm,
    NodeProblem,
    RoundingQuery,
    RowsTerm,
    Status,
    Term,
    coarsening,
    group_sums,
)

Solve = Callable[[NodeProblem, float, Fixed], Estimate]
Count = Callable[[NodeProblem], IntArray]

_MOST_PROXIMAL_STEPS = 60  # then the status is LIMIT; default, not measured
# Weights over the smallest weight of the pass; each step reduces the error by this factor. With
# bounds that are active in many children, a small weight may not reach the tolerance (7 of 40 nodes
# of 40 children with householders and others bounded by units). Then the next one is tried.
_PROXIMAL_WEIGHTS = (1e-3, 1e-2, 1e-1)


def solve_in_passes(problem: NodeProblem, tolerance: float, solve: Solve) -> Estimate:
    """Solve the continuous stage pass by pass, in the problem's `order`.

    Args:
      problem: The node problem; the last pass of its order has all terms of no earlier pass.
      tolerance: Largest accepted certificate residual of every pass.
      solve: Solver of one least-squares problem with further fixed partition sums, as pairs of
        groups int64[k] and targets float64[C, m].

    Returns:
      The estimate of the last pass, or of the first pass that was not solved.
    """
    fixed: Fixed = ()
    for indices in problem.order[:-1]:
        terms = [problem.terms[index] for index in indices]
        kept = [_partition(problem, term) for term in terms]
        # A pass is solved on the coarsest partition that its terms and constraints distinguish.
        coarse, first, _ = _coarse(problem, kept, fixed)
        within = tuple((groups[first], targets) for groups, targets in fixed)
        if any(_size(term) == len(first) for term in kept):
            estimate = solve(coarse, tolerance, within)
        else:
            least = np.min([t.weights for t in kept], axis=0)
            for weight in _PROXIMAL_WEIGHTS:
                estimate = _solve_near(coarse, weight * least, within, tolerance, solve)
                if estimate.status is not Status.LIMIT:
                    break
        if estimate.status is not Status.SOLVED:
            return estimate
        for term in _finest(kept):
            sums = group_sums(estimate.values, term.groups[first], _size(term))
            fixed = (*fixed, (term.groups, sums))
    last = replace(problem, terms=tuple(problem.terms[i] for i in problem.order[-1]), order=())
    return solve(_with_full_rank(last, problem), tolerance, fixed)


def count_in_passes(problem: NodeProblem, count: Count) -> NodeProblem:
    """Round all passes except the last, and return the node problem of the last pass.

    Args:
      problem: The node problem. In each pass, one query refines all others, those of earlier
        passes, exact ones and, up to itself, rounded ones. There are no rows or leaves.
      count: Function from a node problem to counts int64[C, m], nonnegative, that keep it exactly.

    Returns:
      A feasible node of one pass: within every answer of the pass before, the cells of its children
      are a table whose margins are the parent's cells and these answers.
    """
    for indices in problem.order[:-1]:
        terms = [_partition(problem, problem.terms[index]) for index in indices]
        coarse, _, groups = _coarse(problem, terms, ())
        counted = ExactTerm(groups, count(coarse))
        problem = replace(problem, exact=(*problem.exact, counted))
    last = replace(problem, terms=tuple(problem.terms[i] for i in problem.order[-1]), order=())
    return _with_full_rank(last, problem)


def _partition(problem: NodeProblem, term: Term) -> LeastSquaresTerm:
    """Return a term for a pass before the last, with a positive weight in every child.

    Targets of a subtree may give a query weight 0. Then its answers get the least positive weight.
    """
    if not isinstance(term, LeastSquaresTerm):
        raise SolverError(
            f"node {problem.geocode}",
            "only partition queries can be fixed by an earlier pass",
            remedy="put the planned queries of this geolevel in the last pass only",
        )
    least = np.min([np.where(t.weights > 0, t.weights, np.inf) for t in problem.terms], axis=0)
    return replace(term, weights=np.where(term.weights > 0, term.weights, least))


def _finest(terms: list[LeastSquaresTerm]) -> list[LeastSquaresTerm]:
    """Return the terms of a pass whose answers are not sums of the answers of another term."""
    kept: list[LeastSquaresTerm] = []
    for term in sorted(terms, key=lambda other: -_size(other)):
        if not any(coarsening(finer.groups, term.groups) is not None for finer in kept):
            kept.append(term)
    return kept


def _size(term: LeastSquaresTerm) -> int:
    return int(term.answers.shape[1])


def _with_full_rank(last: NodeProblem, problem: NodeProblem) -> NodeProblem:
    """Return the last pass, with the terms of earlier ones if full column rank needs them.

    Fixed sums make the terms of earlier passes constants, so adding them changes no solution.
    """
    separates = any(
        isinstance(t, LeastSquaresTerm) and _size(t) == problem.n_cells and (t.weights > 0).all()
        for t in last.terms
    )
    return last if separates else replace(problem, order=())


def _solve_near(
    coarse: NodeProblem, weight: FloatArray, fixed: Fixed, tolerance: float, solve: Solve
) -> Estimate:
    """Solve a pass whose terms lack full column rank by proximal steps of float64[C] weights.

    Each step adds a small square around the last point, and their limit solves the pass without it
    (Rockafellar, SIAM J. Control Optim. 14 (1976), Theorem 2: linear convergence at the rate of the
    added weight).
    """
    C, m = coarse.n_children, coarse.n_cells
    center = (
        np.zeros((C, m))
        if coarse.parent is None
        else np.outer(np.full(C, 1 / C), np.asarray(coarse.parent, float))
    )
    answers = _answers(coarse, center)
    for _ in range(_MOST_PROXIMAL_STEPS):
        near = LeastSquaresTerm(np.arange(m), center, weight)
        estimate = solve(replace(coarse, terms=(*coarse.terms, near)), tolerance, fixed)
        if estimate.status is not Status.SOLVED:
            return estimate
        center, before = estimate.values, answers
        answers = _answers(coarse, center)
        if np.abs(answers - before).max() <= tolerance * max(1.0, np.abs(answers).max()):
            return estimate
    return replace(estimate, status=Status.LIMIT)


def _coarse(
    problem: NodeProblem, terms: list[LeastSquaresTerm], fixed: Fixed
) -> tuple[NodeProblem, IntArray, IntArray]:
    """Return the node on the coarsest partition that some terms and all constraints distinguish.

    Returns:
      The node with these terms, a cell for each of m groups; int64[m], the first cell of each
      group; int64[k], the group of each cell.
    """
    first, groups = _common_refinement(problem, terms, fixed)
    m = len(first)
    rounded = [
        tuple(
            RoundingQuery(query.groups[first])
            for query in queries
            if coarsening(groups, query.groups) is not None
        )
        for queries in problem.passes
    ]
    coarse = NodeProblem(
        problem.geocode,
        m,
        None if problem.parent is None else group_sums(problem.parent[None], groups, m)[0],
        tuple(LeastSquaresTerm(t.groups[first], t.answers, t.weights) for t in terms),
        tuple(ExactTerm(e.groups[first], e.targets) for e in problem.exact),
        (*(queries for queries in rounded if queries), (RoundingQuery(np.arange(m)),)),
        tuple(RowsTerm(r.coefficients[:, first], r.least, r.most, r.names) for r in problem.rows),
        None
        if problem.leaves is None
        else LeavesTerm(problem.leaves.groups[first], problem.leaves.leaves),
    )
    return coarse, first, groups


def _common_refinement(
    problem: NodeProblem, terms: list[LeastSquaresTerm], fixed: Fixed
) -> tuple[IntArray, IntArray]:
    """Return the coarsest partition that some terms and all constraints distinguish.

    Returns:
      int64[m], the first cell of each group, and int64[k], the group of each cell; groups are in
      the order of their answers to terms and constraints.
    """
    keys = [t.groups for t in terms] + [e.groups for e in problem.exact] + [g for g, _ in fixed]
    if problem.leaves is not None:
        keys.append(problem.leaves.groups)
    finest = max(keys, key=lambda groups: int(groups.max(initial=0)))
    keys += [row for rows in problem.rows for row in rows.coefficients]
    every = np.array(keys)
    if all(coarsening(finest, key) is not None for key in keys):  # avoids sorting all cells
        _, first, groups = np.unique(finest, return_index=True, return_inverse=True)
        order = np.lexsort(every[::-1, first])
        rank = np.empty(len(first), np.int64)
        rank[order] = np.arange(len(first))
        return first[order], rank[groups.reshape(-1)]
    _, first, groups = np.unique(every.T, axis=0, return_index=True, return_inverse=True)
    return first, groups.reshape(-1).astype(np.int64)


def _answers(problem: NodeProblem, values: FloatArray) -> FloatArray:
    """Return the answers of all terms of a pass side by side."""
    kept = [term for term in problem.terms if isinstance(term, LeastSquaresTerm)]
    return np.hstack([group_sums(values, t.groups, _size(t)) for t in kept])
