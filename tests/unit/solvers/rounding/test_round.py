"""The integer stage: cases known by hand, float error, impossible nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from das.errors import InfeasibleError, SolverError
from invariants.leaves import Leaves
from solvers.problem import (
    NO_LIMIT,
    LeavesTerm,
    NodeProblem,
    RoundingQuery,
    RowsTerm,
    Status,
    group_sums,
)
from solvers.rounding.mixed_integer import (
    MixedIntegerProgram,
    MixedIntegerSolution,
    Outcome,
    solve_mixed_integer,
)
from solvers.rounding.round import Method, round_counts
from solvers.verify import verify_counts
from tests.builders import node as builders
from tests.unit.solvers.rounding.roundings import all_controlled, costs, pass_cost

CELLS2, CELLS3 = RoundingQuery(np.arange(2)), RoundingQuery(np.arange(3))
TOTAL2, TOTAL3 = RoundingQuery(np.zeros(2, np.int64)), RoundingQuery(np.zeros(3, np.int64))


def node(parent, passes, exact=(), children=2, cells=3) -> NodeProblem:
    return builders.node(np.zeros((children, cells)), parent=parent, exact=exact, passes=passes)


def test_whole_numbers_stay():
    values = np.array([[3.0, 0, 2], [1, 4, 0]])
    problem = node(values.sum(0).astype(int), ((TOTAL3,), (CELLS3,)))
    rounding = round_counts(problem, values)
    assert rounding.counts.dtype == np.int64
    assert rounding.counts.tolist() == values.tolist()
    assert (rounding.widened, rounding.method, rounding.gap) == (0, Method.FLOW, 0.0)
    assert rounding.status is Status.SOLVED


def test_each_cell_goes_to_the_nearer_child():
    values = np.array([[0.7, 0.2, 1.6], [0.3, 1.8, 1.4]])
    counts = round_counts(node([1, 2, 3], ((CELLS3,),)), values).counts
    assert counts.tolist() == [[1, 0, 2], [0, 2, 1]]


def test_totals_come_before_cells():
    """Cell by cell the second child gets everybody; its total of 1.8 allows two of three."""
    values = np.array([[0.4, 0.4, 0.4], [0.6, 0.6, 0.6]])
    by_cells = round_counts(node([1, 1, 1], ((CELLS3,),)), values).counts
    assert by_cells.sum(1).tolist() == [0, 3]
    by_totals = round_counts(node([1, 1, 1], ((TOTAL3,), (CELLS3,))), values).counts
    assert by_totals.sum(1).tolist() == [1, 2]
    in_one_pass = round_counts(node([1, 1, 1], ((TOTAL3, CELLS3),)), values).counts
    assert in_one_pass.sum(1).tolist() == [1, 2]


def test_a_root_is_rounded_without_a_parent():
    values = np.array([[0.5, 0.75, 1.0]])
    counts = round_counts(node(None, ((TOTAL3,), (CELLS3,)), children=1), values).counts
    assert counts.sum() == 2
    assert counts.tolist()[0][1:] == [1, 1]
    values = np.array([[0.25, 0.25, 0.25]])
    counts = round_counts(node(None, ((TOTAL3,), (CELLS3,)), children=1), values).counts
    assert counts.sum() == 1  # the total is nearer to one though every cell is nearer to none


def test_the_same_input_gives_the_same_ties():
    values = np.full((4, 3), 0.5)
    problem = node([2, 2, 2], ((TOTAL3,), (CELLS3,)), children=4)
    first = round_counts(problem, values).counts
    for _ in range(5):
        assert np.array_equal(round_counts(problem, values).counts, first)


@pytest.mark.parametrize("error", [1e-9, 1e-5, -1e-5, 3e-4])
def test_small_errors_of_the_continuous_stage_do_no_harm(error):
    """The values miss the equalities a little; the counts keep them exactly."""
    exact = [([0, 0, 0], [[5], [5]])]
    values = np.array([[3.0, 0.5, 1.5], [1.0, 3.5, 0.5]]) + error
    counts = round_counts(node([4, 4, 2], ((TOTAL3,), (CELLS3,)), exact), values).counts
    verify_counts(node([4, 4, 2], ((CELLS3,),), exact), counts)
    assert np.abs(counts - values).max() <= 1 + 2 * abs(error)


def test_bounds_are_widened_only_where_they_must_be():
    """A value that is off by more than the snap leaves its true integer outside."""
    off = np.array([[2.99, 1.0, 1.0], [1.0, 1.0, 1.0]])
    rounding = round_counts(node([4, 2, 2], ((TOTAL3,), (CELLS3,))), off)
    assert rounding.counts.tolist() == [[3, 1, 1], [1, 1, 1]]
    assert rounding.widened == 0
    off = np.array([[3.01, 1.0, 1.0], [1.01, 1.0, 1.0]])
    rounding = round_counts(node([3, 2, 2], ((CELLS3,),)), off)
    assert rounding.counts.sum(0).tolist() == [3, 2, 2]
    assert rounding.widened == 1
    assert (rounding.counts - np.floor(off))[:, 0].tolist() in ([-1, 0], [0, -1])


def test_a_sum_whose_own_limits_cross_is_widened():
    problem = node([4, 2], ((TOTAL2,), (CELLS2,)), [([0, 0], [[4], [2]])], cells=2)
    rounding = round_counts(problem, np.array([[2.0, 1.0], [2.0, 1.0]]))
    assert rounding.counts.sum(1).tolist() == [4, 2]
    assert rounding.widened == 4  # a total and a cell of each child


def test_counts_stay_nonnegative_when_bounds_are_widened():
    """A negative count would cost less here: 1.1 instead of 2.9."""
    exact = [([0, 0], [[0], [2]])]
    off = np.array([[0.0, 1.0], [0.9, 1.0]])
    rounding = round_counts(node([0, 2], ((CELLS2,),), exact, cells=2), off)
    assert rounding.counts.tolist() == [[0, 0], [0, 2]]
    assert rounding.widened == 2


def test_a_point_far_from_the_parent_is_moved_no_farther_than_it_must():
    values = np.array([[3.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    rounding = round_counts(node([40, 2, 2], ((CELLS3,),)), values)
    assert rounding.counts.sum(0).tolist() == [40, 2, 2]
    assert rounding.widened == 36


@pytest.mark.parametrize("method", Method)
def test_invariants_that_contradict_one_another_are_an_error_with_the_name_of_the_node(method):
    values = np.array([[3.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    problem = node([4, 2, 2], ((CELLS3,),), [([0, 0, 0], [[9], [9]])])
    with pytest.raises(InfeasibleError, match=r"^node 44007: no nonnegative integers keep"):
        round_counts(problem, values, method=method)
    asks = RowsTerm(np.zeros((1, 3), np.int64), np.full((2, 1), 1), np.full((2, 1), 5), ("zero",))
    problem = replace(node([4, 2, 2], ((CELLS3,),)), rows=(asks,))
    with pytest.raises(InfeasibleError, match=r"^node 44007: an invariant requires persons where"):
        round_counts(problem, values, method=method)
    targets = [([0, 0, 0], [[5, 1], [3, 0]])]
    with pytest.raises(InfeasibleError, match=r"^node 44007: an invariant requires persons where"):
        round_counts(node([4, 2, 2], ((CELLS3,),), targets), values, method=method)


@pytest.mark.parametrize("groups", [[0, 1], [1, 0]])
@pytest.mark.parametrize("error", [0.0, 1e-5])
def test_an_invariant_may_number_single_cells_in_another_order(groups, error):
    """With few live cells an invariant can separate all of them, last attribute first."""
    truth = np.array([[3, 1], [5, 2]])
    targets = truth[:, np.argsort(groups)]
    problem = node(
        truth.sum(0),
        ((RoundingQuery(np.zeros(2, np.int64)),), (RoundingQuery(np.arange(2)),)),
        [(groups, targets)],
        cells=2,
    )
    values = truth + error * np.array([[1, -1], [-1, 1]])
    counts = round_counts(problem, values).counts
    assert counts.tolist() == truth.tolist()


def test_one_cell_and_one_child():
    problem = node([7], ((RoundingQuery(np.zeros(1, np.int64)),),), children=1, cells=1)
    assert round_counts(problem, np.array([[7.0]])).counts.tolist() == [[7]]
    problem = node([7], ((RoundingQuery(np.zeros(1, np.int64)),),), children=3, cells=1)
    values = np.array([[2.25], [2.25], [2.5]])
    assert round_counts(problem, values).counts.sum() == 7


def test_huge_counts_keep_every_person():
    values = np.array([[3e8 + 0.25, 0.25, 1.5], [1.75, 3e8 + 0.75, 0.5]])
    parent = np.rint(values.sum(0)).astype(np.int64)
    rounding = round_counts(node(parent, ((TOTAL3,), (CELLS3,))), values)
    assert not rounding.widened
    assert np.array_equal(rounding.counts.sum(0), parent)
    assert np.abs(rounding.counts - values).max() < 1


# --- ties ----------------------------------------------------------------------------------------


def test_the_order_of_the_children_does_not_matter():
    rng = np.random.default_rng(5)
    values = np.array([[0.5, 0.5, 1.0], [0.5, 1.5, 0.0], [1.0, 0.5, 0.5], [2.0, 1.5, 1.5]])
    problem = node([4, 4, 3], ((TOTAL3,), (CELLS3,)), children=4)
    first = round_counts(problem, values).counts
    orders = [rng.permutation(4) for _ in range(20)]
    for order in orders:
        assert np.array_equal(round_counts(problem, values[order]).counts, first[order])


# --- passes --------------------------------------------------------------------------------------


def test_the_production_ordering_is_taken_pass_by_pass():
    """total | hhgq, hhgq x hispanic, .. x cenrace, .. x votingage, detailed: 8 x 2 x 2 x 3 cells."""
    hhgq, voting, hispanic, race = np.indices((8, 2, 2, 3)).reshape(4, -1)
    chain = [
        hhgq,
        2 * hhgq + hispanic,
        3 * (2 * hhgq + hispanic) + race,
        np.unique([hhgq, voting, hispanic, race], axis=1, return_inverse=True)[1],
        np.arange(96),
    ]
    second = tuple(RoundingQuery(groups) for groups in chain)
    passes = ((RoundingQuery(np.zeros(96, np.int64)),), second)
    rng = np.random.default_rng(1)
    tables = rng.poisson(2.0, (6, 96))
    shuffled = [np.take_along_axis(tables, rng.random((6, 96)).argsort(0), 0) for _ in range(4)]
    values = np.mean(shuffled, 0)
    problem = node(tables.sum(0), passes, children=6, cells=96)
    ours = round_counts(problem, values)
    program = round_counts(problem, values, method=Method.MIXED_INTEGER)
    assert ours.method is Method.FLOW
    theirs = costs(problem, values, program.counts)
    assert costs(problem, values, ours.counts) == pytest.approx(theirs, abs=1e-6)
    for query in (*passes[0], *second):
        m = int(query.groups.max()) + 1
        real, whole = group_sums(values, query.groups, m), group_sums(ours.counts, query.groups, m)
        assert np.abs(whole - real).max() < 1
    alone = round_counts(replace(problem, passes=((second[-1],),)), values)
    assert (
        costs(problem, values, ours.counts)[0] < np.abs(alone.counts.sum(1) - values.sum(1)).sum()
    )


def test_a_total_that_its_cells_cannot_reach_is_not_taken():
    """Totals alone would be (2, 1, 0), one person nearer; no cell can give the first child two."""
    values = np.array([[1.0, 0.6], [0.6, 0.2], [0.4, 0.2]])
    problem = node([2, 1], ((TOTAL2,), (CELLS2,)), children=3, cells=2)
    ours = round_counts(problem, values)
    assert ours.counts.tolist() == [[1, 1], [1, 0], [0, 0]]
    values = np.array([[0.9, 0.0], [0.9, 0.0], [0.2, 0.5], [0.0, 0.5]])
    problem = node([2, 1], ((TOTAL2,), (CELLS2,)), children=4, cells=2)
    least = [pass_cost(problem, 0, values, t) for t in all_controlled(problem, values)]
    ours = round_counts(problem, values).counts
    assert costs(problem, values, ours)[0] == pytest.approx(min(least))


# --- leaves --------------------------------------------------------------------------------------


def test_what_leaves_cannot_hold_is_not_given():
    """Blocks of 100 persons, one with facilities of types A and B, one of type C alone.

    Without the leaves A = 1, B = 1, C = 198 would do, which no split into blocks satisfies.
    """
    leaves = Leaves(
        np.array([[1, 1, 0], [0, 0, 1]]),
        np.array([[NO_LIMIT, NO_LIMIT, 0], [0, 0, NO_LIMIT]]),
        np.array([100, 100]),
        np.array([100, 100]),
    )
    free = Leaves(
        np.zeros((1, 3), int), np.full((1, 3), NO_LIMIT), np.zeros(1, int), np.array([99])
    )
    problem = node([101, 1, 198], ((TOTAL3,), (CELLS3,)))
    values = np.array([[1.0, 1.0, 198.0], [100.0, 0.0, 0.0]])
    bound = replace(problem, leaves=LeavesTerm(np.arange(3), (leaves, free)))
    assert round_counts(problem, values).counts.tolist() == values.tolist()
    with pytest.raises(InfeasibleError):
        round_counts(bound, values)
    free = replace(free, high=np.array([100]))
    bound = replace(problem, leaves=LeavesTerm(np.arange(3), (leaves, free)))
    for method in Method:
        rounding = round_counts(bound, values, method=method)
        assert rounding.counts[0].tolist() in ([100, 0, 100], [99, 1, 100])
        assert rounding.widened


@pytest.mark.parametrize("method", Method)
def test_leaves_ask_for_persons_of_each_type(method):
    """The first cell is nearer to nobody in child 0, whose leaves need one person there."""
    leaves = Leaves(np.array([[1, 0]]), np.full((1, 2), 5), np.array([0]), np.array([5]))
    free = replace(leaves, least=np.zeros((1, 2), int))
    problem = node([1, 1], ((CELLS2,),), cells=2)
    values = np.array([[0.4, 0.25], [0.6, 0.75]])
    bound = replace(problem, leaves=LeavesTerm(np.arange(2), (leaves, free)))
    assert round_counts(problem, values, method=method).counts.tolist() == [[0, 0], [1, 1]]
    assert round_counts(bound, values, method=method).counts.tolist() == [[1, 0], [0, 1]]


# --- programs ------------------------------------------------------------------------------------


def test_a_time_limit_is_not_a_solution():
    rows, columns = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    crossing = (RoundingQuery(rows), RoundingQuery(columns))
    problem = node([2, 2, 2, 2], (crossing, (RoundingQuery(np.arange(4)),)), children=3, cells=4)
    values = np.full((3, 4), 2 / 3)

    def stopped(program: MixedIntegerProgram, time_limit: float) -> MixedIntegerSolution:
        return MixedIntegerSolution(solve_mixed_integer(program, 60).x, 0.25, Outcome.LIMIT)

    rounding = round_counts(problem, values, solver=stopped)
    assert (rounding.status, rounding.gap) == (Status.LIMIT, 0.25)
    assert rounding.method is Method.MIXED_INTEGER
    with pytest.raises(SolverError, match=r"^node 44007: the time limit of the integer stage"):
        round_counts(
            problem, values, solver=lambda *_: MixedIntegerSolution(None, np.inf, Outcome.LIMIT)
        )
    with pytest.raises(SolverError, match="time limit"):
        round_counts(problem, values, time_limit=0.0)


def test_crossing_sets_are_not_forced_through_a_flow():
    crossing = (RoundingQuery(np.array([0, 0, 1])), RoundingQuery(np.array([0, 1, 1])))
    problem = node([1, 1, 1], (crossing, (CELLS3,)))
    with pytest.raises(SolverError, match="the sets of cells cross"):
        round_counts(problem, np.full((2, 3), 0.5), method=Method.FLOW)
