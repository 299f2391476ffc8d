"""Integer measurements: exact costs, integer queries, unbiased decoding, little lost by rounding."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import flint
import numpy as np
import pytest

from das.errors import BudgetError, SchemaError
from das.queries.query import Query
from das.queries.sensitivity import Neighbors
from das.workload.residual.integer_plan import measure_exactly
from das.workload.residual.integer_rows import (
    integer_rows,
    round_rows,
)
from das.workload.residual.reconstruction import ResidualAnswers, reconstruct
from das.workload.workload import AttributeWorkload, Workload
from tests.builders.residual_plans import (
    oblique_basis,
    plan_marginals,
    plan_oblique,
    variances_of_answers,
)
from tests.unit.das.queries.pairs_of_records import pair_costs
from tests.unit.das.workload.dense import (
    GROUPED,
    MIXED,
    covariance,
    listed,
    marginal_matrix,
    strategy_matrix,
)

PLAIN = tuple(AttributeWorkload.identity(f"a{i}", n) for i, n in enumerate((2, 3, 5)))
PLANS = {
    "plain": plan_marginals(Workload.k_way(PLAIN, range(4))),
    "mixed": plan_oblique(Workload.k_way(MIXED, range(3))),
    "deficient": plan_oblique(Workload.k_way(GROUPED, [2])),
}
RHO = Fraction(7, 13)


def dense_rows(query: Query) -> np.ndarray:
    cells = np.arange(np.prod([factor.matrix.shape[1] for factor in query.factors]))
    return query.columns(cells)


@pytest.mark.parametrize(
    ("name", "neighbors"),
    [
        *(("plain", neighbors) for neighbors in Neighbors),
        ("mixed", Neighbors.BOUNDED),
        ("deficient", Neighbors.UNBOUNDED),
    ],
)
def test_the_cost_is_exactly_rho(name, neighbors):
    """The worst pair of all queries together, found by trying all; rounded up to 2^-48."""
    exact = measure_exactly(PLANS[name], RHO, neighbors)
    spent = pair_costs(*zip(*exact.noisy_queries(), strict=True)).of(neighbors)
    assert isinstance(spent, Fraction)
    assert RHO * (1 - Fraction(1, 2**12)) <= spent <= RHO
    if name == "plain":
        assert spent >= RHO * (1 - Fraction(1, 2**47))
    assert sum(exact.rho_of(i) for i in range(exact.plan.residuals.size)) == RHO


@pytest.mark.parametrize("name", list(PLANS))
def test_no_cell_costs_more(name):
    exact = measure_exactly(PLANS[name], RHO)
    spent: Fraction = max(
        sum(
            (
                Fraction(int((rows[:, cell] ** 2).sum())) / (2 * sigma_sq)
                for rows, sigma_sq in columns
            ),
            Fraction(0),
        )
        for columns in [[(dense_rows(q), s) for q, s in exact.noisy_queries()]]
        for cell in range(columns[0][0].shape[1])
    )
    assert spent <= RHO
    assert exact.plan.privacy_cost == pytest.approx(2 * float(RHO))
    assert (strategy_matrix(exact.plan) ** 2).sum(0).max() / 2 <= float(RHO) * (1 + 1e-12)


@pytest.mark.parametrize("name", list(PLANS))
def test_integer_answers_decode_without_bias_and_with_the_stated_variance(name):
    exact = measure_exactly(PLANS[name], RHO)
    workload = exact.plan.workload
    rng = np.random.default_rng(1)
    histogram = rng.integers(0, 100, np.prod([a.size for a in workload.attributes]))
    answers = [dense_rows(query) @ histogram for query, _ in exact.noisy_queries()]
    assert all(np.issubdtype(part.dtype, np.integer) for part in answers)
    residuals = ResidualAnswers(exact.plan, np.concatenate(answers).astype(float))
    for members in listed(workload.marginals):
        names = workload.names_of(members)
        matrix = marginal_matrix(workload, members)
        np.testing.assert_allclose(
            reconstruct(residuals, names).ravel(), matrix @ histogram, rtol=1e-8, atol=1e-6
        )
        dense = covariance(exact.plan, matrix).diagonal()
        np.testing.assert_allclose(
            variances_of_answers(exact.plan, names).ravel(), dense, rtol=1e-6
        )


def test_a_change_within_a_geounit_is_paid_for():
    """Nearly all on the residual of two levels, whose row moves by 2: four times a record."""
    workload = Workload.k_way((AttributeWorkload.identity("sex", 2),), range(2))
    plan = replace(plan_marginals(workload), noise=np.array([99.0, 1.0]))
    exact = measure_exactly(plan, RHO, Neighbors.BOUNDED)
    queries, noise = zip(*exact.noisy_queries(), strict=True)
    worst = pair_costs(queries, noise)
    assert worst.moved < worst.changed <= RHO < worst.changed * (1 + Fraction(1, 2**40))
    assert float(exact.joint) == pytest.approx(4 * 0.99 / (0.99 + 0.02), rel=0.02)


def test_plain_counts_lose_nothing():
    plan = PLANS["plain"]
    exact = measure_exactly(plan, Fraction(1, 2))
    np.testing.assert_allclose(exact.plan.total_variances(), plan.total_variances(), rtol=1e-6)
    rows = integer_rows(exact.plan.bases[1])
    assert rows.tolist() == [[2, -1, -1], [-1, 2, -1], [-1, -1, 2]]
    assert integer_rows(exact.plan.bases[0]).tolist() == [[1, -1]]


@pytest.mark.parametrize(("bits", "most"), [(7, 2e-2), (10, 2e-3), (14, 2e-4)])
def test_rounding_loses_little_and_less_with_resolution(bits, most, monkeypatch):
    monkeypatch.setattr("das.workload.residual.integer_plan._FINEST_BITS", bits)
    ages = (AttributeWorkload.prefix("age", 50), AttributeWorkload.identity("sex", 2))
    plan = plan_oblique(Workload.k_way(ages, [1]))
    exact = measure_exactly(plan, Fraction(1, 2))
    ratio = exact.plan.root_mean_square_error() / plan.root_mean_square_error()
    assert 1 - 1e-9 <= ratio <= 1 + most


@pytest.mark.parametrize("workload", [*MIXED, *GROUPED], ids=lambda w: f"{w.kind}-{w.name}")
def test_rounded_rows_keep_the_row_space(workload):
    basis = round_rows(workload, oblique_basis(workload, 2.0), 8)
    rows = np.concatenate([np.ones((1, workload.size)), basis.subtraction])
    assert (rows == np.rint(rows)).all()
    np.testing.assert_allclose(workload.matrix @ basis.decoder @ rows, workload.matrix, atol=1e-9)
    np.testing.assert_allclose(rows @ basis.decoder, np.eye(len(rows)), atol=1e-9)


def test_the_exact_decoder():
    workload = AttributeWorkload.prefix("age", 12)
    basis = round_rows(workload, oblique_basis(workload, 2.0), 10)
    rows = np.concatenate([np.ones((1, 12), np.int64), integer_rows(basis)])
    exact = flint.fmpz_mat(rows.tolist()).inv()
    found = [[int(x.p) / int(x.q) for x in row] for row in exact.tolist()]
    np.testing.assert_allclose(found, basis.decoder, atol=1e-14)


def test_the_resolution_falls_until_everything_fits():
    ages = tuple(AttributeWorkload.prefix(f"a{i}", 20) for i in range(4))
    largest = []
    for order in (1, 2, 4):
        exact = measure_exactly(plan_oblique(Workload.k_way(ages, [order])), RHO)
        largest.append(np.abs(integer_rows(exact.plan.bases[0])).max())
        assert exact.plan.noise.max() <= 2.0**80
    assert min(largest[:2]) > 8 * largest[2]


def test_unusable_budgets_and_matrices_are_refused():
    plan = PLANS["mixed"]
    with pytest.raises(BudgetError, match="rho: must be positive"):
        measure_exactly(plan, Fraction(0))
    with pytest.raises(BudgetError, match="does not fit its integers at any resolution"):
        measure_exactly(plan, Fraction(1, 10**30))
    halves = AttributeWorkload.from_matrix("a", np.array([[1, 1, 1], [0.5, 0.25, 1]]))
    crooked = plan_oblique(Workload.k_way((halves, MIXED[0]), [1]))
    with pytest.raises(SchemaError, match="workload of a: cannot be measured with integer rows"):
        measure_exactly(crooked, RHO)
    independent = AttributeWorkload.from_matrix(
        "a", np.array([[1, 1, 1], [0.5, 0, 0], [0, 0.25, 0]])
    )
    rows = integer_rows(round_rows(independent, oblique_basis(independent, 1.0), 6))
    assert rows.shape == (2, 3)
    fine = round_rows(halves_times_four(), oblique_basis(halves_times_four(), 1.0), 6)
    assert integer_rows(fine).shape == (1, 3)


def halves_times_four() -> AttributeWorkload:
    return AttributeWorkload.from_matrix("a", np.array([[1, 1, 1], [2, 1, 4]]))


def test_the_basis_in_which_eigenvectors_are_found_changes_no_row():
    """Processors find eigenvectors of other signs, and others where eigenvalues agree."""
    for attribute in (AttributeWorkload.ranges("age", 7), AttributeWorkload.prefix("age", 12)):
        basis = oblique_basis(attribute, 1.0)
        rng = np.random.default_rng(3)
        turn = np.linalg.qr(rng.normal(size=(len(basis.subtraction),) * 2))[0]
        turned = replace(basis, subtraction=turn @ basis.subtraction)
        rows = [integer_rows(round_rows(attribute, one, 13)) for one in (basis, turned)]
        np.testing.assert_array_equal(*rows)
