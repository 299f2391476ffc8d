"""The final check finds every kind of broken promise and names the node."""

from __future__ import annotations

import numpy as np
import pytest

from das.errors import VerificationError
from solvers.problem import ExactTerm, LeastSquaresTerm, NodeProblem, RoundingQuery
from solvers.verify import verify_counts

GOOD = np.array([[3, 0, 2], [1, 4, 0]])
CELLS = np.arange(3)
PAIR = np.array([0, 0, 1])
ALL = np.zeros(3, np.int64)


def node(*, has_parent: bool = True) -> NodeProblem:
    children = slice(None) if has_parent else slice(0, 1)
    return NodeProblem(
        "44007",
        3,
        GOOD.sum(0) if has_parent else None,
        np.ones(len(GOOD[children])),
        (LeastSquaresTerm(CELLS, GOOD[children].astype(float), 1.0),),
        (
            ExactTerm(ALL, GOOD[children].sum(1, keepdims=True)),
            ExactTerm(PAIR, np.array([[3, 2], [5, 0]])[children]),
        ),
        ((RoundingQuery(CELLS),),),
    )


def refused(problem: NodeProblem, counts: np.ndarray, message: str) -> None:
    with pytest.raises(VerificationError) as caught:
        verify_counts(problem, counts)
    assert str(caught.value) == f"node 44007: {message}"


def changed(*changes: tuple[int, int, int]) -> np.ndarray:
    counts = GOOD.copy()
    for child, cell, change in changes:
        counts[child, cell] += change
    return counts


def test_good_counts_pass():
    verify_counts(node(), GOOD)
    verify_counts(node(has_parent=False), GOOD[:1])


def test_a_negative_count():
    refused(node(), changed((0, 1, -1), (1, 1, 1)), "a count is negative; got -1")


def test_a_person_too_many_in_a_cell():
    refused(node(), changed((1, 1, 1)), "children do not sum to the parent in live cell 1 (1 such)")


def test_persons_missing_in_two_cells():
    counts = changed((0, 0, -1), (0, 2, -2))
    refused(node(), counts, "children do not sum to the parent in live cell 0 (2 such)")


def test_a_total_that_is_not_exact():
    counts = changed((0, 0, -1), (1, 0, 1))
    refused(node(), counts, "invariant 0 is broken for child 0 (2 such)")


def test_a_group_that_is_not_exact_though_totals_are():
    counts = changed((0, 0, -1), (0, 2, 1), (1, 0, 1), (1, 2, -1))
    with pytest.raises(VerificationError, match="a count is negative"):
        verify_counts(node(), counts)
    counts = np.array([[3, 1, 1], [1, 3, 1]])
    refused(node(), counts, "invariant 1 is broken for child 0 (4 such)")


def test_without_a_parent_only_the_invariants_bind():
    verify_counts(node(has_parent=False), np.array([[1, 2, 2]]))
    refused(
        node(has_parent=False),
        np.array([[1, 2, 3]]),
        "invariant 0 is broken for child 0 (1 such)",
    )
    refused(node(has_parent=False), np.array([[-1, 4, 2]]), "a count is negative; got -1")


@pytest.mark.parametrize(
    ("counts", "got"),
    [
        (GOOD.astype(float), "float64(2, 3)"),
        (GOOD.astype(np.int32), "int32(2, 3)"),
        (GOOD[:1], "int64(1, 3)"),
        (GOOD[:, :2], "int64(2, 2)"),
        (GOOD.ravel(), "int64(6,)"),
    ],
)
def test_the_wrong_type_or_shape(counts, got):
    message = f"counts have the wrong type or shape; got {got}; expected int64(2, 3)"
    refused(node(), counts, message)
