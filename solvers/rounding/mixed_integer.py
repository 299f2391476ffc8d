"""Mixed-integer linear programs as plain data, and their solution by HiGHS.

Another solver is a function with the signature of `solve_mixed_integer`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from das.arrays import BoolArray, FloatArray
from das.errors import SolverError

_LIMIT_REACHED = 1  # status codes of scipy.optimize.milp
_INFEASIBLE = 2


class Outcome(StrEnum):
    """Outcome of a program. A limit reached is never a solution."""

    SOLVED = "solved"
    LIMIT = "limit"
    INFEASIBLE = "infeasible"


@dataclass(frozen=True, eq=False)
class MixedIntegerProgram:
    """Program: minimise c'x subject to lower <= A x <= upper, least <= x <= most.

    Attributes:
      c: float64[n], cost of each variable.
      integrality: bool[n], which variables are integers.
      least: float64[n]; -inf for no bound.
      most: float64[n]; inf for no bound.
      A: float64[m, n], sparse.
      lower: float64[m]; -inf for no bound.
      upper: float64[m]; inf for no bound.
    """

    c: FloatArray
    integrality: BoolArray
    least: FloatArray
    most: FloatArray
    A: csr_array
    lower: FloatArray
    upper: FloatArray


class MixedIntegerSolution(NamedTuple):
    """Result of a solver.

    Attributes:
      x: float64[n], the best feasible point found, with whole integer variables; None if no
        feasible point was found.
      gap: (c'x - proven bound) / max(1, |c'x|), at least 0; infinite without a point or a bound.
      outcome: SOLVED only if x is proven optimal within the solver's tolerances.
    """

    x: FloatArray | None
    gap: float
    outcome: Outcome


MixedIntegerSolver = Callable[[MixedIntegerProgram, float], MixedIntegerSolution]


def solve_mixed_integer(program: MixedIntegerProgram, time_limit: float) -> MixedIntegerSolution:
    """Solve a program with HiGHS by branch and bound, to a gap of zero.

    Deterministic unless the time limit is reached.

    Args:
      program: The program.
      time_limit: Most seconds of work.

    Returns:
      The best point; it is a solution only if its outcome is SOLVED.

    Raises:
      SolverError: The program is unbounded, or HiGHS failed.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    result = milp(
        program.c,
        integrality=program.integrality.astype(int),
        bounds=Bounds(program.least, program.most),
        constraints=LinearConstraint(program.A, program.lower, program.upper)
        if program.A.shape[0]
        else None,
        options={"time_limit": max(time_limit, 0.0), "mip_rel_gap": 0.0},
    )
    if result.status == _INFEASIBLE:
        return MixedIntegerSolution(None, np.inf, Outcome.INFEASIBLE)
    if result.status not in (0, _LIMIT_REACHED):
        raise SolverError("mixed-integer program", "HiGHS failed", got=result.message)
    outcome = Outcome.LIMIT if result.status == _LIMIT_REACHED else Outcome.SOLVED
    if result.x is None:
        return MixedIntegerSolution(None, np.inf, outcome)
    x = np.where(program.integrality, np.rint(result.x), result.x)
    value = float(program.c @ x)
    bound = result.mip_dual_bound if result.mip_dual_bound is not None else value
    gap = max(0.0, value - float(bound)) / max(1.0, abs(value))
    return MixedIntegerSolution(x, gap, outcome)
