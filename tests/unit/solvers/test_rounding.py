"""The integer stage: cases known by hand, float error, impossible nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from das.errors import SolverError
from solvers.problem import ExactTerm, LeastSquaresTerm, NodeProblem, RoundingQuery
from solvers.rounding import round_counts
from solvers.verify import verify_counts

CELLS3 = RoundingQuery(np.arange(3))
TOTAL3 = RoundingQuery(np.zeros(3, np.int64))


def node(parent, passes, exact=(), children=2, cells=3) -> NodeProblem:
    return NodeProblem(
        "44007",
        cells,
        None if parent is None else np.array(parent),
        (LeastSquaresTerm(np.arange(cells), np.zeros((children, cells)), np.ones(children)),),
        tuple(ExactTerm(np.array(g), np.array(t)) for g, t in exact),
        passes,
    )


def test_whole_numbers_stay():
    values = np.array([[3.0, 0, 2], [1, 4, 0]])
    problem = node(values.sum(0).astype(int), ((TOTAL3,), (CELLS3,)))
    counts, widened = round_counts(problem, values)
    assert counts.dtype == np.int64
    assert (counts.tolist(), widened) == (values.tolist(), False)


def test_each_cell_goes_to_the_nearer_child():
    values = np.array([[0.7, 0.2, 1.6], [0.3, 1.8, 1.4]])
    counts, _ = round_counts(node([1, 2, 3], ((CELLS3,),)), values)
    assert counts.tolist() == [[1, 0, 2], [0, 2, 1]]


def test_totals_come_before_cells():
    """Cell by cell the second child gets everybody; its total of 1.8 allows two of three."""
    values = np.array([[0.4, 0.4, 0.4], [0.6, 0.6, 0.6]])
    by_cells, _ = round_counts(node([1, 1, 1], ((CELLS3,),)), values)
    assert by_cells.sum(1).tolist() == [0, 3]
    by_totals, _ = round_counts(node([1, 1, 1], ((TOTAL3,), (CELLS3,))), values)
    assert by_totals.sum(1).tolist() == [1, 2]
    in_one_pass, _ = round_counts(node([1, 1, 1], ((TOTAL3, CELLS3),)), values)
    assert in_one_pass.sum(1).tolist() == [1, 2]


def test_a_root_is_rounded_without_a_parent():
    values = np.array([[0.5, 0.75, 1.0]])
    counts, _ = round_counts(node(None, ((TOTAL3,), (CELLS3,)), children=1), values)
    assert counts.sum() == 2
    assert counts.tolist()[0][1:] == [1, 1]
    values = np.array([[0.25, 0.25, 0.25]])
    counts, _ = round_counts(node(None, ((TOTAL3,), (CELLS3,)), children=1), values)
    assert counts.sum() == 1  # the total is nearer to one though every cell is nearer to none


def test_the_same_input_gives_the_same_ties():
    values = np.full((4, 3), 0.5)
    problem = node([2, 2, 2], ((TOTAL3,), (CELLS3,)), children=4)
    first, _ = round_counts(problem, values)
    for _ in range(5):
        assert np.array_equal(round_counts(problem, values)[0], first)


@pytest.mark.parametrize("error", [1e-9, 1e-5, -1e-5, 3e-4])
def test_small_errors_of_the_continuous_stage_do_no_harm(error):
    """The values miss the equalities a little; the counts keep them exactly."""
    exact = [([0, 0, 0], [[5], [5]])]
    values = np.array([[3.0, 0.5, 1.5], [1.0, 3.5, 0.5]]) + error
    counts, _ = round_counts(node([4, 4, 2], ((TOTAL3,), (CELLS3,)), exact), values)
    verify_counts(node([4, 4, 2], ((CELLS3,),), exact), counts)
    assert np.abs(counts - values).max() <= 1 + 2 * abs(error)


def test_bounds_are_widened_only_where_they_must_be():
    """A value that is off by more than the snap leaves its true integer outside."""
    off = np.array([[2.99, 1.0, 1.0], [1.0, 1.0, 1.0]])
    problem = node([4, 2, 2], ((TOTAL3,), (CELLS3,)))
    counts, widened = round_counts(problem, off)
    assert counts.tolist() == [[3, 1, 1], [1, 1, 1]]
    assert not widened
    off = np.array([[3.01, 1.0, 1.0], [1.01, 1.0, 1.0]])
    counts, widened = round_counts(node([3, 2, 2], ((CELLS3,),)), off)
    assert widened
    assert counts.sum(0).tolist() == [3, 2, 2]


def test_counts_stay_nonnegative_when_bounds_are_widened():
    """A negative count would cost less here: 1.1 instead of 2.9."""
    exact = [([0, 0], [[0], [2]])]
    off = np.array([[0.0, 1.0], [0.9, 1.0]])
    cells = ((RoundingQuery(np.arange(2)),),)
    counts, widened = round_counts(node([0, 2], cells, exact, cells=2), off)
    assert widened
    assert counts.tolist() == [[0, 0], [0, 2]]


def test_what_cannot_be_rounded_is_an_error_with_the_name_of_the_node():
    values = np.array([[3.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    with pytest.raises(
        SolverError, match=r"^node 44007: the continuous solution cannot be rounded"
    ):
        round_counts(node([40, 2, 2], ((CELLS3,),)), values)
    crossing = [([0, 0, 0], [[9], [9]])]
    with pytest.raises(SolverError, match="cannot be rounded"):
        round_counts(node([4, 2, 2], ((CELLS3,),), crossing), values)


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
    counts, _ = round_counts(problem, values)
    assert counts.tolist() == truth.tolist()


def test_one_cell_and_one_child():
    problem = node([7], ((RoundingQuery(np.zeros(1, np.int64)),),), children=1, cells=1)
    assert round_counts(problem, np.array([[7.0]]))[0].tolist() == [[7]]
    problem = replace(problem, scale=np.ones(3))
    values = np.array([[2.25], [2.25], [2.5]])
    assert round_counts(problem, values)[0].sum() == 7


def test_huge_counts_keep_every_person():
    values = np.array([[3e8 + 0.25, 0.25, 1.5], [1.75, 3e8 + 0.75, 0.5]])
    parent = np.rint(values.sum(0)).astype(np.int64)
    counts, widened = round_counts(node(parent, ((TOTAL3,), (CELLS3,))), values)
    assert not widened
    assert np.array_equal(counts.sum(0), parent)
    assert np.abs(counts - values).max() < 1
