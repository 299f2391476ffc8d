"""Rows of leaves: tightening, adding up, and totals imposed on boxes."""

from __future__ import annotations

import numpy as np
import pytest

from das.errors import InfeasibleError
from invariants.leaves import Leaves, add_up, empty_rows, limit_totals, stack, tighten
from tests.builders.leaves import one_owner

CAP = 99_999


def leaves(least, most, low, high) -> Leaves:
    return Leaves(*(np.array(one, np.int64) for one in (least, most, low, high)))


def as_lists(rows: Leaves) -> list:
    return [one.tolist() for one in (rows.least, rows.most, rows.low, rows.high)]


def test_limits_become_those_attained():
    tight = tighten(leaves([[1, 0, 0]], [[9, 9, 0]], [5], [6]))
    assert as_lists(tight) == [[[1, 0, 0]], [[6, 5, 0]], [5], [6]]
    tight = tighten(leaves([[1, 2]], [[9, 9]], [0], [5]))
    assert as_lists(tight) == [[[1, 2]], [[3, 4]], [3], [5]]
    tight = tighten(leaves([[0, 0]], [[2, 3]], [4], [99]))
    assert as_lists(tight) == [[[1, 2]], [[2, 3]], [4], [5]]


@pytest.mark.parametrize(
    "row",
    [
        ([[2]], [[1]], [0], [9]),
        ([[0]], [[9]], [3], [2]),
        ([[2, 2]], [[9, 9]], [0], [3]),
        ([[0, 0]], [[1, 1]], [3], [9]),
    ],
)
def test_a_row_that_nothing_fits_is_refused(row):
    assert empty_rows(leaves(*row)).tolist() == [True]
    with pytest.raises(InfeasibleError, match=r"no counts fit row 1 \(1 such\)"):
        tighten(
            stack([leaves([[0] * len(row[0][0])], [[1] * len(row[0][0])], [0], [9]), leaves(*row)])
        )


def test_open_rows_of_the_same_types_are_added_up():
    rows = leaves([[1, 1, 0], [2, 1, 0]], [[CAP, CAP, 0], [CAP, CAP, 0]], [10, 20], [10, 20])
    assert as_lists(one_owner(rows)) == [[[3, 2, 0]], [[28, 27, 0]], [30], [30]]


def test_open_rows_of_other_types_are_not():
    rows = leaves([[1, 1, 0], [0, 1, 1]], [[CAP, CAP, 0], [0, CAP, CAP]], [10, 20], [10, 20])
    assert one_owner(rows).n_rows == 2


def test_boxes_are_added_up_whatever_their_types():
    rows = leaves([[1, 0], [0, 2], [0, 0]], [[7, 0], [0, 9], [0, 0]], [1, 2, 0], [7, 9, 0])
    assert as_lists(one_owner(rows)) == [[[1, 2]], [[7, 9]], [3], [16]]


def test_a_total_of_one_type_makes_a_box():
    rows = leaves([[1, 0], [0, 1]], [[CAP, 0], [0, CAP]], [10, 20], [10, 20])
    assert as_lists(one_owner(rows)) == [[[10, 20]], [[10, 20]], [30], [30]]


def test_a_row_whose_most_binds_stays_alone():
    """Both take 5 persons, the first 3 of type A: not 8 of type A and none of B from both alike."""
    bound = leaves([[0, 0, 0]], [[3, 9, 9]], [5], [5])
    loose = leaves([[0, 0, 0]], [[9, 9, 9]], [5], [5])
    assert one_owner(stack([bound, loose])).n_rows == 2


def test_every_owner_has_its_own_rows():
    rows = leaves([[1], [2], [3]], [[1], [2], [3]], [1, 2, 3], [1, 2, 3])
    table = add_up(rows, np.array([2, 0, 2]), 3)
    assert table.offsets.tolist() == [0, 1, 1, 2]
    assert [table.of(g).low.tolist() for g in range(3)] == [[2], [], [4]]
    assert table.owners().tolist() == [0, 2]


def test_no_rows_at_all():
    none = leaves(np.zeros((0, 2)), np.zeros((0, 2)), [], [])
    assert add_up(none, np.zeros(0, np.int64), 2).offsets.tolist() == [0, 0, 0]


def test_totals_split_a_box_by_groups():
    table = add_up(leaves([[1, 0, 2]], [[9, 9, 9]], [3], [27]), np.zeros(1, np.int64), 1)
    split = limit_totals(table, np.array([0, 0, 1]), np.array([[6, 4]])).of(0)
    # The second group has one type, so its total makes a box; the first stays open.
    assert as_lists(split) == [
        [[0, 0, 4], [1, 0, 0]],
        [[0, 0, 4], [6, 5, 0]],
        [4, 6],
        [4, 6],
    ]


def test_totals_are_not_imposed_on_totals():
    table = add_up(
        leaves([[1, 1, 0], [0, 1, 1]], [[9, 9, 0], [0, 9, 9]], [5, 5], [5, 5]),
        np.zeros(2, np.int64),
        1,
    )
    with pytest.raises(InfeasibleError, match="totals cannot be imposed on rows that have totals"):
        limit_totals(table, np.zeros(3, np.int64), np.array([[10]]))
