"""Cutting planes: what is added, when they stop, and that they cut off nothing that can be dealt."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from das.errors import SolverError
from invariants.implied import can_be_assigned, most_violated
from invariants.leaves import Leaves
from solvers.least_squares.cuts import bounds_of, solve_with_cuts
from solvers.least_squares.solve import solve_quadratic
from solvers.problem import (
    Certificate,
    Estimate,
    NodeProblem,
    Status,
)
from tests.builders import node as builders

CAP = 99_999
SOLVE = partial(solve_quadratic, tolerance=1e-9)


def rows(facilities, totals) -> Leaves:
    f, T = np.array(facilities, np.int64), np.array(totals, np.int64)
    return Leaves(f, f * CAP, T, T)


def node(leaves: list[Leaves], noisy, parent=None) -> NodeProblem:
    """One cell per type; the total of every child is exact."""
    totals = [[leaf.low.sum()] for leaf in leaves]
    everybody = np.zeros(leaves[0].n_types, np.int64)
    return builders.node(noisy, parent=parent, exact=[(everybody, totals)], leaves=leaves)


# Three blocks, each with two of the types A, B, C and D; single types alone allow A = B = 5.
CHAIN = rows([[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 0, 0]], [50, 100, 50])


def test_a_violated_set_is_added_and_then_kept():
    problem = node([CHAIN], [[3, 3, 100, 94]])
    found = solve_with_cuts(problem, SOLVE)
    assert found.estimate.status is Status.SOLVED
    assert (found.cuts, found.rounds) == (1, 2)
    assert found.problem.rows[0].coefficients[-1].tolist() in ([1, 1, 0, 0], [0, 0, 1, 1])
    assert (found.problem.rows[0].least[0, -1], found.problem.rows[0].most[0, -1]) == (100, 100)
    np.testing.assert_allclose(found.estimate.values, [[50, 50, 53, 47]], atol=1e-6)


def test_single_types_do_not_show_it():
    problem = node([CHAIN], [[3, 3, 100, 94]])
    assert problem.leaves is not None
    single = replace(problem, rows=(bounds_of(problem.leaves, np.eye(4, dtype=bool)),), leaves=None)
    values = SOLVE(single).values[0]
    assert most_violated(CHAIN, values).violation == pytest.approx(94 - 2 / 3, abs=1e-6)


def test_nothing_is_added_where_nothing_is_violated():
    found = solve_with_cuts(node([CHAIN], [[30, 70, 60, 40]]), SOLVE)
    assert (found.cuts, found.rounds) == (0, 1)
    np.testing.assert_allclose(found.estimate.values, [[30, 70, 60, 40]], atol=1e-6)


def test_cuts_of_one_child_hold_in_all_with_their_own_bounds():
    other = rows([[1, 0, 0, 1]], [20])
    problem = node([CHAIN, other], [[3, 3, 100, 94], [10, 0, 0, 10]], parent=[60, 50, 60, 50])
    found = solve_with_cuts(problem, SOLVE)
    row = found.problem.rows[0]
    pair = [i for i, one in enumerate(row.coefficients.tolist()) if one == [1, 1, 0, 0]]
    if pair:
        assert (row.least[1, pair[0]], row.most[1, pair[0]]) == (1, 19)
    for leaves, values in zip((CHAIN, other), found.estimate.values, strict=True):
        assert most_violated(leaves, values).violation < 1e-5


def test_totals_that_are_not_exact_bound_one_row():
    """Without an exact total the bounds of all types together are among the first."""
    leaf = Leaves(np.array([[1, 1]]), np.array([[90, 90]]), np.array([10]), np.array([12]))
    problem = replace(node([leaf], [[40, 2]]), exact=())
    found = solve_with_cuts(problem, SOLVE)
    assert found.rounds == 1
    np.testing.assert_allclose(found.estimate.values.sum(), 12, atol=1e-6)


def test_a_stage_that_stops_at_its_limit_ends_the_loop():
    calls = []

    def stop(problem: NodeProblem) -> Estimate:
        calls.append(problem)
        residuals = Certificate(1.0, 1.0, 1.0, 1.0)
        return Estimate(np.zeros((1, 4)), residuals, Status.LIMIT, 0, 0)

    found = solve_with_cuts(node([CHAIN], [[3, 3, 100, 94]]), stop)
    assert (found.estimate.status, len(calls), found.cuts) == (Status.LIMIT, 1, 0)
    assert calls[0].leaves is None


def test_a_set_that_is_missed_again_ends_the_loop():
    """A stage that ignores its rows cannot keep the loop going."""
    solved = Certificate(0.0, 0.0, 0.0, 0.0)
    wrong = Estimate(np.array([[3.0, 3.0, 100.0, 94.0]]), solved, Status.SOLVED, 0, 0)
    assert solve_with_cuts(node([CHAIN], [[3, 3, 100, 94]]), lambda _: wrong).rounds == 2


def test_without_leaves_there_is_nothing_to_cut():
    with pytest.raises(SolverError, match="has no leaves"):
        solve_with_cuts(replace(node([CHAIN], [[1, 1, 1, 1]]), leaves=None), SOLVE)


def test_solutions_can_be_assigned_and_are_nearest():
    """Against the closest of all integer counts that can be dealt, which is never closer."""
    for seed in range(15):
        rng = np.random.default_rng(seed)
        f = rng.integers(0, 2, (3, 3)) * (rng.random((3, 3)) < 0.7)
        f[f.sum(1) == 0, 0] = 1
        leaves = rows(f, f.sum(1) + rng.integers(0, 4, 3))
        noisy = rng.normal(4, 6, (1, 3))
        values = solve_with_cuts(node([leaves], noisy), SOLVE).estimate.values[0]
        assert most_violated(leaves, values).violation < 1e-5
        total = int(leaves.low.sum())
        dealt = [
            (a, b, total - a - b)
            for a in range(total + 1)
            for b in range(total - a + 1)
            if can_be_assigned(leaves, np.array([a, b, total - a - b]))
        ]
        nearest = min(((np.array(one) - noisy[0]) ** 2).sum() for one in dealt)
        assert ((values - noisy[0]) ** 2).sum() <= nearest + 1e-6
