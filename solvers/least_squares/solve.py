"""Continuous stage: nonnegative least squares over all children of a parent.

A primal-dual active-set Newton method finds the supports and solves for them to machine precision,
usually in a few steps. Where it cycles, interior-point iterations find the solution, and it
finishes from there. Both solve their linear systems by eliminating blocks (`structure`,
`elimination`). The result carries a certificate computed from the problem itself. If there is
none, a linear program decides whether the promises of the node contradict one another.
"""

from __future__ import annotations

import numpy as np

from solvers.least_squares import active_set
from solvers.least_squares.active_set import Guess
from solvers.least_squares.blocks import Fixed, Quadratic, arrange
from solvers.least_squares.certificate import Point, certify, gradient, origin
from solvers.least_squares.compilation import has_compiler
from solvers.least_squares.feasibility import contradiction
from solvers.least_squares.interior_point import follow_path
from solvers.least_squares.partitions import IN_ARRAYS, TermSums
from solvers.problem import Estimate, NodeProblem, Status

_COMPILED_VARIABLES = 200  # smaller nodes do not make up for loading compiled code
_PATH_STEPS = 100


def solve_least_squares(problem: NodeProblem, tolerance: float) -> Estimate:
    """Solve the continuous stage of a node; see `solve_quadratic`."""
    return solve_quadratic(problem, tolerance)


def solve_quadratic(problem: NodeProblem, tolerance: float, fixed: Fixed = ()) -> Estimate:
    """Solve the continuous stage of a node, in one pass and without its `leaves`.

    Args:
      problem: The node problem.
      tolerance: Largest accepted certificate residual, for example 1e-7.
      fixed: Further partition sums that are given, as groups int64[k] and targets float64[C, m];
        they need not be nested in one another or in the problem's.

    Returns:
      The estimate. Its status is LIMIT if the tolerance was not reached, which callers must not
      take for a solution, and INFEASIBLE, with evidence, if no point keeps every promise.

    Raises:
      SolverError: The queries and equalities do not have full column rank in some child.
    """
    sums = sums_for(problem)
    q = arrange(problem, fixed, sums)
    guess = active_set.first_guess(q, sums)
    point, _, steps = iterate(q, guess, origin(q), tolerance * 1e-2)
    certificate = certify(problem, fixed, q, point, sums)
    iterations = 0
    if not certificate.residual <= tolerance:
        reason = contradiction(problem, fixed)
        if reason:
            values = np.maximum(point.x, 0)
            return Estimate(values, certificate, Status.INFEASIBLE, 0, steps, reason)
        path, _, iterations = follow_path(q, point, tolerance * 1e-2, _PATH_STEPS)
        guess = active_set.next_guess(q, path, gradient(q, path))
        end, _, more = iterate(q, guess, path, tolerance * 1e-2)
        steps += more
        for candidate in (path, end):
            its = certify(problem, fixed, q, candidate, sums)
            if its.residual < certificate.residual or not np.isfinite(certificate.residual):
                point, certificate = candidate, its
    status = Status.SOLVED if certificate.residual <= tolerance else Status.LIMIT
    return Estimate(np.maximum(point.x, 0), certificate, status, iterations, steps)


def _is_compiled(variables: int) -> bool:
    return has_compiler() and variables >= _COMPILED_VARIABLES


def sums_for(problem: NodeProblem) -> TermSums:
    """Sums over queries, compiled where the node is large enough."""
    if _is_compiled(problem.n_children * problem.n_cells):
        from solvers.least_squares import compiled

        return compiled.TERM_SUMS
    return IN_ARRAYS


def iterate(q: Quadratic, guess: Guess, start: Point, tolerance: float) -> tuple[Point, float, int]:
    """Active-set iterations, compiled where the node is large enough."""
    if _is_compiled(q.linear.size):
        from solvers.least_squares import compiled

        return compiled.iterate(q, guess, start, tolerance)
    return active_set.iterate(q, guess, start, tolerance)
