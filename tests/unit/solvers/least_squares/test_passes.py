"""Least squares in passes: what a pass fixes, and what it counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from solvers.least_squares.passes import count_in_passes, solve_in_passes
from solvers.least_squares.solve import solve_quadratic
from solvers.node import NodeSettings, solve_node
from solvers.problem import (
    ExactTerm,
    LeastSquaresTerm,
    NodeProblem,
    RoundingQuery,
    RowsTerm,
    group_sums,
)

CELLS, CHILDREN = 60, 4
FINE, COARSE, CROSSING, SINGLE = (
    np.arange(CELLS) // 3,
    np.arange(CELLS) // 15,
    np.arange(CELLS) % 5,
    np.arange(CELLS),
)


def node(seed: int) -> NodeProblem:
    """Two nested queries that come first, one that crosses both and single cells after them."""
    rng = np.random.default_rng(seed)
    truth = rng.poisson(rng.gamma(0.5, 2.0, (CHILDREN, CELLS)))
    truth[0] += truth.sum(0) == 0
    terms = []
    for groups in (FINE, COARSE, CROSSING, SINGLE):
        exact = group_sums(truth, groups, int(groups.max()) + 1).astype(float)
        noisy = exact + rng.normal(0, 2, exact.shape)
        terms.append(LeastSquaresTerm(groups, noisy, rng.uniform(0.1, 1, CHILDREN)))
    totals = ExactTerm(np.zeros(CELLS, np.int64), truth.sum(1, keepdims=True))
    passes = ((RoundingQuery(COARSE), RoundingQuery(FINE)), (RoundingQuery(SINGLE),))
    order = ((0, 1), (2, 3))
    return NodeProblem("n", CELLS, truth.sum(0), tuple(terms), (totals,), passes, (), None, order)


def first_pass(problem: NodeProblem) -> NodeProblem:
    """Its first pass as a node of its own, with a cell for every answer of the finest query."""
    m = int(FINE.max()) + 1
    start = np.arange(m) * 3
    terms = tuple(
        LeastSquaresTerm(t.groups[start], t.answers, t.weights) for t in problem.terms[:2]
    )
    parent = group_sums(problem.parent[None], FINE, m)[0]
    totals = ExactTerm(np.zeros(m, np.int64), problem.exact[0].targets)
    passes = ((RoundingQuery(COARSE[start]), RoundingQuery(np.arange(m))),)
    return NodeProblem("n", m, parent, terms, (totals,), passes)


@pytest.mark.parametrize("seed", range(4))
def test_nested_answers_of_a_pass_are_those_of_the_pass_alone(seed: int) -> None:
    problem = node(seed)
    alone = solve_quadratic(first_pass(problem), 1e-9).values
    found = solve_in_passes(problem, 1e-9, solve_quadratic).values
    np.testing.assert_allclose(group_sums(found, FINE, alone.shape[1]), alone, atol=1e-5)
    together = solve_quadratic(replace(problem, order=()), 1e-9).values
    assert np.abs(group_sums(together, FINE, alone.shape[1]) - alone).max() > 0.1


@pytest.mark.parametrize("seed", range(4))
def test_a_counted_pass_is_kept_by_the_counts(seed: int) -> None:
    problem = node(seed)
    alone = solve_node(first_pass(problem), NodeSettings()).counts
    counts = solve_node(problem, NodeSettings(rounds_passes=True)).counts
    np.testing.assert_array_equal(group_sums(counts, FINE, alone.shape[1]), alone)
    np.testing.assert_array_equal(counts.sum(0), problem.parent)
    assert (counts >= 0).all()


def test_what_is_left_of_counted_passes_is_one_pass_around_them() -> None:
    problem = node(0)
    wanted = solve_node(first_pass(problem), NodeSettings()).counts
    last = count_in_passes(problem, lambda one: solve_node(one, NodeSettings()).counts)
    assert last.order == ()
    assert last.terms == problem.terms[2:]
    np.testing.assert_array_equal(last.exact[-1].targets, wanted)


def bound_node(seed: int, children: int = 40) -> tuple[NodeProblem, NodeProblem]:
    """Totals first, of householders that are given and of others within bounds; and totals alone.

    Half of the children have others up to their bound at most.
    """
    rng = np.random.default_rng(seed)
    homes = rng.poisson(8, children) + 1
    others = rng.poisson(1.6 * homes)
    least = np.maximum(others - rng.integers(0, 4, children), 0)
    most = others + rng.integers(0, 4, children) * (rng.random(children) < 0.5)
    truth = np.stack([homes, others], 1)
    weights, cells = np.full(children, 1 / 16), np.arange(2)
    answers = truth.sum(1, keepdims=True) + rng.normal(0, 4, (children, 1))
    total = LeastSquaresTerm(np.zeros(2, np.int64), answers, weights)
    single = LeastSquaresTerm(cells, truth + rng.normal(0, 4, (children, 2)), weights)
    bounds = np.stack([homes, least], 1), np.stack([homes, most], 1)
    rows = RowsTerm(np.eye(2, dtype=np.int64), *bounds, ("householders", "others"))
    rounding = ((RoundingQuery(cells),),)
    whole = NodeProblem(
        "n", 2, truth.sum(0), (total, single), (), rounding, (rows,), None, ((0,), (1,))
    )
    one = RowsTerm(
        np.ones((1, 1), np.int64), *(side.sum(1, keepdims=True) for side in bounds), ("all",)
    )
    first = LeastSquaresTerm(np.zeros(1, np.int64), answers, weights)
    rounding = ((RoundingQuery(np.zeros(1, np.int64)),),)
    alone = NodeProblem("n", 1, truth.sum()[None], (first,), (), rounding, (one,))
    return whole, alone


@pytest.mark.parametrize("seed", [0, 1, 4, 13])
def test_a_pass_short_of_rank_finds_its_answers_within_bounds(seed: int) -> None:
    """Seeds 0, 4 and 13 stopped at the limit of iterations with small proximal steps alone."""
    whole, alone = bound_node(seed)
    totals = solve_node(whole, NodeSettings()).estimate.values.sum(1)
    wanted = solve_node(alone, NodeSettings()).estimate.values[:, 0]
    assert totals == pytest.approx(wanted, abs=1e-4)
