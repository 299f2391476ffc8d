"""The two methods of the continuous stage apart, and what happens when both fail."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import solvers.node
from das.errors import DasError, SolverError
from solvers import least_squares
from solvers.least_squares import (
    Splitting,
    _BatchedInverses,
    _LoopedInverses,
    assemble,
    certify,
    equality_solution,
    solve_least_squares,
)
from solvers.node import solve_node
from solvers.problem import Certificate, NodeProblem, Status
from tests.oracles.quadratic import dense, optimality_gap
from tests.strategies import Shape, random_node

SHAPES = [
    Shape(4, 6),
    Shape(4, 6, scales=True, sparse=0.8),
    Shape(3, 55, sparse=0.7),
    Shape(1, 6, is_root=True),
    Shape(1, 8, exact=(1, 2), is_root=True),
]
TOLERANCE = 1e-7


@pytest.mark.parametrize("shape", SHAPES)
def test_assembled_arrays_are_those_of_the_definition(shape):
    problem = random_node(shape, 2)
    d, q = dense(problem), assemble(problem)
    k = problem.n_cells
    units = sum(t.weights for t in problem.terms if t.answers.shape[1] == k)
    assert np.allclose(q.H * units[0], d.P[:k, :k], rtol=1e-12)
    assert np.allclose((q.B * units[:, None]).ravel(), d.q, rtol=1e-12)
    assert q.scale.max() == 1
    assert np.linalg.eigvalsh(q.H)[0] >= 1 - 1e-9  # so that gradients are in persons


def test_cells_of_a_group_that_is_exactly_zero_are_not_free():
    problem = random_node(Shape(3, 4, exact=(2,), sparse=0.9, persons=0.5), 1)
    q = assemble(problem)
    targets = problem.exact[0].targets[:, problem.exact[0].groups]
    assert (targets == 0).any()
    assert np.array_equal(q.free, targets > 0)


def test_without_signs_the_solution_satisfies_the_equalities():
    problem = random_node(Shape(4, 6, exact=(1, 2), scales=True), 3)
    d = dense(problem)
    x = equality_solution(assemble(problem)).ravel()
    assert np.abs(d.E @ x - d.e).max() < 1e-8
    reduced = d.q - d.P @ x
    multipliers = np.linalg.lstsq(d.E.T, reduced, rcond=None)[0]
    assert np.abs(reduced - d.E.T @ multipliers).max() < 1e-8 * np.abs(d.q).max()


@pytest.mark.parametrize("shape", SHAPES)
def test_splitting_alone_converges_to_the_solution(shape):
    problem = random_node(replace(shape, spread=3.0), 4)
    q = assemble(problem)
    splitting = Splitting(q, np.zeros(q.B.shape))
    splitting.advance(4000, 1e-9)
    assert 0 < splitting.iterations < 4000
    x = np.where(q.free, np.maximum(splitting.s, 0), 0.0)
    expected = solve_least_squares(problem, TOLERANCE).values
    assert np.abs(x - expected).max() <= 1e-6 * max(1.0, expected.max())


@pytest.mark.parametrize("exact", [(), (1, 2)])
def test_the_certificate_of_an_unfinished_splitting_is_that_of_a_true_gradient(exact, monkeypatch):
    """Whatever the iterate, what it certifies differs from f (H z - b) by multipliers only."""
    problem = random_node(Shape(3, 5, exact=exact, scales=True), 10)
    q = assemble(problem)
    seen = []
    monkeypatch.setattr(
        least_squares,
        "certify",
        lambda q, x, gradient: seen.append((x, gradient)) or certify(q, x, gradient),
    )
    splitting = Splitting(q, np.random.default_rng(1).normal(20, 30, q.B.shape))
    splitting.advance(2, 1e-12)
    assert splitting.certificate().residual > 1e-3
    ((z, gradient),) = seen
    assert np.array_equal(z, splitting.solution())
    multipliers = (q.scale[:, None] * (z @ q.H - q.B) - gradient).ravel()
    E = dense(problem).E
    found = np.linalg.lstsq(E.T, multipliers, rcond=None)[0]
    assert np.abs(multipliers - E.T @ found).max() < 1e-9 * np.abs(multipliers).max()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_failed_first_try_is_mended_by_splitting(shape, monkeypatch):
    problem = random_node(shape, 5)
    expected = solve_least_squares(problem, TOLERANCE)
    assert expected.iterations == 0
    newton, calls = least_squares.newton, []

    def fails_at_first(q, *arguments):
        calls.append(q)
        if len(calls) == 1:
            return np.zeros_like(q.B), Certificate(np.inf, np.inf, np.inf), 1
        return newton(q, *arguments)

    monkeypatch.setattr(least_squares, "newton", fails_at_first)
    mended = solve_least_squares(problem, TOLERANCE)
    assert mended.status is Status.SOLVED
    assert mended.iterations > 0
    scale = max(1.0, expected.values.max())
    assert np.abs(mended.values - expected.values).max() <= 1e-8 * scale
    assert optimality_gap(problem, mended.values) <= 1e-8


def test_both_ways_to_invert_give_the_same_solution(monkeypatch):
    for shape in SHAPES:
        problem = random_node(shape, 6)
        solutions = []
        for most in (0, 10**6):
            monkeypatch.setattr(least_squares, "_BATCHED_CELLS", most)
            solutions.append(solve_least_squares(problem, TOLERANCE).values)
        assert np.abs(solutions[0] - solutions[1]).max() <= 1e-8 * max(1.0, solutions[0].max())


@pytest.mark.parametrize("exact", [(), (1, 3)])
def test_both_ways_to_invert_agree_in_every_part(exact):
    problem = random_node(Shape(4, 6, exact=exact, scales=True), 11)
    q = assemble(problem)
    support = (np.random.default_rng(2).random(q.B.shape) < 0.6) & q.free
    ways = [way(q, support) for way in (_BatchedInverses, _LoopedInverses)]
    for ask in (
        lambda way: way.solve(q.B, q.a),
        lambda way: way.total(),
        lambda way: way.apply(np.arange(6.0)),
    ):
        one, other = (ask(way) for way in ways)
        assert np.abs(one - other).max() <= 1e-10 * max(1.0, np.abs(one).max())


def test_a_limit_is_reported_and_never_becomes_counts(monkeypatch):
    monkeypatch.setattr(least_squares, "_JOINED_ROUNDS", ((1, 1.0),))
    monkeypatch.setattr(least_squares, "_FRESH_ROUNDS", ())
    problem = random_node(Shape(4, 6), 7)
    impossible = 1e-300
    estimate = solve_least_squares(problem, impossible)
    assert estimate.status is Status.LIMIT
    assert estimate.certificate.residual > impossible
    with pytest.raises(SolverError) as caught:
        solve_node(problem, impossible)
    assert str(caught.value).startswith(
        "node node-7 (4 children, 6 live cells): the least-squares stage stopped at its iteration "
        "limit; got residual "
    )
    assert "expected at most 1.0e-300; raise solve.tolerance" in str(caught.value)


def test_a_limit_is_refused_even_if_it_could_be_rounded(monkeypatch):
    problem = random_node(Shape(4, 6), 7)
    solved = solve_least_squares(problem, TOLERANCE)
    limited = replace(solved, status=Status.LIMIT)
    monkeypatch.setattr(solvers.node, "solve_least_squares", lambda *_: limited)
    with pytest.raises(SolverError, match="stopped at its iteration limit"):
        solve_node(problem, TOLERANCE)


def test_counts_are_verified_before_they_leave(monkeypatch):
    problem = random_node(Shape(4, 6), 7)
    wrong = np.zeros((4, 6), np.int64)
    monkeypatch.setattr(solvers.node, "round_counts", lambda *_: (wrong, False))
    with pytest.raises(DasError, match="node node-7: children do not sum to the parent"):
        solve_node(problem, TOLERANCE)


def moved(problem: NodeProblem) -> tuple[np.ndarray, np.ndarray]:
    """The solution of a node and its gradient, before anything is wrong with them."""
    q = assemble(problem)
    x = solve_least_squares(problem, TOLERANCE).values
    gradient = q.scale[:, None] * (x @ q.H - q.B)
    if problem.parent is not None:
        held = x > 1e-9
        mean = (gradient * held).sum(0) / held.sum(0)
        gradient = gradient - mean
    return x, gradient


def test_the_certificate_sees_each_kind_of_fault():
    problem = random_node(Shape(3, 5, sparse=0.2), 8)
    q = assemble(problem)
    x, gradient = moved(problem)
    size = x.max()
    assert certify(q, x, gradient).residual < 1e-9
    negative = x.copy()
    c = int(np.argmax(x[:, 0]))
    negative[c, 0] = -0.5
    assert certify(q, negative, gradient).primal >= 0.5 / size * 0.99
    alone = assemble(random_node(Shape(1, 3, is_root=True), 8))
    free = np.array([[4.0, -1.0, 3.0]])
    assert certify(alone, free, np.zeros((1, 3))).primal == 1.0 / 4.0
    more = x.copy()
    more[c, 0] += 2.0
    assert certify(q, more, gradient).primal == pytest.approx(2.0 / more.max(), rel=1e-6)
    pulled = gradient.copy()
    pulled[c, 0] -= 3.0
    assert certify(q, x, pulled).stationarity == pytest.approx(3.0 / q.scale[c] / size, rel=1e-6)
    pushed = gradient.copy()
    pushed[c, 0] += 1.0
    assert certify(q, x, pushed).gap > 0


def test_the_certificate_sees_a_broken_invariant():
    problem = random_node(Shape(1, 6, exact=(2,), is_root=True), 9)
    q = assemble(problem)
    x = solve_least_squares(problem, TOLERANCE).values
    x = x + np.eye(1, 6) * 0.25
    expected = pytest.approx(0.25 / max(1.0, x.max()), rel=1e-6)
    assert certify(q, x, np.zeros_like(x)).primal == expected
