"""From answers back to cells, and queries of schemas of which no array is as large."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from das.errors import SchemaError
from das.queries.query import is_refinement, of_answers, parse_query
from das.schema import Attribute, Schema
from tests.builders.strategies import marginals, queries, schemas


@given(st.data())
def test_cells_of_answers_are_those_that_count_in_them(data):
    schema = data.draw(schemas())
    query, cells = data.draw(marginals(schema)), np.arange(schema.size)
    rows = query.rows_of(cells)
    some = np.array(sorted(data.draw(st.sets(st.sampled_from(rows.tolist())))), np.int64)
    assert query.cells_of(some).tolist() == cells[np.isin(rows, some)].tolist()
    assert query.first_cells(some).tolist() == [cells[rows == row].min() for row in some]


@given(st.data())
def test_a_coarse_query_of_the_answers_of_a_fine_one(data):
    schema = data.draw(schemas())
    fine, coarse = data.draw(marginals(schema)), data.draw(marginals(schema))
    if not is_refinement(fine, coarse):
        coarse = parse_query(schema, "total")
    within, cells = of_answers(coarse, fine), np.arange(schema.size)
    assert within.n_cells == fine.size
    assert np.array_equal(within.rows_of(fine.rows_of(cells)), coarse.rows_of(cells))


@given(st.data())
def test_what_is_applied_by_distinct_columns_is_what_is_applied_by_all(data):
    schema = data.draw(schemas())
    query = data.draw(queries(schema))
    cells = np.array(sorted(data.draw(st.sets(st.integers(0, schema.size - 1), min_size=1))))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x, y = rng.integers(-9, 9, (2, len(cells))), rng.integers(-9, 9, (2, query.size))
    plain = query.gram_times(cells, x.astype(float)), query.adjoint(y, cells)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("das.queries.query._NUMBERS", 0)
        few = query.gram_times(cells, x.astype(float)), query.adjoint(y, cells)
    for one, other in zip(plain, few, strict=True):
        assert np.array_equal(one, other)  # of integers


LARGE = Schema(
    "large",
    tuple(
        Attribute(name, tuple(map(str, range(n))))
        for name, n in (("a", 500), ("b", 500), ("c", 340))
    ),
)


def test_queries_of_85_million_cells_hold_no_array_over_them():
    cells = np.linspace(0, LARGE.size - 1, 1_000).astype(np.int64)
    query = parse_query(LARGE, "a * prefix(c)")
    tracemalloc.start()
    try:
        query.gram_times(cells, np.ones((1, 1_000)))
        query.adjoint(np.ones((1, query.size)), cells)
        parse_query(LARGE, "a * c").cells_of(np.arange(100))
        largest = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert LARGE.size == 85_000_000
    assert largest < LARGE.size / 4


def test_a_query_that_has_a_column_for_every_cell_is_refused():
    cells = np.arange(3)
    with pytest.raises(SchemaError, match="too many distinct columns"):
        parse_query(LARGE, "a * b * prefix(c)").gram_times(cells, np.ones((1, 3)))
