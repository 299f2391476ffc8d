"""Sets of attributes as arrays, against itertools."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from das.errors import SchemaError
from das.workload.attribute_sets import AttributeSets, list_combinations, rank_sets
from tests.unit.das.workload.dense import listed


@pytest.mark.parametrize("order", range(6))
def test_combinations_and_ranks(order):
    found = list_combinations(5, order)
    assert [tuple(row) for row in found.tolist()] == list(itertools.combinations(range(5), order))
    assert rank_sets(found, 5).tolist() == list(range(math.comb(5, order)))


def test_rows_are_sorted_and_deduplicated():
    rows = [np.array([[2, 3], [0, 1], [2, 3]]), np.array([[4]]), np.array([[1, 2]])]
    assert listed(AttributeSets.from_rows(5, rows)) == [(4,), (0, 1), (1, 2), (2, 3)]


def test_closure_holds_exactly_all_subsets():
    sets = AttributeSets.from_rows(6, [np.array([[0, 2, 5], [1, 2, 3]]), np.array([[4]])])
    wanted = {
        subset
        for members in listed(sets)
        for order in range(4)
        for subset in itertools.combinations(members, order)
    }
    found = listed(sets.closure())
    assert len(found) == len(set(found))
    assert set(found) == wanted


def test_closure_of_complete_orders_is_complete():
    assert listed(AttributeSets.from_rows(4, [list_combinations(4, 2)]).closure()) == [
        (),
        *itertools.combinations(range(4), 1),
        *itertools.combinations(range(4), 2),
    ]


def test_positions_follow_the_flat_order():
    sets = AttributeSets.from_rows(6, [np.array([[0, 2], [1, 5]]), np.array([[4]])])
    assert sets.positions(np.array([[1, 5], [0, 2]])).tolist() == [2, 1]
    assert sets.positions(np.array([[4]])).tolist() == [0]


@pytest.mark.parametrize("members", [[[0, 3]], [[3]], [[0, 1, 2]], [[4, 5]]])
def test_a_missing_set_is_named(members):
    sets = AttributeSets.from_rows(6, [np.array([[0, 2], [1, 5]]), np.array([[4]])])
    with pytest.raises(SchemaError, match="do not contain a set") as caught:
        sets.positions(np.array(members))
    assert caught.value.got == str(members[0])


def test_products_over_members():
    sets = AttributeSets.from_rows(3, [np.zeros((1, 0), np.int64), np.array([[0, 1], [1, 2]])])
    assert sets.product(np.array([2.0, 3.0, 5.0])).tolist() == [1.0, 6.0, 15.0]


def test_ranks_beyond_64_bits_are_refused():
    with pytest.raises(SchemaError, match="too many to index"):
        rank_sets(np.arange(40)[None, :], 200)
