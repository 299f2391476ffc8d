"""Planning laws that hold for every workload."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from das.queries.sensitivity import Neighbors
from das.workload.residual.convex_loss import minimize_largest_variance
from das.workload.residual.integer_plan import measure_exactly
from das.workload.residual.reconstruction import ResidualAnswers, reconstruct
from das.workload.workload import AttributeWorkload, Workload
from tests.builders.residual_plans import plan_oblique, plan_orthogonal, plan_projected
from tests.unit.das.queries.pairs_of_records import pair_costs
from tests.unit.das.workload.dense import (
    covariance,
    listed,
    marginal_matrix,
    partition,
    residual_matrix,
    strategy_matrix,
    workload_matrix,
)


@st.composite
def attribute_workloads(draw, name: str) -> AttributeWorkload:
    size = draw(st.integers(2, 4))
    kind = draw(st.sampled_from(["identity", "prefix", "ranges", "partition", "matrix"]))
    if kind == "partition":
        codes = draw(st.lists(st.integers(0, 2), min_size=size, max_size=size))
        return partition(name, [0, 1, *codes])
    if kind == "matrix":
        entries = st.lists(st.integers(-2, 3), min_size=size, max_size=size)
        rows = draw(st.lists(entries, min_size=1, max_size=3))
        varied = [*rows, list(range(size)), [1] * size]
        return AttributeWorkload.from_matrix(name, np.array(varied))
    return getattr(AttributeWorkload, kind)(name, size)


@st.composite
def workloads(draw) -> Workload:
    """Any marginals over one to three attributes, with any positive weights."""
    count = draw(st.integers(1, 3))
    attributes = [draw(attribute_workloads(f"a{i}")) for i in range(count)]
    every = [[f"a{i}" for i in range(count) if mask >> i & 1] for mask in range(1 << count)]
    chosen = draw(st.lists(st.sampled_from(range(len(every))), min_size=1, unique=True))
    weights = draw(
        st.lists(st.sampled_from([0.1, 1, 7]), min_size=len(chosen), max_size=len(chosen))
    )
    return Workload.of_marginals(attributes, [every[i] for i in chosen], weights)


@given(workloads(), st.sampled_from([plan_projected, plan_orthogonal, plan_oblique]))
def test_cost_and_variances_are_those_of_the_dense_mechanism(workload, planner):
    plan = planner(workload)
    assert plan.privacy_cost == pytest.approx(1)
    assert (strategy_matrix(plan) ** 2).sum(0).max() <= 1 + 1e-9
    dense = covariance(plan, workload_matrix(workload)).trace()
    assert plan.total_variances().sum() == pytest.approx(dense, rel=1e-6)


@given(workloads())
def test_oblique_plans_are_never_worse(workload):
    least = workload.weights @ plan_oblique(workload).total_variances()
    for planner in (plan_projected, plan_orthogonal):
        assert least <= workload.weights @ planner(workload).total_variances() * (1 + 1e-6)


@given(workloads(), st.integers(0, 2**31))
def test_exact_answers_are_reconstructed_exactly(workload, seed):
    plan = plan_oblique(workload)
    sizes = [attribute.size for attribute in workload.attributes]
    histogram = np.random.default_rng(seed).integers(0, 99, np.prod(sizes)).astype(float)
    values = [residual_matrix(plan, members) @ histogram for members in listed(plan.residuals)]
    residuals = ResidualAnswers(plan, np.concatenate(values))
    for members in listed(workload.marginals):
        found = reconstruct(residuals, workload.names_of(members))
        wanted = marginal_matrix(workload, members) @ histogram
        np.testing.assert_allclose(found.ravel(), wanted, atol=1e-6)


@given(workloads())
def test_the_largest_variance_lies_between_bound_and_total(workload):
    plan = plan_oblique(workload)
    found = minimize_largest_variance(workload, plan.bases)
    dense = covariance(found.plan, workload_matrix(workload)).diagonal()
    assert dense.max() == pytest.approx(found.loss, rel=1e-6)
    assert found.loss <= found.bound * (1 + 1e-6)
    assert found.loss <= covariance(plan, workload_matrix(workload)).diagonal().max() * (1 + 1e-6)


@given(workloads(), st.fractions(Fraction(1, 1000), 10), st.sampled_from(list(Neighbors)))
def test_integer_measurements_cost_exactly_rho(workload, rho, neighbors):
    exact = measure_exactly(plan_oblique(workload), rho, neighbors)
    spent = pair_costs(*zip(*exact.noisy_queries(), strict=True)).of(neighbors)
    assert rho * (1 - Fraction(1, 2**10)) <= spent <= rho
    assert sum(exact.rho_of(i) for i in range(exact.plan.residuals.size)) == rho
