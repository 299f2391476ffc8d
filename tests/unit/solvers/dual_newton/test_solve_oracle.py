"""The dual Newton method against a general interior-point solver on the dense problem."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from solvers.dual_newton.dual_ascent import solve_compiled
from solvers.dual_newton.projected import solve_projected
from solvers.least_squares.passes import solve_in_passes
from solvers.least_squares.solve import solve_quadratic
from solvers.problem import (
    NO_LIMIT,
    ExactTerm,
    LeastSquaresTerm,
    NodeProblem,
    RowsTerm,
    Status,
    group_sums,
)
from tests.builders.strategies import random_node
from tests.unit.solvers.least_squares.quadratic import best_of_all_supports, dense
from tests.unit.solvers.least_squares.test_solve_oracle import CASES, DEGENERATE_CASES

LEVELS = (4, 3, 5, 2)
QUERIES = ((), (0,), (1, 3), (2,), (0, 1), (1, 2), (0, 1, 2), (0, 2, 3), (0, 1, 2, 3))


def crossing_node(
    children: int,
    cells: int,
    seed: int,
    kinds: tuple[str, ...] = (),
    persons: float = 3.0,
) -> NodeProblem:
    """Marginals that cross one another, other weights in every child, and the kinds asked for.

    Kinds: exact (totals and a marginal), rows (an equality and limits that bind), root, unasked
    (some queries unasked in some children), one weight (all children alike).
    """
    rng = np.random.default_rng(seed)
    C = 1 if "root" in kinds else children
    held = np.sort(rng.choice(int(np.prod(LEVELS)), cells, replace=False))
    codes = np.array(np.unravel_index(held, LEVELS))
    truth = rng.poisson(persons * rng.gamma(0.3, 3.0, (C, cells))).astype(np.int64)
    truth[rng.integers(0, C, cells), np.arange(cells)] += 1

    def groups_of(axes: tuple[int, ...]) -> np.ndarray:
        number = np.zeros(cells, np.int64)
        for axis in axes:
            number = number * LEVELS[axis] + codes[axis]
        return np.unique(number, return_inverse=True)[1].astype(np.int64)

    terms = []
    for axes in QUERIES:
        groups = groups_of(axes)
        weights = 10 ** rng.uniform(-0.5, 0.5, 1 if "one weight" in kinds else C) * np.ones(C)
        answers = group_sums(truth, groups, int(groups.max()) + 1)
        noise = rng.normal(0, 1, answers.shape) / np.sqrt(weights)[:, None]
        if "unasked" in kinds and len(axes) < 4:
            weights = np.where(rng.random(C) < 0.4, 0.0, weights)
        terms.append(LeastSquaresTerm(groups, answers + np.rint(noise), weights))
    exact: tuple[ExactTerm, ...] = ()
    if "exact" in kinds:
        finer = groups_of((1, 3))
        both = (np.zeros(cells, np.int64), finer)
        exact = tuple(ExactTerm(g, group_sums(truth, g, int(g.max()) + 1)) for g in both)
    rows: tuple[RowsTerm, ...] = ()
    if "rows" in kinds:
        R = rng.integers(-1, 3, (4, cells))
        found = truth @ R.T
        least, most = found - 1, found + 1
        least[:, 0], most[:, 1] = -NO_LIMIT, NO_LIMIT
        if "exact" not in kinds:
            least[:, 2] = most[:, 2] = found[:, 2]
        rows = (RowsTerm(R, least, most, ("a", "b", "c", "d")),)
    parent = None if "root" in kinds else truth.sum(0)
    return NodeProblem(f"crossing-{seed}", cells, parent, tuple(terms), exact, (), rows)


def interior_point(problem: NodeProblem) -> np.ndarray:
    """PIQP on the dense problem, with the rows as limits."""
    piqp = pytest.importorskip("piqp")
    d = dense(replace(problem, rows=()))
    unit = np.abs(d.P).max()
    C = problem.n_children
    G = np.concatenate(
        [np.zeros((0, d.E.shape[1])), *(np.kron(np.eye(C), r.coefficients) for r in problem.rows)]
    )
    least = np.concatenate([np.zeros(0), *(r.least.ravel() for r in problem.rows)])
    most = np.concatenate([np.zeros(0), *(r.most.ravel() for r in problem.rows)])
    least, most = (
        np.where(least <= -NO_LIMIT, -np.inf, least),
        np.where(most >= NO_LIMIT, np.inf, most),
    )
    solver = piqp.DenseSolver()
    solver.settings.eps_abs = 1e-11
    solver.settings.eps_rel = 1e-11
    solver.settings.max_iter = 2000
    limits = {"G": G, "h_l": least, "h_u": most} if len(G) else {}
    solver.setup(d.P / unit, -d.q / unit, d.E, d.e, x_l=np.zeros(d.E.shape[1]), **limits)
    solver.solve()
    return solver.result.x.reshape(d.shape)


def solved(problem: NodeProblem, tolerance: float = 1e-8) -> np.ndarray:
    estimate = solve_compiled(problem, tolerance)
    assert estimate is not None
    assert estimate.status is Status.SOLVED, estimate.certificate
    assert estimate.certificate.residual <= tolerance
    return estimate.values


def close(ours: np.ndarray, theirs: np.ndarray, tolerance: float = 1e-6) -> None:
    assert np.abs(ours - theirs).max() <= tolerance * max(1.0, float(theirs.max()))


def test_tiny_nodes_have_the_best_of_all_supports():
    for shape, seed in [*CASES, *DEGENERATE_CASES]:
        problem = random_node(shape, seed)
        close(solved(problem, 1e-6), best_of_all_supports(problem))


KINDS = (  # rows beside exact sums may diverge; `solvers.node` sends such nodes elsewhere
    (),
    ("exact",),
    ("rows",),
    ("unasked",),
    ("exact", "unasked"),
    ("root",),
    ("root", "exact"),
)


def test_small_nodes_agree_with_an_interior_point_solver():
    for seed, kinds in itertools.product(range(2), KINDS):
        problem = crossing_node(4, 40, seed, kinds)
        close(solved(problem), interior_point(problem))


@pytest.mark.parametrize("kinds", [kinds for kinds in KINDS if "rows" not in kinds], ids="-".join)
def test_projected_steps_take_the_same_nodes(kinds):
    problem = crossing_node(3, 60, 11, kinds)
    estimate = solve_projected(problem, 1e-8)
    assert estimate.status is Status.SOLVED
    close(estimate.values, solved(problem))


@pytest.mark.parametrize("kinds", [(), ("exact",), ("unasked",), ("one weight",)], ids="-".join)
def test_sums_that_earlier_passes_fixed_agree_with_the_structured_solver(kinds):
    """Totals, then the marginal that invariants may hold, both real numbers where they are fixed."""
    problem = crossing_node(6, 90, 4, kinds, persons=1.0)
    problem = replace(problem, order=((0,), (2,), (1, *range(3, len(problem.terms)))))
    seen = []

    def solve(one, tolerance, fixed):
        seen.append(len(fixed))
        if len(fixed) < 2:
            return solve_quadratic(one, tolerance, fixed)
        estimate = solve_compiled(one, tolerance, fixed)
        assert estimate is not None
        for groups, targets in fixed:
            off = group_sums(estimate.values, groups, targets.shape[1]) - targets
            assert np.abs(off).max() <= 1e-6
        return estimate

    found = solve_in_passes(problem, 1e-9, solve)
    wanted = solve_in_passes(problem, 1e-9, solve_quadratic)
    assert found.status is wanted.status is Status.SOLVED
    assert seen[-1] == 2
    close(found.values, wanted.values)
