"""plan_workload against published tables, the exact optimum, and simulated discrete noise."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from bench.studies.matrix_mechanisms_published import (
    K_WAY_PREFIX,
    NUMERIC,
    PREFIX_LARGEST_KNOWN,
    PREFIX_RMSE,
    SIZES,
)
from das.mechanisms.entropy import NoiseKey
from das.mechanisms.noise import add_noise
from das.workload.bounds import minimize_over_all_strategies
from das.workload.certify import certify
from das.workload.choices import LossKind, Method
from das.workload.one_dimensional import minimize_total_variance
from das.workload.plan import plan_workload
from das.workload.residual.plan import ResidualPlan
from das.workload.residual.total_variance import minimize_noise
from das.workload.workload import AttributeWorkload, BaseKind, Workload
from tests.builders.residual_plans import oblique_basis
from tests.builders.streams import stream
from tests.unit.das.workload.dense import marginal_matrix, strategy_matrix, workload_gram


def numeric(name):
    return [
        AttributeWorkload(f"a{i}", BaseKind.PREFIX if i < NUMERIC[name] else BaseKind.IDENTITY, n)
        for i, n in enumerate(SIZES[name])
    ]


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("CPS", 1),
        ("Loans", 1),
        pytest.param("Adult", 1, marks=pytest.mark.long),
        pytest.param("Adult", 2, marks=pytest.mark.long),
    ],
)
def test_below_both_columns_of_table_8(name, order):
    """He et al., ResidualPlanner+, Table 8; `bench.studies.matrix_mechanisms` has all of it."""
    plan = plan_workload(Workload.k_way(numeric(name), [order]))
    found = certify(plan, dense_cells=0)
    assert found.root_mean_square_error < 0.98 * min(c[order - 1] for c in PREFIX_RMSE[name])
    assert found.privacy_cost == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_no_crossover_in_table_12(order):
    """The best published column changes with the order; the plan is as good as any of them."""
    attributes = [AttributeWorkload.prefix(f"a{i}", 10) for i in range(5)]
    plan = plan_workload(Workload.k_way(attributes, [order]))
    printed = [c[order - 1] for c in K_WAY_PREFIX[10, 5] if c[order - 1] is not None]
    assert certify(plan, 0).root_mean_square_error <= min(printed) + 0.005


def test_largest_variance_of_prefix_sums():
    workload = Workload.k_way(numeric("CPS"), [1], most_answers=5000)
    plan = plan_workload(workload, kind=LossKind.LARGEST_VARIANCE)
    assert plan.loss == pytest.approx(PREFIX_LARGEST_KNOWN["CPS"][1][0], rel=1.5e-3)
    hdmm = plan_workload(workload, Method.HDMM, LossKind.LARGEST_VARIANCE)
    assert certify(plan).best_bound <= plan.loss < hdmm.loss


@pytest.mark.parametrize("seed", range(6))
def test_random_workloads_come_close_to_the_optimum(seed):
    """At most 3 % of the error above the dense dual; weights over two orders of magnitude."""
    rng = np.random.default_rng(seed)
    kinds = rng.choice([BaseKind.PREFIX, BaseKind.RANGES, BaseKind.IDENTITY], 3)
    attributes = [AttributeWorkload(f"a{i}", BaseKind(kind), 5) for i, kind in enumerate(kinds)]
    sets = [[f"a{i}" for i in range(3) if mask >> i & 1] for mask in range(8)]
    chosen = rng.permutation(8)[:4]
    weights = (10 ** rng.uniform(-1, 1, 4)).tolist()
    workload = Workload.of_marginals(attributes, [sets[i] for i in chosen], weights)
    best = minimize_over_all_strategies(workload, gap=1e-3)
    plan = plan_workload(workload)
    assert best.bound <= plan.loss * (1 + 1e-9)
    assert np.sqrt(plan.loss / best.bound) <= 1.03


def test_no_other_weights_of_the_totals_are_better():
    """300 points of the frontier of every attribute; the fixed point starts at 0."""
    rng = np.random.default_rng(3)
    attributes = [
        AttributeWorkload.prefix("age", 8),
        AttributeWorkload.ranges("income", 6),
        AttributeWorkload.identity("sex", 2),
        AttributeWorkload.prefix("hours", 5),
    ]
    workload = Workload.of_marginals(
        attributes,
        [("age",), ("age", "income"), ("sex",), ("income", "sex", "hours"), ("age", "hours")],
        [5.0, 0.3, 2.0, 0.01, 1.0],
    )
    best = plan_workload(workload, Method.ORP).loss
    for _ in range(300):
        weights = 10 ** rng.uniform(-2, 4, len(attributes))
        bases = tuple(
            oblique_basis(each, float(weight), gap=1e-4)
            for each, weight in zip(attributes, weights, strict=True)
        )
        assert workload.weights @ minimize_noise(workload, bases).total_variances() >= best


@pytest.mark.parametrize(
    ("kind", "stacked", "separate", "optimum"),
    [(BaseKind.RANGES, 1.899, 1.799, 1.678), (BaseKind.PREFIX, 1.653, 1.679, 1.530)],
)
def test_what_one_stacked_basis_costs(kind, stacked, separate, optimum):
    """Sums of eight ages by sex, single ages by region; the error is that of these answers alone."""
    ages = [AttributeWorkload("age", kind, 8), AttributeWorkload.identity("age", 8)]
    sex, region = AttributeWorkload.identity("sex", 2), AttributeWorkload.identity("region", 4)
    both = AttributeWorkload.from_matrix("age", np.concatenate([age.matrix for age in ages]))
    tables = [("age", "sex"), ("age", "region")]
    gram = sum(
        workload_gram(Workload.of_marginals([age, sex, region], [table]))
        for age, table in zip(ages, tables, strict=True)
    )
    plan = plan_workload(Workload.of_marginals([both, sex, region], tables), Method.ORP)
    assert isinstance(plan.strategy, ResidualPlan)
    rows = strategy_matrix(plan.strategy)
    alone = [
        plan_workload(Workload.of_marginals([age, other], [("age", other.name)]))
        for age, other in zip(ages, (sex, region), strict=True)
    ]
    errors = [
        np.trace(gram @ np.linalg.pinv(rows.T @ rows)) * (rows**2).sum(axis=0).max(),
        # Shares of the budget as the roots of the errors: see UnionStrategy.shares.
        sum(certify(one).root_mean_square_error * one.workload.sizes.sum() ** 0.5 for one in alone)
        ** 2,
        minimize_total_variance(gram, gap=1e-4).bound,
    ]
    answers = ages[0].n_rows * sex.size + ages[1].n_rows * region.size
    found = np.sqrt(np.array(errors) / answers)
    assert found == pytest.approx([stacked, separate, optimum], abs=1e-3)


@pytest.mark.parametrize("method", [Method.HDMM, Method.ORP])
def test_exact_noise_has_the_stated_law_after_answering(method):
    """2,000 releases: means and mean squares of a marginal within 6 standard errors."""
    attributes = [AttributeWorkload.prefix("age", 4), AttributeWorkload.identity("sex", 2)]
    workload = Workload.k_way(attributes, [2])
    plan = plan_workload(workload, method)
    rho, draws, key = Fraction(1, 3), 2_000, NoiseKey.for_testing(5)
    exact = plan.measure_exactly(rho)
    histogram = np.random.default_rng(7).integers(0, 9, 8)
    noisy = []
    for i, each in enumerate(exact.queries()):
        answers = np.tile(each.query.columns(np.arange(8)) @ histogram, (draws, 1))
        noisy.append(add_noise(answers, mechanism=each.mechanism, stream=stream(key, draws, (i,))))
    names = ["age", "sex"]
    found = np.array([exact.answer([part[i] for part in noisy], names) for i in range(draws)])
    errors = found.reshape(draws, -1) - marginal_matrix(workload, (0, 1)) @ histogram
    variance = certify(plan).average_variances[0] / (2 * float(rho))
    spread = np.sqrt((errors**2).mean(axis=0) / draws)
    assert (np.abs(errors.mean(axis=0)) <= 6 * spread).all()
    assert (errors**2).mean() == pytest.approx(variance, rel=6 * np.sqrt(2 / draws))
