"""Queries are what their Kronecker matrices say, in every answer, label and sensitivity."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from das.queries.factor import FUNCTIONS
from das.queries.query import Query, is_refinement, marginal, parse_query
from das.queries.sensitivity import Neighbors, l1_sensitivity, l2_sensitivity_sq
from das.schema import Attribute, Schema
from tests.builders.histograms import from_dense
from tests.builders.strategies import (
    cells_in_order,
    dense_counts,
    dense_matrix,
    general_queries,
    marginals,
    queries,
    schemas,
)


@st.composite
def _texts(draw, schema):
    """Terms in any order and spacing, with functions of attributes and recodes."""
    terms = []
    for attribute in schema.attributes:
        sizes = {None: 0, attribute.name: attribute.size}
        sizes |= {r.name: len(r.groups) for r in schema.recodes if r.attribute == attribute.name}
        name = draw(st.sampled_from(list(sizes)))
        one = ["prefix", "ranges"]  # residuals need two levels
        function = draw(st.sampled_from(["", *(FUNCTIONS if sizes[name] > 1 else one)]))
        if name:
            terms.append(f"{function} ( {name})" if function else name)
    return "* ".join(draw(st.permutations(terms))) or "total"


@st.composite
def _mixed(draw, schema):
    """Some factors of a text, some of a marginal, some of any integers."""
    parts = (
        parse_query(schema, draw(_texts(schema))),
        draw(marginals(schema)),
        draw(general_queries(schema)),
    )
    factors = zip(*(query.factors for query in parts), strict=True)
    return Query("mixed", tuple(draw(st.sampled_from(three)) for three in factors))


def _any_query(schema):
    return st.one_of(
        queries(schema), _texts(schema).map(partial(parse_query, schema)), _mixed(schema)
    )


@st.composite
def _asked(draw, kind=_any_query):
    schema = draw(schemas())
    return schema, draw(kind(schema)), draw(dense_counts(schema.size))


@given(_asked())
def test_answers_are_those_of_the_dense_matrix(asked):
    _, query, counts = asked
    matrix = dense_matrix(query)
    assert (query.size, query.n_cells) == matrix.shape
    assert np.array_equal(query.answer(from_dense(counts)), counts @ matrix.T)


@given(_asked(), st.data())
def test_columns_are_those_of_the_dense_matrix(asked, data):
    schema, query, _ = asked
    drawn = data.draw(st.lists(st.integers(0, schema.size - 1), min_size=1, max_size=6))
    cells = np.array(drawn, np.int64)
    assert np.array_equal(query.columns(cells), dense_matrix(query)[:, cells])


@given(_asked(), st.data())
def test_gram_and_pull_are_those_of_the_dense_matrix(asked, data):
    schema, query, counts = asked
    drawn = data.draw(st.lists(st.integers(0, schema.size - 1), min_size=1, max_size=6))
    cells = np.array(drawn, np.int64)
    matrix = dense_matrix(query).astype(float)
    assert np.array_equal(query.gram(cells), (matrix.T @ matrix)[np.ix_(cells, cells)])
    answers = query.answer(from_dense(counts)) - 3
    assert np.array_equal(query.adjoint(answers, cells), (answers @ matrix)[:, cells])


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
    answers = query.answer(from_dense(counts)).sum(0)
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


@given(_asked(_texts), st.randoms(use_true_random=False))
def test_a_text_has_one_name_whatever_its_order(asked, random):
    schema, text, counts = asked
    query = parse_query(schema, text)
    terms = text.split("*")
    random.shuffle(terms)
    for other in ("*".join(terms), query.name):
        again = parse_query(schema, other)
        assert again.name == query.name
        assert np.array_equal(dense_matrix(again), dense_matrix(query))
    labels = query.labels()
    assert len(labels) == len(set(labels)) == query.size


def _intervals(table):
    n = table.shape[-1]
    sums = [table[..., i : j + 1].sum(-1) for i in range(n) for j in range(i, n)]
    return np.stack(sums, axis=-1)


NAIVE = {
    "": lambda table: table,
    "prefix": lambda table: table.cumsum(-1),
    "ranges": _intervals,
    "residual": lambda table: table.shape[-1] * table - table.sum(-1, keepdims=True),
    "contrasts": lambda table: table[..., :1] - table[..., 1:],
}


@given(_asked(_texts))
def test_a_function_acts_on_the_marginal_of_its_names(asked):
    schema, text, counts = asked
    histograms = from_dense(counts)
    function_of = {}
    for term in text.replace(")", "").split("*") if text != "total" else ():
        function, _, name = ("(" * ("(" not in term) + term).partition("(")
        function_of[name.strip()] = function.strip()
    counted = marginal(schema, list(function_of))
    table = counted.answer(histograms).reshape(len(counts), *counted.shape)
    owners = {r.name: r.attribute for r in schema.recodes}
    for name, function in function_of.items():
        axis = 1 + [a.name for a in schema.attributes].index(owners.get(name, name))
        table = np.moveaxis(NAIVE[function](np.moveaxis(table, axis, -1)), -1, axis)
    answers = parse_query(schema, text).answer(histograms)
    assert np.array_equal(answers, table.reshape(len(counts), -1))


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
        ours = marginal(schema, axes).answer(from_dense(counts))
        theirs = marginal(recoded, axes).answer(from_dense(moved))
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


@given(_asked(marginals))
def test_sensitivity_of_a_partition_is_one_or_two(asked):
    _, query, _ = asked
    for sensitivity in (l1_sensitivity, l2_sensitivity_sq):
        assert sensitivity(query, Neighbors.UNBOUNDED) == 1
        assert sensitivity(query, Neighbors.BOUNDED) == 2
