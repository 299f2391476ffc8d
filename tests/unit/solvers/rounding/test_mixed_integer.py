"""Mixed-integer programs: answers known by hand, and that no limit passes for a solution."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from das.errors import SolverError
from solvers.rounding.mixed_integer import MixedIntegerProgram, Outcome, solve_mixed_integer


def program(c, A, lower, upper, *, whole=True, most=10.0) -> MixedIntegerProgram:
    n = len(c)
    return MixedIntegerProgram(
        np.array(c, float),
        np.full(n, whole),
        np.zeros(n),
        np.full(n, most),
        csr_array(np.array(A, float).reshape(-1, n)),
        np.array(lower, float),
        np.array(upper, float),
    )


def test_whole_numbers_cost_more_than_real_ones():
    """minimise x + y subject to 2x + 2y >= 3."""
    x, gap, outcome = solve_mixed_integer(program([1, 1], [[2, 2]], [3], [np.inf]), 60)
    assert (x.sum(), gap, outcome) == (2.0, 0.0, Outcome.SOLVED)
    assert set(x.tolist()) <= {0.0, 1.0, 2.0}
    real = solve_mixed_integer(program([1, 1], [[2, 2]], [3], [np.inf], whole=False), 60)
    assert real.x.sum() == pytest.approx(1.5)
    assert (real.gap, real.outcome) == (pytest.approx(0.0), Outcome.SOLVED)


def test_no_rows_are_no_trouble():
    x, _, outcome = solve_mixed_integer(program([1, -1], [], [], []), 60)
    assert (x.tolist(), outcome) == ([0.0, 10.0], Outcome.SOLVED)


def test_what_has_no_whole_point_is_infeasible():
    x, gap, outcome = solve_mixed_integer(program([0, 0], [[2, 2]], [3], [3]), 60)
    assert (x, gap, outcome) == (None, np.inf, Outcome.INFEASIBLE)


def test_the_gap_is_closed():
    """A tolerance of 1e-4 would let a cost of 10,000.5 pass for one of 10,000."""
    x, gap, _ = solve_mixed_integer(program([1, 1.5], [[1, 1]], [10_000], [np.inf], most=1e5), 60)
    assert (x.tolist(), gap) == ([10_000.0, 0.0], 0.0)


def test_a_time_limit_is_no_solution():
    rng = np.random.default_rng(0)
    A = rng.integers(1, 100, (5, 60))
    hard = program(np.zeros(60), A, A.sum(1) // 2, A.sum(1) // 2, most=1.0)
    _, gap, outcome = solve_mixed_integer(hard, 0.01)
    assert outcome is Outcome.LIMIT
    assert gap > 0


def test_an_unbounded_program_is_an_error():
    with pytest.raises(SolverError, match="HiGHS failed"):
        solve_mixed_integer(program([-1, 0], [], [], [], most=np.inf), 60)
