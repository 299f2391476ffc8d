"""Every shape of node keeps the promises of a solved node."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from solvers.node import NodeSettings, NodeSolution, solve_node
from solvers.problem import NodeProblem, Status, group_sums
from solvers.verify import verify_counts
from tests.builders.strategies import Shape, random_node
from tests.unit.solvers.least_squares.quadratic import optimality_gap

TOLERANCE = 1e-7
SETTINGS = NodeSettings(TOLERANCE)
SHAPES = {
    "one child, one cell": Shape(1, 1),
    "one child": Shape(1, 7),
    "one cell": Shape(9, 1),
    "root": Shape(1, 20, is_root=True),
    "root with one cell": Shape(1, 1, is_root=True),
    "root with invariants": Shape(1, 20, exact=(1, 4), passes=((1,), (4,)), is_root=True),
    "ordinary": Shape(5, 8, passes=((1,), (4,))),
    "children of different precision": Shape(5, 8, scales=True),
    "hardly anybody": Shape(6, 8, persons=0.2, sparse=0.9),
    "many children": Shape(60, 6),
    "many cells": Shape(3, 60, passes=((1,), (10, 30))),
    "one pass": Shape(4, 6, passes=((),)),
    "exact totals": Shape(5, 8, exact=(1,)),
    "exact totals of some empty children": Shape(6, 5, exact=(1,), persons=0.5, sparse=0.9),
    "nested invariants": Shape(4, 12, exact=(1, 3), passes=((1,), (6,))),
    "invariants finer than a pass": Shape(4, 12, exact=(6,), passes=((1,), (3,))),
    "one cell, exact totals": Shape(4, 1, exact=(1,)),
    "one child, exact totals": Shape(1, 6, exact=(1,)),
    "every cell exact": Shape(3, 4, exact=(4,)),
    "a nation": Shape(6, 10, persons=3e8, exact=(1,), sparse=0.1),
    "weights over six orders of magnitude": Shape(4, 8, spread=1e6),
    "weights by child": Shape(4, 8, unequal=True, scales=True),
}


def each_shape(names=SHAPES):
    return pytest.mark.parametrize(
        "shape",
        [pytest.param(SHAPES[name], id=name) for name in names],
    )


def problem_of(shape: Shape) -> NodeProblem:
    """A node whose arrays cannot be written, so that a solver that writes them fails."""
    problem = random_node(shape, 17)
    arrays = [a for t in problem.terms for a in (t.weights, t.answers)]
    arrays += [t.groups for t in (*problem.terms, *problem.exact)]
    arrays += [e.targets for e in problem.exact]
    arrays += [q.groups for one in problem.passes for q in one]
    arrays += [] if problem.parent is None else [problem.parent]
    for array in arrays:
        array.flags.writeable = False
    return problem


def solve(shape: Shape) -> tuple[NodeProblem, NodeSolution]:
    problem = problem_of(shape)
    return problem, solve_node(problem, SETTINGS)


@each_shape()
def test_counts_are_nonnegative_integers_that_keep_every_equality(shape):
    problem, solution = solve(shape)
    counts = solution.counts
    assert counts.dtype == np.int64
    assert counts.shape == (problem.n_children, problem.n_cells)
    assert counts.min() >= 0
    if problem.parent is not None:
        assert np.array_equal(counts.sum(0), problem.parent)
    for exact in problem.exact:
        for c in range(problem.n_children):
            for g in range(exact.targets.shape[1]):
                assert counts[c, exact.groups == g].sum() == exact.targets[c, g]
    verify_counts(problem, counts)


@each_shape()
def test_the_estimate_is_optimal_and_says_so(shape):
    problem, solution = solve(shape)
    estimate = solution.estimate
    assert estimate.status is Status.SOLVED
    assert estimate.certificate.residual <= TOLERANCE
    assert estimate.values.min() >= 0
    assert optimality_gap(problem, estimate.values) <= 1e-8


@each_shape()
def test_cells_and_groups_are_next_to_the_estimate(shape):
    problem, solution = solve(shape)
    slack = 1e-6 * max(1.0, solution.estimate.values.max() * 1e-6)
    assert not solution.rounding.widened
    for query in (q for one in problem.passes for q in one):
        m = int(query.groups.max()) + 1
        real = group_sums(solution.estimate.values, query.groups, m)
        whole = group_sums(solution.counts, query.groups, m)
        assert (np.floor(real - slack) <= whole).all()
        assert (whole <= np.ceil(real + slack)).all()


@each_shape()
def test_the_same_node_has_the_same_solution_in_any_process(shape):
    problem, first = solve(shape)
    second = solve_node(pickle.loads(pickle.dumps(problem)), SETTINGS)
    assert np.array_equal(first.counts, second.counts)
    assert np.array_equal(first.estimate.values, second.estimate.values)


@each_shape()
def test_the_name_of_the_node_is_not_interpreted(shape):
    problem, first = solve(shape)
    second = solve_node(replace(problem, geocode=""), SETTINGS)
    assert np.array_equal(first.counts, second.counts)


@each_shape()
def test_an_invariant_that_is_implied_changes_nothing(shape):
    """The exact answers of groups imply those of everything together."""
    problem, first = solve(shape)
    if not problem.exact:
        return
    finest = problem.exact[-1]
    alone = replace(problem, exact=(finest,))
    second = solve_node(alone, SETTINGS)
    scale = max(1.0, first.estimate.values.max())
    assert np.abs(first.estimate.values - second.estimate.values).max() <= 1e-7 * scale


@each_shape()
def test_solutions_travel_between_processes(shape):
    _, solution = solve(shape)
    copy = pickle.loads(pickle.dumps(solution))
    assert np.array_equal(copy.counts, solution.counts)
    assert copy.estimate.certificate == solution.estimate.certificate
