"""Continuous stage by supports alone: active-set steps, and no more if they find no solution.

Quick where the supports are found, as in most nodes. Where they are not, the caller knows a better
way than interior points with their matrices over cells.
"""

from __future__ import annotations

import importlib.util

import numpy as np

from solvers import active_set
from solvers.optimality import certify, origin
from solvers.problem import Estimate, NodeProblem, Status
from solvers.structure import arrange, largest_block
from solvers.term_sums import IN_ARRAYS

_LARGE_BLOCK = 1_000  # cells whose coupling takes longer to factorise than no matrix at all
_COMPILED_VARIABLES = 200  # smaller nodes do not make up for loading compiled code
_HAS_NUMBA = importlib.util.find_spec("numba") is not None


def solve_by_supports(problem: NodeProblem, tolerance: float) -> Estimate | None:
    """Solve the continuous stage of a node where active-set steps find its supports.

    Args:
      problem: The node problem.
      tolerance: Largest accepted certificate residual, for example 1e-7.

    Returns:
      The solution; None where the steps found none, or crossing queries join so many cells that
      they would take long.

    Raises:
      SolverError: The queries do not tell all live cells apart in some child.
    """
    if largest_block(problem) >= _LARGE_BLOCK:
        return None
    is_compiled = _HAS_NUMBA and problem.n_children * problem.n_cells >= _COMPILED_VARIABLES
    sums, iterate = IN_ARRAYS, active_set.iterate
    if is_compiled:
        from solvers import compiled

        sums, iterate = compiled.TERM_SUMS, compiled.iterate
    q = arrange(problem, (), sums)
    guess = active_set.first_guess(q, sums)
    point, _, steps = iterate(q, guess, origin(q), tolerance * 1e-2)
    certificate = certify(problem, (), q, point, sums)
    if not certificate.residual <= tolerance:
        return None
    return Estimate(np.maximum(point.x, 0), certificate, Status.SOLVED, 0, steps)
