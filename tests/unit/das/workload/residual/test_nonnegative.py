"""Nonnegative tables against nonnegative least squares over the prices of all cells."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import nnls

from das.queries.factor import Factor, identity, total
from das.queries.query import Query
from das.workload.plan import Method, plan_workload
from das.workload.residual.nonnegative import nonnegative_answers
from das.workload.residual.products import answer_product, read_residuals
from das.workload.residual.reconstruction import ResidualAnswers
from das.workload.workload import AttributeWorkload, Workload

SIZES = {"age": 4, "sex": 2, "group": 3}
TABLES = [["age", "sex"], ["sex", "group"], ["sex"], []]
AGES = {
    "plain": AttributeWorkload.identity("age", 4),
    "prefix": AttributeWorkload.prefix("age", 4),
    # The last two ages are never told apart.
    "merged": AttributeWorkload.from_matrix("age", np.array([[1, 0, 0, 0], [1, 1, 1, 1]])),
}


def noisy(age: str, seed: int) -> ResidualAnswers:
    """Answers of an almost empty table, with real noise of the planned size."""
    attributes = [AGES[age], *(AttributeWorkload.identity(n, SIZES[n]) for n in ("sex", "group"))]
    plan = plan_workload(Workload.of_marginals(attributes, TABLES), Method.ORP)
    exact = plan.measure_exactly(Fraction(1, 50))
    rng = np.random.default_rng(seed)
    truth = (rng.random(24) < 0.2) * rng.integers(1, 30, 24)
    measured = []
    for one in exact.queries():
        rows = one.query.columns(np.arange(24))
        spread = float(one.mechanism.continuous_variance)
        answers = rows @ truth + rng.normal(0, spread**0.5, len(rows))
        measured.append((one.query, spread, answers))
    return read_residuals(list(SIZES), measured)


def table(names: list[str], age: str) -> Query:
    """Cells of a table; ages in their groups."""
    factors = []
    for name, size in SIZES.items():
        levels = tuple(map(str, range(size)))
        rows = identity(levels)
        if (name, age) == ("age", "merged"):
            rows = Factor(np.array([[1, 0, 0, 0], [0, 1, 1, 1]]), ("0", "more"))
        factors.append(rows if name in names else total(levels))
    return Query(" * ".join(names) or "total", tuple(factors))


@pytest.mark.parametrize("is_public", [False, True], ids=["unbounded", "bounded"])
@pytest.mark.parametrize("age", AGES)
def test_answers_are_the_nearest_with_no_negative_cell(age, is_public):
    for seed in range(3):
        given = noisy(age, seed)
        if is_public:
            noise, values = given.plan.noise.copy(), given.values.copy()
            noise[0], values[0] = 0.0, 40.0
            given = ResidualAnswers(replace(given.plan, noise=noise), values)
        queries = [table(names, age) for names in TABLES]

        def cells(values, queries=queries, given=given):
            answers = replace(given, values=values)
            return np.concatenate([answer_product(answers, query) for query in queries])

        decoder = np.stack([cells(unit) for unit in np.eye(len(given.values))], axis=1)
        spread = np.sqrt(np.repeat(given.plan.noise, np.diff(given.starts)))
        assert (decoder @ given.values).min() < 0
        # min |A p - b|^2 / 2 over p >= 0 is the dual program; y = z + noise D'p.
        # The exact answer enters the linear term alone: as if its noise were tiny.
        at_least = np.maximum(spread, 1e-5)
        prices, _ = nnls(at_least[:, None] * decoder.T, -given.values / at_least)
        best = decoder @ (given.values + spread**2 * (decoder.T @ prices))
        members = [[[*SIZES].index(name) for name in names] for names in TABLES]
        found = decoder @ nonnegative_answers(given, members).values
        assert found.min() >= -1e-9
        assert found == pytest.approx(best, abs=0.02)


def test_nothing_changes_where_no_cell_is_negative():
    given = noisy("plain", 1)
    values = given.values.copy()
    values[:] = 0.0
    values[0] = 240.0
    given = replace(given, values=values)
    assert nonnegative_answers(given, [[0, 1], [1, 2]]).values == pytest.approx(values)


def test_a_table_below_zero_becomes_empty():
    given = noisy("plain", 1)
    values = np.zeros_like(given.values)
    values[0] = -500.0
    found = nonnegative_answers(replace(given, values=values), [[0, 1], [1, 2]])
    assert answer_product(found, table(["age", "sex"], "plain")) == pytest.approx(0, abs=1e-6)
