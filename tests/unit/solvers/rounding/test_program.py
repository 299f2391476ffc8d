"""Sums of a node to be rounded, and their search written as a mixed-integer program."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from solvers.problem import LeastSquaresTerm, NodeProblem, RoundingQuery
from solvers.rounding.cost import STEPS, on_grid
from solvers.rounding.mixed_integer import Outcome, solve_mixed_integer
from solvers.rounding.program import write_program
from solvers.rounding.sums import Penalty, gather_sums

TOTAL, HALVES, CELLS = np.zeros(4, np.int64), np.array([0, 0, 1, 1]), np.arange(4)
PARENT = np.array([2, 1, 3, 1])
VALUES = np.array([[1.3, 0.6, 1.2, 0.4], [0.7, 0.4, 1.8, 0.6]])


def node(*queries: np.ndarray) -> NodeProblem:
    passes = tuple((RoundingQuery(groups),) for groups in queries)
    measured = LeastSquaresTerm(CELLS, VALUES, np.ones(2))
    return NodeProblem("n", 4, PARENT, (measured,), (), passes)


def sums_of(problem: NodeProblem):
    return gather_sums(problem, VALUES, np.arange(2))


def test_sums_of_counts_are_those_of_sets_and_cells():
    sums = sums_of(node(TOTAL, HALVES, CELLS))
    counts = np.array([[1, 0, 2, 1], [1, 1, 1, 0]])
    found = sums.of_counts(counts)
    assert np.array_equal(np.sort(found[0]), np.sort([4, 1, 3, *counts[0]]))
    assert np.array_equal(found[:, -4:], counts)
    assert sums.is_flow


@pytest.mark.parametrize("crossing", [False, True])
def test_the_program_finds_the_nearest_of_all_roundings(crossing):
    """Against every table between the floors and the ceilings of its cells."""
    sums = sums_of(node(TOTAL, CELLS) if not crossing else node(HALVES, np.arange(4) % 2, CELLS))
    assert sums.is_flow is not crossing
    low, high = sums.whole, sums.next_whole
    penalty = Penalty.of_distance(sums, len(sums.weights) - 1)
    solution = solve_mixed_integer(write_program(sums, low, high, penalty), 60.0)
    allowed = []
    floors = np.floor(VALUES).astype(np.int64)
    for up in itertools.product((0, 1), repeat=4):
        first = floors[0] + np.array(up)
        counts = np.array([first, PARENT - first])
        found = sums.of_counts(counts)
        if (counts >= 0).all() and ((found >= low) & (found <= high)).all():
            allowed.append((np.abs(counts - VALUES).sum(), counts.tolist()))
    assert len(allowed) > 1
    assert solution.outcome is Outcome.SOLVED
    u = np.rint(solution.x[:8]).astype(np.int64).reshape(2, 4)
    counts = u + low[:, -4:]
    assert counts.tolist() == min(allowed)[1]


def test_last_digits_do_not_reach_the_grid():
    values = np.array([0.3, 1.25, 7.0, 1 / 3])
    assert np.array_equal(on_grid(values + 1e-9), on_grid(values - 1e-9))
    assert np.abs(on_grid(values) / STEPS - values).max() <= 1 / STEPS
