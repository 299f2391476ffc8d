"""One-dimensional strategies: feasibility, objective and bound checked from first principles."""

from __future__ import annotations

import numpy as np
import pytest

from das.errors import SolverError
from das.workload.one_dimensional import (
    count_rank,
    minimize_largest_variance,
    minimize_total_variance,
)
from das.workload.workload import AttributeWorkload
from tests.unit.das.workload.dense import GROUPED, MIXED, tree

WORKLOADS = {attribute.name + str(i): attribute for i, attribute in enumerate((*MIXED, *GROUPED))}
WEIGHTED = np.diag([1e-3, 1.0, 1e3]) + 1e2


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_the_strategy_is_feasible_and_has_its_objective(name):
    workload = WORKLOADS[name]
    found = minimize_total_variance(workload.gram)
    gram, matrix = found.gram, workload.matrix
    assert gram.diagonal().max() <= 1 + 1e-12
    weights = matrix @ found.inverse
    np.testing.assert_allclose(weights @ found.factor.T, matrix, atol=1e-9)
    assert found.value == pytest.approx((weights**2).sum())
    assert found.value == pytest.approx(np.trace(workload.gram @ np.linalg.pinv(gram, rcond=1e-9)))


def test_the_bound_is_the_dual_at_the_weights():
    """Any weights give a bound; recompute it with an eigendecomposition of another matrix."""
    for gram in [*(w.gram for w in WORKLOADS.values()), WEIGHTED]:
        found = minimize_total_variance(gram)
        weights = found.cell_weights
        assert weights.sum() == pytest.approx(1)
        eigenvalues = np.linalg.eigvals(gram * weights).real
        dual = np.sqrt(np.maximum(eigenvalues, 0)).sum() ** 2
        assert dual <= found.bound * (1 + 1e-7)
        assert found.bound == pytest.approx(dual, rel=1e-4)
        assert 0 <= found.gap + 1e-12 <= 1e-6 + 1e-12


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_no_nearby_strategy_is_better(name):
    workload = WORKLOADS[name]
    found = minimize_total_variance(workload.gram, gap=1e-9)
    rng = np.random.default_rng(5)
    for _ in range(20):
        turn = np.eye(found.factor.shape[1]) + 0.05 * rng.normal(size=(found.factor.shape[1],) * 2)
        other = found.factor @ turn
        other /= np.sqrt((other**2).sum(1).max())
        inverse = np.linalg.pinv(other.T)
        # The same row space, another split of the budget.
        weights = workload.matrix @ inverse
        assert (weights**2).sum() >= found.value * (1 - 1e-9)


def test_known_optima():
    assert minimize_total_variance(np.eye(6)).value == pytest.approx(6)
    assert minimize_total_variance(np.ones((5, 5))).value == pytest.approx(1)
    golden = ((1 + np.sqrt(5)) / 2) ** 2
    assert minimize_total_variance(AttributeWorkload.prefix("a", 2).gram).value == pytest.approx(
        golden, rel=1e-6
    )


@pytest.mark.parametrize("total_weight", [0.0, 1.0, 1e5, 1e8])
def test_a_dominating_total_is_no_obstacle(total_weight):
    found = minimize_total_variance(AttributeWorkload.prefix("a", 30).gram + total_weight)
    assert found.gap <= 1e-6
    assert found.gram.diagonal().max() <= 1 + 1e-12


def test_a_thousand_levels_of_deficient_rank():
    codes = np.repeat(np.arange(20), 10)
    workload = tree("a", [codes // 5, codes])
    assert count_rank(workload.gram) == 20
    found = minimize_total_variance(workload.gram)
    assert found.factor.shape == (200, 20)
    assert found.gap <= 1e-6


def test_a_start_changes_nothing_but_the_work():
    gram = AttributeWorkload.prefix("a", 25).gram
    first = minimize_total_variance(gram, gap=1e-9)
    again = minimize_total_variance(gram, gap=1e-9, start=first.cell_weights)
    assert again.value == pytest.approx(first.value, rel=2e-9)


def test_an_unreachable_gap_is_an_error(monkeypatch):
    monkeypatch.setattr("das.workload.one_dimensional._MOST_ROUNDS", 2)
    with pytest.raises(SolverError, match="not proven optimal") as caught:
        minimize_total_variance(AttributeWorkload.prefix("a", 40).gram)
    assert caught.value.want == "a relative gap of 1e-06"
    with pytest.raises(SolverError, match="not proven optimal"):
        minimize_largest_variance(AttributeWorkload.prefix("a", 40))


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_the_largest_variance_and_its_bound(name):
    workload = WORKLOADS[name]
    found = minimize_largest_variance(workload)
    weights = workload.matrix @ found.inverse
    assert found.gram.diagonal().max() <= 1 + 1e-12
    assert (weights**2).sum(1).max() == pytest.approx(found.value)
    assert found.bound * (1 - 1e-9) <= found.value <= found.bound * (1 + 1e-4)
    total = minimize_total_variance(workload.gram)
    spread = ((workload.matrix @ total.inverse) ** 2).sum(1).max()
    assert found.value <= spread * (1 + 1e-4)
    assert found.value >= total.bound / workload.n_rows * (1 - 1e-9)


@pytest.mark.parametrize(("size", "known"), [(2, 4 / 3), (100, 5.044)])
def test_factorization_norms_of_prefix_sums(size, known):
    found = minimize_largest_variance(AttributeWorkload.prefix("a", size))
    assert found.value == pytest.approx(known, rel=2e-4)
