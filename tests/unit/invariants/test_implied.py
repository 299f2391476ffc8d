"""Implied bounds: the published formulas and check values, and the seed's example."""

from __future__ import annotations

import numpy as np
import pytest

from invariants.implied import (
    Side,
    can_be_assigned,
    cut_by_flow,
    lower_bounds,
    most_violated,
    upper_bounds,
)
from invariants.leaves import Leaves
from tests.unit.invariants.implied_program import cut_by_program

CAP = 99_999


def block(facilities, total=None, unit=None) -> Leaves:
    f = np.array([facilities], np.int64)
    least = f * (np.ones_like(f) if unit is None else np.array(unit))
    most = f * CAP
    if total is None:
        return Leaves(least, most, least.sum(1), most.sum(1))
    return Leaves(least, most, np.array([total]), np.array([total]))


def singles(leaves: Leaves) -> tuple[list[int], list[int]]:
    each = np.eye(leaves.n_types, dtype=bool)
    return lower_bounds(leaves, each).tolist(), upper_bounds(leaves, each).tolist()


# Persons by type where households are one person at least, as in 2010: facilities, persons in all,
# bounds with the total, bounds without.
CASES = {
    "data1": ([1, 2, 0, 1, 0, 0, 0, 0], 5, [1, 2, 0, 1, 0, 0, 0, 0], [2, 3, 0, 2, 0, 0, 0, 0]),
    "data2": ([1, 2, 0, 2, 0, 0, 0, 0], 5, [1, 2, 0, 2, 0, 0, 0, 0], [1, 2, 0, 2, 0, 0, 0, 0]),
    "one type": ([0, 0, 0, 0, 0, 4, 0, 0], 5, [0, 0, 0, 0, 0, 5, 0, 0], [0, 0, 0, 0, 0, 5, 0, 0]),
}


@pytest.mark.parametrize("case", CASES)
def test_bounds_of_single_types_are_the_published_ones(case):
    facilities, total, low, high = CASES[case]
    assert singles(block(facilities, total)) == (low, high)
    assert singles(block(facilities)) == (facilities, [f * CAP for f in facilities])


def test_bounds_with_vacant_households_are_the_published_ones():
    """Ten persons, 3 housing units that may be empty, 6 facilities of 5 of 24 other types."""
    facilities, unit = np.zeros(25, int), np.ones(25, int)
    facilities[[0, 3, 5, 9, 18, 23]] = [3, 1, 2, 1, 1, 1]
    unit[0] = 0
    low, high = singles(block(facilities, 10, unit))
    assert low == [0, *facilities[1:]]
    expected = np.zeros(25, int)
    expected[[0, 3, 5, 9, 18, 23]] = [4, 5, 6, 5, 5, 5]
    assert high == expected.tolist()
    assert singles(block(facilities, None, unit)) == (low, (facilities * CAP).tolist())


EXAMPLE = Leaves(
    np.array([[1, 1, 0], [0, 0, 1]]),
    np.array([[CAP, CAP, 0], [0, 0, CAP]]),
    np.array([100, 100]),
    np.array([100, 100]),
)


@pytest.mark.parametrize("separate", [cut_by_flow, cut_by_program])
def test_the_example_of_two_blocks(separate):
    """A = 1, B = 1, C = 198 cannot be split: block 1 needs 100 persons of types A and B."""
    cut = most_violated(EXAMPLE, np.array([1, 1, 198]), separate)
    if cut.side is Side.LEAST:
        assert (cut.chosen.tolist(), cut.bound) == ([True, True, False], 100)
    else:
        assert (cut.chosen.tolist(), cut.bound) == ([False, False, True], 100)
    assert cut.violation == 98
    assert not can_be_assigned(EXAMPLE, np.array([1, 1, 198]))
    assert can_be_assigned(EXAMPLE, np.array([1, 99, 100]))
    assert not can_be_assigned(EXAMPLE, np.array([0, 100, 100]))


@pytest.mark.parametrize("separate", [cut_by_flow, cut_by_program])
def test_fractional_counts_are_separated(separate):
    cut = most_violated(EXAMPLE, np.array([40.25, 59.5, 100.25]), separate)
    assert cut.violation == pytest.approx(0.25)
    assert most_violated(EXAMPLE, np.array([40.5, 59.5, 100.0]), separate).violation == 0


@pytest.mark.parametrize(
    ("counts", "dealt"),
    [([1, 3], True), ([0, 4], False), ([4, 0], True), ([3, 3], False), ([1, 1], False)],
)
def test_one_row_is_asked_directly(counts, dealt):
    row = Leaves(np.array([[1, 0]]), np.array([[4, 3]]), np.array([3]), np.array([5]))
    assert can_be_assigned(row, np.array(counts)) is dealt
    assert (most_violated(row, np.array(counts)).violation == 0) is dealt


def test_a_set_of_types_nobody_can_be_of():
    """No arc ends at the sink, or none starts at the source: the cut is still found."""
    empty = Leaves(np.zeros((1, 2), int), np.zeros((1, 2), int), np.zeros(1, int), np.zeros(1, int))
    assert most_violated(empty, np.array([0, 0])).violation == 0
    assert most_violated(empty, np.array([2, 3])).violation == 5
