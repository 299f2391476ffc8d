"""Solvers by name."""

from __future__ import annotations

import importlib
from typing import Any

from das.errors import RuntimeSetupError
from solvers.choices import PACKAGES, IntegerSolver, LeastSquaresSolver
from solvers.least_squares.passes import Solve
from solvers.rounding.mixed_integer import MixedIntegerSolver, solve_mixed_integer


def least_squares(solver: LeastSquaresSolver) -> Solve:
    """Return the function that solves a least-squares problem with the named solver.

    Raises:
      RuntimeSetupError: The solver is not installed.
    """
    if solver is LeastSquaresSolver.STRUCTURED:
        from solvers.least_squares.solve import solve_quadratic

        return solve_quadratic
    solve: Solve = _imported(solver.value).solve_quadratic
    return solve


def mixed_integer(solver: IntegerSolver) -> MixedIntegerSolver:
    """Return the function that solves a mixed-integer program with the named solver.

    Raises:
      RuntimeSetupError: The solver is not installed.
    """
    if solver is IntegerSolver.HIGHS:
        return solve_mixed_integer
    solve: MixedIntegerSolver = _imported(solver.value).solve_mixed_integer
    return solve


def _imported(name: str) -> Any:  # noqa: ANN401 - a module
    package = PACKAGES[name]
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise RuntimeSetupError(
            f"solver {name}",
            f"the package {package} is not installed or does not load",
            got=error,
            remedy=f"pip install '.[{name}]' in a clone",
        ) from None
    return importlib.import_module(f"solvers.backends.{name}")
