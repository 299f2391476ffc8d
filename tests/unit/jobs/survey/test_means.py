"""Means of a survey: their standard errors and intervals are what they say."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from das.confidential import Confidential
from das.definition import Definition
from das.means.estimates import Column, Strata
from das.means.measure import StratumValues, clipped_sums, estimate_means
from das.mechanisms.entropy import NoiseKey, Streams
from das.queries.sensitivity import Neighbors
from jobs.survey.documents import MeansTable
from jobs.survey.models import StatisticConfig
from jobs.survey.plan import MeanPlan
from jobs.survey.results import means_text, released_mean

K, N, SPREAD = 400, 80, 1000.0


def plan_of(method: str, cost: Fraction, **settings: object) -> MeanPlan:
    config = StatisticConfig(
        mean="income", share="1", low=0, high=20_000, sd_bound=SPREAD, method=method, **settings
    )
    names = [f"s{i}" for i in range(K)]
    return MeanPlan(
        config=config,
        column=Column("income", 0, 20_000, SPREAD),
        strata=Strata(dict.fromkeys(names, N), Neighbors.BOUNDED),
        weights=dict.fromkeys(names, Fraction(1, K)),
        pooled=(),
        stratum_of=np.arange(K),
        cost=cost,
    )


def drawn(plan: MeanPlan, definition: Definition, seed: int):
    """Noisy sums of normal values, and the means they are drawn about."""
    rng = np.random.default_rng(seed)
    centers = rng.uniform(3000, 17_000, K)
    values = np.rint(rng.normal(np.repeat(centers, N), SPREAD)).astype(np.int64)
    truth = Confidential(StratumValues(values, np.repeat(np.arange(K), N), K))
    streams = Streams(NoiseKey.for_testing(seed))
    if plan.config.method == "clipped":
        sums = clipped_sums(
            truth, plan.column, plan.steps, plan.strata, streams, definition=definition
        )
        return (sums,), centers
    return estimate_means(truth, plan.column, plan.steps, plan.strata, streams).sums, centers


@pytest.mark.parametrize(
    ("method", "definition", "cost"),
    [
        ("coinpress", Definition.ZCDP, Fraction(1)),
        ("clipped", Definition.ZCDP, Fraction(4)),
        ("clipped", Definition.PURE, Fraction(5)),
    ],
)
def test_errors_are_as_large_as_their_standard_errors_say(method, definition, cost):
    """400 strata: the deviation of z has standard error 1/sqrt(800) = 0.035, with the longer
    tails of Laplace noise 0.06 at most; were sampling or noise left out, it would be 1.2 or more."""
    plan = plan_of(method, cost)
    history, centers = drawn(plan, definition, 11)
    released = released_mean(plan, history, definition)
    errors = np.array([row.mean for row in released.means]) - centers
    deviations = np.array([row.standard_error for row in released.means])
    noise = np.array([row.noise_sd for row in released.means])
    assert (noise < 0.8 * deviations).all()
    assert (noise > 0.55 * deviations).all()
    assert deviations**2 - noise**2 == pytest.approx(SPREAD**2 / N)
    assert 0.85 < float(np.std(errors / deviations)) < 1.15
    inside = [
        row.low <= center <= row.high for row, center in zip(released.means, centers, strict=True)
    ]
    # At most 0.925 by the parts of `miss_probability`, and a standard error of 0.015 at most.
    assert 0.9 - 4 * np.sqrt(0.09 / K) < np.mean(inside) < 0.925 + 3 * np.sqrt(0.08 / K)
    whole = released.everybody
    assert abs(whole.mean - centers.mean()) < 5 * whole.standard_error
    assert whole.standard_error == pytest.approx(float(np.sqrt((deviations**2).sum())) / K)
    assert whole.low < centers.mean() < whole.high


@pytest.mark.parametrize("method", ["clipped", "coinpress"])
def test_intervals_know_that_sizes_are_those_of_a_sample(method):
    """Numbers of records vary about public sizes by a ninth; the interval that does not know of it
    misses half of the means."""
    plan = plan_of(method, Fraction(4), **({} if method == "clipped" else {"steps": 1}))
    rng = np.random.default_rng(9)
    centers, counts = rng.uniform(3000, 17_000, K), rng.binomial(K * N, 1 / K, K)
    values = np.rint(rng.normal(np.repeat(centers, counts), SPREAD)).astype(np.int64)
    truth = Confidential(StratumValues(values, np.repeat(np.arange(K), counts), K))
    streams, deviation = Streams(NoiseKey.for_testing(10)), float(np.sqrt(N * (1 - 1 / K)))
    measure = {"clipped": clipped_sums, "coinpress": estimate_means}[method]
    found = measure(truth, plan.column, plan.steps, plan.strata, streams)
    history = (found,) if method == "clipped" else found.sums
    inside = {}
    for deviations in ((), (deviation,) * K):
        strata = Strata(plan.strata.sizes, Neighbors.BOUNDED, deviations)
        rows = released_mean(replace(plan, strata=strata), history, Definition.ZCDP).means
        inside[deviations != ()] = np.mean(
            [row.low <= center <= row.high for row, center in zip(rows, centers, strict=True)]
        )
    assert inside[False] < 0.7
    assert 0.9 - 4 * np.sqrt(0.09 / K) < inside[True] < 0.97


def test_shrinking_strata_that_are_equal_helps_and_keeps_everybody():
    plan = plan_of("coinpress", Fraction(1, 50))
    rng = np.random.default_rng(5)
    values = np.rint(rng.normal(9000.0, SPREAD, K * N)).astype(np.int64)
    truth = Confidential(StratumValues(values, np.repeat(np.arange(K), N), K))
    sums = estimate_means(
        truth, plan.column, plan.steps, plan.strata, Streams(NoiseKey.for_testing(6))
    ).sums
    own = released_mean(plan, sums, Definition.ZCDP)
    other = plan_of("coinpress", Fraction(1, 50), shrink=True)
    shrunk = released_mean(other, sums, Definition.ZCDP)
    apart, near = (
        float(np.mean([(row.mean - 9000.0) ** 2 for row in found.means])) for found in (own, shrunk)
    )
    assert near < apart / 4
    assert shrunk.shrunk
    assert all(row.low <= row.mean <= row.high for row in shrunk.means)
    assert shrunk.everybody == own.everybody
    assert not own.shrunk


def test_without_strata_there_is_one_row_and_everybody_is_it():
    plan = plan_of("coinpress", Fraction(1))
    alone = replace(
        plan, strata=Strata({"all": 4}, Neighbors.BOUNDED), weights={"all": Fraction(1)}
    )
    truth = Confidential(StratumValues(np.full(4, 9000, np.int64), np.zeros(4, np.int64), 1))
    streams = Streams(NoiseKey.for_testing(8))
    sums = estimate_means(truth, plan.column, plan.steps, alone.strata, streams).sums
    released = released_mean(alone, sums, Definition.ZCDP)
    assert replace(released.everybody, stratum="all") == released.means[0]
    lines = means_text(MeansTable(format=1, name="toy", statistics=(released,))).splitlines()
    assert [line.split(",")[1] for line in lines] == ["stratum", "everybody"]


def test_a_mean_far_from_what_was_possible_is_warned_of():
    plan = plan_of("clipped", Fraction(50))
    truth = Confidential(
        StratumValues(np.full(K * N, 24_000, np.int64), np.repeat(np.arange(K), N), K)
    )
    streams = Streams(NoiseKey.for_testing(7))
    sums = clipped_sums(
        truth, plan.column, plan.steps, plan.strata, streams, definition=Definition.ZCDP
    )
    released = released_mean(plan, (sums,), Definition.ZCDP)
    assert all(row.outside for row in released.means)
    assert "400 of 400 strata (s0, s1, s2)" in released.warnings[0]
