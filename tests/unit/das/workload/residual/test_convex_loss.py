"""Largest variance, limits to meet and convex losses, each judged by its certificate."""

from __future__ import annotations

import numpy as np
import pytest

from das.errors import SchemaError, SolverError
from das.workload.residual.answer_rows import AnswerRows
from das.workload.residual.convex_loss import (
    minimize_largest_variance,
    minimize_loss,
)
from das.workload.residual.plan import ResidualPlan
from das.workload.workload import AttributeWorkload, Workload
from tests.builders.residual_plans import plan_marginals, plan_oblique, variances_of_answers
from tests.unit.das.workload.dense import (
    GROUPED,
    MIXED,
    covariance,
    listed,
    strategy_matrix,
    workload_matrix,
)

PLAIN = tuple(AttributeWorkload.identity(name, n) for name, n in (("a", 2), ("b", 5), ("c", 9)))
WORKLOADS = {
    "plain": Workload.k_way(PLAIN, range(3)),
    "mixed": Workload.k_way(MIXED, range(3)),
    "deficient": Workload.k_way(GROUPED, [2]),
    "irregular": Workload.of_marginals(MIXED, [["age", "sex"], ["income"], ["age", "place"]]),
}


def bases_of(workload):
    return plan_oblique(workload).bases


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_the_largest_variance_is_the_dense_one(name):
    workload = WORKLOADS[name]
    found = minimize_largest_variance(workload, bases_of(workload))
    assert found.plan.privacy_cost == pytest.approx(1)
    assert (strategy_matrix(found.plan) ** 2).sum(0).max() <= 1 + 1e-9
    dense = covariance(found.plan, workload_matrix(workload)).diagonal()
    assert dense.max() == pytest.approx(found.loss)
    assert found.bound <= found.loss <= found.bound * (1 + 1e-6)


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_no_other_noise_is_below_the_bound(name):
    workload = WORKLOADS[name]
    found = minimize_largest_variance(workload, bases_of(workload))
    rng = np.random.default_rng(6)
    rows = AnswerRows.build(workload, found.plan.bases)
    for scale in (1e-3, 1e-2, 0.1, 1.0):
        for _ in range(20):
            noise = found.plan.noise * np.exp(scale * rng.normal(size=found.plan.noise.size))
            other = ResidualPlan(workload, found.plan.bases, found.plan.residuals, noise)
            assert rows.find_largest(noise)[0].max() * other.privacy_cost >= found.bound


def test_weights_that_are_not_unique_are_no_obstacle():
    """Ranges repeat variances, so the dual has many optima and L-BFGS stalls at a gap of 4e-5."""
    workload = Workload.of_marginals(MIXED, [["age", "income"], []])
    found = minimize_largest_variance(workload, bases_of(workload), gap=1e-7)
    assert found.loss <= found.bound * (1 + 1e-7)


def test_limits_weigh_the_marginals():
    workload = WORKLOADS["mixed"]
    limits = 1.0 + np.arange(workload.marginals.size)
    found = minimize_largest_variance(workload, bases_of(workload), limits=limits)
    largest = [
        variances_of_answers(found.plan, workload.names_of(members)).max()
        for members in listed(workload.marginals)
    ]
    assert (np.array(largest) / limits).max() == pytest.approx(found.loss)
    alike = minimize_largest_variance(workload, found.plan.bases)
    assert found.loss < alike.loss


@pytest.mark.parametrize("limits", [np.ones(2), np.array([1.0, 0.0, 1.0]), -np.ones(3)])
def test_limits_must_fit(limits):
    workload = WORKLOADS["irregular"]
    with pytest.raises(SchemaError, match="do not fit the workload"):
        minimize_largest_variance(workload, bases_of(workload), limits=limits)


def test_a_linear_loss_gives_the_closed_form():
    workload = WORKLOADS["mixed"]
    plan = plan_oblique(workload)
    weights = workload.weights * workload.sizes
    found = minimize_loss(workload, plan.bases, lambda v: (float(weights @ v), weights))
    assert found.loss == pytest.approx(plan.total_variances().sum(), rel=1e-6)
    np.testing.assert_allclose(found.plan.noise, plan.noise, rtol=1e-2)


@pytest.mark.parametrize("power", [2, 8])
def test_a_power_of_the_variances(power):
    workload = WORKLOADS["plain"]
    plan = plan_marginals(workload)
    found = minimize_loss(
        workload,
        plan.bases,
        lambda v: (float((v**power).sum()), power * v ** (power - 1)),
    )
    assert found.plan.privacy_cost == pytest.approx(1)
    assert (found.plan.average_variances() ** power).sum() == pytest.approx(found.loss)
    assert found.loss - found.bound <= 1e-6 * found.loss
    best = minimize_largest_variance(workload, plan.bases)
    assert found.plan.average_variances().max() >= best.bound
    rng = np.random.default_rng(8)
    for _ in range(50):
        noise = found.plan.noise * np.exp(0.03 * rng.normal(size=found.plan.noise.size))
        other = ResidualPlan(workload, plan.bases, plan.residuals, noise)
        variances = other.average_variances() * other.privacy_cost
        assert (variances**power).sum() >= found.bound


def test_a_high_power_approaches_the_largest_variance():
    workload = WORKLOADS["plain"]
    bases = plan_marginals(workload).bases
    best = minimize_largest_variance(workload, bases)
    scale = best.loss
    found = minimize_loss(
        workload,
        bases,
        lambda v: (float(((v / scale) ** 64).sum()), 64 * (v / scale) ** 63 / scale),
    )
    assert found.plan.average_variances().max() == pytest.approx(best.loss, rel=0.05)


def test_losses_that_reward_variance_are_refused():
    workload = WORKLOADS["plain"]
    with pytest.raises(SchemaError, match="gradient that cannot be used"):
        minimize_loss(
            workload, plan_marginals(workload).bases, lambda v: (-v.sum(), -np.ones_like(v))
        )


def test_stopping_early_is_an_error(monkeypatch):
    monkeypatch.setattr("das.workload.residual.convex_loss._MOST_ITERATIONS", 1)
    monkeypatch.setattr("das.workload.residual.convex_loss._MOST_RESTARTS", 1)
    workload = WORKLOADS["mixed"]
    bases = bases_of(workload)
    with pytest.raises(SolverError, match="convex loss: was not proven optimal"):
        minimize_loss(workload, bases, lambda v: (float((v**4).sum()), 4 * v**3))
    monkeypatch.setattr("das.workload.residual.convex_loss._MOST_NEWTON_ROWS", 0)
    with pytest.raises(SolverError, match="largest variance: was not proven optimal"):
        minimize_largest_variance(workload, bases)


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_chosen_answers_have_their_variances(name):
    """The flat numbering, the sparse rows and the search agree with the dense products."""
    workload = WORKLOADS[name]
    plan = plan_oblique(workload)
    rows = AnswerRows.build(workload, plan.bases)
    every = rows.matrix(np.arange(rows.starts[-1])) @ plan.noise
    largest, where = rows.find_largest(plan.noise)
    np.testing.assert_allclose(every[where], largest)
    for place, members in enumerate(listed(workload.marginals)):
        dense = variances_of_answers(plan, workload.names_of(members)).max()
        assert every[rows.starts[place] : rows.starts[place + 1]].max() == pytest.approx(dense)
