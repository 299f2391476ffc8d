"""Solve one node: continuous stage, integer stage, verification."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from das.arrays import IntArray
from das.errors import InfeasibleError, RuntimeSetupError, SchemaError, SolverError
from das.mechanisms.mechanism import Continuous
from solvers.backends.registry import least_squares, mixed_integer
from solvers.choices import IntegerSolver, LeastSquaresSolver, Method
from solvers.constraints import contradiction
from solvers.dual_newton.dual_ascent import solve_compiled
from solvers.dual_newton.projected import solve_projected
from solvers.least_squares.blocks import extent, given_sums
from solvers.least_squares.cuts import solve_with_cuts
from solvers.least_squares.passes import count_in_passes, solve_in_passes
from solvers.least_squares.solve import solve_by_supports
from solvers.objectives.in_node import OBJECTIVES
from solvers.problem import (
    Estimate,
    Fixed,
    GeneralTerm,
    KroneckerTerm,
    LeastSquaresTerm,
    NodeProblem,
    Status,
)
from solvers.rounding.round import Rounding, round_counts
from solvers.verify import verify_counts

# Default thresholds without a recorded measurement, except where one is named.
_MANY_CELLS = 4_000  # with more cells, the matrix-free solver is faster
_SOME_CELLS = 100  # with more, it is faster than interior points and than matrices per child
_MOST_NUMBERS = 10_000_000  # of matrices over cells; with more, matrix-free solvers are faster
_MOST_NUMBERS_IN_MEMORY = 50_000_000  # 400 MB, where no other solver solved a node
# Cells of a block from which on active sets take longer than dual ascent. Medium nodes of the
# redistricting data have blocks of 8 to 14 cells, and active sets take about half as long. Those of
# the demographic and housing data have 28 and more, and active sets take 2.5 to 20 times as long.
# With different weights per child, states of 12 to 72 counties took 2 to 14 times as long.
_COUPLED_BLOCK = 20
# Children times cells squared, about the numbers that active sets factorise in a step. Beyond it
# they take longer at any coupling. Time over that of dual ascent: 0.59 at 270,000 (12 x 150,
# redistricting data), 4 at 2 million (10 x 449, the 1940 shape), 70 at 265 million (59 x 2,118).
_MOST_FACTORISED = 500_000
_NEARLY = 1e-6  # relative; see `constraints.contradiction`
_LARGE_BLOCK = 1_000  # cells of a block whose factorization takes longer than matrix-free steps


@dataclass(frozen=True)
class NodeSettings:
    """Settings for solving nodes.

    Attributes:
      tolerance: Largest accepted certificate residual of the continuous stage.
      least_squares: Solver of the continuous stage.
      integers: Solver of integer stages that are no network flow.
      method: Objective of the continuous stage.
      rounds_passes: Whether a pass is rounded before the next, see `passes.count_in_passes`.
      noise: Family of noise distributions, without the variance; used by `Method.REWEIGHTED` only.
    """

    tolerance: float = 1e-7
    least_squares: LeastSquaresSolver = LeastSquaresSolver.STRUCTURED
    integers: IntegerSolver = IntegerSolver.HIGHS
    method: Method = Method.NNLS
    rounds_passes: bool = False
    noise: type[Continuous] | None = None


@dataclass(frozen=True, eq=False)
class NodeSolution:
    """Solution of a node.

    Attributes:
      counts: int64[C, k], nonnegative, keeping every constraint exactly.
      estimate: The continuous solution that was rounded.
      rounding: Method and quality of the rounding.
    """

    counts: IntArray
    estimate: Estimate
    rounding: Rounding


def solve_node(problem: NodeProblem, settings: NodeSettings) -> NodeSolution:
    """Solve a node problem.

    Args:
      problem: The node problem, with at least one live cell.
      settings: Solvers and tolerance.

    Returns:
      Integer counts that keep every constraint exactly, and the estimate behind them.

    Raises:
      InfeasibleError: No nonnegative counts keep the constraints.
      SolverError: The continuous stage did not reach the tolerance, or the integer stage not its
        optimum.
      RuntimeSetupError: A chosen solver is not installed.
      VerificationError: The counts break a constraint; a defect of this program.
    """
    if problem.order and settings.rounds_passes:
        problem = count_in_passes(problem, lambda coarse: solve_node(coarse, settings).counts)
    where = f"node {problem.geocode} ({problem.n_children} children, {problem.n_cells} live cells)"
    estimate = estimate_node(problem, settings)
    if estimate.status is Status.INFEASIBLE:
        raise InfeasibleError(
            where, "no counts keep its constraints", got=estimate.evidence or None
        )
    if estimate.status is not Status.SOLVED:
        raise SolverError(
            where,
            "the least-squares stage stopped at its iteration limit",
            got=f"residual {estimate.certificate.residual:.1e}",
            want=f"at most {settings.tolerance:.1e}",
            remedy="install piqp, which is tried where the structured solver stops, or raise "
            "solve.tolerance if such a residual is acceptable",
        )
    rounding = round_counts(problem, estimate.values, solver=mixed_integer(settings.integers))
    if rounding.status is not Status.SOLVED:
        raise SolverError(
            where,
            "the integer stage stopped at its time limit",
            got=f"gap {rounding.gap:.1e}",
            want="none",
            remedy="round queries whose groups nest",
        )
    verify_counts(problem, rounding.counts)
    return NodeSolution(rounding.counts, estimate, rounding)


def estimate_node(problem: NodeProblem, settings: NodeSettings) -> Estimate:
    """Solve the continuous stage of a node, in passes and with cuts where leaves need them."""
    objective = OBJECTIVES.get(settings.method)
    if objective is not None:
        problem = objective(problem, settings.noise)
    if problem.leaves is not None:
        return solve_with_cuts(problem, partial(_solve_without_leaves, settings=settings)).estimate
    return _solve_without_leaves(problem, settings)


def _solve_without_leaves(problem: NodeProblem, settings: NodeSettings) -> Estimate:
    if problem.order:
        solve = partial(_solve_pass, settings=settings)
        return solve_in_passes(problem, settings.tolerance, solve)
    return _solve_pass(problem, settings.tolerance, (), settings)


def _solve_pass(
    problem: NodeProblem, tolerance: float, fixed: Fixed, settings: NodeSettings
) -> Estimate:
    """Solve a pass with the chosen solver; if it stops, with another one.

    The other solver is PIQP where that is installed. After projected steps it is the structured
    solver, where its matrices over cells fit memory.
    """
    first, other = None, LeastSquaresSolver.PIQP
    if settings.least_squares is LeastSquaresSolver.STRUCTURED:
        if is_without_matrices(problem):
            other = LeastSquaresSolver.STRUCTURED
            try:
                first = solve_projected(problem, tolerance, fixed)
            except SchemaError:  # too many groups of levels; only where matrices fit memory
                return least_squares(other)(problem, tolerance, fixed)
        elif _prefers_matrix_free(problem, fixed):
            first = _solve_matrix_free(problem, tolerance, fixed)
            if first.status is Status.LIMIT and problem.n_cells < _MANY_CELLS:
                first = None
    if first is None:
        first = least_squares(settings.least_squares)(problem, tolerance, fixed)
    if first.status is not Status.LIMIT:
        return first
    evidence = contradiction(problem, fixed)
    if evidence:
        return replace(first, status=Status.INFEASIBLE, evidence=evidence)
    size = problem.n_children * problem.n_cells**2
    if other is LeastSquaresSolver.STRUCTURED and size > _MOST_NUMBERS_IN_MEMORY:
        return first
    try:
        second = least_squares(other)(problem, tolerance, fixed)
    except RuntimeSetupError:
        return first
    return second if second.status is Status.SOLVED else first


def _prefers_matrix_free(problem: NodeProblem, fixed: Fixed) -> bool:
    """Return whether the matrix-free solver accepts a node and is expected to be faster.

    It accepts partition queries, including one of single cells in every child, and given sums of
    which one refines all others and adds up to the parent. With rows and such sums it can diverge;
    contradictions are found late.
    """
    partitions = [term for term in problem.terms if isinstance(term, LeastSquaresTerm)]
    detailed = [t.weights > 0 for t in partitions if t.answers.shape[1] == problem.n_cells]
    if len(partitions) < len(problem.terms) or not np.any(detailed, axis=0).all():
        return False
    given = given_sums(problem, fixed)
    if len(given) > 1 or (given and problem.rows):
        return False
    adds_up = True
    if given and problem.parent is not None:
        # With x >= 0 and the parent, given sums are a transportation problem, which is feasible if
        # they add up. Sums from an earlier pass add up within the residual of its certificate.
        sums = given[0].targets.sum(0)
        of_parent = np.bincount(given[0].groups, problem.parent, len(sums))
        off = np.abs(sums - of_parent).max(initial=0.0)
        adds_up = bool(off <= _NEARLY * max(1.0, float(of_parent.max(initial=0.0))))
    if problem.rows or not adds_up:
        return _is_large(problem, fixed)
    return problem.n_cells >= _SOME_CELLS


def _is_large(problem: NodeProblem, fixed: Fixed) -> bool:
    """Return whether matrices over the cells would need more time and memory than none."""
    if problem.n_cells >= _MANY_CELLS:
        return True
    C, k = problem.n_children, problem.n_cells
    if k < _LARGE_BLOCK and C * k**2 <= _MOST_NUMBERS:
        return False
    largest_block, numbers, _ = extent(problem, fixed)
    return numbers > _MOST_NUMBERS or largest_block >= _LARGE_BLOCK


def is_without_matrices(problem: NodeProblem) -> bool:
    """Return whether a node with general queries is solved without matrices over cells.

    Linear rows need matrices; small nodes are faster with them.
    """
    if problem.rows or not any(isinstance(term, KroneckerTerm) for term in problem.terms):
        return False
    if any(isinstance(term, GeneralTerm) for term in problem.terms):
        return False
    C, k = problem.n_children, problem.n_cells
    return k >= _LARGE_BLOCK or C * k**2 > _MOST_NUMBERS


def _has_small_blocks(problem: NodeProblem, fixed: Fixed) -> bool:
    """Return whether a node splits into blocks so small that active sets are found at once."""
    if problem.n_children * problem.n_cells**2 > _MOST_FACTORISED or _is_large(problem, fixed):
        return False
    largest_block, _, patterns = extent(problem, fixed)
    return largest_block < _COUPLED_BLOCK and patterns == 1


def _solve_matrix_free(problem: NodeProblem, tolerance: float, fixed: Fixed) -> Estimate:
    """Solve by active sets or dual ascent, the likely faster one first; else by projection."""
    if _has_small_blocks(problem, fixed):
        estimate = solve_by_supports(problem, tolerance, fixed)
        if estimate is not None:
            return estimate
    estimate = solve_compiled(problem, tolerance, fixed)
    if estimate is not None and (estimate.status is Status.SOLVED or problem.rows):
        return estimate
    return solve_projected(problem, tolerance, fixed)
