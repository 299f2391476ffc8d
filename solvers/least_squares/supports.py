"""Continuous stage by supports alone: active-set steps, and no more if they find no solution.

Quick where the supports are found, as in most nodes. Where they are not, the caller knows a better
way than interior points with their matrices over cells.
"""

from __future__ import annotations

import numpy as np

from solvers.least_squares import active_set
from solvers.least_squares.blocks import arrange
from solvers.least_squares.certificate import certify, origin
from solvers.least_squares.solve import iterate, sums_for
from solvers.problem import Estimate, NodeProblem, Status


def solve_by_supports(problem: NodeProblem, tolerance: float) -> Estimate | None:
    """Solve the continuous stage of a node where active-set steps find its supports.

    Args:
      problem: The node problem.
      tolerance: Largest accepted certificate residual, for example 1e-7.

    Returns:
      The solution; None where the steps found none.

    Raises:
      SolverError: The queries and equalities do not have full column rank in some child.
    """
    sums = sums_for(problem)
    q = arrange(problem, (), sums)
    guess = active_set.first_guess(q, sums)
    point, _, steps = iterate(q, guess, origin(q), tolerance * 1e-2)
    certificate = certify(problem, (), q, point, sums)
    if not certificate.residual <= tolerance:
        return None
    return Estimate(np.maximum(point.x, 0), certificate, Status.SOLVED, 0, steps)
