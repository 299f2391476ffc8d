"""The failsafe finds the nearest parent that children can add up to, and keeps what is exact."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from das.errors import InfeasibleError, SolverError
from invariants.leaves import Leaves
from solvers.problem import NO_LIMIT, ExactTerm, LeastSquaresTerm, LeavesTerm, NodeProblem, RowsTerm
from solvers.rounding.failsafe import KeptSums, nearest_parent
from solvers.rounding.mixed_integer import MixedIntegerSolution, Outcome

ALL = np.zeros(3, np.int64)
TYPES = np.arange(3)


def leaves(facilities: list[list[int]], totals: list[int]) -> Leaves:
    """Leaves of exact totals, with so many facilities of each type."""
    least = np.array(facilities)
    most = np.where(least > 0, np.array(totals)[:, None], 0)
    return Leaves(least, most, np.array(totals), np.array(totals))


def family(
    parent: list[int], *, fixed: tuple[np.ndarray, ...] = (), score: object = 0.0, **given: object
) -> tuple[NodeProblem, np.ndarray, KeptSums]:
    """A parent of three cells, one per type, and two children without promises but those given."""
    term = LeastSquaresTerm(TYPES, np.full((2, 3), score), np.ones(2))
    before = np.array(parent)
    return (
        NodeProblem("44007", 3, before, (term,), **{"exact": (), "passes": (), **given}),
        before,
        KeptSums(fixed),
    )


def test_the_example_of_two_blocks():
    """Two blocks of 100, types A and B in one and C in the other, given A = 1, B = 1, C = 198."""
    blocks = LeavesTerm(TYPES, (leaves([[1, 1, 0]], [100]), leaves([[0, 0, 1]], [100])))
    found = nearest_parent(*family([1, 1, 198], leaves=blocks, fixed=(ALL,)))
    assert found.sum() == 200
    assert found[2] == 100
    assert found[:2].min() >= 1
    assert np.abs(found - [1, 1, 198]).sum() == 196  # 98 persons move, each counts twice


def test_a_feasible_parent_stays():
    blocks = LeavesTerm(TYPES, (leaves([[1, 1, 0]], [100]), leaves([[0, 0, 1]], [100])))
    assert nearest_parent(*family([70, 30, 100], leaves=blocks)).tolist() == [70, 30, 100]


def test_a_class_grows_and_shrinks_in_proportion():
    total = ExactTerm(np.array([0, 0, 1]), np.array([[9, 4], [6, 2]]))
    assert nearest_parent(*family([6, 4, 10], exact=(total,))).tolist() == [9, 6, 6]


def test_an_empty_class_is_filled_where_the_measurements_speak_for_it():
    total = ExactTerm(np.array([0, 1, 1]), np.array([[3, 2], [1, 0]]))
    given = family([6, 0, 0], exact=(total,), fixed=(ALL,), score=np.array([9.0, 0.1, 0.2]))
    assert nearest_parent(*given).tolist() == [4, 0, 2]


def test_without_limits_a_row_binds_nothing():
    free = RowsTerm(
        np.array([[1, 0, 0]]), np.full((2, 1), -NO_LIMIT), np.full((2, 1), NO_LIMIT), ("free",)
    )
    assert nearest_parent(*family([5, 1, 0], rows=(free,))).tolist() == [5, 1, 0]


def test_what_is_held_cannot_move():
    total = ExactTerm(ALL, np.array([[3], [4]]))
    with pytest.raises(InfeasibleError, match="node 44007: no counts of the parent"):
        nearest_parent(*family([6, 0, 0], exact=(total,), fixed=(ALL,)))
    assert nearest_parent(*family([6, 0, 0], exact=(total,))).sum() == 7


def test_a_time_out_is_no_solution():
    def late(program: object, seconds: float) -> MixedIntegerSolution:
        return MixedIntegerSolution(np.zeros(99), 0.3, Outcome.LIMIT)

    total = ExactTerm(ALL, np.array([[3], [4]]))
    with pytest.raises(SolverError, match=r"was not found in 600 s; got gap 3.0e-01"):
        nearest_parent(*family([6, 0, 0], exact=(total,)), late)


@pytest.mark.parametrize("seed", range(40))
def test_nothing_nearer_is_feasible(seed):
    """Against all parents of three cells up to 6 persons and all their splits in two."""
    rng = np.random.default_rng(seed)
    totals = rng.integers(0, 5, (2, 1))
    row = RowsTerm(
        rng.integers(0, 2, (1, 3)), rng.integers(0, 3, (2, 1)), np.full((2, 1), 3), ("row",)
    )
    given = family(rng.integers(0, 5, 3).tolist(), exact=(ExactTerm(ALL, totals),), rows=(row,))

    def allowed(child: tuple[int, ...], c: int) -> bool:
        value = int(row.coefficients[0] @ child)
        return sum(child) == totals[c, 0] and row.least[c, 0] <= value <= 3

    children = [[x for x in itertools.product(range(5), repeat=3) if allowed(x, c)] for c in (0, 1)]
    parents = {tuple(np.add(a, b)) for a, b in itertools.product(*children)}
    if not parents:
        with pytest.raises(InfeasibleError):
            nearest_parent(*given)
        return
    best = min(int(np.abs(np.subtract(p, given[1])).sum()) for p in parents)
    found = nearest_parent(*given)
    assert tuple(found) in parents
    assert int(np.abs(found - given[1]).sum()) == best
