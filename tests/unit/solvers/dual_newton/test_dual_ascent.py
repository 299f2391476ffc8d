"""The dual Newton method in compiled loops against other solvers, and its parts against arrays."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba.core.dispatcher import Dispatcher

from bench.l2_nodes import node
from bench.large_node import large_node
from solvers.dual_newton import dual_ascent, elimination_kernels
from solvers.dual_newton.dual_ascent import FORBIDDEN, lift, solve_compiled
from solvers.dual_newton.projected import solve_projected
from solvers.least_squares.machine_code import DUAL_ASCENT, kernels
from solvers.least_squares.solve import solve_quadratic
from solvers.node import NodeSettings, estimate_node
from solvers.problem import ExactTerm, LeastSquaresTerm, NodeProblem, Status, group_sums
from tests.builders.strategies import random_node, shapes
from tests.unit.solvers.dual_newton.test_solve_oracle import KINDS, close, crossing_node, solved
from tests.unit.solvers.least_squares.in_arrays import project_by_child
from tests.unit.solvers.least_squares.quadratic import optimality_gap


@given(shapes(), st.integers(0, 1000))
def test_a_drawn_node_that_is_solved_keeps_everything_and_is_the_best(shape, seed):
    problem = random_node(shape, seed)
    estimate = solve_compiled(problem, 1e-8)
    assert estimate is not None
    is_solved = estimate.certificate.residual <= 1e-8
    assert (estimate.status is Status.SOLVED) == is_solved
    if not is_solved:
        assert problem.rows or problem.exact
        return
    x = estimate.values
    size = max(1.0, float(x.max()))
    assert x.min() >= 0
    if problem.parent is not None:
        assert np.abs(x.sum(0) - problem.parent).max() <= 1e-7 * size
    for exact in problem.exact:
        found = group_sums(x, exact.groups, exact.targets.shape[1])
        assert np.abs(found - exact.targets).max() <= 1e-7 * size
    for rows in problem.rows:
        values = x @ rows.coefficients.T
        assert (values >= rows.least - 1e-7 * size).all()
        assert (values <= rows.most + 1e-7 * size).all()
    assert optimality_gap(problem, x) <= 1e-6


def test_all_kinds_of_nodes_agree_with_the_structured_solver():
    """Few cells per child make the nodes the smaller side, many the groups.

    Rows under which all children are at a limit may stop the steps; other solvers follow then.
    """
    for cells, kinds in itertools.product([12, 40, 110], [*KINDS, ("one weight",)]):
        taken = 0
        for seed in range(5 if "rows" in kinds else 3):
            problem = crossing_node(5, cells, seed, kinds, persons=1.0 if cells > 100 else 3.0)
            theirs, ours = solve_quadratic(problem, 1e-9), solve_compiled(problem, 1e-8)
            assert ours is not None
            if problem.rows and ours.status is Status.LIMIT:
                continue
            if theirs.status is Status.SOLVED:
                taken += 1
                assert ours.status is Status.SOLVED
                close(ours.values, theirs.values)
        assert taken


def nested_node(children: int, seed: int, exact: bool) -> NodeProblem:
    """Queries that nest in one another under two that cross, some of them unasked somewhere."""
    rng = np.random.default_rng(seed)
    k = 120
    cells = np.arange(k)
    truth = rng.poisson(rng.gamma(0.4, 4.0, (children, k)))
    truth[rng.integers(0, children, k), cells] += 1
    terms = []
    groupings = (cells, cells // 2, cells // 4, cells // 12, cells // 24, cells // 4 % 5, cells * 0)
    for groups in groupings:
        m = int(groups.max()) + 1
        weights = 10 ** rng.uniform(-1, 1, children)
        answers = group_sums(truth, groups, m)
        noise = np.rint(rng.normal(0, 1, answers.shape) / np.sqrt(weights)[:, None])
        if m < k:
            weights[rng.random(children) < 0.2] = 0.0
        terms.append(LeastSquaresTerm(groups, answers + noise, weights))
    given_sums = (ExactTerm(cells // 24, group_sums(truth, cells // 24, 5)),) if exact else ()
    return NodeProblem(f"nested-{seed}", k, truth.sum(0), tuple(terms), given_sums, ())


@pytest.mark.parametrize("exact", [False, True])
def test_layers_in_both_parts_of_the_chain_and_outside_it(exact):
    for seed in range(4):
        problem = nested_node(6, seed, exact)
        roles = dual_ascent._roles(lift(problem))
        assert roles is not None
        chain, lower, crossing, *_ = roles
        assert 0 < lower < len(chain)
        assert len(crossing)
        close(solved(problem), solve_quadratic(problem, 1e-9).values)


def bound_node(children: int, seed: int, sums: int = 20, persons: float = 0.3) -> NodeProblem:
    """Few persons under much noise, and sums of every child given: most cells are empty."""
    rng = np.random.default_rng(seed)
    cells = np.arange(160)
    truth = rng.poisson(rng.gamma(persons, 1.0, (children, 160)))
    terms = []
    for groups in (cells, cells // 2, cells % 7, cells // 3 % 5, cells // 11):
        answers = group_sums(truth, groups, int(groups.max()) + 1)
        noise = np.rint(rng.normal(0, 20, answers.shape))
        terms.append(LeastSquaresTerm(groups, answers + noise, np.full(children, 1 / 400)))
    held = cells // (160 // sums)
    given_sums = (ExactTerm(held, group_sums(truth, held, sums)),)
    live = np.flatnonzero(truth.sum(0))
    terms = [replace(t, groups=np.unique(t.groups[live], return_inverse=True)[1],
                     answers=t.answers[:, np.unique(t.groups[live])]) for t in terms]  # fmt: skip
    held, groups = np.unique(given_sums[0].groups[live], return_inverse=True)
    exact = ExactTerm(groups, given_sums[0].targets[:, held])
    return NodeProblem("bound", len(live), truth.sum(0)[live], tuple(terms), (exact,), ())


def test_many_given_sums_under_much_noise(monkeypatch):
    """Most sets of positive cells contradict the sums; undamped steps then go nowhere."""
    nodes = [bound_node(8, seed) for seed in range(3)]
    for problem in nodes:
        values = solve_quadratic(problem, 1e-9).values
        close(solved(problem), values)
    monkeypatch.setattr(dual_ascent, "_dampings", lambda _: (0.0,))
    undamped = [solve_compiled(problem, 1e-8) for problem in nodes]
    assert any(one is not None and one.status is Status.LIMIT for one in undamped)


def test_one_given_sum_is_damped_where_nothing_else_arrives(monkeypatch):
    nodes = [bound_node(8, seed, 1) for seed in range(6)]
    monkeypatch.setattr(dual_ascent, "_stiffnesses", lambda _: (1.0,))
    for problem in nodes:
        close(solved(problem), solve_quadratic(problem, 1e-9).values)
    monkeypatch.setattr(dual_ascent, "_dampings", lambda _: (0.0,))
    undamped = [solve_compiled(problem, 1e-8) for problem in nodes]
    assert any(one is not None and one.status is Status.LIMIT for one in undamped)


def test_under_much_noise_stiffer_nodes_lead_there_in_few_steps(monkeypatch):
    """To the same solution, which the one without the detour takes at least twice the steps for."""
    nodes = [bound_node(30, seed, persons=0.08) for seed in range(2)]
    led = [solve_compiled(problem, 1e-8) for problem in nodes]
    monkeypatch.setattr(dual_ascent, "_stiffnesses", lambda _: (1.0,))
    alone = [solve_compiled(problem, 1e-8) for problem in nodes]
    for one, other in zip(led, alone, strict=True):
        assert one is not None
        assert other is not None
        assert one.status is other.status is Status.SOLVED
        close(one.values, other.values)
        assert 2 * one.newton_steps < other.newton_steps


def test_stiffer_nodes_are_for_noise_alone():
    for problem, is_noisy in (
        (bound_node(8, 0), True),
        (bound_node(30, 0), False),
        (node("block", 3, 200, 900, 0.103), False),
    ):
        assert (len(dual_ascent._stiffnesses(lift(problem))) > 1) == is_noisy


def test_a_large_node_is_solved_as_by_projected_steps():
    problem = large_node(1500, 4)
    ours, theirs = solve_compiled(problem, 1e-7), solve_projected(problem, 1e-7)
    assert ours is not None
    assert ours.status is theirs.status is Status.SOLVED
    close(ours.values, theirs.values)
    assert estimate_node(problem, NodeSettings()).newton_steps == ours.newton_steps


def test_a_node_without_solution_ends_at_a_limit():
    total = LeastSquaresTerm(np.zeros(2, np.int64), np.array([[4.0], [7.0]]), np.full(2, 2.0))
    own = LeastSquaresTerm(np.arange(2), np.array([[3.0, 1.0], [2.0, 5.0]]), np.ones(2))
    exact = (ExactTerm(np.zeros(2, np.int64), np.array([[9], [9]])),)  # the parent has 11
    problem = NodeProblem("n", 2, np.array([5, 6]), (total, own), exact, ())
    estimate = solve_compiled(problem, 1e-6)
    assert estimate is not None
    assert estimate.status is Status.LIMIT
    assert estimate.certificate.residual > 1e-3


def projection(field, change, t, unit, parent, level):
    code, (C, k) = kernels(DUAL_ASCENT), field.shape
    none, wide = np.zeros((C, 0)), np.zeros((0, k))
    start, nothing = np.zeros(1, np.int64), np.zeros(0, np.int64)
    whole, rows = np.zeros(k) if parent is None else parent, (wide, none, none, none)
    node = code.Node(
        whole, parent is not None, unit, 1 / unit, none, np.zeros((0, C)), start, nothing, nothing, nothing, *rows
    )  # fmt: skip
    x = np.full((C, k), np.nan)
    return code._project(field, change, t, node, level, x), x


@pytest.mark.parametrize("children", [1, 2, 30])
def test_projections_are_those_in_arrays(children):
    """From any multipliers, with ties, cells that are forbidden, and more cells than a panel has."""
    rng = np.random.default_rng(children)
    k = 250
    for start in (-np.inf, 0.0, 1e9, -1e9):
        field = np.rint(rng.normal(0, 4, (children, k)))
        field[rng.random((children, k)) < 0.2] = FORBIDDEN
        field[0, field.max(0) == FORBIDDEN] = -3.0
        change, unit = (
            np.rint(rng.normal(0, 4, (children, k))),
            2.0 ** rng.integers(-2, 3, children),
        )
        parent = rng.integers(1, 50, k).astype(float)
        price, level = np.full(k, -np.inf), np.full(k, start)
        wanted = project_by_child(field + 0.5 * change, 1 / unit, parent, price, FORBIDDEN / 2)
        slope, x = projection(field, change, 0.5, unit, parent, level)
        np.testing.assert_allclose(x, wanted, rtol=1e-13, atol=1e-12)
        np.testing.assert_allclose(level, price, rtol=1e-13, atol=1e-12)
        np.testing.assert_allclose(slope, (unit[:, None] * wanted * change).sum(), atol=1e-9)


def test_a_root_is_projected_onto_what_is_not_negative():
    field = np.array([[-1.0, 2.0, FORBIDDEN]])
    _, x = projection(field, np.zeros((1, 3)), 0.0, np.ones(1), None, np.zeros(3))
    assert x.tolist() == [[0.0, 2.0, 0.0]]


def test_what_is_not_taken_is_left_to_others(monkeypatch):
    problem = node("block", 3, 200, 900, 0.103)
    wanted = solved(problem)
    monkeypatch.setattr(dual_ascent, "_CROSSING", 3)
    assert solve_compiled(problem, 1e-8) is None
    estimate = estimate_node(problem, NodeSettings())
    assert estimate.status is Status.SOLVED
    close(estimate.values, wanted)


def test_no_kernel_may_reorder_or_fuse_what_it_adds():
    """So that all processors find the same bits; nor is a library called that chooses by them."""
    modules = kernels(DUAL_ASCENT), elimination_kernels
    functions = [f for m in modules for f in vars(m).values() if isinstance(f, Dispatcher)]
    assert len(functions) > 20
    assert not any(f.targetoptions.get("fastmath") for f in functions)
    names = {name for f in functions for name in f.py_func.__code__.co_names}
    assert not names & {"linalg", "dot", "sum", "cholesky", "solve"}
