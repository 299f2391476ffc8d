"""Any product query from stored residual answers, against dense generalized least squares."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from das.confidential import Confidential
from das.errors import SchemaError
from das.mechanisms.entropy import NoiseKey, Streams
from das.queries.query import parse_query
from das.queries.sensitivity import Neighbors
from das.schema import Attribute, Schema
from das.synthesis.measure import measure_plan
from das.synthesis.records import Domain, Records
from das.workload.plan import Method, plan_workload
from das.workload.residual.products import (
    answer_product,
    product_covariances,
    product_variances,
    read_residuals,
)
from das.workload.workload import AttributeWorkload, Workload

NAMES, SIZES = ("sex", "age", "job", "race"), (2, 5, 4, 3)
SCHEMA = Schema("s", tuple(Attribute(n, tuple(f"{n[0]}{i}" for i in range(m))) for n, m in zip(NAMES, SIZES, strict=True)))  # fmt: skip
GROUPS = np.array([[1, 1, 0, 0], [0, 0, 1, 1]])  # all that is asked of job
TABLES = [("sex", "age"), ("age", "job"), ("sex", "race"), ("sex", "age", "job")]
TEXTS = [
    "total", "sex", "age", "prefix(age)", "sex * prefix(age)", "race * sex", "ranges(age) * sex",
    "sex * age * job[j0..j1, j2..j3]", "age[a0..a2] * job[j0..j1]", "age where sex=s1",
]  # fmt: skip


def workload(bases: bool) -> Workload:
    attributes = [AttributeWorkload.identity(n, m) for n, m in zip(NAMES, SIZES, strict=True)]
    attributes[2] = AttributeWorkload.from_matrix("job", GROUPS)
    if bases:
        attributes[1] = AttributeWorkload.prefix("age", 5)
    return Workload.of_marginals(attributes, TABLES)


def exact_plan(bases, neighbors=Neighbors.UNBOUNDED, rho=Fraction(1, 2)):
    return plan_workload(workload(bases), Method.ORP, neighbors=neighbors).measure_exactly(rho)


def stated(answers):
    return [(one.query, float(one.mechanism.continuous_variance), one.answers) for one in answers]


def stored(plan, records, seed):
    answers = measure_plan(Confidential(records), plan, Streams(NoiseKey.for_testing(seed)))
    return read_residuals(NAMES, stated(answers))


def records(n=500):
    rng = np.random.default_rng(5)
    return Records(Domain(NAMES, SIZES), np.stack([rng.integers(0, m, n) for m in SIZES], 1))


def matrix(query):
    return query.columns(np.arange(SCHEMA.size)).astype(float)


def dense(plan):
    """Rows and noise variances of all measured answers, float64[r, n] and float64[r]."""
    queries = list(plan.queries())
    noise = [np.full(q.query.size, float(q.mechanism.continuous_variance)) for q in queries]
    return np.concatenate([matrix(q.query) for q in queries]), np.concatenate(noise)


@pytest.mark.parametrize("bases", [False, True])
@pytest.mark.parametrize("neighbors", Neighbors)
def test_answers_and_covariances_are_those_of_generalized_least_squares(bases, neighbors):
    plan = exact_plan(bases, neighbors)
    answers = measure_plan(Confidential(records()), plan, Streams(NoiseKey.for_testing(1)))
    # The order of the queries must not matter: they come from a file.
    mixed = [answers[i] for i in np.random.default_rng(2).permutation(len(answers)).tolist()]
    residuals = read_residuals(NAMES, stated(mixed))
    rows, noise = dense(plan)
    y = np.concatenate([one.answers for one in answers])
    information = np.linalg.pinv(rows.T @ (rows / noise[:, None]), rcond=1e-10)
    best = information @ rows.T @ (y / noise)
    parsed = [parse_query(SCHEMA, text) for text in TEXTS]
    for query in parsed:
        q = matrix(query)
        covariance = q @ information @ q.T
        assert answer_product(residuals, query) == pytest.approx(q @ best, rel=1e-6, abs=1e-5)
        assert product_variances(residuals.plan, query) == pytest.approx(np.diag(covariance))
        for other in parsed:
            want = q @ information @ matrix(other).T
            found = product_covariances(residuals.plan, query, other)
            assert found == pytest.approx(want, rel=1e-6, abs=1e-6)


def test_answers_agree_with_the_tables_of_the_planner():
    plan, data = exact_plan(True), records()
    answers = measure_plan(Confidential(data), plan, Streams(NoiseKey.for_testing(3)))
    found = answer_product(stored(plan, data, 3), parse_query(SCHEMA, "sex * prefix(age)"))
    want = plan.answer([one.answers for one in answers], ["sex", "age"])
    assert found == pytest.approx(want.ravel(), rel=1e-6)


def scores(factor, n=400):
    """z scores of 400 independent releases, their variance divided by a factor."""
    plan, data, query = exact_plan(True), records(), parse_query(SCHEMA, "sex * prefix(age)")
    truth = data.answer(query)
    errors = np.array(
        [answer_product(stored(plan, data, seed), query) - truth for seed in range(n)]
    )
    variances = product_variances(stored(plan, data, 0).plan, query) / factor
    return errors.mean(0) / np.sqrt(variances / n), (errors**2).sum(0) / variances


def is_refused(bias, squares, n=400):
    """4.5 standard deviations in 10 answers: a right program is refused once in 10,000 times."""
    return bool((np.abs(bias) > 4.5).any() or (np.abs(squares - n) > 4.5 * np.sqrt(2 * n)).any())


def test_errors_of_repeated_releases_are_unbiased_and_as_large_as_stated():
    bias, squares = scores(1.0)
    assert not is_refused(bias, squares)
    # The power: standard errors 20 % too small, or a bias of a third of one, would be seen.
    assert is_refused(bias, squares * 1.44)
    assert is_refused(bias + np.sqrt(400) / 3, squares)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("job", "not determined by what was measured"),
        ("age * job[j1]", "levels of job that its `bases` do not tell apart"),
        ("race * age", "asks for a marginal that was not planned; got race * age"),
        ("detailed", "was not planned"),
    ],
)
def test_queries_that_the_measurements_do_not_determine_are_refused(text, message):
    residuals = stored(exact_plan(False), records(), 1)
    query = parse_query(SCHEMA, text)
    message = message.replace("race * age", "age * race")
    for work in (
        lambda: answer_product(residuals, query),
        lambda: product_variances(residuals.plan, query),
        lambda: product_covariances(residuals.plan, query, query),
    ):
        with pytest.raises(SchemaError, match=message.replace("*", r"\*")):
            work()


def test_a_missing_or_foreign_query_is_refused():
    plain, based = (
        [
            (one.query, 1.0, np.zeros(one.query.size, np.int64))
            for one in exact_plan(bases).queries()
        ]
        for bases in (False, True)
    )
    with pytest.raises(SchemaError, match="not one per subset"):
        read_residuals(NAMES, plain[1:])
    with pytest.raises(SchemaError, match="not one per subset"):
        read_residuals(NAMES, [*plain, plain[1]])
    with pytest.raises(SchemaError, match="attribute age: has two different"):
        read_residuals(NAMES, [*plain[:5], *based[5:]])
