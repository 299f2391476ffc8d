"""One battery for every solver of the continuous stage, and one for every integer solver."""

from __future__ import annotations

import builtins
import importlib
import sys
import tomllib
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import scipy.sparse as sp

from das.errors import DasError, RuntimeSetupError
from jobs.pipeline.config.models.products import SolveConfig
from solvers.backends.registry import (
    PACKAGES,
    IntegerSolver,
    LeastSquaresSolver,
    least_squares,
    mixed_integer,
)
from solvers.least_squares.passes import solve_in_passes
from solvers.problem import NO_LIMIT, ExactTerm, NodeProblem, RowsTerm, Status, group_sums
from solvers.rounding.mixed_integer import MixedIntegerProgram, Outcome
from tests.builders.strategies import Shape, random_node
from tests.checkout import ROOT
from tests.unit.solvers.least_squares.quadratic import best_of_all_supports, dense, optimality_gap

TOLERANCE = 1e-6
SHAPES = {
    "plain": Shape(3, 8),
    "one child": Shape(1, 8),
    "invariants": Shape(3, 8, exact=(1, 3)),
    "children differ": Shape(4, 6, scales=True),
    "nearly empty": Shape(4, 8, sparse=0.9, persons=0.5),
    "root": Shape(1, 9, exact=(1,), is_root=True),
    "weights over 1000": Shape(3, 6, spread=1e3),
}


@pytest.fixture(params=list(LeastSquaresSolver), ids=str)
def solve(request):
    if request.param.value in PACKAGES:
        pytest.importorskip(PACKAGES[request.param.value])
    return least_squares(request.param)


@pytest.fixture(params=list(IntegerSolver), ids=str)
def solve_integers(request):
    if request.param.value in PACKAGES:
        pytest.importorskip(PACKAGES[request.param.value])
    return mixed_integer(request.param)


def test_a_solver_that_must_be_installed_is_an_extra_and_a_backend():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name, package in PACKAGES.items():
        required = extras["optional-dependencies"][name]
        assert [text.startswith(package) for text in required] == [True]
        assert (ROOT / "solvers" / "backends" / f"{name}.py").exists()


def test_run_files_name_the_solvers_there_are():
    fields = SolveConfig.model_fields
    assert get_args(fields["least_squares"].annotation) == tuple(map(str, LeastSquaresSolver))
    assert get_args(fields["integers"].annotation) == tuple(map(str, IntegerSolver))


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_the_solution_is_optimal_by_its_conditions(solve, name):
    problem = random_node(SHAPES[name], 3)
    estimate = solve(problem, TOLERANCE, ())
    assert estimate.status is Status.SOLVED
    assert estimate.certificate.residual <= TOLERANCE
    assert optimality_gap(problem, estimate.values) <= 1e-5


def test_tiny_nodes_have_the_best_of_all_supports(solve):
    problem = random_node(Shape(2, 4, exact=(2,)), 1)
    best = best_of_all_supports(problem)
    value, wanted = (dense(problem).objective(x) for x in (solve(problem, 1e-7, ()).values, best))
    assert value == pytest.approx(wanted, rel=1e-7)


def with_rows(problem: NodeProblem) -> NodeProblem:
    """Rows that bind: in every child the first half of the cells holds at least, at most so many."""
    share = random_values(problem)
    half = (np.arange(problem.n_cells) < problem.n_cells // 2).astype(np.int64)
    least = np.floor(share @ half).astype(np.int64)[:, None]
    odd = (np.arange(problem.n_cells) % 2).astype(np.int64)
    most = np.ceil(share @ odd).astype(np.int64)[:, None]
    return replace(
        problem,
        rows=(
            RowsTerm(half[None], least, np.full_like(least, NO_LIMIT), ("half",)),
            RowsTerm(odd[None], np.full_like(most, -NO_LIMIT), most, ("odd",)),
        ),
    )


def random_values(problem: NodeProblem) -> np.ndarray:
    """A feasible split of the parent by chance."""
    weights = np.random.default_rng(5).gamma(1.0, size=(problem.n_children, problem.n_cells))
    return weights / weights.sum(0) * problem.parent


@pytest.mark.parametrize("seed", range(3))
def test_rows_bind_and_solvers_agree(solve, seed):
    problem = with_rows(random_node(Shape(3, 8, persons=30.0), seed))
    values = solve(problem, TOLERANCE, ()).values
    for rows in problem.rows:
        sums = values @ rows.coefficients.T
        assert (sums >= rows.least - 1e-6).all()
        assert (sums <= rows.most + 1e-6).all()
    free = solve(replace(problem, rows=()), TOLERANCE, ()).values
    assert np.abs(free - values).max() > 1e-3  # the rows do bind
    peer = least_squares(LeastSquaresSolver.PIQP)(problem, TOLERANCE, ()).values
    assert np.allclose(values, peer, atol=1e-4 * max(1.0, peer.max()))


def test_fixed_sums_are_kept(solve):
    problem = random_node(Shape(3, 8), 2)
    groups = np.arange(8) // 3
    targets = group_sums(random_values(problem), groups, 3)
    values = solve(problem, TOLERANCE, ((groups, targets),)).values
    assert np.allclose(group_sums(values, groups, 3), targets, atol=1e-5)


def test_passes_fix_their_answers_one_after_the_other(solve):
    """The totals of a node solved total first are those of the node with totals alone."""
    problem = replace(random_node(Shape(4, 8, persons=20.0), 4), order=((0,), (1, 2)))
    estimate = solve_in_passes(problem, TOLERANCE, solve)
    assert estimate.status is Status.SOLVED
    total = problem.terms[0]
    shift = (total.answers[:, 0].sum() - problem.parent.sum()) / 4
    wanted = total.answers[:, 0] - shift  # all children equally precise, none near zero
    assert np.allclose(estimate.values.sum(1), wanted, atol=1e-4)
    together = solve(replace(problem, order=()), TOLERANCE, ()).values.sum(1)
    assert np.abs(together - wanted).max() > 1e-2


def test_a_contradiction_is_never_solved(solve):
    problem = random_node(Shape(2, 4), 0)
    targets = np.array([[problem.parent.sum()], [1]])
    contradiction = replace(problem, exact=(ExactTerm(np.zeros(4, np.int64), targets),))
    try:
        estimate = solve(contradiction, TOLERANCE, ())
    except DasError:
        return
    assert estimate.status is not Status.SOLVED


@pytest.mark.parametrize(
    ("solver", "get"),
    [
        (LeastSquaresSolver.PIQP, least_squares),
        (LeastSquaresSolver.GUROBI, least_squares),
        (IntegerSolver.GUROBI, mixed_integer),
    ],
)
def test_a_solver_that_is_not_installed_is_named_with_how_to_get_it(solver, get, monkeypatch):
    package = PACKAGES[solver.value]
    found = builtins.__import__

    def missing(name: str, *args: object, **kwargs: object) -> object:
        if name.split(".")[0] == package:
            raise ModuleNotFoundError(f"No module named '{name}'")
        return found(name, *args, **kwargs)

    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"solvers.backends.{solver.value}", raising=False)
    with pytest.raises(RuntimeSetupError) as caught:
        get(solver)
    assert caught.value.where == f"solver {solver.value}"
    assert caught.value.remedy == f"pip install '.[{solver.value}]' in a clone"
    monkeypatch.undo()
    importlib.invalidate_caches()


def test_gurobi_says_when_its_licence_is_too_small():
    pytest.importorskip("gurobipy")
    problem = random_node(Shape(20, 40), 1)
    try:
        estimate = least_squares(LeastSquaresSolver.GUROBI)(problem, TOLERANCE, ())
    except RuntimeSetupError as error:
        said = error.what
    else:  # a full licence is present
        said = f"licence: {estimate.status}"
    assert "licence" in said


def knapsack(**changes: object) -> MixedIntegerProgram:
    program = MixedIntegerProgram(
        c=np.array([-5.0, -4.0, -3.0]),
        integrality=np.ones(3, bool),
        least=np.zeros(3),
        most=np.full(3, 10.0),
        A=sp.csr_array(np.array([[2.0, 3.0, 1.0], [4.0, 1.0, 2.0], [3.0, 4.0, 2.0]])),
        lower=np.full(3, -np.inf),
        upper=np.array([5.0, 11.0, 8.0]),
    )
    return replace(program, **changes)


def test_integer_programs_are_solved_to_a_gap_of_zero(solve_integers):
    found = solve_integers(knapsack(), 10.0)
    grid = np.stack(np.meshgrid(*[np.arange(11)] * 3, indexing="ij"), -1).reshape(-1, 3)
    program = knapsack()
    feasible = grid[((program.A @ grid.T).T <= program.upper).all(1)]
    assert found.outcome is Outcome.SOLVED
    assert found.gap == 0
    assert program.c @ found.x == (feasible @ program.c).min()
    assert (found.x == np.rint(found.x)).all()


def test_integer_programs_without_a_point(solve_integers):
    found = solve_integers(knapsack(lower=np.array([-np.inf, 12.0, -np.inf])), 10.0)
    assert found.x is None
    assert found.outcome is Outcome.INFEASIBLE
