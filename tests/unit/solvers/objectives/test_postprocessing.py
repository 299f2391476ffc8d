"""Post-processing of noisy tables: exact variances, laws of noise, what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from bench.studies.postprocessing_methods import TableMethod, fit_largest, post_process
from bench.studies.postprocessing_posterior import classify
from bench.studies.postprocessing_table import NoisyQuery, NoisyTable
from bench.studies.uncertainty import remark_two
from das.errors import SolverError
from das.mechanisms.gaussian import Gaussian
from das.mechanisms.laplace import Laplace
from solvers.choices import Method
from solvers.objectives.bounded import (
    BoundedProblems,
    Equalities,
    solve_bounded,
    solve_with_equalities,
)
from solvers.objectives.in_node import (
    OBJECTIVES,
    downweight,
    find_low_answers,
    fit_largest_in_node,
    in_sequence,
    reweight,
)
from solvers.problem import GeneralTerm, RowsTerm
from tests.builders.strategies import Shape, random_node


def table_of(histogram, draws, seed=0, scale=8.0):
    rng = np.random.default_rng(seed)
    truth = np.asarray(histogram, float)
    axes = [np.zeros(truth.size, int), *(i.ravel() for i in np.indices(truth.shape))]
    if truth.ndim > 1:
        axes.append(np.arange(truth.size))
    queries = []
    for groups in axes:
        noise = rng.laplace(0, scale, (draws, groups.max() + 1))
        answers = np.bincount(groups, weights=truth.ravel()) + noise
        queries.append(NoisyQuery(groups, answers, 2 * scale**2))
    return NoisyTable(tuple(queries[:-1]), queries[-1], Laplace)


@pytest.mark.parametrize(("shape", "variance"), [((9, 24), 110.593), ((10, 10), 105.785)])
def test_ordinary_least_squares_has_its_exact_variance(shape, variance):
    """OLS is linear: its response to unit noise gives the variance of every answer."""
    n = shape[0] * shape[1]
    m = 1 + sum(shape) + n
    unit = np.eye(m)
    start, parts = 0, []
    for query in (*(blank := table_of(np.zeros(shape), m)).coarse, blank.cells):
        parts.append(replace(query, answers=unit[:, start : start + query.n_answers]))
        start += query.n_answers
    table = NoisyTable(tuple(parts[:-1]), parts[-1], Laplace)
    response = post_process(table, TableMethod.OLS)
    matrix = np.vstack([table.coarse_rows(), np.eye(n)])
    variances = 128 * ((response @ matrix.T) ** 2).sum(0)
    assert variances == pytest.approx(np.full(m, variance), abs=1.1e-3)


@pytest.mark.parametrize("law", [Laplace, Gaussian])
def test_laws_are_those_of_scipy(law):
    variance = 50.0
    known = stats.laplace(scale=5.0) if law is Laplace else stats.norm(scale=50**0.5)
    values = np.array([-100.0, -7.0, -1e-9, 0.0, 3.0, 100.0])
    assert law.of_variance(variance).log_cdf(values) == pytest.approx(
        known.logcdf(values), rel=1e-9
    )
    levels = np.array([0.01, 0.5, 0.75, 0.999])
    assert law.of_variance(variance).quantiles(levels) == pytest.approx(known.ppf(levels), abs=1e-9)
    density = law.of_variance(variance).log_ratio(values)
    assert density == pytest.approx(known.logpdf(values) - known.logpdf(0), rel=1e-9)


def test_reweighting_must_know_the_noise():
    with pytest.raises(SolverError, match="has no noise distribution"):
        reweight(NODE, None)


def test_sequential_keeps_what_it_found():
    table = table_of(np.array([[90, 0, 0], [5, 0, 2]]), 40)
    x = post_process(table, TableMethod.SEQUENTIAL)
    total = np.maximum(table.coarse[0].answers[:, 0], 0)
    assert x.sum(1) == pytest.approx(total, abs=1e-6)
    # Marginals are projected on the simplex of that total: positive ones miss by one amount.
    found = x @ table.coarse[1].rows().T
    for row, (answer, kept) in enumerate(zip(table.coarse[1].answers, found, strict=True)):
        shift = (answer - kept)[kept > 1e-6]
        assert shift == pytest.approx(shift[0], abs=1e-6), row
        assert (answer[kept <= 1e-6] <= shift[0] + 1e-6).all()


def test_low_answers_end_at_the_first_surprise():
    answers = np.array([[-5.0, 100.0, 1.0, -30.0], [200.0, 300.0, 400.0, 250.0]])
    low = find_low_answers(answers, 128.0, Laplace)
    assert low.tolist() == [[True, False, True, True], [False] * 4]
    each, of_sum = downweight(low, 128.0, Laplace)
    median = -8 * np.log(2 * (1 - 0.5 ** (1 / 3)))
    assert each[0] == pytest.approx(
        1 / np.array([2 * median**2, 1, 2 * median**2, 2 * median**2]) / 128
    )
    assert of_sum == pytest.approx([1 / (6 * 128), 0])
    assert find_low_answers(np.zeros((1, 3)), 128.0, Laplace).all()


def test_max_fit_may_leave_room():
    table = table_of(np.array([[9, 0], [0, 3]]), 5)
    tight, loose = fit_largest(table), fit_largest(table, slack=0.5)
    matrix = np.vstack([table.coarse_rows(), np.eye(4)])
    answers = np.hstack([table.coarse_answers(), table.cells.answers])

    def worst(x):
        return np.abs(x @ matrix.T - answers).max(1)

    def squares(x):
        return ((x @ matrix.T - answers) ** 2).sum(1)

    assert (worst(loose) <= worst(tight) + 0.5 * 128**0.5 + 1e-4).all()
    assert (squares(loose) <= squares(tight) + 1e-6).all()
    assert (squares(loose) < squares(tight) - 1e-3).any()


def test_counts_lose_what_the_theorem_says_on_hard_histograms_and_nothing_on_easy_ones():
    """Remark 2 of Abowd and others: errors relative to the noisy answers, of sum and first cell."""
    errors = {}
    for name, histogram in remark_two(100, epsilon=0.25).items():
        table = table_of(histogram, 100, seed=3)
        for method in TableMethod:
            x = post_process(table, method) - histogram
            errors[name, method] = np.array([(x.sum(1) ** 2).mean(), (x[:, 0] ** 2).mean()]) / 128
    unbiased = errors["hard", TableMethod.OLS]
    assert (unbiased < 1.3).all()
    for method in set(TableMethod) - {TableMethod.OLS}:
        assert errors["hard", method][1] > 1.8 * unbiased[1]
        assert errors["easy", method] == pytest.approx(errors["easy", TableMethod.OLS], rel=0.05)


def test_posterior_beats_least_squares_where_most_cells_are_empty():
    truth = np.zeros((10, 10))
    truth[0, 0], truth[3, 4] = 500, 60
    table = table_of(truth, 40, seed=1)
    error = {
        m: post_process(table, m) - truth.ravel() for m in (TableMethod.NNLS, TableMethod.POSTERIOR)
    }
    squares = {m: (e.sum(1) ** 2).mean() for m, e in error.items()}
    cells = {m: (e**2).sum(1).mean() for m, e in error.items()}
    assert squares[TableMethod.POSTERIOR] < 0.5 * squares[TableMethod.NNLS]
    assert cells[TableMethod.POSTERIOR] < 0.7 * cells[TableMethod.NNLS]


def test_posterior_of_large_cells_is_about_the_answer():
    """Far from zero there is no prior: a single cell asked twice with Laplace noise."""
    total = NoisyQuery(np.zeros(1, int), np.array([[5010.0]]), 128.0)
    cell = NoisyQuery(np.zeros(1, int), np.array([[5000.0]]), 128.0)
    x = post_process(NoisyTable((total,), cell, Laplace), TableMethod.POSTERIOR)
    assert 5003 < x[0, 0] < 5007


def test_posterior_knows_that_laplace_noise_has_outliers():
    """Two of three answers agree; least squares would go half of the way to the third."""
    far, near = (NoisyQuery(np.zeros(1, int), np.array([[v]]), 128.0) for v in (5200.0, 5000.0))
    x = post_process(NoisyTable((far, near), near, Laplace), TableMethod.POSTERIOR)
    assert 4999 < x[0, 0] < 5020


def test_classes_follow_the_product_of_shares():
    total = NoisyQuery(np.zeros(4, int), np.array([[1000.0]]), 128.0)
    rows = NoisyQuery(np.array([0, 0, 1, 1]), np.array([[990.0, 10.0]]), 128.0)
    columns = NoisyQuery(np.array([0, 1, 0, 1]), np.array([[995.0, 5.0]]), 128.0)
    cells = NoisyQuery(np.arange(4), np.zeros((1, 4)), 128.0)
    table = NoisyTable((total, rows, columns), cells, Laplace)
    assert classify(table).tolist() == [[3, 2, 2, 0]]
    assert classify(replace(table, coarse=(total,))).tolist() == [[0] * 4]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"groups": np.array([1, 0])}, "single cells in order"),
        ({"variance": 0.0}, "a variance must be positive"),
        ({"answers": np.array([[np.nan, 0.0]])}, "not a finite number"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(changes, message):
    cells = NoisyQuery(np.arange(2), np.zeros((1, 2)), 1.0)
    with pytest.raises(SolverError, match=message):
        NoisyTable((), replace(cells, **changes), Laplace)


def test_queries_of_other_lengths_are_refused():
    cells = NoisyQuery(np.arange(2), np.zeros((1, 2)), 1.0)
    for groups, answers in (
        (np.zeros(3, int), np.zeros((1, 1))),
        (np.zeros(2, int), np.zeros((2, 1))),
    ):
        with pytest.raises(SolverError, match="differ in cells or draws"):
            NoisyTable((NoisyQuery(groups, answers, 1.0),), cells, Laplace)
    with pytest.raises(SolverError, match="counts in no answer"):
        NoisyTable((NoisyQuery(np.full(2, 3), np.zeros((1, 1)), 1.0),), cells, Laplace)


def test_contradicting_equalities_are_reported():
    n = 2
    one = BoundedProblems(
        np.ones((1, n)),
        np.zeros((1, n)),
        np.zeros((0, n)),
        np.zeros((1, 0)),
        np.zeros((1, 0)),
        np.zeros((1, n)),
        np.full((1, n), np.inf),
    )
    with pytest.raises(SolverError, match="the fixed answers are not met"):
        solve_with_equalities(one, Equalities(np.ones((1, n)), np.array([[-1.0]])))


def test_numbers_that_are_not_finite_end_in_an_error():
    one = BoundedProblems(
        np.ones((1, 2)),
        np.array([[np.nan, 1.0]]),
        np.ones((1, 2)),
        np.ones((1, 1)),
        np.ones((1, 1)),
        np.zeros((1, 2)),
        np.full((1, 2), np.inf),
    )
    with pytest.raises(SolverError, match="not finite"):
        solve_bounded(one)


# --- in a node -----------------------------------------------------------------------------------

NODE = random_node(Shape(3, 5), 2)


def test_every_method_but_nnls_changes_the_node():
    assert {*OBJECTIVES} == {*Method} - {Method.NNLS}
    for objective in OBJECTIVES.values():
        changed = objective(NODE, Gaussian)
        assert (changed.terms, changed.order) != (NODE.terms, NODE.order)


def test_sequential_gives_every_query_a_pass_coarse_ones_first():
    turned = replace(NODE, terms=NODE.terms[::-1])
    changed = in_sequence(turned)
    sizes = [[turned.terms[i].answers.shape[1] for i in indices] for indices in changed.order]
    assert all(len(each) == 1 for each in sizes)
    assert sizes == sorted(sizes)
    assert sizes[-1] == [NODE.n_cells]
    general = GeneralTerm(np.eye(5), np.zeros((3, 5)), np.ones(3))
    both = in_sequence(replace(NODE, terms=(general, *NODE.terms)))
    assert 0 in both.order[-1]
    assert len(both.order[-1]) == 2


def test_max_fit_refuses_nodes_it_cannot_solve():
    general = GeneralTerm(np.eye(5), np.zeros((3, 5)), np.ones(3))
    limits = RowsTerm(
        np.ones((1, 5), np.int64), np.zeros((3, 1), np.int64), np.ones((3, 1), np.int64), ("r",)
    )
    for changes in ({"terms": (*NODE.terms, general)}, {"rows": (limits,)}):
        with pytest.raises(SolverError, match="needs partition queries only"):
            fit_largest_in_node(replace(NODE, **changes))
    with pytest.raises(SolverError, match="too large"):
        fit_largest_in_node(random_node(Shape(60, 60), 1))


def test_reweighting_keeps_general_terms():
    general = GeneralTerm(np.eye(5), np.zeros((3, 5)), np.ones(3))
    changed = reweight(replace(NODE, terms=(*NODE.terms, general)), Gaussian)
    assert changed.terms[0] is general
    assert len(changed.terms) == 1 + NODE.n_children
