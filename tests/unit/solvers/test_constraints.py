"""Constraints as sparse rows say of any counts what the node problem says."""

from __future__ import annotations

import numpy as np
import pytest

from invariants.leaves import Leaves
from solvers import constraints
from solvers.problem import NO_LIMIT, group_sums
from tests.builders.strategies import Shape, random_node

SHAPES = [Shape(3, 5), Shape(4, 6, exact=(2,), rows=2), Shape(1, 8, exact=(1, 2), is_root=True)]


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_of_a_node_are_its_sums_and_limits(shape):
    problem = random_node(shape, 1)
    x = np.random.default_rng(2).integers(0, 9, (problem.n_children, problem.n_cells))
    fixed = (np.arange(problem.n_cells) % 2, np.full((problem.n_children, 2), 2.5))
    values, lower, upper, names = [], [], [], []
    for one in constraints.of_node(problem, (fixed,)):
        values.append(one.A @ x.ravel())
        lower.append(one.lower)
        upper.append(one.upper)
        names += one.names
    wanted, low, high = [], [], []
    if problem.parent is not None:
        wanted.append(x.sum(0))
        low.append(problem.parent)
        high.append(problem.parent)
    for groups, targets in (*((e.groups, e.targets) for e in problem.exact), fixed):
        wanted.append(group_sums(x, groups, targets.shape[1]).ravel())
        low.append(targets.ravel())
        high.append(targets.ravel())
    for rows in problem.rows:
        wanted.append((x @ rows.coefficients.T).ravel())
        low.append(np.where(rows.least == -NO_LIMIT, -np.inf, rows.least).ravel())
        high.append(np.where(rows.most == NO_LIMIT, np.inf, rows.most).ravel())
    assert np.array_equal(np.concatenate(values), np.concatenate(wanted))
    assert np.array_equal(np.concatenate(lower), np.concatenate(low))
    assert np.array_equal(np.concatenate(upper), np.concatenate(high))
    assert len(names) == len(np.concatenate(low))
    assert set(names) >= {f"equality {len(problem.exact)}"}


def test_rows_are_named_child_by_child():
    problem = random_node(Shape(3, 5, rows=2), 1)
    row = constraints.linear_rows(problem.rows[0])
    assert row.names == tuple(f"row {name}" for name in problem.rows[0].names) * 3
    assert np.array_equal(row.A.toarray()[2:4, 5:10], problem.rows[0].coefficients)


def test_bounds_that_are_none_become_infinite():
    bounds = np.array([-NO_LIMIT, -3, 0, 7, NO_LIMIT])
    assert constraints.limits(bounds).tolist() == [-np.inf, -3.0, 0.0, 7.0, np.inf]


def test_what_leaves_hold_is_summed_by_type_and_by_pattern():
    none = np.zeros(2, np.int64)
    leaves = Leaves(np.zeros((2, 3), np.int64), np.full((2, 3), 9), none, none + 9)
    z = np.array([[1, 2, 3], [40, 50, 60]])
    by_type, by_pattern = constraints.leaf_rows(leaves)
    assert (by_type @ z.ravel()).tolist() == z.sum(0).tolist()
    assert (by_pattern @ z.ravel()).tolist() == z.sum(1).tolist()
