"""The continuous stage against independent solutions of the same node problem."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from das.errors import SolverError
from solvers.choices import MOST_NOISE
from solvers.least_squares.solve import solve_quadratic
from solvers.problem import (
    ExactTerm,
    GeneralTerm,
    LeastSquaresTerm,
    NodeProblem,
    RoundingQuery,
    Status,
)
from tests.builders.strategies import Shape, random_node
from tests.unit.solvers.least_squares.quadratic import (
    best_of_all_supports,
    dense,
    gram_and_pull,
    optimality_gap,
)

TOLERANCE = 1e-7


def solved(problem: NodeProblem) -> np.ndarray:
    estimate = solve_quadratic(problem, TOLERANCE)
    assert estimate.status is Status.SOLVED
    return estimate.values


def agree(problem: NodeProblem, ours: np.ndarray, theirs: np.ndarray, close: float = 1e-7):
    """The same objective, and, as it is strictly convex, the same point."""
    d = dense(problem)
    value, other = d.objective(ours), d.objective(theirs)
    assert abs(value - other) <= 1e-7 * max(1.0, abs(other))
    assert np.abs(ours - theirs).max() <= close * max(1.0, float(theirs.max()))


TINY = {
    "plain": Shape(2, 4),
    "exact totals": Shape(3, 3, exact=(1,)),
    "exact totals, some zero": Shape(4, 2, exact=(1,), sparse=0.9, persons=1.0),
    "exact groups": Shape(2, 5, exact=(1, 2)),
    "exact with scales": Shape(3, 3, exact=(1, 2), scales=True),
    "exact, one child": Shape(1, 5, exact=(1, 2)),
    "exact, one cell": Shape(3, 1, exact=(1,)),
    "exact, huge": Shape(2, 4, exact=(1,), persons=3e8),
    "three children": Shape(3, 3, sparse=0.7),
    "scales": Shape(3, 3, scales=True),
    "one child": Shape(1, 5),
    "one cell": Shape(4, 1),
    "root": Shape(1, 6, is_root=True),
    "root with totals": Shape(1, 6, exact=(1, 3), passes=((1,), (3,)), is_root=True),
    "few persons": Shape(3, 3, persons=0.5, sparse=0.8),
    "huge counts": Shape(2, 4, persons=3e8, sparse=0.1),
    "weights over 1000": Shape(2, 4, spread=1e3),
    "weights by child": Shape(3, 3, unequal=True),
    "weights by child, exact": Shape(2, 4, exact=(2,), unequal=True, scales=True),
    "a row": Shape(2, 3, rows=1),
    "two rows": Shape(1, 5, rows=2),
    "two rows, root": Shape(1, 5, rows=2, is_root=True, unequal=True),
    "a row and exact totals": Shape(2, 3, exact=(1,), rows=1, unequal=True),
}
DEGENERATE = {
    "exact groups, some zero": Shape(3, 3, exact=(2,), sparse=0.9),
    "exact cells": Shape(2, 4, exact=(4,)),
    "hardly anybody": Shape(3, 3, exact=(2,), persons=0.2, sparse=0.9),
}
CASES = [(shape, seed) for shape in TINY.values() for seed in range(3)]
DEGENERATE_CASES = [(shape, seed) for shape in DEGENERATE.values() for seed in range(3)]


def test_tiny_nodes_have_the_best_of_all_supports():
    for shape, seed in [*CASES, *DEGENERATE_CASES]:
        problem = random_node(shape, seed)
        ours = solved(problem)
        agree(problem, ours, best_of_all_supports(problem))
        assert optimality_gap(problem, ours) <= 1e-8


def with_general_queries(problem: NodeProblem, seed: int) -> NodeProblem:
    """The same node measured by signed integer queries instead, of full column rank."""
    rng = np.random.default_rng(seed)
    k, C = problem.n_cells, problem.n_children
    terms = []
    for rows, weight in ((k + 1, 0.7), (2, 3.0)):
        matrix = rng.integers(-3, 4, (rows, k))
        matrix[np.arange(min(rows, k)), np.arange(min(rows, k))] += 5
        answers = rng.integers(-9, 60, (C, rows))
        gram = (matrix.T @ matrix).astype(float)
        terms.append(GeneralTerm(gram, (answers @ matrix).astype(float), np.full(C, weight)))
    return replace(problem, terms=(*terms, *problem.terms[:-1]))


def test_tiny_nodes_with_general_queries_have_the_best_of_all_supports():
    for name in sorted({*TINY} - {"huge counts"}):
        problem = with_general_queries(random_node(TINY[name], 5), seed=5)
        agree(problem, solved(problem), best_of_all_supports(problem))


def test_a_partition_may_be_written_as_a_general_query():
    problem = random_node(TINY["plain"], 1)
    general = [GeneralTerm(*gram_and_pull(term), term.weights) for term in problem.terms]
    both = replace(problem, terms=(*general[:1], *problem.terms[1:]))
    assert np.allclose(solved(replace(problem, terms=tuple(general))), solved(problem), atol=1e-6)
    assert np.allclose(solved(both), solved(problem), atol=1e-6)


def test_equalities_are_enough_for_what_no_query_sees():
    """Differences within the groups of exact sums, and nothing else, were measured."""
    for seed, is_root, exact in itertools.product(range(3), [False, True], [(1,), (2,)]):
        problem = random_node(Shape(2, 4, exact=exact, is_root=is_root), seed)
        same = problem.exact[-1].groups[:, None] == problem.exact[-1].groups
        within = np.eye(4) - same / same.sum(0)
        noisy = problem.terms[-1]
        kept = GeneralTerm(within, noisy.answers[:, noisy.groups] @ within, noisy.weights)
        blind = replace(problem, terms=(kept,))
        agree(blind, solved(blind), best_of_all_supports(blind))
        with pytest.raises(SolverError, match="do not have full column rank"):
            solve_quadratic(replace(blind, exact=()), TOLERANCE)


def test_queries_without_full_column_rank_are_refused():
    problem = random_node(TINY["plain"], 1)
    blind = GeneralTerm(np.ones((4, 4)), np.ones((2, 4)), np.ones(2))
    with pytest.raises(SolverError, match="do not have full column rank on the live cells"):
        solve_quadratic(replace(problem, terms=(blind,)), TOLERANCE)


def test_tiny_nodes_with_weights_over_six_orders_of_magnitude():
    for seed, exact, is_root in itertools.product(range(3), [(), (1,), (2,)], [False, True]):
        problem = random_node(Shape(2, 4, exact=exact, spread=1e6, is_root=is_root), seed)
        ours = solved(problem)
        agree(problem, ours, best_of_all_supports(problem), close=1e-5)
        assert optimality_gap(problem, ours) <= 1e-8


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("scales", [False, True])
def test_small_nodes_agree_with_sequential_quadratic_programming(scales, seed):
    problem = random_node(Shape(4, 5, scales=scales, spread=3.0), seed)
    d = dense(problem)
    unit = np.abs(d.P).max()
    result = minimize(
        lambda x: (x @ d.P @ x / 2 - d.q @ x) / unit,
        np.tile(problem.parent / problem.n_children, problem.n_children),
        jac=lambda x: (d.P @ x - d.q) / unit,
        method="SLSQP",
        bounds=[(0, None)] * d.E.shape[1],
        constraints={"type": "eq", "fun": lambda x: d.E @ x - d.e, "jac": lambda x: d.E},
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    assert result.status in (0, 8), result.message  # 8: no descent left in floating point
    agree(problem, solved(problem), result.x.reshape(d.shape), close=1e-4)


def piqp_solution(problem: NodeProblem) -> np.ndarray:
    piqp = pytest.importorskip("piqp")
    d = dense(problem)
    unit = np.abs(d.P).max()
    solver = piqp.DenseSolver()
    for name in ("eps_abs", "eps_rel", "eps_duality_gap_abs", "eps_duality_gap_rel"):
        setattr(solver.settings, name, 1e-11)
    n = d.E.shape[1]
    solver.setup(d.P / unit, -d.q / unit, d.E, d.e, x_l=np.zeros(n), x_u=np.full(n, np.inf))
    solver.solve()
    return np.array(solver.result.x).reshape(d.shape)


def gurobi_solution(problem: NodeProblem) -> np.ndarray:
    gurobi = pytest.importorskip("gurobipy")
    d = dense(problem)
    unit = np.abs(d.P).max()
    settings = {"OutputFlag": 0, "BarConvTol": 1e-12, "FeasibilityTol": 1e-9, "Threads": 1}
    try:
        environment = gurobi.Env(params={**settings, "OptimalityTol": 1e-9, "BarQCPConvTol": 1e-12})
    except gurobi.GurobiError as error:
        pytest.skip(f"no licence: {error}")
    with environment, gurobi.Model(env=environment) as model:
        x = model.addMVar(d.E.shape[1])
        model.setObjective(x @ (d.P / (2 * unit)) @ x - (d.q / unit) @ x)
        model.addConstr(d.E @ x == d.e)
        model.optimize()
        assert model.Status == gurobi.GRB.OPTIMAL
        return x.X.reshape(d.shape)


@pytest.mark.parametrize(
    "shape",
    [
        Shape(8, 20, scales=True),
        Shape(12, 14, sparse=0.8, persons=2.0),
        Shape(3, 60, sparse=0.6),
        Shape(9, 18, exact=(1, 6), scales=True),
        Shape(3, 60, exact=(5,), sparse=0.8),
        Shape(1, 50, exact=(1, 5), is_root=True),
    ],
)
def test_medium_nodes_agree_with_another_solver(shape):
    for peer in [piqp_solution, gurobi_solution]:
        problem = random_node(shape, 5)
        ours = solved(problem)
        agree(problem, ours, peer(problem), close=1e-4)
        assert optimality_gap(problem, ours) <= 1e-8


def test_certificates_hold_when_computed_again():
    """On both ways to invert, for few and for many cells."""
    for persons, exact, cells in itertools.product([0.5, 50.0], [(), (1,), (2, 5)], [12, 55]):
        for seed in range(2):
            problem = random_node(Shape(6, cells, exact, spread=100.0, persons=persons), seed)
            assert optimality_gap(problem, solved(problem)) <= 1e-8


@pytest.mark.parametrize(
    "shape",
    [
        Shape(5, 8, (2,), spread=100.0, persons=1e4, sparse=0.9, scales=True),
        Shape(3, 2, (2,)),
        Shape(30, 40, (1,), spread=1e4, persons=3.0),
    ],
)
def test_degenerate_nodes_are_solved_and_certified(shape):
    """Where the multipliers are not unique, valid ones must be found, not only the point."""
    for seed in range(6):
        problem = random_node(shape, seed)
        assert optimality_gap(problem, solved(problem)) <= 1e-8


def test_a_giant_among_empty_children_is_solved():
    """One child has millions, the others next to nobody: supports alone never settle this."""
    shape = Shape(3, 4, (2,), spread=1.0, persons=1e6, sparse=0.9)
    for seed in (11, 31, 32, 44, 77, 82):
        problem = random_node(shape, seed)
        assert optimality_gap(problem, solved(problem)) <= 1e-7


def test_the_oracles_reject_a_wrong_solution():
    """The oracles themselves can fail: a moved person or a changed weight is noticed."""
    problem = random_node(Shape(3, 3), 1)
    right = best_of_all_supports(problem)
    wrong = right.copy()
    c, d = np.argsort(right[:, 0])[[-1, 0]]
    wrong[c, 0] -= 1e-4
    wrong[d, 0] += 1e-4
    assert optimality_gap(problem, wrong) > 1e-6
    heavier = [replace(t, weights=t.weights * [1.0, 1.0, 1.1]) for t in problem.terms]
    other = replace(problem, terms=tuple(heavier))
    assert optimality_gap(other, right) > 1e-6
    assert optimality_gap(problem, right) <= 1e-8


@pytest.mark.parametrize("noise", [1.0, 1e4, 1e7, 1e8, 1e9, MOST_NOISE])
def test_answers_far_beyond_the_counts(noise: float) -> None:
    """Two children with exact totals, two cells: one count decides, and the rest follows from it."""
    rng = np.random.default_rng(28)
    for _ in range(5):
        truth = rng.integers(1, 30, (2, 2))
        answers = rng.normal(truth, noise)
        totals = ExactTerm(np.zeros(2, np.int64), truth.sum(1, keepdims=True))
        cells = LeastSquaresTerm(np.arange(2), answers, np.full(2, 1 / noise**2))
        passes = ((RoundingQuery(np.arange(2)),),)
        problem = NodeProblem("1", 2, truth.sum(0), (cells,), (totals,), passes)
        # x = truth + t [[1, -1], [-1, 1]] keeps all sums; squares are least at the mean contrast.
        off = answers - truth
        t = (off[0, 0] - off[0, 1] - off[1, 0] + off[1, 1]) / 4
        t = np.clip(t, -min(truth[0, 0], truth[1, 1]), min(truth[0, 1], truth[1, 0]))
        best = truth + t * np.array([[1, -1], [-1, 1]])
        assert np.abs(solved(problem) - best).max() <= 1e-4
