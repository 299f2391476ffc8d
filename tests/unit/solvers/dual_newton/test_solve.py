"""Small nodes by hand, certificates, and input that the dual Newton method cannot solve."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.large_node import large_node
from das.errors import SolverError
from solvers.dual_newton.dual_ascent import certify, lift, solve_compiled
from solvers.problem import Estimate, GeneralTerm, LeastSquaresTerm, NodeProblem, Status, group_sums


def small_node(answers: tuple[tuple[float, ...], ...], parent: tuple[int, ...]) -> NodeProblem:
    """Detailed answers and a total for every child."""
    y = np.array(answers)
    C, k = y.shape
    total = LeastSquaresTerm(np.zeros(k, np.int64), y.sum(1)[:, None], np.full(C, 2.0))
    detailed = LeastSquaresTerm(np.arange(k), y, np.ones(C))
    return NodeProblem("n", k, np.array(parent), (total, detailed), (), ())


def solved(problem: NodeProblem, tolerance: float) -> Estimate:
    estimate = solve_compiled(problem, tolerance)
    assert estimate is not None
    return estimate


def test_a_node_by_hand():
    # Both children may keep what they said; the total agrees.
    estimate = solved(small_node(((3.0, 1.0), (2.0, 5.0)), (5, 6)), 1e-9)
    assert estimate.status is Status.SOLVED
    assert np.allclose(estimate.values, [[3, 1], [2, 5]])
    # -2 is not possible: child 0 gets nothing in cell 0.
    estimate = solved(small_node(((-2.0, 4.0), (6.0, 2.0)), (4, 6)), 1e-9)
    assert np.allclose(estimate.values[:, 0], [0, 4])


def test_a_query_without_cells_of_its_own_is_refused():
    problem = small_node(((3.0, 1.0), (2.0, 5.0)), (5, 6))
    total, detailed = problem.terms
    with pytest.raises(SolverError, match="no detailed answers"):
        solved(replace(problem, terms=(total,)), 1e-9)
    unasked = replace(detailed, weights=np.array([1.0, 0.0]))
    with pytest.raises(SolverError, match="no detailed answers"):
        solved(replace(problem, terms=(total, unasked)), 1e-9)
    general = GeneralTerm(np.eye(2), np.ones((2, 2)), np.ones(2))
    with pytest.raises(SolverError, match="not a partition"):
        solved(replace(problem, terms=(general, detailed)), 1e-9)


def test_a_certificate_sees_every_fault():
    problem = large_node(300, 3)
    q = lift(problem)
    estimate = solve_compiled(problem, 1e-7)
    assert estimate is not None
    x, none = estimate.values.copy(), [np.zeros((3, layer.size)) for layer in q.layers]
    fault = certify(problem, q, x, [*none, np.zeros((3, 0))], np.zeros(problem.n_cells))
    assert fault.stationarity > 1e-2  # without the multipliers of its coupling
    assert fault.primal < 1e-12
    x[0, 0] += 0.5
    assert (
        certify(problem, q, x, [*none, np.zeros((3, 0))], np.zeros(problem.n_cells)).primal > 1e-3
    )


def test_multipliers_are_spread_as_answers_are_summed():
    q = lift(large_node(300, 3))
    rng = np.random.default_rng(1)
    x = rng.normal(size=q.base.shape)
    u = [rng.normal(size=(3, layer.size)) for layer in q.layers]
    sums = [group_sums(x, layer.groups, layer.size) for layer in q.layers]
    forward = sum(float((a * b).sum()) for a, b in zip(sums, u, strict=True))
    assert np.isclose(forward, float((x * q.spread(u, np.zeros_like(x))).sum()))


def test_a_mid_node_is_solved():
    problem = large_node(1500, 4)
    estimate = solved(problem, 1e-7)
    assert estimate.status is Status.SOLVED
    assert np.allclose(estimate.values.sum(0), problem.parent)
    assert estimate.values.min() >= 0
