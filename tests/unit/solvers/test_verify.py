"""The final check finds every kind of broken promise and names the node."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from das.errors import VerificationError
from invariants.leaves import Leaves
from solvers.problem import (
    NO_LIMIT,
    LeavesTerm,
    NodeProblem,
    RowsTerm,
)
from solvers.verify import verify_counts
from tests.builders import node as builders

GOOD = np.array([[3, 0, 2], [1, 4, 0]])
CELLS = np.arange(3)
PAIR = np.array([0, 0, 1])
ALL = np.zeros(3, np.int64)


def node(*, has_parent: bool = True) -> NodeProblem:
    children = slice(None) if has_parent else slice(0, 1)
    return builders.node(
        GOOD[children],
        parent=GOOD.sum(0) if has_parent else None,
        exact=[
            (ALL, GOOD[children].sum(1, keepdims=True)),
            (PAIR, np.array([[3, 2], [5, 0]])[children]),
        ],
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


def test_a_row_that_is_broken_from_below_or_above():
    """Twice the first cell minus the last: 4 and 2 persons."""
    coefficients = np.array([[1, 1, 1], [2, 0, -1]])
    least, most = np.array([[-NO_LIMIT, 4], [-NO_LIMIT, 2]]), np.array([[5, 4], [5, NO_LIMIT]])
    names = ("persons", "balance")
    verify_counts(replace(node(), rows=(RowsTerm(coefficients, least, most, names),)), GOOD)
    for child, by in ((0, 1), (1, 1)):
        higher = least.copy()
        higher[child, 1] += by
        problem = replace(node(), rows=(RowsTerm(coefficients, higher, most + 1, names),))
        refused(problem, GOOD, f"row balance is broken for child {child} (1 such)")
    lower = most.copy()
    lower[:, 0] = 4
    problem = replace(node(), rows=(RowsTerm(coefficients, least, lower, names),))
    refused(problem, GOOD, "row persons is broken for child 0 (2 such)")


def test_types_of_persons_that_no_leaf_takes():
    """Child 1 has one person of type 0 and four of type 1; two leaves of one type each hold five."""
    types = np.array([0, 1, 0])
    anything = Leaves(np.zeros((1, 2), int), np.full((1, 2), 9), np.zeros(1, int), np.array([9]))

    def with_most(*most: int) -> NodeProblem:
        two = Leaves(np.zeros((2, 2), int), np.diag(most), np.zeros(2, int), np.full(2, sum(most)))
        return replace(node(), leaves=LeavesTerm(types, (anything, two)))

    verify_counts(with_most(1, 4), GOOD)
    message = "child 1 has counts by type that its leaves cannot have"
    refused(with_most(2, 3), GOOD, message)
    refused(with_most(0, 5), GOOD, message)


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
