"""Residual plans against the dense strategy: privacy cost on every cell, variances, covariances."""

from __future__ import annotations

import numpy as np
import pytest

from das.errors import SchemaError
from das.workload.residual.plan import ResidualPlan
from das.workload.residual.products import product_covariances
from das.workload.workload import AttributeWorkload, Workload
from tests.builders.residual_plans import (
    marginal_query,
    plan_marginals,
    plan_oblique,
    plan_orthogonal,
    plan_projected,
    variances_of_answers,
)
from tests.unit.das.workload.dense import (
    GROUPED,
    MIXED,
    covariance,
    listed,
    marginal_matrix,
    strategy_matrix,
    workload_matrix,
)

PLAIN = tuple(AttributeWorkload.identity(name, n) for name, n in (("a", 2), ("b", 3), ("c", 4)))
CASES = {
    "plain": (plan_marginals, Workload.k_way(PLAIN, range(3))),
    "projected": (plan_projected, Workload.k_way(MIXED, range(3))),
    "orthogonal": (plan_orthogonal, Workload.k_way(MIXED, [2])),
    "oblique": (plan_oblique, Workload.k_way(MIXED, range(3))),
    "oblique all": (plan_oblique, Workload.k_way(GROUPED, [3])),
    "oblique deficient": (plan_oblique, Workload.k_way(GROUPED, range(3))),
    "oblique irregular": (
        plan_oblique,
        Workload.of_marginals(MIXED, [["age", "sex"], ["income"], ["age", "place"]], [1, 5, 2]),
    ),
}


@pytest.fixture(params=list(CASES), scope="module")
def plan(request) -> ResidualPlan:
    build, workload = CASES[request.param]
    return build(workload)


def test_the_true_privacy_cost_is_the_stated_one(plan):
    """pcost = max_j diag(B^T Sigma^-1 B), over every cell j of the domain."""
    cells = (strategy_matrix(plan) ** 2).sum(0)
    assert plan.privacy_cost == pytest.approx(1)
    assert cells.max() <= 1 + 1e-9
    assert cells.max() == pytest.approx(1, rel=1e-3)


def test_variances_are_those_of_the_best_linear_unbiased_estimate(plan):
    variances = plan.total_variances()
    for members, variance in zip(listed(plan.workload.marginals), variances, strict=True):
        dense = covariance(plan, marginal_matrix(plan.workload, members))
        assert variance == pytest.approx(np.trace(dense))
        names = plan.workload.names_of(members)
        np.testing.assert_allclose(variances_of_answers(plan, names).ravel(), dense.diagonal())
    total = covariance(plan, workload_matrix(plan.workload)).trace()
    assert plan.root_mean_square_error() ** 2 * plan.workload.sizes.sum() == pytest.approx(total)
    np.testing.assert_allclose(plan.average_variances() * plan.workload.sizes, variances)


def test_covariances_of_pairs_of_answers(plan):
    members = listed(plan.workload.marginals)[-1]
    dense = covariance(plan, marginal_matrix(plan.workload, members))
    query = marginal_query(plan.workload, members)
    assert product_covariances(plan, query, query) == pytest.approx(dense, abs=1e-9)


def test_a_marginal_of_a_marginal_has_a_variance_too(plan):
    """Every subset of a planned marginal is in the closure."""
    members = listed(plan.workload.marginals)[-1][:1]
    dense = covariance(plan, marginal_matrix(plan.workload, members)).diagonal()
    found = variances_of_answers(plan, plan.workload.names_of(members))
    np.testing.assert_allclose(found, dense)


def test_equal_sizes_keep_their_own_bases():
    """age (prefix) and income (ranges) have four levels each and different matrices."""
    plan = plan_oblique(Workload.k_way(MIXED, [1]))
    age, income = plan.bases[0], plan.bases[2]
    assert age.subtraction.shape == income.subtraction.shape
    assert not np.allclose(
        age.subtraction.T @ age.subtraction, income.subtraction.T @ income.subtraction
    )
    swapped = plan_oblique(Workload.k_way((MIXED[2], MIXED[1], MIXED[0], MIXED[3]), [1]))
    np.testing.assert_allclose(
        sorted(plan.total_variances()), sorted(swapped.total_variances()), rtol=1e-6
    )


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["height"], "names an unknown attribute"),
        (["age", "age"], "names an attribute twice"),
        (["sex", "age"], "in the order of the workload"),
        (["age", "sex", "income"], "do not contain a set"),
    ],
)
def test_unknown_marginals_are_refused(names, message):
    plan = plan_projected(Workload.k_way(MIXED, [2]))
    with pytest.raises(SchemaError, match=message):
        variances_of_answers(plan, names)
