"""Measurements of a survey come back from their files as they were, and cost what noise says."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from das.confidential import Confidential
from das.definition import Definition
from das.errors import OutputError
from das.means.estimates import Clipping, Column, NoisySum, Steps, Strata, estimates_of
from das.means.measure import StratumValues, estimate_means
from das.mechanisms.entropy import NoiseKey, Streams
from das.mechanisms.laplace import DiscreteLaplace
from das.queries.sensitivity import Neighbors
from das.synthesis.adaptive import measure_chosen_strata, measure_tree
from das.synthesis.measure import Spending, measure_marginals, measure_plan, measure_strata
from das.synthesis.records import Domain, Records
from das.synthesis.strata import Strata as SynthesisStrata
from das.workload.plan import Method, plan_workload
from das.workload.workload import AttributeWorkload, Workload
from jobs.pipeline.storage.dataset import publish
from jobs.survey.measurements import (
    PlannedAnswers,
    answer_rows,
    cost_of_answers,
    cost_of_sums,
    part_cost,
    read_answers,
    read_planned,
    read_sums,
    sum_rows,
    write_part,
)
from jobs.survey.plan import load_survey
from tests.builders.survey import write_survey

KEY = NoiseKey.for_testing(3)


def written(path, drawn):
    table, facts = drawn
    publish(path, [write_part(path, table)], facts)
    return path


@pytest.mark.parametrize("neighbors", [Neighbors.BOUNDED, Neighbors.UNBOUNDED])
def test_sums_come_back_and_give_the_same_means(tmp_path, neighbors):
    rng = np.random.default_rng(1)
    strata = Strata({"a": 300, "b": 100}, neighbors)
    truth = StratumValues(rng.integers(0, 90, 400), np.repeat([0, 1], (300, 100)), 2)
    column, steps = Column("age", 0, 100, 26.0), Steps.split(Fraction(1, 7), 3)
    found = estimate_means(Confidential(truth), column, steps, strata, Streams(KEY))
    drawn = sum_rows(found.sums, strata.names, Definition.ZCDP, neighbors)
    history = read_sums(written(tmp_path / "part=age", drawn))
    assert history == found.sums
    assert cost_of_sums(history, Definition.ZCDP, neighbors) == Fraction(1, 7)
    again = estimates_of(history, column, steps, strata)
    assert (again.means == found.means).all()
    assert (again.low == found.low).all()


@pytest.mark.parametrize("neighbors", [Neighbors.BOUNDED, Neighbors.UNBOUNDED])
def test_marginals_come_back_and_cost_what_is_stated(tmp_path, neighbors):
    rng = np.random.default_rng(2)
    domain = Domain(("a", "b", "c"), (2, 3, 9))
    codes = np.stack([rng.integers(0, size, 500) for size in (2, 3, 4)], axis=1)
    rho = Fraction(1, 3)
    measured = measure_marginals(
        Confidential(Records(domain, codes)), rho, neighbors, Streams(KEY),
        spending=Spending(pairs_again=2),
    )  # fmt: skip
    back = read_answers(written(tmp_path / "part=synthesis", answer_rows(measured)), None)
    assert (back.domain.names, back.domain.sizes) == (domain.names, domain.sizes)
    for own, other in (
        (measured.one_way, back.one_way),
        (measured.residuals, back.residuals),
        (measured.again, back.again),
    ):
        assert [one.query.name for one in own] == [one.query.name for one in other]
        for one, two in zip(own, other, strict=True):
            assert (one.answers == two.answers).all()
            assert (one.mechanism, one.rho) == (two.mechanism, two.rho)
            assert [f.matrix.tolist() for f in one.query.factors] == [
                f.matrix.tolist() for f in two.query.factors
            ]
    assert [levels.tolist() for levels in back.merging.new_level] == [
        levels.tolist() for levels in measured.merging.new_level
    ]
    assert cost_of_answers(back, neighbors) == rho


def test_the_dearest_stratum_counts():
    clipping = Clipping(0, 2)
    noise = [clipping.noise(Definition.ZCDP, Fraction(1, n), Neighbors.BOUNDED) for n in (3, 2, 4)]
    sums = [NoisySum(clipping, each, 0) for each in noise]
    assert cost_of_sums([sums], Definition.ZCDP, Neighbors.BOUNDED) == Fraction(1, 2)


def test_strata_and_selections_cost_what_is_stated():
    domain = Domain(("a", "b", "c"), (2, 3, 2))
    truth = Confidential(Records(domain, np.zeros((50, 3), np.int64)))
    groups = SynthesisStrata.of(domain, ["a"], np.array([0.5, 0.5]))
    inside = measure_strata(truth, groups, Fraction(1), Neighbors.BOUNDED, Streams(KEY))
    assert cost_of_answers(inside, Neighbors.BOUNDED) == 1
    tree = measure_tree(truth, Fraction(1), Neighbors.UNBOUNDED, Streams(KEY))
    assert cost_of_answers(tree, Neighbors.UNBOUNDED) == 1
    half, streams = Fraction(1, 2), Streams(KEY)
    chosen = measure_chosen_strata(truth, groups, tree, half, Neighbors.UNBOUNDED, streams)
    assert cost_of_answers(chosen, Neighbors.UNBOUNDED) == Fraction(3, 2)
    for strata, neighbors in ((inside, Neighbors.BOUNDED), (chosen, Neighbors.UNBOUNDED)):
        cheaper = tuple(
            tuple(replace(answer, rho=answer.rho / 2) for answer in answers)
            for answers in strata.inside
        )
        with pytest.raises(OutputError, match="cost another amount"):
            cost_of_answers(replace(strata, inside=cheaper), neighbors)
    selections_alone = replace(tree, one_way=(), marginals=())
    with pytest.raises(OutputError, match=r"selection of .* cost another amount"):
        cost_of_answers(selections_alone, Neighbors.BOUNDED)


def test_less_noise_than_is_paid_for_is_found():
    domain = Domain(("a", "b"), (2, 3))
    codes = np.zeros((50, 2), np.int64)
    measured = measure_marginals(
        Confidential(Records(domain, codes)), Fraction(1), Neighbors.BOUNDED, Streams(KEY),
        spending=Spending(pairs_again=0),
    )  # fmt: skip
    assert cost_of_answers(measured, Neighbors.BOUNDED) == 1
    for phase in ("one_way", "residuals"):
        first, *others = getattr(measured, phase)
        noise = type(first.mechanism).of(first.mechanism.parameter * Fraction(99, 100))
        quiet = replace(first, mechanism=noise)
        changed = replace(measured, **{phase: (quiet, *others)})
        with pytest.raises(OutputError, match="cost another amount"):
            cost_of_answers(changed, Neighbors.BOUNDED)


@pytest.mark.parametrize("neighbors", [Neighbors.BOUNDED, Neighbors.UNBOUNDED])
def test_planned_marginals_come_back_and_less_noise_is_found(tmp_path, neighbors):
    attributes = (AttributeWorkload.identity("a", 2), AttributeWorkload.prefix("b", 6))
    workload = Workload.k_way(attributes, range(3))
    plan = plan_workload(workload, Method.ORP, neighbors=neighbors).measure_exactly(Fraction(2, 7))
    domain = Domain(("a", "b"), (2, 6))
    records = Records(domain, np.random.default_rng(4).integers(0, 2, (90, 2)))
    answers = measure_plan(Confidential(records), plan, Streams(KEY))
    path = written(tmp_path / "part=marginals", answer_rows(PlannedAnswers(domain, answers)))
    back = read_planned(path)
    assert (back.domain.names, back.domain.sizes) == (domain.names, domain.sizes)
    for one, two in zip(answers, back.answers, strict=True):
        assert (one.answers == two.answers).all()
        assert (one.query.name, one.mechanism, one.rho) == (two.query.name, two.mechanism, two.rho)
        assert [f.key for f in one.query.factors] == [f.key for f in two.query.factors]
    assert cost_of_answers(back, neighbors) == Fraction(2, 7)
    first, *others = back.answers
    noise = type(first.mechanism).of(first.mechanism.parameter * Fraction(9, 10))
    quiet = replace(back, answers=(replace(first, mechanism=noise), *others))
    with pytest.raises(OutputError, match="measurements of all residuals: cost another amount"):
        cost_of_answers(quiet, neighbors)


def test_tables_under_pure_epsilon_with_less_noise_are_found(tmp_path):
    privacy = {"definition": "pure", "epsilon": "2/7"}
    tables = {"tables": ["sex * group", "age"], "share": "1"}
    settings = {"synthesis": None, "statistics": [], "marginals": tables, "privacy": privacy}
    plan = load_survey(write_survey(tmp_path, **settings))
    records = Records(plan.domain, np.zeros((90, 4), np.int64))
    answers = measure_plan(Confidential(records), plan.marginals.exact, Streams(KEY))
    measured = PlannedAnswers(plan.domain, answers)
    assert part_cost(plan, measured) == Fraction(2, 7)
    noise = DiscreteLaplace(answers[0].mechanism.scale * Fraction(9, 10))
    quiet = replace(measured, answers=(replace(answers[0], mechanism=noise), *answers[1:]))
    with pytest.raises(OutputError, match="cost another amount"):
        part_cost(plan, quiet)
