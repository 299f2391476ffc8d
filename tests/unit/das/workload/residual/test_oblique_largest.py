"""Oblique bases for the largest variance."""

from __future__ import annotations

import numpy as np
import pytest

from das.workload.one_dimensional import minimize_largest_variance as minimize_in_one_dimension
from das.workload.residual.bases import projected_largest_basis
from das.workload.residual.convex_loss import minimize_largest_variance
from das.workload.residual.oblique_largest import plan_oblique_largest
from das.workload.workload import AttributeWorkload, Workload
from tests.builders.residual_plans import plan_marginals, plan_oblique
from tests.unit.das.workload.dense import MIXED, covariance, strategy_matrix, workload_matrix

WORKLOADS = {
    "1-way": Workload.k_way(MIXED, [1]),
    "up to 2-way": Workload.k_way(MIXED, range(3)),
    "irregular": Workload.of_marginals(MIXED, [["age", "sex"], ["income"], ["age", "place"]]),
}


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_the_cost_and_the_largest_variance_are_honest(name):
    """On every cell, from the dense strategy; rows and noise in one convention."""
    workload = WORKLOADS[name]
    found = plan_oblique_largest(workload)
    assert (strategy_matrix(found.plan) ** 2).sum(0).max() <= 1 + 1e-9
    dense = covariance(found.plan, workload_matrix(workload)).diagonal()
    assert dense.max() == pytest.approx(found.loss)
    assert found.bound <= found.loss <= found.bound * (1 + 1e-4)


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_bases_for_other_objectives_are_worse(name):
    workload = WORKLOADS[name]
    found = plan_oblique_largest(workload)
    others = [
        plan_oblique(workload).bases,
        tuple(projected_largest_basis(attribute) for attribute in workload.attributes),
    ]
    for bases in others:
        assert found.loss < minimize_largest_variance(workload, bases, gap=1e-4).loss


def test_one_attribute_reaches_the_proven_optimum():
    age = AttributeWorkload.prefix("age", 16)
    found = plan_oblique_largest(Workload.k_way((age,), [1]))
    best = minimize_in_one_dimension(age)
    assert best.bound * (1 - 1e-9) <= found.loss <= best.bound * 1.005


def test_plain_counts_leave_nothing_to_choose():
    plain = [AttributeWorkload.identity(f"a{i}", 2 + i) for i in range(4)]
    workload = Workload.k_way(plain, range(3))
    found = plan_oblique_largest(workload)
    best = minimize_largest_variance(workload, plan_marginals(workload).bases)
    assert found.loss == pytest.approx(best.loss, rel=1e-4)


def test_equal_attributes_in_different_marginals_get_their_own_bases():
    twins = (AttributeWorkload.prefix("a", 8), AttributeWorkload.prefix("b", 8))
    uneven = plan_oblique_largest(Workload.of_marginals(twins, [["a"], ["a", "b"]])).plan
    assert uneven.bases[0] is not uneven.bases[1]
    alike = plan_oblique_largest(Workload.k_way(twins, range(3))).plan
    assert alike.bases[0] is alike.bases[1]


def test_limits_steer_the_bases():
    workload = WORKLOADS["irregular"]
    limits = np.array([1.0, 5.0, 2.0])
    found = plan_oblique_largest(workload, limits=limits)
    fixed = minimize_largest_variance(
        workload, plan_oblique_largest(workload).plan.bases, limits=limits, gap=1e-4
    )
    assert found.loss <= fixed.loss * (1 + 1e-3)
