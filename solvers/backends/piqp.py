"""PIQP, a general open-source interior-point solver, which accepts any linear rows."""

from __future__ import annotations

import numpy as np
import piqp
import scipy.sparse as sp

from solvers.backends.quadratic_program import estimate, quadratic_program
from solvers.problem import Estimate, Fixed, NodeProblem


def solve_quadratic(problem: NodeProblem, tolerance: float, fixed: Fixed = ()) -> Estimate:
    """Solve the continuous stage of a node with PIQP; see `solvers.least_squares.passes.Solve`."""
    program = quadratic_program(problem, fixed)
    unit = float(np.abs(program.P.data).max(initial=1.0))
    equal = program.low == program.high
    solver = piqp.SparseSolver()
    for name in ("eps_abs", "eps_rel", "eps_duality_gap_abs", "eps_duality_gap_rel"):
        setattr(solver.settings, name, min(1e-11, tolerance * 1e-2))
    A, G = program.A[equal], program.A[~equal]
    solver.setup(
        sp.csc_matrix(program.P / unit),
        -program.q / unit,
        sp.csc_matrix(A),
        program.low[equal],
        sp.csc_matrix(G),
        program.low[~equal],
        program.high[~equal],
        program.floor,
        np.full(len(program.q), np.inf),
    )
    solver.solve()
    result = solver.result
    y = np.zeros(len(program.low))
    y[equal] = -np.asarray(result.y) * unit
    y[~equal] = (np.asarray(result.z_l) - np.asarray(result.z_u)) * unit
    v = np.asarray(result.x)
    return estimate(problem, program, v, y, tolerance, int(result.info.iter))
