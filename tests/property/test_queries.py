"""Queries are what their Kronecker matrices say, in every answer, label and sensitivity."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from das.histograms import Histograms
from das.queries.query import is_refinement, marginal, parse_query
from das.queries.sensitivity import Neighbors, l2_sensitivity_sq, max_abs_row_sum
from das.schema.schema import Attribute, Schema
from tests.strategies import (
    cells_in_order,
    dense_counts,
    dense_matrix,
    general_queries,
    marginals,
    queries,
    schemas,
)


@st.composite
def _asked(draw, kind=queries):
    schema = draw(schemas())
    return schema, draw(kind(schema)), draw(dense_counts(schema.size))


@given(_asked())
def test_answers_are_those_of_the_dense_matrix(asked):
    _, query, counts = asked
    assume(counts.any() or query.is_partition)
    matrix = dense_matrix(query)
    assert (query.size, query.n_cells) == matrix.shape
    assert np.array_equal(query.answer(Histograms.from_dense(counts)), counts @ matrix.T)


@given(_asked(), st.data())
def test_columns_are_those_of_the_dense_matrix(asked, data):
    schema, query, _ = asked
    drawn = data.draw(st.lists(st.integers(0, schema.size - 1), min_size=1, max_size=6))
    cells = np.array(drawn, np.int64)
    assert np.array_equal(query.columns(cells), dense_matrix(query)[:, cells])


@given(_asked(marginals))
def test_a_marginal_counts_every_cell_once(asked):
    schema, query, _ = asked
    matrix = dense_matrix(query)
    assert query.is_partition
    assert (matrix.sum(0) == 1).all()
    assert np.array_equal(query.rows_of(np.arange(schema.size)), matrix.argmax(0))


@given(_asked(marginals))
def test_a_marginal_is_the_naive_sum_by_labels(asked):
    """Walk over all cells with their labels, and count under the label of the answer."""
    schema, query, counts = asked
    kept = [] if query.name == "total" else query.name.split(" * ")
    if query.name == "detailed":
        kept = [attribute.name for attribute in schema.attributes]
    recodes = {recode.name: recode for recode in schema.recodes}
    expected = {tuple(label): 0 for label in _label_tuples(schema, kept, recodes)}
    for cell, positions in enumerate(cells_in_order(schema)):
        label = []
        for axis, attribute in enumerate(schema.attributes):
            for name in kept:
                if name == attribute.name:
                    label.append(attribute.levels[positions[axis]])
                elif name in recodes and recodes[name].attribute == attribute.name:
                    label.append(recodes[name].groups[recodes[name].codes[positions[axis]]])
        expected[tuple(label)] += int(counts[:, cell].sum())
    answers = query.answer(Histograms.from_dense(counts)).sum(0)
    assert answers.tolist() == list(expected.values())


def _label_tuples(schema, kept, recodes):
    parts = []
    for attribute in schema.attributes:
        for name in kept:
            if name == attribute.name:
                parts.append(attribute.levels)
            elif name in recodes and recodes[name].attribute == attribute.name:
                parts.append(recodes[name].groups)
    return itertools.product(*parts)


@given(_asked(marginals))
def test_labels_name_the_answers(asked):
    _, query, _ = asked
    labels = query.labels()
    assert len(labels) == query.size
    assert len(set(labels)) == query.size
    parts = [factor.labels for factor in query.factors if factor.kind != "total"]
    expected = [" / ".join(label) for label in itertools.product(*parts)]
    assert labels == (expected if parts else ["total"])


@given(_asked(marginals))
def test_the_name_parses_to_the_same_query(asked):
    schema, query, _ = asked
    again = parse_query(schema, query.name)
    assert again.name == query.name
    assert np.array_equal(dense_matrix(again), dense_matrix(query))


@given(_asked(marginals))
def test_recode_then_marginal_is_the_marginal_of_the_recoded(asked):
    """Count the recoded histogram over a schema whose attributes are the groups."""
    schema, _, counts = asked
    if not schema.recodes:
        return
    recode = schema.recodes[0]
    axis = [a.name for a in schema.attributes].index(recode.attribute)
    attributes = list(schema.attributes)
    attributes[axis] = Attribute(recode.name, recode.groups)
    recoded = Schema("recoded", tuple(attributes))
    codes = schema.codes_of(np.arange(schema.size))
    codes[recode.name] = np.array(recode.codes)[codes[recode.attribute]]
    cells = recoded.cells_of(codes)
    moved = np.zeros((len(counts), recoded.size), np.int64)
    np.add.at(moved.T, cells, counts.T)
    others = [a.name for a in schema.attributes if a.name != recode.attribute]
    for axes in ([recode.name], [recode.name, *others], others):
        ours = marginal(schema, axes).answer(Histograms.from_dense(counts))
        theirs = marginal(recoded, axes).answer(Histograms.from_dense(moved))
        assert np.array_equal(ours, theirs)


@st.composite
def _two_marginals(draw):
    schema = draw(schemas())
    return draw(marginals(schema)), draw(marginals(schema))


@given(_two_marginals())
def test_refinement_means_that_coarse_answers_are_sums_of_fine_ones(pair):
    fine, coarse = pair
    pairs = set(zip(dense_matrix(fine).argmax(0), dense_matrix(coarse).argmax(0), strict=True))
    each_fine_answer_has_one_coarse = len(pairs) == len({f for f, _ in pairs})
    assert is_refinement(fine, coarse) is each_fine_answer_has_one_coarse


def brute_force_sensitivity_sq(matrix: np.ndarray, neighbors: Neighbors) -> int:
    """Largest squared move of the answers of two geounits, over all neighboring pairs."""
    columns = [np.array(column) for column in matrix.T]
    nothing = np.zeros(matrix.shape[0], np.int64)
    if neighbors is Neighbors.UNBOUNDED:
        moves = [(column, nothing) for column in columns]
    else:
        within = [(a - b, nothing) for a in columns for b in columns]
        across = [(a, -b) for a in columns for b in columns]
        moves = within + across
    return max(int(first @ first + second @ second) for first, second in moves)


@given(_asked())
def test_sensitivity_is_an_upper_bound_for_every_neighbor(asked):
    _, query, _ = asked
    for neighbors in Neighbors:
        worst = brute_force_sensitivity_sq(dense_matrix(query), neighbors)
        assert l2_sensitivity_sq(query, neighbors) >= worst


@st.composite
def _nonnegative(draw):
    schema = draw(schemas())
    return draw(st.one_of(marginals(schema), general_queries(schema, least=0)))


@given(_nonnegative())
def test_sensitivity_is_exact_without_negative_entries(query):
    for neighbors in Neighbors:
        worst = brute_force_sensitivity_sq(dense_matrix(query), neighbors)
        assert l2_sensitivity_sq(query, neighbors) == worst


@given(_asked())
def test_sensitivity_to_adding_a_record_is_exact_for_all_queries(asked):
    _, query, _ = asked
    worst = brute_force_sensitivity_sq(dense_matrix(query), Neighbors.UNBOUNDED)
    assert l2_sensitivity_sq(query, Neighbors.UNBOUNDED) == worst


@given(_asked(marginals))
def test_sensitivity_of_a_partition_is_one_or_two(asked):
    _, query, _ = asked
    assert l2_sensitivity_sq(query, Neighbors.UNBOUNDED) == 1
    assert l2_sensitivity_sq(query, Neighbors.BOUNDED) == 2


@given(_asked())
def test_largest_row_sum(asked):
    _, query, _ = asked
    assert max_abs_row_sum(query) == np.abs(dense_matrix(query)).sum(1).max()
