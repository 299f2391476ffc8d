"""The parts of the continuous stage apart, and what happens when they fail."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from das.errors import SolverError
from solvers.least_squares import blocks as structure
from solvers.least_squares import interior_point
from solvers.least_squares import solve as least_squares
from solvers.least_squares.arrays import Guess
from solvers.least_squares.blocks import arrange
from solvers.least_squares.certificate import certify, gradient, natural_residual, origin
from solvers.least_squares.interior_point import follow_path
from solvers.least_squares.solve import first_guess, solve_quadratic
from solvers.problem import NO_LIMIT, ExactTerm, NodeProblem, RowsTerm, Status, group_sums
from tests.builders.strategies import Shape, random_node
from tests.unit.solvers.least_squares.in_arrays import solve_guess
from tests.unit.solvers.least_squares.quadratic import dense, optimality_gap

SHAPES = [
    Shape(4, 6),
    Shape(4, 6, scales=True, sparse=0.8),
    Shape(3, 55, sparse=0.7),
    Shape(1, 6, is_root=True),
    Shape(1, 8, exact=(1, 2), is_root=True),
    Shape(4, 6, exact=(2,), rows=2),
    Shape(3, 7, unequal=True),
    Shape(3, 7, exact=(1,), rows=1, unequal=True, scales=True),
]
TOLERANCE = 1e-7
DIVISIONS = ("all inside", "all outside", "two blocks")


def far(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one - other).max() / max(1.0, np.abs(other).max()))


@pytest.fixture(params=["chosen", *DIVISIONS])
def division(request, monkeypatch):
    """Ways to divide queries: as chosen, all in one block, every cell a block, about two blocks."""
    if request.param != "chosen":
        monkeypatch.setattr(structure, "_ONE_BLOCK", 0)
    if request.param == "all inside":
        monkeypatch.setattr(structure, "_cost", lambda labels, rows, C, k: rows)
    if request.param == "all outside":
        monkeypatch.setattr(structure, "_cost", lambda labels, rows, C, k: -rows)
    if request.param == "two blocks":
        monkeypatch.setattr(structure, "_cost", lambda labels, rows, C, k: abs(labels.max() - 1))
    return request.param


@pytest.mark.parametrize("shape", SHAPES)
def test_arranged_arrays_are_those_of_the_definition(shape, division):
    problem = random_node(shape, 2)
    q, d = arrange(problem), dense(problem)
    C, k = d.shape
    x = np.random.default_rng(1).normal(size=(C, k))
    kept = [i for i, index in enumerate(q.given) if index < 0]
    rest = dense(replace(problem, terms=tuple(problem.terms[i] for i in kept)))
    assert far(q.apply(x) * q.unit[:, None], (rest.P @ x.ravel()).reshape(C, k)) < 1e-12
    assert far(q.linear * q.unit[:, None], rest.q.reshape(C, k)) < 1e-12
    for c in range(C):
        H = rest.P.reshape(C, k, C, k)[c, :, c] / q.unit[c]
        assert np.linalg.eigvalsh(H)[0] >= 1 - 1e-9  # so that gradients are in persons
        assert far(q.diagonal[min(c, len(q.diagonal) - 1)], np.diag(H)) < 1e-12
    assert q.scale.max() == 1


def test_cells_of_what_is_exactly_zero_are_not_free():
    problem = random_node(Shape(3, 4, exact=(2,), sparse=0.9, persons=0.5), 1)
    targets = problem.exact[0].targets[:, problem.exact[0].groups]
    assert (targets == 0).any()
    assert np.array_equal(arrange(problem).free, targets > 0)
    none = np.array([[0], [NO_LIMIT], [3]])
    rows = RowsTerm(np.array([[0, 1, 0, 2]]), np.full((3, 1), -NO_LIMIT), none, ("none",))
    both = arrange(replace(problem, rows=(rows,))).free
    expected = targets > 0
    expected[0, [1, 3]] = False
    assert np.array_equal(both, expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_guess_is_solved_to_the_last_digits(shape, division):
    """Equalities and gradients on the support, against the dense conditions."""
    problem = random_node(shape, 3)
    q, d = arrange(problem), dense(problem)
    rng = np.random.default_rng(4)
    support = q.free & (rng.random(q.free.shape) < 0.8)
    support |= q.free & (support.sum(0) == 0)
    support |= q.free if problem.rows or problem.exact else support
    sides = np.where(q.least == q.most, -1, 0)
    point = solve_guess(q, Guess(support, sides), origin(q))
    assert not point.x[~support].any()
    size = max(1.0, np.abs(d.e).max(initial=0.0))
    assert np.abs(d.E @ point.x.ravel() - d.e).max(initial=0.0) < 1e-9 * size
    equal = d.low == d.high
    assert np.abs(d.R @ point.x.ravel() - d.low)[equal].max(initial=0.0) < 1e-9 * size
    held = support.ravel()
    E = np.vstack([d.E, d.R[equal]])[:, held]
    rest = (d.P @ point.x.ravel() - d.q)[held]
    multipliers = np.linalg.lstsq(E.T, rest, rcond=None)[0]
    assert np.abs(rest - E.T @ multipliers).max() < 1e-8 * np.abs(d.q).max()
    assert np.abs(gradient(q, point)[support]).max() < 1e-9 * max(1.0, np.abs(point.x).max())


def test_the_first_guess_is_the_solution_without_signs_projected_cell_by_cell():
    for seed in range(5):
        problem = random_node(Shape(4, 6, scales=True), seed)
        q = arrange(problem)
        everywhere = Guess(np.ones_like(q.free), np.zeros_like(q.least, np.int64))
        alone = replace(q, parent=None)
        x = solve_guess(alone, everywhere, origin(alone)).x
        give = 1 / (q.scale[:, None] * q.diagonal)
        low, high = np.full(6, -1e9), np.full(6, 1e9)
        for _ in range(100):  # the multiplier at which each cell sums to its parent
            price = (low + high) / 2
            is_less = np.maximum(x + give * price, 0).sum(0) < q.parent
            low, high = np.where(is_less, price, low), np.where(is_less, high, price)
        expected = x + give * high > 1e-9
        assert not expected.all()
        assert np.array_equal(first_guess(q).support, expected)


@pytest.mark.parametrize("name", ["low", "x"])
@pytest.mark.parametrize("wrong", [np.inf, np.nan])
def test_a_path_that_leaves_the_numbers_ends_quietly_with_its_best_point(monkeypatch, name, wrong):
    """Warnings are errors here: what infinite multipliers do to products is no news."""
    q = arrange(random_node(Shape(4, 6, exact=(2,), rows=2), 4))
    advance = interior_point._Path.advance
    steps: list[int] = []

    def spoiled(path: interior_point._Path) -> None:
        advance(path)
        steps.append(1)
        if len(steps) == 4:
            getattr(path, name)[:] = wrong

    monkeypatch.setattr(interior_point._Path, "advance", spoiled)
    best, residual, taken = follow_path(q, origin(q), 1e-8, 100)
    assert taken == len(steps) == 4
    assert 1e-8 < residual < np.inf
    assert residual == natural_residual(q, best, gradient(q, best))


def test_interior_points_alone_converge_to_the_solution():
    for shape in SHAPES:
        problem = random_node(shape, 4)
        q = arrange(problem)
        point, residual, steps = follow_path(q, origin(q), 1e-8, 100)
        assert residual <= 1e-8
        assert 0 < steps < 100
        assert residual == natural_residual(q, point, gradient(q, point))
        assert certify(problem, (), q, point).residual <= 1e-7
        assert far(point.x, solve_quadratic(problem, TOLERANCE).values) < 1e-5


@pytest.mark.parametrize("shape", SHAPES)
def test_a_failed_first_try_is_mended_by_interior_points(shape, monkeypatch):
    problem = random_node(shape, 5)
    expected = solve_quadratic(problem, TOLERANCE)
    iterate, calls = least_squares.iterate, []

    def fails_at_first(q, guess, start, tolerance):
        calls.append(q)
        return (start, np.inf, 1) if len(calls) == 1 else iterate(q, guess, start, tolerance)

    monkeypatch.setattr(least_squares, "iterate", fails_at_first)
    mended = solve_quadratic(problem, TOLERANCE)
    assert mended.status is Status.SOLVED
    assert mended.iterations > 0
    assert far(mended.values, expected.values) <= 1e-8
    assert optimality_gap(problem, mended.values) <= 1e-8


def test_sums_may_be_fixed_at_real_targets():
    for seed in range(3):
        problem = random_node(Shape(3, 6, exact=(1,)), seed)
        groups = np.array([0, 1, 2, 0, 1, 2])
        inner = solve_quadratic(problem, TOLERANCE).values
        targets = group_sums(0.7 * inner + 0.3 * inner.mean(0), groups, 3)
        exact = replace(problem.exact[0], targets=targets.sum(1, keepdims=True))
        moved = replace(problem, exact=(exact,))
        estimate = solve_quadratic(moved, TOLERANCE, ((groups, targets),))
        assert estimate.status is Status.SOLVED
        assert far(group_sums(estimate.values, groups, 3), targets) < 1e-9
        assert optimality_gap(moved, estimate.values, ((groups, targets),)) <= 1e-7


def test_a_limit_is_reported(monkeypatch):
    monkeypatch.setattr(least_squares, "MOST_STEPS", 1)
    monkeypatch.setattr(least_squares, "_PATH_STEPS", 2)
    estimate = solve_quadratic(random_node(Shape(4, 6), 7), 1e-300)
    assert estimate.status is Status.LIMIT
    assert estimate.certificate.residual > 1e-300
    assert not estimate.evidence


@pytest.mark.parametrize("kind", ["rows", "exact and rows", "exact and parent"])
def test_contradictions_are_recognized_and_explained(kind):
    problem = random_node(Shape(3, 4, exact=(1,)), 7)
    totals = problem.exact[0].targets
    if kind == "rows":
        row = np.array([[1, 1, 0, 0], [-1, -1, 0, 0]])
        least = np.array([[-NO_LIMIT, -NO_LIMIT], [2, -1], [-NO_LIMIT, -NO_LIMIT]])
        rows = RowsTerm(row, least, np.full((3, 2), NO_LIMIT), ("up", "down"))
        problem = replace(problem, exact=(), rows=(rows,))
    elif kind == "exact and rows":
        least = totals + np.array([[0], [1], [0]])
        rows = RowsTerm(np.ones((1, 4), int), least, np.full((3, 1), NO_LIMIT), ("more",))
        problem = replace(problem, rows=(rows,))
    else:
        wrong = ExactTerm(problem.exact[0].groups, totals + np.array([[2], [0], [0]]))
        problem = replace(problem, exact=(wrong,))
    estimate = solve_quadratic(problem, TOLERANCE)
    assert estimate.status is Status.INFEASIBLE
    assert estimate.evidence.startswith(
        "no table keeps every constraint: the violations add up to at"
    )
    assert estimate.certificate.residual > TOLERANCE


def test_a_child_without_full_column_rank_is_named():
    problem = random_node(Shape(3, 4), 1)
    *others, last = problem.terms
    blind = replace(last, weights=last.weights * [1.0, 1.0, 0.0])
    with pytest.raises(SolverError, match=r"child 2: .* do not have full column rank"):
        solve_quadratic(replace(problem, terms=(*others, blind)), TOLERANCE)


def solved(problem: NodeProblem):
    """A solution as a point with multipliers."""
    q = arrange(problem)
    path = follow_path(q, origin(q), 1e-8, 100)[0]
    guess = least_squares.next_guess(q, path, gradient(q, path))
    return q, least_squares.iterate(q, guess, path, 1e-12)[0]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_certificate_sees_each_kind_of_fault(shape):
    problem = random_node(shape, 8)
    q, point = solved(problem)
    size = max(1.0, point.x.max())
    assert certify(problem, (), q, point).residual < 1e-8

    def judged(**changes):
        return certify(problem, (), q, replace(point, **changes))

    c, i = np.unravel_index(point.x.argmax(), point.x.shape)
    move = np.zeros_like(point.x)
    move[c, i] = 1.0
    assert judged(x=point.x - move * (point.x[c, i] + 0.5)).primal >= 0.5 / size * 0.99
    if q.parent is not None:
        assert judged(x=point.x + 2 * move).primal >= 1.99 / (size + 2)
        push = 3.0 * move[c] * q.scale[c]
        assert judged(coupling=point.coupling + push).stationarity >= 2.9 / size
        assert judged(coupling=point.coupling - push).complementarity > 0
        assert judged(coupling=point.coupling * 1.5 + 1).gap > 1e-6
    for number, sums in enumerate(point.sums):
        others = list(point.sums)
        others[number] = sums + q.scale[:, None]
        assert judged(sums=tuple(others)).stationarity >= 0.9 / size
        assert judged(x=point.x + 0.25 * move).primal >= 0.24 / (size + 1)
    if q.coefficients.size:
        wrong = np.where(np.isfinite(q.least), 0.0, 1.0)
        if wrong.any():
            assert judged(rows=point.rows + wrong).residual == np.inf
        assert judged(rows=point.rows + 1.0).residual > 1e-3
