"""Convex losses: their laws, and the plans for them beside a general solver and the dense rows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize

from das.errors import SchemaError
from das.queries.sensitivity import Neighbors
from das.workload.certify import certify
from das.workload.choices import LossKind, Method
from das.workload.losses import (
    MOST_POWER,
    LargestRatio,
    PowerMean,
    WorstMean,
    best_noise,
    evaluate_loss,
    importances,
    lower_sums,
)
from das.workload.plan import plan_workload
from das.workload.residual.plan import ResidualPlan
from das.workload.workload import AttributeWorkload, Workload
from tests.unit.das.workload.test_plan import answer_variances, stacked

PLAIN = Workload.of_marginals(
    [AttributeWorkload.identity("sex", 2), AttributeWorkload.identity("age", 6)],
    [(), ("sex",), ("sex", "age")],
    [1.0, 2.0, 0.1],
)
PREFIX = Workload.of_marginals(
    [AttributeWorkload.identity("sex", 2), AttributeWorkload.prefix("age", 6)],
    [(), ("sex",), ("sex", "age")],
    [1.0, 2.0, 0.1],
)
MEANS = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.2], [0.1, 0.1, 0.1]])
LIMITS = np.array([1.0, 2.0, 5.0])
LOSSES = {
    "power 1": PowerMean(1.0),
    "power 3": PowerMean(3.0),
    "power 64": PowerMean(float(MOST_POWER)),
    "worst": WorstMean(MEANS),
    "limits": LargestRatio(LIMITS),
}


def value(loss, workload: Workload, answers: list[np.ndarray]) -> float:
    """The loss by its definition, of the variances of the answers of every marginal."""
    means = np.array([part.mean() for part in answers])
    weights = importances(workload)
    if isinstance(loss, PowerMean):
        return float((weights @ means**loss.power / weights.sum()) ** (1 / loss.power))
    if isinstance(loss, WorstMean):
        return max(float(row @ means) for row in loss.importances)
    return max(float(part.max()) / limit for part, limit in zip(answers, loss.limits, strict=True))


def test_stated_losses_are_those_of_the_measured_rows_and_auto_is_the_least():
    for name, workload in itertools.product(LOSSES, [PLAIN, PREFIX]):
        loss, losses = LOSSES[name], {}
        for method in Method:
            if method is Method.RESIDUAL_PLANNER and workload is PREFIX:
                continue
            plan = plan_workload(workload, method, loss)
            losses[method] = plan.loss
            if plan.method is Method.HDMM and len(plan.strategy.products) > 1:
                continue  # answers come from parts, not from least squares on all rows
            answers = answer_variances(stacked(plan.strategy), workload)
            assert plan.loss == pytest.approx(value(loss, workload, answers), rel=1e-4)
            assert certify(plan).best_bound <= plan.loss * (1 + 1e-6)
        assert losses[Method.AUTO] <= min(losses.values()) * (1 + 2e-6)


@pytest.mark.parametrize("name", ["power 3", "worst"])
@pytest.mark.parametrize("workload", [PLAIN, PREFIX], ids=["plain", "prefix"])
def test_a_general_solver_finds_no_better_noise(name, workload):
    loss = LOSSES[name]
    bases = plan_workload(workload, Method.RESIDUAL_PLANNER_PLUS).strategy.bases
    found, touching = best_noise(loss, workload, bases, Neighbors.UNBOUNDED)
    assert found.bound <= found.loss <= found.bound * (1 + 1e-6)
    assert found.plan.privacy_cost == pytest.approx(1.0)

    def evaluate(logs: np.ndarray) -> float:
        plan = ResidualPlan(workload, bases, found.plan.residuals, np.exp(logs))
        return (
            evaluate_loss(loss, workload, plan) * plan.privacy_cost
        )  # at cost 1, being homogeneous

    results = [
        minimize(evaluate, start, method="Nelder-Mead", options={"maxiter": 4000, "fatol": 1e-12})
        for start in (np.log(found.plan.noise), np.zeros(len(found.plan.noise)))
    ]
    least = min(result.fun for result in results)
    assert found.loss <= least * (1 + 1e-6)
    assert least >= found.bound * (1 - 1e-9)
    # At the plan the loss is the weighted sum of variances whose weights are handed back.
    assert touching @ found.plan.average_variances() == pytest.approx(found.loss, rel=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_losses_are_convex_growing_and_homogeneous(seed):
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(5))
    first, second = rng.lognormal(0, 1, (2, 5))
    for power in (1.0, 1.5, 7.0, 64.0):
        mean = PowerMean(power)
        one, slope = mean.of(first, weights)
        other, _ = mean.of(second, weights)
        middle, _ = mean.of((first + second) / 2, weights)
        assert middle <= (one + other) / 2 * (1 + 1e-12)
        assert other >= one + slope @ (second - first) - 1e-9 * (one + other)
        assert mean.of(3 * first, weights)[0] == pytest.approx(3 * one)
        assert (slope >= 0).all()
        step = 1e-6 * first
        moved = [mean.of(first + step * row, weights)[0] for row in np.eye(5)]
        np.testing.assert_allclose((np.array(moved) - one) / step, slope, rtol=1e-2, atol=1e-6)


def test_a_high_power_is_near_the_largest_and_the_first_is_the_sum():
    means = plan_workload(PLAIN, kind=PowerMean(64.0)).strategy.average_variances()
    largest = plan_workload(PLAIN, kind=LossKind.LARGEST_VARIANCE)
    assert means.max() == pytest.approx(largest.loss, rel=0.1)
    total = plan_workload(PLAIN)
    assert plan_workload(PLAIN, kind=PowerMean(1.0)).loss == pytest.approx(
        total.loss / importances(PLAIN).sum(), rel=1e-5
    )


def test_bases_are_chosen_for_the_loss():
    """The oblique bases for the sum are a start; those of the loss are better, and no worse."""
    attributes = [AttributeWorkload.prefix("age", 12), AttributeWorkload.prefix("hours", 9)]
    workload = Workload.of_marginals(attributes, [(), ("age",), ("hours",)], [1e-6, 1.0, 1e-6])
    loss = WorstMean(np.array([[0.2, 0.0, 1.0], [0.2, 0.1, 0.0]]))
    start = plan_workload(workload, Method.ORP).strategy.bases
    for_sum = best_noise(loss, workload, start, Neighbors.UNBOUNDED)[0].loss
    assert plan_workload(workload, Method.ORP, loss).loss < for_sum * 0.999


def test_lower_sums_are_below():
    for loss in LOSSES.values():
        plan = plan_workload(PREFIX, Method.ORP, loss)
        for below in lower_sums(loss, PREFIX):
            assert below.weights @ plan.strategy.total_variances() <= plan.loss * (1 + 1e-9)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: PowerMean(0.5), "not convex; got 0.5"),
        (lambda: PowerMean(float("nan")), "not convex"),
        (lambda: PowerMean(65.0), "too large; got 65"),
        (lambda: WorstMean(np.array([[1.0, -1.0]])), "cannot be used"),
        (lambda: WorstMean(np.zeros((0, 2))), "cannot be used"),
        (lambda: WorstMean(np.array([[1.0, 0.0]])), "without a positive weight"),
        (lambda: WorstMean(np.array([[1.0, 1.0], [0.0, 0.0]])), "without a positive weight"),
        (lambda: LargestRatio(np.array([1.0, 0.0])), "positive numbers"),
        (lambda: plan_workload(PLAIN, kind=WorstMean(np.ones((1, 2)))), "do not fit the workload"),
        (lambda: plan_workload(PLAIN, kind=LargestRatio(np.ones(2))), "do not fit the workload"),
    ],
)
def test_losses_that_cannot_be_planned(make, match):
    with pytest.raises(SchemaError, match=match):
        make()


def test_a_power_mean_needs_a_weight_for_every_table():
    workload = Workload.of_marginals(PLAIN.attributes, [(), ("age",)], [1.0, 0.0])
    with pytest.raises(SchemaError, match="needs a positive weight for every table"):
        plan_workload(workload, kind=PowerMean(2.0))
