"""Records answer product queries exactly."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from das.errors import SchemaError
from das.queries.factor import Factor
from das.queries.query import Query
from das.synthesis.records import Domain, Records

DOMAIN = Domain(("a", "b", "c"), (2, 3, 4))


def records(n: int = 50, seed: int = 1) -> Records:
    rng = np.random.default_rng(seed)
    return Records(DOMAIN, np.stack([rng.integers(0, size, n) for size in DOMAIN.sizes], axis=1))


def some_query(*matrices) -> Query:
    factors = [Factor(m, tuple(map(str, range(len(m))))) for m in map(np.asarray, matrices)]
    return Query("q", tuple(factors))


def test_a_marginal_counts_records():
    data = records()
    table = data.marginal((2, 0))
    assert table.shape == (4, 2)
    for c, a in itertools.product(range(4), range(2)):
        assert table[c, a] == ((data.codes[:, 2] == c) & (data.codes[:, 0] == a)).sum()
    assert data.marginal(()) == 50


@pytest.mark.parametrize(
    "matrices",
    [
        ([[1, 1]], [[1, 1, 1]], [[1, 1, 1, 1]]),
        ([[1, -1]], [[1, 1, 1]], [[3, -1, -1, -1], [-1, 3, -1, -1]]),
        ([[1, 0], [0, 1]], [[2, -1, -1], [-1, 2, -1], [0, 1, 1]], [[1, 1, 0, 0]]),
    ],
)
def test_answers_are_those_of_the_dense_matrix(matrices):
    data = records()
    query = some_query(*matrices)
    dense = np.ones((1, 1), np.int64)
    for matrix in matrices:
        dense = np.kron(dense, np.asarray(matrix))
    histogram = data.marginal((0, 1, 2)).reshape(-1)
    answers = data.answer(query)
    assert answers.dtype == np.int64
    assert answers.tolist() == (dense @ histogram).tolist()


def test_no_records_are_records():
    empty = Records(DOMAIN, np.zeros((0, 3), np.int64))
    assert empty.marginal((0, 1)).sum() == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: Domain(("a", "a"), (2, 2)),
        lambda: Domain(("a",), (2, 2)),
        lambda: Domain(("a",), (0,)),
        lambda: Domain((), ()),
        lambda: Records(DOMAIN, np.zeros((2, 2), np.int64)),
        lambda: Records(DOMAIN, np.zeros((2, 3))),
        lambda: Records(DOMAIN, np.array([[0, 3, 0]])),
        lambda: Records(DOMAIN, np.array([[0, -1, 0]])),
        lambda: DOMAIN.positions(["z"]),
        lambda: records().answer(some_query([[1, 1]], [[1, 1, 1]])),
        lambda: Records(
            Domain(("x", "y"), (1 << 14, 1 << 14)), np.zeros((1, 2), np.int64)
        ).marginal((0, 1)),
    ],
)
def test_bad_input_is_refused(make):
    with pytest.raises(SchemaError):
        make()


def test_an_error_quotes_no_code():
    with pytest.raises(SchemaError) as caught:
        Records(DOMAIN, np.array([[0, 7919, 0]]))
    assert "7919" not in str(caught.value)


def test_an_attribute_of_one_level_is_refused_and_left_out():
    with pytest.raises(SchemaError, match="remove attributes of one level"):
        Domain(("a", "state"), (2, 1))
    assert Domain(("a",), (2,)).sizes == (2,)
