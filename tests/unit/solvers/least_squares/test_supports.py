"""Nodes solved by their supports alone, and what is done where the supports are not found."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from solvers import node
from solvers.choices import LeastSquaresSolver
from solvers.dual_newton.dual_ascent import solve_compiled
from solvers.dual_newton.projected import solve_projected
from solvers.least_squares import solve as least_squares
from solvers.least_squares.blocks import arrange, extent
from solvers.least_squares.solve import solve_by_supports, solve_quadratic
from solvers.node import NodeSettings, estimate_node
from solvers.problem import ExactTerm, Status, group_sums
from tests.builders.strategies import Shape, random_node

CROSSING = random_node(Shape(4, 160, persons=1.0), 3)  # two of its queries cross
SETTINGS = NodeSettings()


@pytest.fixture
def no_path(monkeypatch):
    """Interior points may not be used."""

    def follow_path(*_):
        raise AssertionError("interior points")

    monkeypatch.setattr(least_squares, "follow_path", follow_path)


@pytest.fixture
def no_supports(monkeypatch):
    """Active-set steps end before they find the supports."""
    monkeypatch.setattr(least_squares, "MOST_STEPS", 1)


@pytest.mark.parametrize("cells", [12, 160])
def test_found_supports_are_the_structured_solution(cells):
    problem = random_node(Shape(3, cells, persons=1.0), 3)
    estimate = solve_by_supports(problem, 1e-7)
    assert estimate.status is Status.SOLVED
    assert estimate.certificate.residual <= 1e-7
    assert np.array_equal(estimate.values, solve_quadratic(problem, 1e-7).values)


@pytest.mark.usefixtures("no_supports")
def test_supports_that_are_not_found_are_no_solution():
    assert solve_by_supports(CROSSING, 1e-7) is None


ALIKE = random_node(Shape(4, 160, persons=1.0, scales=True), 3)
UNEQUAL = random_node(Shape(4, 160, persons=1.0, unequal=True), 3)
BOUND = random_node(Shape(4, 160, persons=1.0, exact=(1, 5)), 3)
TOTAL_FIRST = replace(CROSSING, order=((0,), (1, 2)))


@pytest.mark.parametrize(
    "problem", [CROSSING, ALIKE, UNEQUAL], ids=["crossing", "alike", "unequal"]
)
def test_the_extent_is_that_of_the_arranged_problem(problem):
    q = arrange(problem)
    sizes = (q.cells < problem.n_cells).sum(1)
    largest_block, numbers, _ = extent(problem)
    assert largest_block == sizes.max()
    assert numbers == max(q.blocks.shape[1], 4 * 0.2**2) * (sizes**2).sum()


@pytest.mark.parametrize("problem", [CROSSING, UNEQUAL, BOUND, TOTAL_FIRST])
@pytest.mark.parametrize("limit", ["_MOST_NUMBERS", "_LARGE_BLOCK"])
def test_matrices_that_would_be_large_are_not_made(problem, limit, monkeypatch):
    with monkeypatch.context() as context:
        context.setattr(node, "_SOME_CELLS", 10**9)
        wanted = estimate_node(problem, SETTINGS)
    monkeypatch.setattr(node, limit, 0)
    found = estimate_node(problem, SETTINGS)
    assert found.status is Status.SOLVED
    assert not np.array_equal(found.values, wanted.values)
    np.testing.assert_allclose(found.values, wanted.values, atol=1e-5)


def test_given_sums_that_cross_need_matrices(monkeypatch):
    monkeypatch.setattr(node, "_LARGE_BLOCK", 0)
    monkeypatch.setattr(node, "solve_compiled", None)  # calling it fails
    crossing = (np.arange(160) % 2, np.arange(160) // 80)
    values = solve_quadratic(CROSSING, 1e-7).values
    exact = tuple(ExactTerm(g, group_sums(np.rint(values), g, 2)) for g in crossing)
    problem = replace(CROSSING, parent=np.rint(values).sum(0) + 0.0, exact=exact)
    assert estimate_node(problem, SETTINGS).status is Status.SOLVED


@pytest.mark.usefixtures("no_path", "no_supports")
def test_where_supports_are_not_found_no_matrix_is_needed():
    wanted = solve_compiled(CROSSING, SETTINGS.tolerance)
    assert wanted is not None
    estimate = estimate_node(CROSSING, SETTINGS)
    assert estimate.status is Status.SOLVED
    assert np.array_equal(estimate.values, wanted.values)


@pytest.mark.usefixtures("no_path", "no_supports")
@pytest.mark.parametrize("is_taken", [True, False])
def test_projected_steps_stand_behind_climbing(monkeypatch, is_taken):
    def give_up(problem, tolerance, fixed):
        found = solve_compiled(problem, tolerance, fixed)
        return replace(found, status=Status.LIMIT) if is_taken and found else None

    monkeypatch.setattr(node, "solve_compiled", give_up)
    wanted = solve_projected(CROSSING, SETTINGS.tolerance).values
    estimate = estimate_node(CROSSING, SETTINGS)
    assert estimate.status is Status.SOLVED
    assert np.array_equal(estimate.values, wanted)


@pytest.mark.parametrize("limit", ["_COUPLED_BLOCK", "_MOST_FACTORISED"])
def test_loops_are_first_where_blocks_are_large_or_cells_are_many(monkeypatch, limit):
    assert node._has_small_blocks(CROSSING, ())
    monkeypatch.setattr(node, "solve_by_supports", None)  # calling it fails
    monkeypatch.setattr(node, limit, 0)
    assert estimate_node(CROSSING, SETTINGS).status is Status.SOLVED


@pytest.mark.parametrize("problem", [BOUND, TOTAL_FIRST], ids=["given", "passes"])
def test_given_sums_that_add_up_need_no_matrix(problem, monkeypatch):
    with monkeypatch.context() as context:
        context.setattr(node, "_COUPLED_BLOCK", 0)
        context.setattr(node, "solve_projected", None)  # calling it fails
        estimate = estimate_node(problem, SETTINGS)
    assert estimate.status is Status.SOLVED
    assert estimate.certificate.residual <= SETTINGS.tolerance
    monkeypatch.setattr(node, "_SOME_CELLS", 10**9)
    wanted = estimate_node(problem, SETTINGS)
    np.testing.assert_allclose(estimate.values, wanted.values, atol=1e-5)
    assert not np.array_equal(estimate.values, wanted.values)


def test_given_sums_that_contradict_the_parent_are_not_climbed(monkeypatch):
    monkeypatch.setattr(node, "solve_compiled", None)  # calling it fails
    targets = BOUND.exact[-1].targets.copy()
    targets[0, 0] += 1
    exact = (*BOUND.exact[:-1], replace(BOUND.exact[-1], targets=targets))
    estimate = estimate_node(replace(BOUND, exact=exact), SETTINGS)
    assert estimate.status is Status.INFEASIBLE
    assert estimate.evidence


@pytest.mark.usefixtures("no_supports")
@pytest.mark.parametrize("shape", [Shape(4, 40), Shape(4, 40, exact=(1,)), Shape(4, 160, rows=2)])
def test_small_and_bound_nodes_go_by_interior_points(shape, monkeypatch):
    monkeypatch.setattr(node, "solve_compiled", None)  # calling it fails
    estimate = estimate_node(random_node(shape, 3), SETTINGS)
    assert estimate.status is Status.SOLVED
    assert estimate.iterations > 0


@pytest.mark.usefixtures("no_supports")
def test_interior_points_stand_behind_those_without_matrices(monkeypatch):
    def give_up(problem, tolerance, fixed):
        return replace(solve_projected(problem, tolerance, fixed), status=Status.LIMIT)

    wanted = solve_projected(CROSSING, SETTINGS.tolerance).values
    monkeypatch.setattr(node, "solve_compiled", give_up)
    monkeypatch.setattr(node, "solve_projected", give_up)
    monkeypatch.setitem(sys.modules, "piqp", None)  # importing it fails
    estimate = estimate_node(CROSSING, SETTINGS)
    assert estimate.status is Status.SOLVED
    np.testing.assert_allclose(estimate.values, wanted, atol=1e-5)
    assert not np.array_equal(estimate.values, wanted)


def test_another_solver_that_was_asked_for_is_used(monkeypatch):
    monkeypatch.setattr(node, "solve_by_supports", None)  # calling it fails
    settings = NodeSettings(1e-5, LeastSquaresSolver.PIQP)
    assert estimate_node(CROSSING, settings).status is Status.SOLVED
