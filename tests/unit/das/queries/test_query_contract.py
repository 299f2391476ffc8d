"""Every kind of query, under both neighbor relations, keeps the promises of a query."""

from __future__ import annotations

import itertools
import pickle
from fractions import Fraction

import numpy as np
import pytest

from das.confidential import Confidential
from das.errors import SchemaError
from das.measure import measure
from das.mechanisms.entropy import NoiseKey
from das.mechanisms.gaussian import DiscreteGaussian
from das.privacy.budget import Budget
from das.queries.factor import Factor
from das.queries.query import Query, is_refinement, kronecker, marginal, parse_query
from das.queries.sensitivity import Neighbors, l1_sensitivity, l2_sensitivity_sq
from das.schema import Attribute, Recode, Schema
from tests.builders.histograms import from_dense
from tests.builders.strategies import dense_matrix, query_mechanism
from tests.builders.streams import stream

SEX = Attribute("sex", ("f", "m"))
AGE = Attribute("age", ("0", "1", "2", "3"))
TENURE = Attribute("tenure", ("own", "rent", "none"))
HALF = Recode.from_groups("half", AGE, {"young": ("0", "1"), "old": ("2", "3")})
ODD = Recode.from_groups("odd", AGE, {"odd": ("1", "3"), "even": ("0", "2")})
SCHEMA = Schema("s", (SEX, AGE, TENURE), (HALF, ODD))


def general(*matrices) -> Query:
    factors = []
    for matrix in matrices:
        rows = np.array(matrix, np.int64)
        factors.append(Factor(rows, tuple(f"row{i}" for i in range(len(rows)))))
    return Query("general", tuple(factors))


ALL_LEVELS = [[1, 1]]
QUERIES = {
    "total": parse_query(SCHEMA, "total"),
    "detailed": parse_query(SCHEMA, "detailed"),
    "marginal": marginal(SCHEMA, ("tenure", "sex")),
    "recode": marginal(SCHEMA, ("half",)),
    "crossing recode": marginal(SCHEMA, ("odd", "sex")),
    "prefix": parse_query(SCHEMA, "prefix(age)"),
    "ranges": parse_query(SCHEMA, "tenure * ranges(age)"),
    "residual": parse_query(SCHEMA, "residual(sex) * residual(age)"),
    "contrasts": parse_query(SCHEMA, "contrasts(tenure) * sex"),
    "prefix of a recode": parse_query(SCHEMA, "prefix(half) * residual(sex)"),
    "of a user": kronecker(SCHEMA, "of a user", [("odd", Factor(np.array([[2, -3]]), ("row",)))]),
    "intervals": general(
        [[1, 0]], [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]], np.eye(3, dtype=int)
    ),
    "weights": general(ALL_LEVELS, [[0, 1, 2, 3]], [[1, 1, 1]]),
    "differences": general([[1, -1]], [[1, -1, 0, 0], [0, 0, 1, -1]], [[1, 1, 1]]),
    "empty row": general(ALL_LEVELS, [[0, 0, 0, 0], [1, 1, 1, 1]], [[1, 1, 1]]),
}
PARTITIONS = ("total", "detailed", "marginal", "recode", "crossing recode", "empty row")
COUNTS = np.arange(2 * SCHEMA.size).reshape(2, -1) % 7
TRUTH = from_dense(COUNTS)


def test_answers_are_int64_in_the_order_of_the_rows():
    for query in QUERIES.values():
        answers = query.answer(TRUTH)
        assert answers.dtype == np.int64
        assert answers.shape == (2, query.size)
        assert np.array_equal(answers, COUNTS @ dense_matrix(query).T)
        assert len(query.labels()) == query.size == np.prod(query.shape)


def test_answers_add_up_over_geounits():
    for query in QUERIES.values():
        parent = from_dense(COUNTS.sum(0, keepdims=True))
        assert np.array_equal(query.answer(TRUTH).sum(0), query.answer(parent)[0])


def test_answers_of_a_slice_are_a_slice_of_the_answers():
    for query in QUERIES.values():
        assert np.array_equal(query.answer(TRUTH.slice(1, 2)), query.answer(TRUTH)[1:2])


def test_only_partitions_say_in_which_row_a_cell_counts():
    for name in QUERIES:
        query, cells = QUERIES[name], np.arange(SCHEMA.size)
        assert query.is_partition == (name in PARTITIONS)
        if query.is_partition:
            assert np.array_equal(query.rows_of(cells), dense_matrix(query).argmax(0))
        else:
            with pytest.raises(SchemaError):
                query.rows_of(cells)


def test_queries_travel_between_processes():
    for query in QUERIES.values():
        copy = pickle.loads(pickle.dumps(query))
        assert copy.name == query.name
        assert np.array_equal(dense_matrix(copy), dense_matrix(query))
        assert np.array_equal(copy.answer(TRUTH), query.answer(TRUTH))


def test_detailed_refines_partitions_and_partitions_refine_total():
    for name in QUERIES:
        query = QUERIES[name]
        assert is_refinement(QUERIES["detailed"], query) == query.is_partition
        assert is_refinement(query, QUERIES["total"]) == query.is_partition


def neighboring_pairs(neighbors: Neighbors):
    """Pairs of dense tables of two geounits that differ by one record, from a table with one."""
    blank = np.zeros((2, SCHEMA.size), np.int64)
    for cell in range(SCHEMA.size):
        before = blank.copy()
        before[0, cell] = 1
        if neighbors is Neighbors.UNBOUNDED:
            yield before, blank
            continue
        for place in range(2):
            for other in range(SCHEMA.size):
                after = blank.copy()
                after[place, other] = 1
                yield before, after


def test_the_sensitivity_is_the_most_that_a_neighbor_moves_the_answers():
    for neighbors, query in itertools.product(list(Neighbors), QUERIES.values()):
        matrix = dense_matrix(query).T
        moves = [
            abs((before - after) @ matrix).ravel() for before, after in neighboring_pairs(neighbors)
        ]
        assert max(int(move @ move) for move in moves) == l2_sensitivity_sq(query, neighbors)
        assert max(int(move.sum()) for move in moves) == l1_sensitivity(query, neighbors)


def test_the_noise_costs_exactly_what_is_paid():
    for neighbors, query in itertools.product(list(Neighbors), QUERIES.values()):
        budget = Budget(Fraction(5, 3), Fraction(1, 10**10), neighbors)
        rho = Fraction(7, 1000)
        sigma_sq = query_mechanism(budget, query, rho).sigma_sq
        assert isinstance(sigma_sq, Fraction)
        assert l2_sensitivity_sq(query, neighbors) / (2 * sigma_sq) == rho


def test_measuring_adds_noise_that_does_not_depend_on_the_truth():
    for query in QUERIES.values():
        key, laws = NoiseKey.for_testing(3), (DiscreteGaussian(Fraction(9)),) * 2
        other = from_dense(COUNTS[::-1] * 5)
        noises = []
        for truth in (TRUTH, other):
            result = measure(Confidential(truth), query, mechanisms=laws, stream=stream(key, 2))
            assert result.answers.shape == (2, query.size)
            noises.append(result.answers - query.answer(truth))
        assert np.array_equal(*noises)
