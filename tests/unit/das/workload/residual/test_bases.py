"""Bases: right inverses, their numbers, and the frontier of pivots."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from das.errors import SchemaError
from das.workload.one_dimensional import minimize_total_variance
from das.workload.residual.bases import (
    orthogonal_basis,
    projected_basis,
    projected_largest_basis,
    uniform_basis,
)
from das.workload.workload import AttributeWorkload
from tests.builders.residual_plans import oblique_basis
from tests.unit.das.workload.dense import GROUPED, MIXED

BUILDERS = {
    "projected": projected_basis,
    "projected largest": projected_largest_basis,
    "orthogonal": orthogonal_basis,
    "oblique 0": lambda w: oblique_basis(w, 0.0),
    "oblique 7": lambda w: oblique_basis(w, 7.0),
}


def test_a_basis_is_a_right_inverse_with_its_numbers():
    for builder, workload in itertools.product(list(BUILDERS), [*MIXED, *GROUPED]):
        basis = BUILDERS[builder](workload)
        n, rank = workload.size, np.linalg.matrix_rank(workload.matrix)
        rows = np.concatenate([np.ones((1, n)), basis.subtraction])
        assert rows.shape == (rank, n)
        np.testing.assert_allclose(rows @ basis.decoder, np.eye(rank), atol=1e-9)
        np.testing.assert_allclose(
            workload.matrix @ basis.decoder @ rows, workload.matrix, atol=1e-9
        )
        answers = workload.matrix @ basis.decoder
        assert basis.cell_cost == pytest.approx((basis.subtraction**2).sum(0).max())
        assert basis.pivot_variance == pytest.approx((answers[:, 0] ** 2).sum())
        assert basis.residual_variance == pytest.approx((answers[:, 1:] ** 2).sum())
        by_pivot, by_residual = basis.row_variances(workload)
        np.testing.assert_allclose(by_pivot, answers[:, 0] ** 2, atol=1e-12)
        np.testing.assert_allclose(by_residual, (answers[:, 1:] ** 2).sum(1), atol=1e-9)
        if not builder.startswith("oblique"):
            np.testing.assert_allclose(basis.pivot, 1 / n)


@pytest.mark.parametrize("size", [2, 3, 10])
def test_plain_counts(size):
    workload = AttributeWorkload.identity("a", size)
    for basis in (uniform_basis(workload), oblique_basis(workload, 3.0)):
        assert basis.pivot_variance == pytest.approx(1 / size)
        assert basis.residual_product == pytest.approx((size - 1) ** 2 / size)


def test_plain_planning_needs_plain_counts():
    with pytest.raises(SchemaError, match="not made of plain counts"):
        uniform_basis(AttributeWorkload.prefix("age", 4))


def test_the_frontier_is_monotone_and_minimizes_its_weighted_sum():
    """V(c) minimizes (s + c) / theta + rho / (1 - theta) over all bases on the frontier."""
    workload = AttributeWorkload.prefix("a", 12)
    weights = [0.0, 0.5, 2.0, 10.0, 100.0]
    bases = [oblique_basis(workload, weight, gap=1e-9) for weight in weights]
    pivots = [basis.pivot_variance for basis in bases]
    products = [basis.residual_product for basis in bases]
    assert (np.diff(pivots) > 0).all()
    assert (np.diff(products) < 0).all()
    for weight, basis in zip(weights, bases, strict=True):
        value = minimize_total_variance(workload.gram + weight, gap=1e-9).value
        sums = [np.sqrt(s + weight) + np.sqrt(rho) for s, rho in zip(pivots, products, strict=True)]
        own = np.sqrt(basis.pivot_variance + weight) + np.sqrt(basis.residual_product)
        assert own == pytest.approx(min(sums))
        assert own**2 == pytest.approx(value, rel=1e-6)


def test_the_orthogonal_basis_is_best_for_its_pivot():
    workload = AttributeWorkload.prefix("a", 12)
    best = orthogonal_basis(workload)
    published = projected_basis(workload)
    assert best.pivot_variance == pytest.approx(published.pivot_variance)
    assert best.residual_product < published.residual_product * 0.999
    cheapest = oblique_basis(workload, 1e7)
    assert cheapest.residual_product <= best.residual_product * (1 + 1e-6)
