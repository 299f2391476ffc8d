"""Post-processing against slow and obvious versions: other solvers, loops, sampling."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog, minimize, nnls
from scipy.stats import laplace, norm

from bench.studies.postprocessing_methods import (
    TableMethod,
    fit_nonnegative,
    fit_reweighted,
    post_process,
)
from bench.studies.postprocessing_table import NoisyQuery, NoisyTable
from das.mechanisms.gaussian import Gaussian
from das.mechanisms.laplace import Laplace
from solvers.objectives.bounded import (
    BoundedProblems,
    Equalities,
    solve_bounded,
    solve_with_equalities,
)
from solvers.objectives.in_node import fit_largest_in_node, reweight
from tests.builders.strategies import Shape, random_node


def random_table(seed, draws=20, shape=(4, 6), law=Laplace):
    """Sparse counts; variances differ by query."""
    rng = np.random.default_rng(seed)
    truth = rng.poisson(40, shape) * (rng.random(shape) < 0.3)
    rows, columns = np.indices(shape).reshape(2, -1)
    queries = []
    for groups in (np.zeros(truth.size, int), rows, columns, np.arange(truth.size)):
        variance = float(rng.uniform(20, 200))
        size = (draws, groups.max() + 1)
        noise = rng.laplace(0, (variance / 2) ** 0.5, size)
        if law is Gaussian:
            noise = rng.normal(0, variance**0.5, size)
        answers = np.bincount(groups, weights=truth.ravel()) + noise
        queries.append(NoisyQuery(groups, answers, variance))
    return NoisyTable(tuple(queries[:-1]), queries[-1], law)


def stacked(table):
    """Matrix, answers and deviations of all queries."""
    queries = (*table.coarse, table.cells)
    matrix = np.vstack([query.rows() for query in queries])
    answers = np.hstack([query.answers for query in queries])
    deviations = np.concatenate([np.full(q.n_answers, q.variance**0.5) for q in queries])
    return matrix, answers, deviations


@pytest.mark.parametrize("seed", range(5))
def test_nnls_is_that_of_scipy(seed):
    table = random_table(seed)
    matrix, answers, deviations = stacked(table)
    for found, draw in zip(fit_nonnegative(table), answers, strict=True):
        assert found == pytest.approx(
            nnls(matrix / deviations[:, None], draw / deviations)[0], abs=1e-8
        )


@pytest.mark.parametrize("seed", range(5))
def test_ordinary_least_squares_is_that_of_numpy(seed):
    table = random_table(seed)
    matrix, answers, deviations = stacked(table)
    known = np.linalg.lstsq(matrix / deviations[:, None], (answers / deviations).T)[0].T
    assert post_process(table, TableMethod.OLS) == pytest.approx(known, abs=1e-8)


def test_bounds_on_both_sides_hold_with_the_right_gradients():
    """Judged by the optimality conditions alone."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        R, n, m = 30, 12, 5
        low = rng.normal(0, 2, (R, n))
        high = low + rng.exponential(2, (R, n)) * (rng.random((R, n)) < 0.9)
        rows = rng.normal(0, 1, (R, m, n) if seed % 2 else (m, n))
        problems = BoundedProblems(
            10 ** rng.uniform(-2, 2, (R, n)),
            rng.normal(0, 5, (R, n)),
            rows,
            10 ** rng.uniform(-2, 4, (R, m)) * (rng.random((R, m)) < 0.8),
            rng.normal(0, 9, (R, m)),
            low,
            high,
        )
        x = solve_bounded(problems)
        assert (x >= low).all()
        assert (x <= high).all()
        shared = np.broadcast_to(rows, (R, m, n))
        misfit = problems.row_weights * (np.einsum("rmn,rn->rm", shared, x) - problems.row_targets)
        gradient = problems.cell_weights * (x - problems.cell_targets) + np.einsum(
            "rmn,rm->rn", shared, misfit
        )
        gradient /= np.abs(problems.row_weights).max() + problems.cell_weights
        assert (gradient[x < high - 1e-9] >= -1e-8).all()
        assert (gradient[x > low + 1e-9] <= 1e-8).all()


@pytest.mark.parametrize("seed", range(4))
def test_max_fit_is_a_linear_program_then_least_squares(seed):
    table = random_table(seed, draws=3, shape=(2, 3))
    matrix, answers, deviations = stacked(table)
    found = post_process(table, TableMethod.MAXFIT)
    n = table.n_cells
    for x, draw in zip(found, answers, strict=True):
        lp = linprog(
            np.append(np.zeros(n), 1),
            A_ub=np.block([[matrix, -deviations[:, None]], [-matrix, -deviations[:, None]]]),
            b_ub=np.concatenate([draw, -draw]),
        )
        worst = np.abs(matrix @ x - draw) / deviations
        assert worst.max() == pytest.approx(lp.fun, abs=1e-5)
        room = deviations * (lp.fun + 1e-6)
        peer = minimize(
            lambda v, d=draw: (((matrix @ v - d) / deviations) ** 2).sum(),
            np.maximum(lp.x[:n], 0),
            jac=lambda v, d=draw: 2 * matrix.T @ ((matrix @ v - d) / deviations**2),
            bounds=[(0, None)] * n,
            constraints=[
                {
                    "type": "ineq",
                    "fun": lambda v, d=draw, r=room: r - matrix @ v + d,
                    "jac": lambda v: -matrix,
                },
                {
                    "type": "ineq",
                    "fun": lambda v, d=draw, r=room: r + matrix @ v - d,
                    "jac": lambda v: matrix,
                },
            ],
            method="SLSQP",
            options={"maxiter": 1000, "ftol": 1e-12},
        )
        assert peer.success
        assert (worst**2).sum() == pytest.approx(peer.fun, rel=1e-4)
        assert x == pytest.approx(peer.x, abs=0.05)


def slow_reweighting(table, draw):
    """Algorithm 2 as its authors' program reads, one answer at a time."""
    rows, values, weights = [], [], []
    for query in (*table.coarse, table.cells):
        answers, matrix = query.answers[draw], query.rows()
        law = laplace(scale=(query.variance / 2) ** 0.5)
        if table.noise is Gaussian:
            law = norm(scale=query.variance**0.5)
        ranked = sorted(answers)
        cutoff = np.inf
        for j, answer in enumerate(ranked, start=1):
            if law.cdf(answer) ** j >= 0.99:
                cutoff = ranked[j - 2] if j > 1 else -np.inf
                break
        low = [i for i, answer in enumerate(answers) if answer <= cutoff]
        for i, answer in enumerate(answers):
            weight = 1 / query.variance
            if i in low:
                weight /= 2 * max(1.0, law.ppf(0.5 ** (1 / len(low)))) ** 2
            rows.append(matrix[i]), values.append(answer), weights.append(weight)
        if low:
            rows.append(matrix[low].sum(0)), values.append(answers[low].sum())
            weights.append(1 / (2 * len(low) * query.variance))
    root = np.sqrt(weights)
    return nnls(np.array(rows) * root[:, None], np.array(values) * root)[0]


def test_reweighting_is_its_slow_version():
    for law, seed in itertools.product([Laplace, Gaussian], range(4)):
        table = random_table(seed, draws=8, law=law)
        for draw, found in enumerate(fit_reweighted(table)):
            assert found == pytest.approx(slow_reweighting(table, draw), abs=1e-7)


@pytest.mark.parametrize("seed", range(5))
def test_sequential_is_a_chain_of_quadratic_programs(seed):
    """The last step has multipliers of the fixed sums that meet the optimality conditions."""
    table = random_table(seed)
    x = post_process(table, TableMethod.SEQUENTIAL)
    rows = table.coarse_rows()
    for draw in range(table.n_draws):
        gradient = x[draw] - table.cells.answers[draw]
        positive = x[draw] > 1e-6
        multipliers = np.linalg.lstsq(rows[:, positive].T, gradient[positive])[0]
        left = gradient - multipliers @ rows
        assert np.abs(left[positive]).max(initial=0) < 1e-5
        # Cells in an answer fixed at zero need no sign.
        free = ~((rows @ x[draw] < 1e-7) @ rows > 0)
        assert (left[free & ~positive] > -1e-5).all()


def test_posterior_of_one_large_cell_is_a_weighted_mean():
    """One cell, asked twice: values from a flat prior, weighed by the likelihood."""
    rng = np.random.default_rng(3)
    total = NoisyQuery(np.zeros(1, int), np.array([[212.0]]), 128.0)
    cell = NoisyQuery(np.zeros(1, int), np.array([[200.0]]), 50.0)
    found = post_process(NoisyTable((total,), cell, Gaussian), TableMethod.POSTERIOR)
    values = rng.uniform(100, 300, 400_000)
    weights = np.exp(-((values - 212) ** 2) / 256 - (values - 200) ** 2 / 100)
    assert found[0, 0] == pytest.approx((values * weights).sum() / weights.sum(), abs=0.1)


# --- in a node -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_a_root_node_is_a_table(seed):
    node = random_node(Shape(1, 6, is_root=True, sparse=0.7), seed)
    variances = {float(t.weights[0]) for t in node.terms}
    assert variances
    queries = [NoisyQuery(t.groups, t.answers, 1 / float(t.weights[0])) for t in node.terms]
    cells = next(q for q in queries if q.n_answers == 6)
    coarse = tuple(q for q in queries if q is not cells)
    table = NoisyTable(coarse, cells, Gaussian)
    assert fit_largest_in_node(node) == pytest.approx(
        post_process(table, TableMethod.MAXFIT), abs=1e-5
    )
    changed = reweight(node, Gaussian)
    (term,) = changed.terms
    root = np.linalg.cholesky(term.gram).T
    peer = nnls(root, np.linalg.solve(root.T, term.adjoint[0]))[0]
    assert fit_reweighted(table)[0] == pytest.approx(peer, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_max_fit_keeps_the_parent_and_is_the_least(seed):
    node = random_node(Shape(3, 5, exact=(2,)), seed)
    x = fit_largest_in_node(node)
    assert x.sum(0) == pytest.approx(node.parent, abs=1e-5)
    assert (x >= 0).all()
    worst = 0.0
    blocks, limits, deviations = [], [], []
    for term in node.terms:
        for c in range(3):
            for answer in range(term.answers.shape[1]):
                row = np.zeros((3, 5))
                row[c, term.groups == answer] = 1
                deviation = term.weights[c] ** -0.5
                worst = max(worst, abs((row * x).sum() - term.answers[c, answer]) / deviation)
                blocks.append(row.ravel()), limits.append(term.answers[c, answer])
                deviations.append(deviation)
    fixed = [np.tile(np.eye(5), 3)]
    targets = [node.parent]
    for c in range(3):
        for group in range(2):
            row = np.zeros((3, 5))
            row[c, node.exact[0].groups == group] = 1
            (
                fixed.append(row.reshape(1, -1)),
                targets.append(node.exact[0].targets[c, group : group + 1]),
            )
    A, d = np.array(blocks), np.array(deviations)[:, None]
    lp = linprog(
        np.append(np.zeros(15), 1),
        A_ub=np.block([[A, -d], [-A, -d]]),
        b_ub=np.concatenate([limits, np.negative(limits)]),
        A_eq=np.hstack([np.vstack(fixed), np.zeros((len(np.vstack(fixed)), 1))]),
        b_eq=np.concatenate(targets),
    )
    assert worst == pytest.approx(lp.fun, abs=1e-5)


def test_equalities_agree_with_a_linear_solve():
    rng = np.random.default_rng(0)
    n, R = 6, 4
    center, E = rng.normal(0, 1, (R, n)), rng.normal(0, 1, (2, n))
    none = np.zeros((0, n)), np.zeros((R, 0)), np.zeros((R, 0))
    free = BoundedProblems(
        np.ones((R, n)), center, *none, np.full((R, n), -np.inf), np.full((R, n), np.inf)
    )
    targets = rng.normal(0, 1, (R, 2))
    x = solve_with_equalities(free, Equalities(E, targets))
    known = center + (targets - center @ E.T) @ np.linalg.solve(E @ E.T, E)
    assert x == pytest.approx(known, abs=1e-7)
    assert solve_bounded(replace(free)) == pytest.approx(center)
