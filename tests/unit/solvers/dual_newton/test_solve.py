"""Parts of the matrix-free solver, and what it does with input it cannot solve."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.large_node import large_node
from das.errors import SolverError
from solvers.dual_newton.face import conjugate_gradients
from solvers.dual_newton.layers import FORBIDDEN, lift
from solvers.dual_newton.solve import DualIterate, certify, project, solve_matrix_free
from solvers.problem import ExactTerm, GeneralTerm, LeastSquaresTerm, NodeProblem, Status


def small_node(answers: tuple[tuple[float, ...], ...], parent: tuple[int, ...]) -> NodeProblem:
    """Detailed answers and a total for every child."""
    y = np.array(answers)
    C, k = y.shape
    total = LeastSquaresTerm(np.zeros(k, np.int64), y.sum(1)[:, None], np.full(C, 2.0))
    detailed = LeastSquaresTerm(np.arange(k), y, np.ones(C))
    return NodeProblem("n", k, np.array(parent), (total, detailed), (), ())


def test_a_projection_assigns_the_parent_to_the_children():
    field = np.array([[3.0, -4.0, 1.0], [1.0, 2.0, FORBIDDEN], [-5.0, 1.0, 0.5]])
    unit = np.array([1.0, 2.0, 1.0])
    parent = np.array([2.0, 6.0, 2.5])
    x, multiplier = project(field, unit, parent)
    assert np.allclose(x.sum(0), parent)
    assert np.allclose(x, np.maximum(field + multiplier / unit[:, None], 0))
    again, _ = project(field, unit, parent, start=np.array([50.0, -50.0, 0.0]))
    assert np.allclose(again, x)


def test_a_node_by_hand():
    # Both children may keep what they said; the total agrees.
    estimate = solve_matrix_free(small_node(((3.0, 1.0), (2.0, 5.0)), (5, 6)), 1e-9)
    assert estimate.status is Status.SOLVED
    assert np.allclose(estimate.values, [[3, 1], [2, 5]])
    # -2 is not possible: child 0 gets nothing in cell 0.
    estimate = solve_matrix_free(small_node(((-2.0, 4.0), (6.0, 2.0)), (4, 6)), 1e-9)
    assert np.allclose(estimate.values[:, 0], [0, 4])


def test_a_query_without_cells_of_its_own_is_refused():
    problem = small_node(((3.0, 1.0), (2.0, 5.0)), (5, 6))
    total, detailed = problem.terms
    with pytest.raises(SolverError, match="no detailed answers"):
        solve_matrix_free(replace(problem, terms=(total,)), 1e-9)
    unasked = replace(detailed, weights=np.array([1.0, 0.0]))
    with pytest.raises(SolverError, match="no detailed answers"):
        solve_matrix_free(replace(problem, terms=(total, unasked)), 1e-9)
    general = GeneralTerm(np.eye(2), np.ones((2, 2)), np.ones(2))
    with pytest.raises(SolverError, match="not a partition"):
        solve_matrix_free(replace(problem, terms=(general, detailed)), 1e-9)


def test_a_node_without_solution_ends_at_a_limit():
    problem = small_node(((3.0, 1.0), (2.0, 5.0)), (5, 6))
    totals = ExactTerm(np.zeros(2, np.int64), np.array([[9], [9]]))  # the parent has 11
    estimate = solve_matrix_free(replace(problem, exact=(totals,)), 1e-6)
    assert estimate.status is Status.LIMIT
    assert estimate.certificate.residual > 1e-3


def test_a_certificate_sees_every_fault():
    problem = large_node(300, 3)
    dual = DualIterate(lift(problem))
    assert certify(problem, dual).stationarity > 1e-2  # the start is no optimum
    assert certify(problem, dual).primal < 1e-12
    dual.x[0, 0] += 0.5
    assert certify(problem, dual).primal > 1e-3


def test_sums_and_spread_are_adjoint():
    q = lift(large_node(300, 3))
    rng = np.random.default_rng(1)
    x = rng.normal(size=q.base.shape)
    u = [rng.normal(size=(3, layer.size)) for layer in q.layers]
    forward = sum(float((a * b).sum()) for a, b in zip(q.sums(x), u, strict=True))
    back = float((x * q.spread(u, np.zeros_like(x))).sum())
    assert np.isclose(forward, back)
    for layer, found in zip(q.layers, q.sums(x), strict=True):
        assert np.allclose(found[1], np.bincount(layer.groups, x[1], layer.size))


def test_conjugate_gradients_solve_and_stop_at_their_limit():
    rng = np.random.default_rng(2)
    root = rng.normal(size=(30, 30))
    matrix, right = root @ root.T + np.eye(30), rng.normal(size=30)
    inverse = 1 / np.diag(matrix)
    v, _ = conjugate_gradients(lambda p: matrix @ p, lambda r: inverse * r, right, 1e-12, 500)
    assert np.allclose(v, np.linalg.solve(matrix, right))
    _, used = conjugate_gradients(lambda p: matrix @ p, lambda r: inverse * r, right, 1e-12, 3)
    assert used == 3


def test_a_mid_node_is_solved():
    problem = large_node(1500, 4)
    estimate = solve_matrix_free(problem, 1e-7)
    assert estimate.status is Status.SOLVED
    assert np.allclose(estimate.values.sum(0), problem.parent)
    assert estimate.values.min() >= 0
