"""Continuous stage: nonnegative least squares over all children of a parent.

A primal-dual active-set Newton method finds the supports and solves for them to machine precision,
usually in a few steps. If it cycles, interior-point iterations find the solution, and active-set
steps finish from there. Both solve linear systems by block elimination (`blocks`, `elimination`).
The result has a certificate computed from the problem itself. If the certificate fails, a linear
program decides whether the constraints of the node contradict one another.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from solvers.least_squares import active_set
from solvers.least_squares.blocks import Fixed, Quadratic, arrange
from solvers.least_squares.certificate import Point, certify, gradient, origin
from solvers.least_squares.feasibility import contradiction
from solvers.least_squares.interior_point import follow_path
from solvers.problem import Certificate, Estimate, NodeProblem, Status

_PATH_STEPS = 100  # interior-point steps; then the status is LIMIT. Default, not measured.
# Factors of the penalty of equalities in factorised matrices. If noise is a million times the
# counts, so are the multipliers, and barriers dominate the equalities. Children of 33 and 21
# persons with answers of 1e8 ended with sums off by a quarter at factor 1, 1e-9 at 1e2 to 1e8.
_PENALTIES = (1.0, 1e4, 1e8)
# Steps stop below the tolerance: the certificate has more conditions than their stopping test.
OVERSHOOT = 1e-2


def solve_quadratic(problem: NodeProblem, tolerance: float, fixed: Fixed = ()) -> Estimate:
    """Solve the continuous stage of a node, in one pass and without its `leaves`.

    Args:
      problem: The node problem.
      tolerance: Largest accepted certificate residual, for example 1e-7.
      fixed: Further given partition sums, as groups int64[k] and targets float64[C, m]; they need
        not be nested.

    Returns:
      The estimate. Its status is LIMIT if the tolerance was not reached, which callers must not
      take for a solution, and INFEASIBLE, with evidence, if no point keeps every constraint.

    Raises:
      SolverError: The queries and equalities do not have full column rank in some child.
    """
    q, point, certificate, steps = _by_supports(problem, tolerance, fixed)
    iterations = 0
    if not certificate.residual <= tolerance:
        reason = contradiction(problem, fixed)
        if reason:
            values = np.maximum(point.x, 0)
            return Estimate(values, certificate, Status.INFEASIBLE, 0, steps, reason)
        for factor in _PENALTIES:
            stiff = replace(q, penalty=q.penalty * factor)
            path, _, passed = follow_path(stiff, point, tolerance * OVERSHOOT, _PATH_STEPS)
            guess = active_set.next_guess(stiff, path, gradient(stiff, path))
            end, _, more = active_set.iterate(stiff, guess, path, tolerance * OVERSHOOT)
            steps, iterations = steps + more, iterations + passed
            for candidate in (path, end):
                after = certify(problem, fixed, q, candidate)
                if after.residual < certificate.residual or not np.isfinite(certificate.residual):
                    point, certificate = candidate, after
            if certificate.residual <= tolerance:
                break
    status = Status.SOLVED if certificate.residual <= tolerance else Status.LIMIT
    return Estimate(np.maximum(point.x, 0), certificate, status, iterations, steps)


def solve_by_supports(problem: NodeProblem, tolerance: float, fixed: Fixed = ()) -> Estimate | None:
    """Solve the continuous stage of a node where active-set steps find its supports.

    For callers that have a faster alternative than interior points.

    Args:
      problem: The node problem, in one pass and without its `leaves`.
      tolerance: Largest accepted certificate residual, for example 1e-7.
      fixed: Further given partition sums, as in `solve_quadratic`.

    Returns:
      The solution; None if the steps found none.

    Raises:
      SolverError: The queries and equalities do not have full column rank in some child.
    """
    _, point, certificate, steps = _by_supports(problem, tolerance, fixed)
    if not certificate.residual <= tolerance:
        return None
    return Estimate(np.maximum(point.x, 0), certificate, Status.SOLVED, 0, steps)


def _by_supports(
    problem: NodeProblem, tolerance: float, fixed: Fixed
) -> tuple[Quadratic, Point, Certificate, int]:
    """Take active-set steps from separate solutions of children; return the end and the steps."""
    q = arrange(problem, fixed)
    guess = active_set.first_guess(q)
    point, _, steps = active_set.iterate(q, guess, origin(q), tolerance * OVERSHOOT)
    return q, point, certify(problem, fixed, q, point), steps
