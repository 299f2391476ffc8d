"""plan_workload: variances against dense matrices, choice, bounds, exact costs, clear errors."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from das.errors import BudgetError, SchemaError
from das.queries.sensitivity import Neighbors
from das.workload import plan as auto
from das.workload.certify import Bound, certify
from das.workload.choices import LossKind, Method
from das.workload.hdmm.marginals import optimize_marginals
from das.workload.hdmm.strategies import optimize_kronecker, optimize_union
from das.workload.plan import WorkloadPlan, plan_workload
from das.workload.residual.plan import ResidualPlan
from das.workload.workload import AttributeWorkload, Workload
from tests.unit.das.queries.pairs_of_records import pair_costs
from tests.unit.das.workload.dense import (
    GROUPED,
    MIXED,
    kron,
    listed,
    marginal_matrix,
    strategy_matrix,
)

PLAIN = tuple(AttributeWorkload.identity(f"a{i}", n) for i, n in enumerate((2, 3, 4)))
SMALL = MIXED[:3]
WORKLOADS = {
    "plain": Workload.k_way(PLAIN, range(3)),
    "pairs": Workload.k_way(SMALL, [2]),
    "all": Workload.k_way(SMALL, [3]),
    "deficient": Workload.k_way(GROUPED, [2]),
    "hierarchy": Workload.k_way(MIXED[1:], range(3)),
    "weighted": Workload.of_marginals(
        SMALL, [(), ("age",), ("sex", "income"), ("age", "income")], [3.0, 1.0, 10.0, 0.1]
    ),
}
RHO = Fraction(3, 7)


def stacked(strategy: object) -> np.ndarray:
    """All measured rows over all cells, each divided by its noise's standard deviation."""
    if isinstance(strategy, ResidualPlan):
        return strategy_matrix(strategy)
    return np.concatenate(
        [
            np.sqrt(share) * kron(list(product.factors))
            for share, product in zip(strategy.shares, strategy.products, strict=True)
        ]
    )


def answer_variances(rows: np.ndarray, workload: Workload) -> list[np.ndarray]:
    covariance = np.linalg.pinv(rows.T @ rows, rcond=1e-10)
    return [
        ((queries @ covariance) * queries).sum(axis=1)
        for queries in (marginal_matrix(workload, a) for a in listed(workload.marginals))
    ]


def methods_for(name: str) -> list[Method]:
    return [each for each in Method if name == "plain" or each is not Method.RESIDUAL_PLANNER]


CASES = [(name, method) for name in WORKLOADS for method in methods_for(name)]
BY_LOSS = [
    *((name, LossKind.SUM_OF_VARIANCES) for name in WORKLOADS),
    *((name, LossKind.LARGEST_VARIANCE) for name in ("plain", "deficient")),
]


@pytest.mark.parametrize("method", list(Method))
@pytest.mark.parametrize(("name", "kind"), BY_LOSS)
def test_stated_errors_and_cost_are_those_of_the_measured_rows(name, method, kind):
    workload = WORKLOADS[name]
    if method not in methods_for(name):
        pytest.skip("needs plain counts")
    plan = plan_workload(workload, method, kind)
    assert plan.method is not Method.AUTO
    rows = stacked(plan.strategy)
    assert (rows**2).sum(axis=0).max() <= 1 + 1e-9
    found = certify(plan, dense_cells=0)
    assert found.privacy_cost == pytest.approx(1, rel=1e-6)
    dense = answer_variances(rows, workload)
    if plan.method is not Method.HDMM or len(plan.strategy.products) == 1:
        means = [part.mean() for part in dense]
        np.testing.assert_allclose(found.average_variances, means, rtol=1e-5)
        answers = np.concatenate(dense)
        assert found.root_mean_square_error == pytest.approx(np.sqrt(answers.mean()), rel=1e-5)
        sums = np.array([part.sum() for part in dense])
        by_kind = {
            LossKind.SUM_OF_VARIANCES: workload.weights @ sums,
            LossKind.LARGEST_VARIANCE: answers.max(),
        }
        assert plan.loss == pytest.approx(by_kind[kind], rel=1e-5)


def test_auto_is_never_worse_and_no_bound_is_above_it():
    for name, kind in BY_LOSS:
        workload = WORKLOADS[name]
        plan = plan_workload(workload, kind=kind)
        found = certify(plan)
        for method in methods_for(name):
            other = plan_workload(workload, method, kind)
            assert plan.loss <= other.loss * (1 + 2e-6)
            assert found.best_bound <= other.loss * (1 + 1e-9)
        assert {Bound.EACH_MARGINAL, Bound.SINGULAR_VALUES} <= found.bounds.keys()
        assert Bound.ALL_STRATEGIES in found.bounds
        assert found.distance == pytest.approx(np.sqrt(plan.loss / found.best_bound) - 1)


def test_plain_counts_are_optimal_at_any_size():
    attributes = [AttributeWorkload.identity(f"a{i}", 10) for i in range(20)]
    workload = Workload.k_way(attributes, range(4))
    for kind in LossKind:
        plan = plan_workload(workload, kind=kind)
        assert plan.method is Method.RESIDUAL_PLANNER
        assert -1e-9 <= certify(plan).distance < 1e-4
        assert Method.HDMM in plan.skipped


FAMILIES = (optimize_kronecker, optimize_union, optimize_marginals)


# Its best union has a group per marginal.
SEPARATE = Workload.of_marginals(
    [AttributeWorkload.prefix("age", 10), AttributeWorkload.prefix("income", 9)],
    [("age",), ("income",)],
    [1.0, 5.0],
)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("workload", [WORKLOADS["pairs"], WORKLOADS["weighted"], SEPARATE])
def test_variances_of_every_hdmm_family(workload, family, monkeypatch):
    """Averages and maxima from the weights with which marginals are answered."""
    strategy = family(workload)
    if workload is SEPARATE and family is optimize_union:
        assert len(strategy.parts) == 2
    monkeypatch.setattr(auto, "list_hdmm", lambda _: [strategy])
    plan = plan_workload(workload, Method.HDMM, LossKind.LARGEST_VARIANCE)
    means = certify(plan, dense_cells=0).average_variances
    largest = []
    for position, members in enumerate(listed(workload.marginals)):
        names = workload.names_of(np.array(members, np.int64))
        variance = 0.0
        for j, (product, share) in enumerate(zip(strategy.products, strategy.shares, strict=True)):
            blank = [np.zeros(each.shape[0]) for each in strategy.products]
            for row in range(product.shape[0]):
                blank[j][row] = 1.0
                variance = variance + strategy.answer(blank, names) ** 2 / share
                blank[j][row] = 0.0
        assert means[position] == pytest.approx(variance.mean(), rel=1e-5)
        largest.append(variance.max())
    assert plan.loss == pytest.approx(max(largest), rel=1e-5)


@cache
def measured(name: str, method: Method) -> WorkloadPlan:
    return plan_workload(WORKLOADS[name], method)


# Rounded rows lose a base matrix of dependent, unequal columns; refused below.
EXACT = [case for case in CASES if case != ("deficient", Method.HDMM)]


def test_queries_cost_exactly_rho_and_answer_without_bias():
    for neighbors, (name, method) in zip(itertools.cycle(Neighbors), EXACT, strict=False):
        exact = replace(measured(name, method), neighbors=neighbors).measure_exactly(RHO)
        queries = list(exact.queries())
        spent = sum(each.rho for each in queries)
        assert isinstance(spent, Fraction)
        assert spent == RHO
        noise = [each.mechanism.sigma_sq for each in queries]
        worst = pair_costs([each.query for each in queries], noise).of(neighbors)
        assert worst <= RHO
        # Rounded bases make one column a little longer than the others; partitions lose nothing.
        assert worst >= RHO * (1 - Fraction(1, 2**12))
        workload = WORKLOADS[name]
        cells = np.arange(np.prod([a.size for a in workload.attributes]))
        histogram = np.random.default_rng(2).integers(0, 50, len(cells))
        noisy = [each.query.columns(cells) @ histogram for each in queries]
        for members in listed(workload.marginals):
            names = workload.names_of(np.array(members, np.int64))
            found = exact.answer(noisy, names)
            assert found.shape == tuple(workload.attributes[i].n_rows for i in members)
            wanted = marginal_matrix(workload, members) @ histogram
            np.testing.assert_allclose(found.ravel(), wanted, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("method", [Method.ORP, Method.HDMM])
def test_exact_noise_has_the_planned_variance(method):
    """At rho the plan's variances are divided by 2 rho; rounding adds next to nothing."""
    plan = measured("pairs", method)
    exact = plan.measure_exactly(RHO)
    cells = np.arange(32)
    rows = np.concatenate(
        [
            each.query.columns(cells) / float(each.mechanism.sigma_sq) ** 0.5
            for each in exact.queries()
        ]
    )
    dense = [part.mean() for part in answer_variances(rows, plan.workload)]
    assert dense == pytest.approx(certify(plan, 0).average_variances / (2 * float(RHO)), rel=5e-3)


def test_coefficients_of_many_attributes_stay_within_64_bits():
    ages = [AttributeWorkload.prefix(f"age {i}", 4) for i in range(6)]
    plan = plan_workload(Workload.k_way(ages, [6]), Method.HDMM)
    (only,) = plan.measure_exactly(Fraction(1)).queries()
    largest = np.prod([np.abs(factor.matrix).max() for factor in only.query.factors], dtype=float)
    assert 2**24 < largest <= 2**34
    assert only.rho == 1


WIDE = tuple(AttributeWorkload.prefix(f"w{i}", 30) for i in range(6))


def test_what_cannot_be_measured_is_not_chosen(monkeypatch):
    """Oblique bases split off the best Kronecker product are as good as the product."""
    workload = Workload.k_way(WIDE[:2], [2])
    monkeypatch.setattr(auto, "_plan_oblique", auto._plan_plus)
    monkeypatch.setattr(auto, "MOST_ANSWERS", 899)
    plan = plan_workload(workload)
    assert plan.method is Method.ORP
    assert "899" in plan.skipped[Method.HDMM]
    assert plan.loss <= optimize_kronecker(workload).error * (1 + 1e-6)


def test_a_better_strategy_of_another_family_is_chosen(monkeypatch):
    """With oblique plans made worse than they are, HDMM has to win."""
    workload = WORKLOADS["pairs"]
    poor = plan_workload(workload, Method.RESIDUAL_PLANNER_PLUS)
    worse = replace(poor, method=Method.ORP, loss=2 * poor.loss)
    monkeypatch.setattr(auto, "_plan_oblique", lambda *_: worse)
    monkeypatch.setattr(auto, "_with_noise", lambda *_: worse)
    hdmm = plan_workload(workload, Method.HDMM)
    plan = plan_workload(workload)
    assert plan.method is Method.HDMM
    assert plan.loss == hdmm.loss < worse.loss


def unknown_attribute():
    Workload.of_marginals(SMALL, [("height",)])


def no_total():
    AttributeWorkload.from_matrix("age", np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))


def plain_planner_for_prefixes():
    plan_workload(WORKLOADS["pairs"], Method.RESIDUAL_PLANNER)


def too_many_answers():
    workload = Workload.k_way(WIDE, [1])
    strategy = optimize_kronecker(workload)
    plan = plan_workload(workload)
    replace(plan, strategy=strategy, method=Method.HDMM).measure_exactly(Fraction(1))


def too_large_to_reconstruct(method=Method.ORP):
    exact = measured("pairs", method).measure_exactly(RHO)
    noisy = [np.zeros(each.query.size) for each in exact.queries()]
    exact.answer(noisy, ["age", "income"], most_bytes=100)


def unknown_answer(method=Method.ORP):
    exact = measured("pairs", method).measure_exactly(RHO)
    exact.answer([np.zeros(each.query.size) for each in exact.queries()], ["height"])


def no_budget():
    measured("pairs", Method.HDMM).measure_exactly(Fraction(0))


def rounding_loses_the_workload():
    measured("deficient", Method.HDMM).measure_exactly(RHO)


def noise_too_wide():
    measured("pairs", Method.HDMM).measure_exactly(Fraction(1, 10**30))


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        (unknown_attribute, SchemaError, "unknown attribute; got ['height']"),
        (no_total, SchemaError, "does not determine the total"),
        (plain_planner_for_prefixes, SchemaError, "is not made of plain counts"),
        (too_many_answers, SchemaError, "more answers than can be measured"),
        (too_large_to_reconstruct, SchemaError, "too large to reconstruct"),
        (lambda: too_large_to_reconstruct(Method.HDMM), SchemaError, "too large to reconstruct"),
        (unknown_answer, SchemaError, "names an unknown attribute"),
        (lambda: unknown_answer(Method.HDMM), SchemaError, "attribute"),
        (rounding_loses_the_workload, SchemaError, "not determined by rounded rows"),
        (no_budget, BudgetError, "must be positive"),
        (noise_too_wide, BudgetError, "does not fit its integers"),
    ],
)
def test_bad_input_is_refused_with_a_remedy(fault, error, message):
    with pytest.raises(error) as caught:
        fault()
    assert message in str(caught.value)
