"""A node with a penalty in the place of its parent is the penalized problem, whatever the room."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from invariants.leaves import Leaves
from solvers.least_squares.solve import solve_quadratic
from solvers.node import NodeSettings, estimate_node, solve_node
from solvers.objectives.penalty import loosen
from solvers.problem import (
    NO_LIMIT,
    ExactTerm,
    GeneralTerm,
    LeastSquaresTerm,
    NodeProblem,
    RoundingQuery,
    RowsTerm,
    Status,
)
from solvers.rounding.failsafe import Kept
from tests.builders import node as builders

SETTINGS = NodeSettings()
ROOM = 1_000


def random_node(seed: int) -> tuple[NodeProblem, Kept]:
    """Three children of four cells; a row binds the children, a partition and a row the parent."""
    rng = np.random.default_rng(seed)
    C, k = 3, 4
    pairs = np.array([0, 0, 1, 1])
    terms = (
        LeastSquaresTerm(np.arange(k), rng.normal(3, 5, (C, k)), rng.uniform(0.2, 2, C)),
        LeastSquaresTerm(pairs, rng.normal(6, 5, (C, 2)), rng.uniform(0.2, 2, C)),
        GeneralTerm(np.outer(pairs + 1, pairs + 1) * 1.0, rng.normal(5, 9, (C, k)), np.ones(C)),
    )
    least = rng.integers(1, 4, (C, 1))
    row = RowsTerm(np.array([[1, 0, 1, 0]]), least, np.full((C, 1), NO_LIMIT), ("row",))
    parent = rng.integers(3, 20, k)
    cells = (RoundingQuery(np.arange(k)),)
    problem = NodeProblem("1", k, parent, terms, (), (cells,), (row,))
    return problem, Kept((pairs,), (np.array([0, 1, -1, 2]),))


def stacked(problem: NodeProblem, kept: Kept, weight: float) -> NodeProblem:
    """The penalized problem as a root of C k cells, with matrices over all of them: the oracle."""
    C, k = problem.n_children, problem.n_cells
    gram, adjoint = np.zeros((C, k, C, k)), np.zeros((C, k))
    stiffest = 0.0
    for term in problem.terms:
        if isinstance(term, GeneralTerm):
            own, of_children = term.gram, term.adjoint
        else:
            own = (term.groups[:, None] == term.groups).astype(float)
            of_children = term.answers[:, term.groups]
        stiffest = max(stiffest, own.diagonal().max() * term.weights.max())
        adjoint += term.weights[:, None] * of_children
        for c in range(C):
            gram[c, :, c] += term.weights[c] * own
    cells = np.tile(np.arange(k), C)
    terms = (
        GeneralTerm(gram.reshape(C * k, C * k), adjoint.reshape(1, C * k), np.ones(1)),
        LeastSquaresTerm(cells, problem.parent[None].astype(float), np.array([weight * stiffest])),
    )
    (row,) = problem.rows
    bound = RowsTerm(
        np.kron(np.eye(C, dtype=np.int64), row.coefficients),
        row.least.T,
        row.most.T,
        ("row",) * C,
    )
    held = [(groups == g).astype(np.int64) for groups in kept.partitions for g in set(groups)]
    held += list(kept.rows)
    coefficients = np.array([row[cells] for row in held])
    sums = np.array([[row @ problem.parent for row in held]])
    above = RowsTerm(coefficients, sums, sums, ("above",) * len(held))
    whole = (RoundingQuery(np.arange(C * k)),)
    return NodeProblem("1", C * k, None, terms, (), (whole,), (bound, above))


def test_it_is_the_penalized_problem():
    for weight, seed in itertools.product([0.5, 10.0, 1000.0], range(8)):
        problem, kept = random_node(seed)
        oracle = solve_quadratic(stacked(problem, kept, weight), 1e-9)
        loose = loosen(problem, problem.parent, kept, room=ROOM, weight=weight)
        found = estimate_node(loose, SETTINGS)
        assert oracle.status is found.status is Status.SOLVED
        assert found.values[-1].min() > 1
        np.testing.assert_allclose(found.values[:-1].ravel(), oracle.values[0], atol=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_the_room_says_nothing_where_it_is_not_used_up(seed):
    problem, kept = random_node(seed)
    values = [
        estimate_node(
            loosen(problem, problem.parent, kept, room=room, weight=10.0), SETTINGS
        ).values[:-1]
        for room in (50, ROOM)
    ]
    np.testing.assert_allclose(*values, atol=1e-4)


def test_integers_keep_what_children_and_parent_must():
    for seed in range(8):
        problem, kept = random_node(seed)
        loose = loosen(problem, problem.parent, kept, room=ROOM, weight=10.0)
        counts = solve_node(loose, SETTINGS).counts[:-1]
        after = counts.sum(0)
        (row,) = problem.rows
        assert (counts @ row.coefficients[0] >= row.least[:, 0]).all()
        for groups in kept.partitions:
            assert (
                np.bincount(groups, after).tolist() == np.bincount(groups, problem.parent).tolist()
            )
        for coefficients in kept.rows:
            assert coefficients @ after == coefficients @ problem.parent


def test_a_large_weight_leaves_a_parent_that_fits_where_it_is():
    problem, kept = random_node(3)
    fits = solve_node(replace(problem, rows=()), SETTINGS)
    loose = loosen(replace(problem, rows=()), problem.parent, kept, room=ROOM, weight=1e4)
    np.testing.assert_allclose(
        estimate_node(loose, SETTINGS).values[:-1], fits.estimate.values, atol=0.05
    )


def test_the_example_of_two_blocks():
    """Leclerc's: 100 persons with A and B in one block, 100 with C in the other, given C = 198."""
    facilities = np.array([[1, 1, 0], [0, 0, 1]])
    total = np.zeros(3, np.int64)
    node = builders.node(
        [[20.0, 75.0, 3.0], [1.0, 4.0, 120.0]],
        parent=[1, 1, 198],
        exact=[(total, [[100], [100]])],
        leaves=[
            Leaves(f[None], f[None] * 99_999, np.array([100]), np.array([100])) for f in facilities
        ],
    )
    loose = loosen(node, node.parent, Kept((total,)), room=200, weight=10.0)
    counts = solve_node(loose, SETTINGS).counts[:-1]
    assert counts[1].tolist() == [0, 0, 100]
    # The answers speak for B: 55 more than for A, of which the penalty leaves some.
    assert counts[0].sum() == 100
    assert counts[0, 1] > counts[0, 0] >= 1


def test_exact_sums_of_children_are_those_of_the_parent():
    """What the children's sums imply is not stated twice."""
    total, pairs = np.zeros(4, np.int64), np.array([0, 0, 1, 1])
    problem, _ = random_node(0)
    problem = replace(problem, exact=(ExactTerm(pairs, np.array([[3, 4], [1, 6], [2, 5]])),))
    loose = loosen(problem, problem.parent, Kept((total, pairs)), room=9, weight=1.0)
    assert len(loose.rows) == 1
    (exact,) = loose.exact
    assert exact.targets.sum(0).tolist() == np.bincount(pairs, problem.parent + 9).tolist()
