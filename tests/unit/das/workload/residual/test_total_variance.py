"""The closed form of the weighted total variance, its slopes, and the choice of pivots."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from das.errors import SchemaError
from das.workload.residual.plan import ResidualPlan
from das.workload.residual.total_variance import (
    evaluate_total_variance,
    sum_over_supersets,
)
from das.workload.workload import AttributeWorkload, Weighting, Workload
from tests.builders.residual_plans import (
    plan_marginals,
    plan_oblique,
    plan_orthogonal,
    plan_projected,
)
from tests.unit.das.workload.dense import MIXED, listed

MANY = tuple(AttributeWorkload.prefix(f"a{i}", 3 + i) for i in range(6))


def brute_sums(workload, residuals, pivots):
    out = []
    for inside in listed(residuals):
        total = 0.0
        for weight, asked in zip(workload.weights, listed(workload.marginals), strict=True):
            if set(inside) <= set(asked):
                total += weight * np.prod([pivots[i] for i in asked if i not in inside])
        out.append(total)
    return np.array(out)


WORKLOADS = {
    "all 3-way": Workload.k_way(MANY, [3]),
    "up to 4-way, equal": Workload.k_way(MANY, range(5), Weighting.EQUAL),
    "up to 6-way, roots": Workload.k_way(MANY, range(7), Weighting.SQUARE_ROOT),
    "small": Workload.k_way(MANY, range(len(MANY) + 1), most_answers=60),
    "given": Workload.of_marginals(MANY, [["a0", "a3"], ["a1"], ["a2", "a3", "a5"]], [2.0, 0, 3.0]),
}


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_sums_over_supersets(name):
    workload = WORKLOADS[name]
    pivots = np.geomspace(1e-3, 1e4, 6)
    closure = workload.marginals.closure()
    found = sum_over_supersets(workload, closure, pivots)
    np.testing.assert_allclose(found, brute_sums(workload, closure, pivots), rtol=1e-12)


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_slopes_are_derivatives(name):
    workload = WORKLOADS[name]
    closure = workload.marginals.closure()
    rng = np.random.default_rng(2)
    pivots, products = rng.uniform(0.5, 2, 6), rng.uniform(0.5, 2, 6)

    def root(s, rho):
        return np.sqrt(evaluate_total_variance(workload, closure, s, rho).value)

    found = evaluate_total_variance(workload, closure, pivots, products)
    for i, step in itertools.product(range(6), [1e-6]):
        nudge = np.eye(6)[i] * step
        by_pivot = (root(pivots + nudge, products) - root(pivots - nudge, products)) / (2 * step)
        by_product = (root(pivots, products + nudge) - root(pivots, products - nudge)) / (2 * step)
        assert found.pivot_slopes[i] == pytest.approx(by_pivot, rel=1e-6, abs=1e-9)
        assert found.product_slopes[i] == pytest.approx(by_product, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("weighting", list(Weighting))
def test_no_other_noise_is_better(weighting):
    workload = Workload.k_way(MIXED, range(3), weighting)
    plan = plan_projected(workload)
    least = workload.weights @ plan.total_variances()
    rng = np.random.default_rng(4)
    for _ in range(50):
        noise = plan.noise * np.exp(0.1 * rng.normal(size=plan.noise.size))
        other = ResidualPlan(workload, plan.bases, plan.residuals, noise)
        other = ResidualPlan(workload, plan.bases, plan.residuals, noise * other.privacy_cost)
        assert other.privacy_cost == pytest.approx(1.0)
        assert workload.weights @ other.total_variances() > least


def test_the_least_sum_is_the_closed_form():
    workload = Workload.k_way(MIXED, range(4))
    plan = plan_orthogonal(workload)
    pivots = np.array([basis.pivot_variance for basis in plan.bases])
    products = np.array([basis.residual_product for basis in plan.bases])
    value = evaluate_total_variance(workload, plan.residuals, pivots, products).value
    assert plan.total_variances().sum() == pytest.approx(value)


@pytest.mark.parametrize("workload", [*WORKLOADS.values(), Workload.k_way(MIXED, [4])])
def test_oblique_plans_are_never_worse(workload):
    least = workload.weights @ plan_oblique(workload).total_variances()
    for planner in (plan_projected, plan_orthogonal):
        assert least <= workload.weights @ planner(workload).total_variances() * (1 + 1e-9)


def test_the_better_starting_point_wins(monkeypatch):
    """After one round only c = 0 is known, which is worse than orthogonal bases for 1-way sums."""
    monkeypatch.setattr("das.workload.residual.total_variance._MOST_ROUNDS", 1)
    many = [AttributeWorkload.prefix(f"a{i}", 20) for i in range(20)]
    one_way, all_way = Workload.k_way(many, [1]), Workload.k_way(MANY, [6])
    orthogonal = plan_orthogonal(one_way).total_variances().sum()
    assert plan_oblique(one_way).total_variances().sum() == pytest.approx(orthogonal)
    assert (
        plan_oblique(all_way).total_variances().sum()
        < 0.95 * plan_orthogonal(all_way).total_variances().sum()
    )


def test_plain_counts_leave_nothing_to_choose():
    plain = [AttributeWorkload.identity(f"a{i}", 2 + i) for i in range(4)]
    workload = Workload.k_way(plain, range(4))
    np.testing.assert_allclose(
        plan_oblique(workload).total_variances(), plan_marginals(workload).total_variances()
    )


def test_marginals_of_weight_zero_are_still_answered():
    workload = Workload.of_marginals(MIXED, [["age"], ["sex"]], [1.0, 0.0])
    plan = plan_projected(workload)
    assert np.isfinite(plan.total_variances()).all()
    assert plan.privacy_cost == pytest.approx(1)
    alone = plan_projected(Workload.of_marginals(MIXED, [["age"]]))
    assert plan.total_variances()[0] == pytest.approx(alone.total_variances()[0], rel=1e-3)


def test_plain_planning_refuses_prefix_sums():
    with pytest.raises(SchemaError, match="not made of plain counts"):
        plan_marginals(Workload.k_way(MIXED, [1]))
