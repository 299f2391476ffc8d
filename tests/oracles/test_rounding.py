"""The integer stage against every rounding there is, and against branch and bound."""

from __future__ import annotations

import numpy as np
import pytest

from solvers.least_squares import solve_least_squares
from solvers.problem import NodeProblem
from solvers.rounding import round_counts
from tests.oracles.roundings import (
    all_controlled,
    is_controlled,
    least_cost_by_milp,
    least_costs_by_trying_all,
    pass_cost,
)
from tests.strategies import Shape, fractional_point, random_node

TINY = {
    "totals, cells": Shape(3, 3, passes=((1,), ())),
    "one pass": Shape(3, 3, passes=((),)),
    "three levels": Shape(2, 4, passes=((1,), (2,))),
    "two queries in a pass": Shape(2, 4, passes=((1, 2),)),
    "exact totals": Shape(3, 3, exact=(1,), passes=((1,), ())),
    "exact groups": Shape(2, 4, exact=(2,), passes=((1,), ())),
    "exact finer than a pass": Shape(3, 3, exact=(1, 2), passes=((1,), ())),
    "exact coarser than a pass": Shape(2, 4, exact=(1,), passes=((2,), ())),
    "one child": Shape(1, 5, passes=((1,), (2,))),
    "root": Shape(1, 8, passes=((1,), (2,)), is_root=True),
    "root with totals": Shape(1, 8, exact=(2,), passes=((1,), (4,)), is_root=True),
    "one cell": Shape(4, 1, passes=((1,), ())),
}


def rounded(problem: NodeProblem, values: np.ndarray) -> np.ndarray:
    counts, widened = round_counts(problem, values)
    assert not widened
    return counts


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("shape", TINY.values(), ids=TINY)
def test_every_pass_costs_the_least_of_all_roundings(shape, seed):
    problem = random_node(shape, seed)
    values = fractional_point(problem, seed)
    ours = rounded(problem, values)
    assert is_controlled(problem, values, ours)
    costs = [pass_cost(problem, number, values, ours) for number in range(len(problem.passes))]
    assert costs == least_costs_by_trying_all(problem, values, ours)


@pytest.mark.parametrize(
    "shape",
    [
        Shape(5, 9, passes=((1,), (3,)), persons=0.3, sparse=0.0),
        Shape(6, 12, passes=((1,), (3,)), persons=0.3, sparse=0.0),
    ],
)
def test_no_pass_leaves_the_bounds_to_save_cost(shape):
    """Whole numbers and sums of the other passes would have to move, for a cheaper pass."""
    for seed in range(150):
        problem = random_node(shape, seed)
        values = fractional_point(problem, seed)
        assert is_controlled(problem, values, rounded(problem, values))


def test_the_tiny_cases_leave_a_choice():
    """A test of minimal cost shows little where there is one rounding only."""
    choices = []
    for shape in TINY.values():
        for seed in range(6):
            problem = random_node(shape, seed)
            choices.append(len(list(all_controlled(problem, fractional_point(problem, seed)))))
    assert np.mean(np.array(choices) > 1) > 0.6
    assert max(choices) > 30


@pytest.mark.parametrize(
    "shape",
    [
        Shape(8, 24, passes=((1,), (6,))),
        Shape(5, 30, passes=((1, 3), (15,))),
        Shape(6, 20, exact=(1, 5), passes=((1,), (10,))),
        Shape(1, 60, passes=((1,), (6,), (20,)), is_root=True),
    ],
)
def test_medium_nodes_cost_what_branch_and_bound_finds(shape):
    problem = random_node(shape, 3)
    values = fractional_point(problem, 3, moves=300)
    ours = rounded(problem, values)
    assert is_controlled(problem, values, ours)
    for number in range(len(problem.passes)):
        least = least_cost_by_milp(problem, values, ours, number)
        assert pass_cost(problem, number, values, ours) == pytest.approx(least, abs=1e-6)


@pytest.mark.parametrize("exact", [(), (1,)])
def test_solutions_of_the_continuous_stage_are_rounded_at_the_least_cost(exact):
    """Real solutions: any fractions, costs in millionths of a person."""
    for seed in range(5):
        problem = random_node(Shape(4, 12, exact, passes=((1,), (4,)), scales=True), seed)
        values = solve_least_squares(problem, 1e-7).values
        ours = rounded(problem, values)
        first = least_cost_by_milp(problem, values, ours, 0)
        arcs = values.size
        assert pass_cost(problem, 0, values, ours) <= first + 1e-6 * (arcs + 1)
