"""One node from targets to counts: nodes of every kind, the solver behind the solver, methods, errors."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from das.errors import InfeasibleError, RuntimeSetupError, SolverError
from das.mechanisms.gaussian import Gaussian
from das.mechanisms.laplace import Laplace
from invariants.leaves import Leaves
from solvers.choices import LeastSquaresSolver, Method
from solvers.least_squares import solve as least_squares
from solvers.node import NodeSettings, estimate_node, solve_node
from solvers.objectives.in_node import fit_largest_in_node, reweight
from solvers.problem import Estimate, ExactTerm, LeavesTerm, NodeProblem, Status, group_sums
from solvers.verify import verify_counts
from tests.builders.strategies import Shape, random_node
from tests.unit.solvers.least_squares.quadratic import optimality_gap

SETTINGS = NodeSettings()
PLAIN = random_node(Shape(4, 6, persons=3.0, spread=1.0), 7)


def with_leaves(problem: NodeProblem) -> NodeProblem:
    """Cells are of two types; every child has one leaf, which takes at least four of the first."""
    total = problem.n_children + int(problem.parent.sum())
    leaf = Leaves(np.array([[4, 0]]), np.array([[total, total]]), np.array([4]), np.array([total]))
    groups = np.arange(problem.n_cells) % 2
    return replace(problem, leaves=LeavesTerm(groups, (leaf,) * problem.n_children))


def contradictory() -> NodeProblem:
    """Exact totals of children that are three more than the parent's."""
    problem = random_node(Shape(3, 4, exact=(1,)), 7)
    totals = problem.exact[0].targets + np.array([[3], [0], [0]])
    return replace(problem, exact=(ExactTerm(problem.exact[0].groups, totals),))


def mixed() -> list[NodeProblem]:
    """Small nodes of every kind."""
    shapes = [Shape(3, 4), Shape(2, 5, exact=(1,)), Shape(4, 6, rows=2), Shape(1, 6, is_root=True)]
    plain = [random_node(shape, 3) for shape in shapes]
    in_passes = replace(plain[0], order=((0,), (1, 2)))
    return [plain[0], with_leaves(random_node(Shape(3, 4), 5)), plain[1], in_passes, *plain[2:]]


def give_up(problem: NodeProblem, tolerance: float, fixed: object = ()) -> Estimate:
    """A structured solver that finds nothing."""
    values = np.zeros((problem.n_children, problem.n_cells))
    good = STRUCTURED(problem, 1e-7, fixed)
    return Estimate(values, replace(good.certificate, primal=1.0), Status.LIMIT, 0, 1)


STRUCTURED = least_squares.solve_quadratic


@pytest.mark.parametrize("solver", ["structured", "piqp"])
@pytest.mark.parametrize("method", [Method.NNLS, Method.SEQUENTIAL, Method.REWEIGHTED])
def test_nodes_of_every_kind_are_solved_and_keep_their_constraints(solver, method):
    tolerance = 1e-5 if solver == "piqp" else 1e-7  # what PIQP reaches in these nodes
    settings = NodeSettings(tolerance, LeastSquaresSolver(solver), method=method, noise=Gaussian)
    for problem in mixed():
        if method is Method.NNLS or (problem.leaves is None and not problem.order):
            solution = solve_node(problem, settings)
            assert solution.estimate.certificate.residual <= tolerance
            verify_counts(problem, solution.counts)


def test_passes_and_leaves_are_kept():
    """They change the solution of these two nodes, so it shows that neither is dropped."""
    plain, leaves, _, in_passes, *_ = mixed()
    with_leaf, without = (
        group_sums(solve_node(problem, SETTINGS).counts, leaves.leaves.groups, 2)[:, 0].min()
        for problem in (leaves, replace(leaves, leaves=None))
    )
    assert without < 4 <= with_leaf
    estimates = [solve_node(problem, SETTINGS).estimate.values for problem in (plain, in_passes)]
    assert np.abs(estimates[0] - estimates[1]).max() > 1e-3
    assert in_passes.parent is plain.parent


def test_another_solver_stands_behind_the_structured_one(monkeypatch):
    wanted = solve_node(PLAIN, SETTINGS)
    monkeypatch.setattr(least_squares, "solve_quadratic", give_up)
    solution = solve_node(PLAIN, SETTINGS)
    assert solution.estimate.status is Status.SOLVED
    assert solution.estimate.newton_steps == 0
    np.testing.assert_allclose(solution.estimate.values, wanted.estimate.values, atol=1e-5)
    assert np.array_equal(solution.counts, wanted.counts)


def test_where_no_other_solver_is_installed_a_limit_is_an_error(monkeypatch):
    monkeypatch.setattr(least_squares, "solve_quadratic", give_up)
    monkeypatch.setitem(sys.modules, "piqp", None)  # importing it fails
    with pytest.raises(SolverError) as caught:
        solve_node(PLAIN, SETTINGS)
    assert caught.value.where == "node node-7 (4 children, 6 live cells)"
    assert caught.value.got == "residual 1.0e+00"
    assert "install piqp" in str(caught.value)
    with pytest.raises(RuntimeSetupError, match=r"pip install '\.\[piqp\]' in a clone"):
        solve_node(PLAIN, NodeSettings(least_squares=LeastSquaresSolver.PIQP))


def test_a_contradiction_ends_with_its_evidence():
    with pytest.raises(InfeasibleError) as caught:
        solve_node(contradictory(), SETTINGS)
    assert caught.value.where == "node node-7 (3 children, 4 live cells)"
    assert "add up to at least 3 persons" in caught.value.got


@pytest.mark.parametrize("law", [Laplace, Gaussian])
def test_reweighted_counts_are_certified_and_keep_promises(law):
    problem = random_node(Shape(3, 5, exact=(1,), persons=2.0, sparse=0.8, spread=1.0), 4)
    solution = solve_node(problem, NodeSettings(method=Method.REWEIGHTED, noise=law))
    assert solution.estimate.certificate.residual <= SETTINGS.tolerance
    assert optimality_gap(reweight(problem, law), solution.estimate.values) <= 1e-6
    assert optimality_gap(problem, solution.estimate.values) > 1e-3
    verify_counts(problem, solution.counts)
    assert np.abs(solution.counts - solution.estimate.values).max() < 1


def test_maxfit_counts_are_certified_and_keep_promises():
    problem = random_node(Shape(3, 5, exact=(1,), sparse=0.0), 2)
    solution = solve_node(problem, NodeSettings(method=Method.MAXFIT))
    assert solution.estimate.certificate.residual <= SETTINGS.tolerance
    wanted = fit_largest_in_node(problem)
    np.testing.assert_allclose(solution.estimate.values, wanted, atol=1e-5)
    nearest = estimate_node(problem, SETTINGS).values
    assert largest_deviation(problem, wanted) < largest_deviation(problem, nearest) - 0.1
    verify_counts(problem, solution.counts)
    assert np.abs(solution.counts - solution.estimate.values).max() < 1


def largest_deviation(problem: NodeProblem, values: np.ndarray) -> float:
    """In standard deviations of the noise."""
    return max(
        float(np.abs((group_sums(values, t.groups, t.answers.shape[1]) - t.answers)
                     * np.sqrt(t.weights)[:, None]).max())
        for t in problem.terms
    )  # fmt: skip


def test_a_pass_whose_query_has_no_weight_is_solved():
    """Its answers then count as little as the least that do; the last pass has all terms."""
    total, middle, cells = PLAIN.terms
    weights = np.where(np.arange(4) % 2, total.weights, 0.0)
    blind = replace(PLAIN, terms=(replace(total, weights=weights), middle, cells))
    sequential = NodeSettings(method=Method.SEQUENTIAL)
    found = solve_node(blind, sequential)
    assert found.estimate.certificate.residual <= SETTINGS.tolerance
    least = np.minimum(middle.weights, cells.weights)
    weak = np.where(weights > 0, weights, least)
    seen = replace(PLAIN, terms=(replace(total, weights=weak), middle, cells))
    wanted = solve_node(seen, sequential).estimate.values
    np.testing.assert_allclose(found.estimate.values, wanted, atol=1e-5)
