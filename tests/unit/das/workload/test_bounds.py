"""Lower bounds: they hold for every strategy, and some strategy meets them."""

from __future__ import annotations

import numpy as np
import pytest

from das.errors import SchemaError
from das.workload import bounds
from das.workload.bounds import (
    dual_bound,
    minimize_largest_over_all_strategies,
    minimize_over_all_strategies,
    separate_bound,
    separate_variance_bound,
    svd_bound,
)
from das.workload.hdmm.marginals import optimize_marginals
from das.workload.hdmm.strategies import optimize_kronecker
from das.workload.workload import AttributeWorkload, Workload
from tests.unit.das.workload.dense import GROUPED, MIXED, partition, workload_matrix

PLAIN = [
    AttributeWorkload.identity(name, size) for name, size in zip("abc", (2, 3, 5), strict=True)
]
PAIRED = [partition("a", [0, 1, 0, 1]), AttributeWorkload.identity("b", 3)]
WORKLOADS = {
    "plain": Workload.k_way(PLAIN, range(3)),
    "mixed": Workload.k_way(MIXED[:3], [2]),
    "one": Workload.k_way(MIXED[:3], [3]),
    "deficient": Workload.k_way(GROUPED, range(4)),
    "equal groups": Workload.k_way(PAIRED, [1]),
}


def gram_of(workload: Workload) -> np.ndarray:
    matrix = workload_matrix(workload)
    return matrix.T @ matrix


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_any_weights_bound_any_strategy(name):
    gram = gram_of(WORKLOADS[name])
    rng = np.random.default_rng(4)
    for _ in range(20):
        weights = rng.gamma(0.5, size=len(gram))
        rows = rng.normal(size=(len(gram) + 3, len(gram)))
        rows /= np.linalg.norm(rows, axis=0)
        error = np.trace(gram @ np.linalg.inv(rows.T @ rows))
        assert dual_bound(gram, weights) <= error * (1 + 1e-9)
        assert dual_bound(gram, 7 * weights) == pytest.approx(dual_bound(gram, weights))


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_the_singular_value_bound(name):
    workload = WORKLOADS[name]
    values = np.linalg.svd(workload_matrix(workload), compute_uv=False)
    cells = workload_matrix(workload).shape[1]
    assert svd_bound(workload) == pytest.approx(values.sum() ** 2 / cells, rel=1e-7)


def test_the_closed_form_needs_no_matrix_over_all_cells(monkeypatch):
    monkeypatch.setattr(bounds, "MOST_CELLS", 1)
    assert svd_bound(WORKLOADS["plain"]) > 0
    assert svd_bound(WORKLOADS["equal groups"]) > 0
    with pytest.raises(SchemaError, match="too many cells; got 32; expected at most 1"):
        svd_bound(WORKLOADS["mixed"])
    with pytest.raises(SchemaError, match="too many cells"):
        minimize_largest_over_all_strategies(WORKLOADS["mixed"])


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_the_optimum_over_all_strategies(name):
    workload = WORKLOADS[name]
    found = minimize_over_all_strategies(workload)
    gram = gram_of(workload)
    assert found.gram.diagonal().max() <= 1 + 1e-12
    weights = workload_matrix(workload) @ found.inverse
    np.testing.assert_allclose(weights @ found.factor.T, workload_matrix(workload), atol=1e-7)
    assert (weights**2).sum() == pytest.approx(found.value)
    assert dual_bound(gram, found.cell_weights) == pytest.approx(found.bound, rel=1e-3)
    assert found.bound <= found.value <= found.bound * (1 + 1e-5)
    assert svd_bound(workload) <= found.bound * (1 + 1e-5)
    assert separate_bound(workload) <= found.bound * (1 + 1e-9)


def test_the_bound_is_tight_for_plain_counts_and_for_one_marginal():
    plain = WORKLOADS["plain"]
    assert minimize_over_all_strategies(plain).value == pytest.approx(svd_bound(plain), rel=1e-5)
    assert optimize_marginals(plain).error >= svd_bound(plain) * (1 - 1e-9)
    one = WORKLOADS["one"]
    assert separate_bound(one) == pytest.approx(optimize_kronecker(one).error, rel=1e-5)
    assert separate_bound(one) > svd_bound(one) * 1.01


@pytest.mark.parametrize("name", ["plain", "mixed", "one", "equal groups"])
def test_the_largest_variance(name):
    workload = WORKLOADS[name]
    found = minimize_largest_over_all_strategies(workload)
    variances = ((workload_matrix(workload) @ found.inverse) ** 2).sum(1)
    assert found.gram.diagonal().max() <= 1 + 1e-12
    assert variances.max() == pytest.approx(found.value)
    assert found.bound <= found.value <= found.bound * (1 + 1e-3)
    assert separate_variance_bound(workload) <= found.value * (1 + 1e-9)
    assert found.value >= minimize_over_all_strategies(workload).bound / len(variances) * (1 - 1e-9)


def test_the_largest_variance_of_one_marginal_is_a_product():
    one = WORKLOADS["one"]
    found = minimize_largest_over_all_strategies(one, gap=1e-4)
    assert separate_variance_bound(one) == pytest.approx(found.value, rel=5e-4)
