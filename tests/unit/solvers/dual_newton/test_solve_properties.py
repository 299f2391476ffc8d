"""The matrix-free solver on drawn nodes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.dual_newton.solve import solve_matrix_free
from solvers.problem import Status, group_sums
from tests.builders.strategies import random_node, shapes
from tests.unit.solvers.least_squares.quadratic import optimality_gap


@settings(max_examples=40, deadline=None)
@given(shapes(), st.integers(0, 1000))
def test_a_solved_node_keeps_its_promises(shape, seed):
    problem = random_node(shape, seed)
    estimate = solve_matrix_free(problem, 1e-8)
    solved = estimate.certificate.residual <= 1e-8
    assert (estimate.status is Status.SOLVED) == solved
    if not solved:
        return
    x = estimate.values
    size = max(1.0, float(x.max()))
    assert x.min() >= 0
    if problem.parent is not None:
        assert np.abs(x.sum(0) - problem.parent).max() <= 1e-7 * size
    for exact in problem.exact:
        found = group_sums(x, exact.groups, exact.targets.shape[1])
        assert np.abs(found - exact.targets).max() <= 1e-7 * size
    assert optimality_gap(problem, x) <= 1e-6
