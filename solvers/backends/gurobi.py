"""Gurobi, where a licence is installed; the licence of the package allows 200 variables."""

from __future__ import annotations

import gurobipy
import numpy as np

from das.errors import RuntimeSetupError, SolverError
from solvers.backends.quadratic_program import estimate, quadratic_program
from solvers.problem import Estimate, Fixed, NodeProblem
from solvers.rounding.mixed_integer import MixedIntegerProgram, MixedIntegerSolution, Outcome


def solve_quadratic(problem: NodeProblem, tolerance: float, fixed: Fixed = ()) -> Estimate:
    """Solve the continuous stage of a node with Gurobi.

    Arguments are those of `solvers.least_squares.passes.Solve`.

    Raises:
      RuntimeSetupError: There is no licence, or it does not allow a problem of this size.
    """
    program = quadratic_program(problem, fixed)
    unit = float(np.abs(program.P.data).max(initial=1.0))
    small = 1e-9  # the smallest value that Gurobi accepts
    with _environment(OptimalityTol=small, FeasibilityTol=small, BarConvTol=1e-12) as environment:
        model = gurobipy.Model(env=environment)
        x = model.addMVar(len(program.q), lb=program.floor)
        model.setObjective(x @ (program.P / (2 * unit)) @ x - (program.q / unit) @ x)
        equal = program.low == program.high
        bounded = ~equal & np.isfinite(program.low)
        capped = ~equal & np.isfinite(program.high)
        parts = [
            (equal, model.addConstr(program.A[equal] @ x == program.low[equal])),
            (bounded, model.addConstr(program.A[bounded] @ x >= program.low[bounded])),
            (capped, model.addConstr(program.A[capped] @ x <= program.high[capped])),
        ]
        _optimize(model, problem.geocode)
        if model.SolCount == 0:
            raise SolverError(f"node {problem.geocode}", "Gurobi found no point", got=model.Status)
        y = np.zeros(len(program.low))
        for rows, constraint in parts:
            y[rows] += np.asarray(constraint.Pi) * unit
        return estimate(problem, program, np.asarray(x.X), y, tolerance, int(model.BarIterCount))


def solve_mixed_integer(program: MixedIntegerProgram, time_limit: float) -> MixedIntegerSolution:
    """Solve a mixed-integer program with Gurobi; see `solvers.rounding.mixed_integer`.

    Raises:
      RuntimeSetupError: There is no licence, or it does not allow a problem of this size.
    """
    with _environment(MIPGap=0.0, TimeLimit=max(time_limit, 0.0)) as environment:
        model = gurobipy.Model(env=environment)
        kind = np.where(program.integrality, gurobipy.GRB.INTEGER, gurobipy.GRB.CONTINUOUS)
        x = model.addMVar(len(program.c), lb=program.least, ub=program.most, vtype=kind)
        model.setObjective(program.c @ x)
        bounded, capped = np.isfinite(program.lower), np.isfinite(program.upper)
        model.addConstr(program.A[bounded] @ x >= program.lower[bounded])
        model.addConstr(program.A[capped] @ x <= program.upper[capped])
        _optimize(model, "mixed-integer program")
        if model.Status in (gurobipy.GRB.INFEASIBLE, gurobipy.GRB.INF_OR_UNBD):
            return MixedIntegerSolution(None, np.inf, Outcome.INFEASIBLE)
        solved = model.Status == gurobipy.GRB.OPTIMAL
        outcome = Outcome.SOLVED if solved else Outcome.LIMIT
        if model.SolCount == 0:
            return MixedIntegerSolution(None, np.inf, outcome)
        value = float(model.ObjVal)
        gap = max(0.0, value - float(model.ObjBound)) / max(1.0, abs(value))
        values = np.where(program.integrality, np.rint(x.X), x.X)
        return MixedIntegerSolution(values, gap, outcome)


def _environment(**parameters: float) -> gurobipy.Env:
    try:
        return gurobipy.Env(params={"OutputFlag": 0, "Threads": 1, "Seed": 0, **parameters})
    except gurobipy.GurobiError as error:
        raise _no_licence(error) from None


def _optimize(model: gurobipy.Model, where: str) -> None:
    try:
        model.optimize()
    except gurobipy.GurobiError as error:
        if error.errno == gurobipy.GRB.Error.SIZE_LIMIT_EXCEEDED:
            raise _no_licence(error) from None
        raise SolverError(where, "Gurobi failed", got=error) from None


def _no_licence(error: gurobipy.GurobiError) -> RuntimeSetupError:
    return RuntimeSetupError(
        "solver gurobi",
        "no licence for a problem of this size was found",
        got=error,
        remedy="install a licence (GRB_LICENSE_FILE), or choose solver structured",
    )
