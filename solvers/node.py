"""Solve one node: continuous stage, integer stage, verification."""

from __future__ import annotations

from das.errors import SolverError
from solvers.least_squares import solve_least_squares
from solvers.problem import NodeProblem, NodeSolution, Status
from solvers.rounding import round_counts
from solvers.verify import verify_counts


def solve_node(problem: NodeProblem, tolerance: float) -> NodeSolution:
    """Solve a node problem.

    Args:
      problem: The node problem, with at least one live cell.
      tolerance: Largest accepted certificate residual of the continuous stage.

    Returns:
      Integer counts that satisfy every equality exactly, and the estimate behind them.

    Raises:
      SolverError: The continuous stage did not reach the tolerance, or nothing rounds.
      VerificationError: The counts break a promise; a defect of this program.
    """
    estimate = solve_least_squares(problem, tolerance)
    if estimate.status is not Status.SOLVED:
        raise SolverError(
            f"node {problem.geocode} ({problem.n_children} children, {problem.n_cells} live cells)",
            "the least-squares stage stopped at its iteration limit",
            got=f"residual {estimate.certificate.residual:.1e}",
            want=f"at most {tolerance:.1e}",
            remedy="raise solve.tolerance if such a residual is acceptable",
        )
    counts, widened = round_counts(problem, estimate.values)
    verify_counts(problem, counts)
    return NodeSolution(counts, estimate, widened)
