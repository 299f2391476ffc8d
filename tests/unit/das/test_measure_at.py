"""measure_at(): some answers alone, with the law, the streams and the truth of those answers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from das.confidential import Confidential
from das.errors import BudgetError, SchemaError
from das.measure import Part, measure, measure_at
from das.mechanisms.entropy import NoiseKey
from das.mechanisms.gaussian import DiscreteGaussian
from das.queries.query import parse_query
from das.schema import Attribute, Recode, Schema
from tests.builders.histograms import from_dense
from tests.builders.streams import stream

AGE = Attribute("age", ("0", "1", "2"))
SCHEMA = Schema(
    "s", (Attribute("sex", ("f", "m")), AGE), (Recode("grown", "age", ("n", "y"), (0, 1, 1)),)
)
COUNTS = np.arange(18).reshape(3, 6) % 7
HELD = from_dense(COUNTS)
KEY = NoiseKey.for_testing(3)
QUERIES = ("total", "sex", "sex * grown", "age", "detailed")


def laws(n: int, sigma_sq: Fraction = Fraction(50)) -> tuple[DiscreteGaussian, ...]:
    return (DiscreteGaussian(sigma_sq),) * n


def drawn(name: str, rows: slice, positions: list[int], key: NoiseKey = KEY) -> np.ndarray:
    numbers = range(3)[rows]
    part = Part(rows, np.array(positions, np.int64))
    query = parse_query(SCHEMA, name)
    found = measure_at(
        Confidential(HELD),
        query,
        part,
        mechanisms=laws(len(numbers)),
        stream=stream(key, numbers),
    )
    return found.answers


@pytest.mark.parametrize("name", QUERIES)
def test_some_true_answers_are_those_columns_of_all(name):
    query = parse_query(SCHEMA, name)
    whole = query.answer(HELD)
    for positions in (np.arange(query.size), np.arange(0, query.size, 2), np.arange(0)):
        assert np.array_equal(query.answer_at(HELD, positions), whole[:, positions])


@pytest.mark.parametrize("name", QUERIES)
def test_where_all_is_drawn_it_is_what_measure_draws(name):
    query = parse_query(SCHEMA, name)
    whole = measure(Confidential(HELD), query, mechanisms=laws(3), stream=stream(KEY, 3))
    assert np.array_equal(drawn(name, slice(0, 3), list(range(query.size))), whole.answers)


def test_draws_of_a_stream_go_to_the_positions_in_order():
    whole = drawn("detailed", slice(0, 3), list(range(6))) - COUNTS
    some = drawn("detailed", slice(1, 3), [2, 5]) - COUNTS[1:][:, [2, 5]]
    assert np.array_equal(some, whole[1:, :2])
    assert whole.any()


def test_noise_has_the_law_of_the_mechanism():
    """Second and fourth moments of 40,000 draws, six deviations wide."""
    n = 40_000
    held = Confidential(from_dense(np.ones((n // 4, 6), np.int64)))
    part = Part(slice(0, n // 4), np.array([0, 2, 3, 5]))
    query = parse_query(SCHEMA, "detailed")
    noise = measure_at(
        held, query, part, mechanisms=laws(1) * (n // 4), stream=stream(KEY, n // 4)
    ).answers.ravel()
    z = (noise - 1) / 50**0.5
    assert abs(z.mean()) < 6 / n**0.5
    assert abs((z**2).mean() - 1) < 6 * (2 / n) ** 0.5
    assert abs((z**4).mean() - 3) < 6 * (96 / n) ** 0.5
    assert abs((z[::4] * z[1::4]).mean()) < 6 / (n / 4) ** 0.5


def test_what_does_not_fit_is_refused():
    query = parse_query(SCHEMA, "prefix(age)")
    with pytest.raises(SchemaError, match="not a partition"):
        query.answer_at(HELD, np.arange(1))
    other = from_dense(np.ones((1, 4), np.int64))
    with pytest.raises(SchemaError, match="another schema"):
        parse_query(SCHEMA, "sex").answer_at(other, np.arange(1))
    part = Part(slice(0, 3), np.arange(1))
    with pytest.raises(BudgetError, match="one row and one mechanism"):
        measure_at(
            Confidential(HELD),
            parse_query(SCHEMA, "sex"),
            part,
            mechanisms=laws(2),
            stream=stream(KEY, 2),
        )
