"""Feasibility of the constraints of a node, decided by a linear program."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from solvers.constraints import of_node
from solvers.least_squares.blocks import Fixed
from solvers.problem import NodeProblem

_SLACK = 1e-6  # relative: sums fixed by earlier passes have the residual of their certificate


def contradiction(problem: NodeProblem, fixed: Fixed = ()) -> str:
    """Find the least total violation of the constraints that any x >= 0 achieves.

    Args:
      problem: The node problem; its `leaves` are not considered.
      fixed: Further given partition sums.

    Returns:
      The largest violation as text, or "" if all constraints can be kept together.
    """
    from scipy.optimize import linprog  # takes a third of a second, for infeasible nodes only

    constraints = list(of_node(problem, fixed))
    if not constraints:
        return ""
    A = sp.vstack([rows.A for rows in constraints]).tocsr()
    least = np.concatenate([rows.lower for rows in constraints])
    most = np.concatenate([rows.upper for rows in constraints])
    names = [name for rows in constraints for name in rows.names]
    n, m = problem.n_children * problem.n_cells, len(least)
    size = max(1.0, float(np.abs(least[np.isfinite(least)]).max(initial=0.0)))
    lacking, exceeding = np.isfinite(least), np.isfinite(most)
    eye = sp.eye_array(m).tocsr()
    result = linprog(
        np.concatenate([np.zeros(n), np.ones(2 * m)]),
        A_ub=sp.vstack(
            [
                sp.hstack([-A[lacking], -eye[lacking], sp.csr_array((lacking.sum(), m))]),
                sp.hstack([A[exceeding], sp.csr_array((exceeding.sum(), m)), -eye[exceeding]]),
            ]
        ).tocsr(),
        b_ub=np.concatenate([-least[lacking], most[exceeding]]) / size,
        bounds=(0, None),
        method="highs",
    )
    if result.x is None or result.fun <= _SLACK * m**0.5:
        return ""
    off = result.x[n : n + m] + result.x[n + m :]
    worst = int(np.argmax(off))
    return (
        "no table keeps every constraint: the violations add up to at least "
        f"{result.fun * size:.6g} persons, for example {names[worst]} by {off[worst] * size:.6g}"
    )
