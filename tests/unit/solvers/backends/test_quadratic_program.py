"""The sparse quadratic program has the objective and the constraints of the node."""

from __future__ import annotations

import numpy as np
import pytest

from solvers import constraints
from solvers.backends.quadratic_program import quadratic_program
from solvers.problem import LeastSquaresTerm, group_sums
from tests.builders.strategies import Shape, random_node


@pytest.mark.parametrize(
    "shape", [Shape(3, 5), Shape(4, 6, exact=(2,), rows=2), Shape(1, 8, exact=(1,), is_root=True)]
)
def test_objective_and_constraints_are_those_of_the_node(shape):
    problem = random_node(shape, 1)
    x = np.random.default_rng(2).random((problem.n_children, problem.n_cells)) * 9
    program = quadratic_program(problem)
    answers, objective = [], 0.0
    for term in problem.terms:
        assert isinstance(term, LeastSquaresTerm)
        sums = group_sums(x, term.groups, term.answers.shape[1])
        objective += float((term.weights[:, None] * sums * (0.5 * sums - term.answers)).sum())
        if term.answers.shape[1] < problem.n_cells:
            answers.append(sums.ravel())
    v = np.concatenate([x.ravel(), *answers])
    assert 0.5 * v @ (program.P @ v) - program.q @ v == pytest.approx(objective)
    assert (program.floor[: x.size] == 0).all()
    assert np.isneginf(program.floor[x.size :]).all()
    values = program.A @ v
    wanted = [one.A @ x.ravel() for one in constraints.of_node(problem)]
    first = sum(len(one) for one in wanted)
    assert values[:first] == pytest.approx(np.concatenate([np.zeros(0), *wanted]))
    # The rows after them say that answers are the sums of counts.
    assert np.abs(values[first:]).max(initial=0.0) < 1e-9
    assert (program.low[first:] == 0).all()
    assert (program.high[first:] == 0).all()
    assert len(values) == first + sum(len(one) for one in answers)
