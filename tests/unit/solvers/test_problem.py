"""The node problem: what it refuses, and the sums it is built from."""

from __future__ import annotations

import itertools
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from das.errors import SolverError
from solvers.problem import (
    Certificate,
    ExactTerm,
    LeastSquaresTerm,
    RoundingQuery,
    coarsening,
    group_sums,
)
from tests.builders.strategies import Shape, random_node

NODE = random_node(Shape(3, 4, exact=(1,)), 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parent": None}, "a root problem has exactly one child"),
        ({"parent": np.ones(3, np.int64)}, "parent and cells differ in length"),
        (
            {"terms": (LeastSquaresTerm(np.zeros(3, np.int64), np.zeros((3, 1)), np.ones(3)),)},
            "a query does not cover the live cells",
        ),
        (
            {"exact": (ExactTerm(np.zeros(5, np.int64), np.zeros((3, 1), np.int64)),)},
            "a query does not cover the live cells",
        ),
    ],
)
def test_a_node_that_does_not_fit_together_is_refused(changes, message):
    with pytest.raises(SolverError) as caught:
        replace(NODE, geocode="44007", **changes)
    assert str(caught.value) == f"node 44007: {message}"


def test_nodes_travel_between_processes():
    copy = pickle.loads(pickle.dumps(NODE))
    assert (copy.geocode, copy.n_children) == (NODE.geocode, 3)
    assert np.array_equal(copy.terms[2].answers, NODE.terms[2].answers)
    assert isinstance(copy.passes[-1][-1], RoundingQuery)


def test_the_residual_is_the_largest_of_four():
    for values in itertools.permutations((0.0, 1.0, 2.0, 3.0)):
        assert Certificate(*values).residual == 3.0


@given(
    st.integers(1, 3),
    st.lists(st.integers(0, 4), min_size=1, max_size=8),
    st.sampled_from([np.int64, np.float64]),
)
def test_group_sums_are_those_of_a_loop(rows, groups, kind):
    values = (np.arange(rows * len(groups)).reshape(rows, -1) + 1).astype(kind)
    expected = np.zeros((rows, 6), kind)
    for row in range(rows):
        for column, group in enumerate(groups):
            expected[row, group] += values[row, column]
    result = group_sums(values, np.array(groups), 6)
    assert result.dtype == kind
    assert np.array_equal(result, expected)


def test_group_sums_of_nothing():
    assert (
        group_sums(np.zeros((2, 0), np.int64), np.zeros(0, np.int64), 3).tolist() == [[0] * 3] * 2
    )


@pytest.mark.parametrize("dtype", [np.int64, float])
def test_sums_by_group_keep_their_type_and_groups_without_cells(dtype):
    values = np.array([[1, 2, 3], [4, 5, 6]], dtype)
    found = group_sums(values, np.array([3, 0, 3]), 5)
    assert found.dtype == dtype
    assert found.tolist() == [[2, 0, 0, 4, 0], [5, 0, 0, 10, 0]]


def test_sums_of_integers_are_exact_where_floats_are_not():
    assert group_sums(np.array([[2**53, 1]]), np.array([0, 0]), 1).tolist() == [[2**53 + 1]]


def test_a_partition_is_coarser_or_not():
    fine, coarse = np.array([0, 1, 2, 1]), np.array([1, 0, 1, 0])
    assert coarsening(fine, coarse).tolist() == [1, 0, 1]
    assert coarsening(coarse, fine) is None
    assert coarsening(fine, fine).tolist() == [0, 1, 2]
