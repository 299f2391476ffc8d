"""Coordinates: orthonormal, faithful to queries, and splittable."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from das.errors import SolverError
from das.queries.query import marginal, parse_query
from das.schema import Attribute, Recode, Schema
from das.tree.coordinates import Coordinates
from das.tree.model import spine_terms
from das.tree.passes import Kinds, combine, gather_evidence
from tests.builders.strategies import dense_matrix, queries, schemas


@st.composite
def spaces(draw):
    schema = draw(schemas())
    detailed = marginal(schema, [a.name for a in schema.attributes])
    measured = [*draw(st.lists(queries(schema), max_size=2)), detailed]
    return schema, Coordinates.of_queries(measured), detailed, draw(queries(schema))


@given(spaces(), st.integers(0, 2**32 - 1))
def test_answers_and_pulls_are_those_of_the_matrix(space, seed):
    """answer(adjoint_detailed(x)) = Qx and answer_detailed(adjoint(y)) = Q'y for any query."""
    schema, coordinates, detailed, query = space
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(3, schema.size)), rng.normal(size=(2, query.size))
    matrix = dense_matrix(query)
    scale = 1e-10 * max(1, np.abs(matrix).max())
    held = coordinates.adjoint(detailed, x)
    np.testing.assert_allclose(coordinates.answer(detailed, held), x, atol=1e-12)
    np.testing.assert_allclose(coordinates.answer(query, held), x @ matrix.T, atol=scale)
    adjoint = coordinates.answer(detailed, coordinates.adjoint(query, y))
    np.testing.assert_allclose(adjoint, y @ matrix, atol=scale)
    norm = sum((part**2).sum(axis=(1, 2)) for part in held)
    np.testing.assert_allclose(norm, (x**2).sum(axis=1), rtol=1e-12)
    assert coordinates.size == schema.size


@given(
    spaces(),
    st.integers(0, 2**32 - 1),
    st.sampled_from([np.int8, np.int16, np.int32, np.int64]),
    st.data(),
)
def test_whole_numbers_are_added_up_to_marginals_without_loss(space, seed, kind, data):
    """Every component alone, any of them, and all give what the same numbers as floats give.

    Answers are the largest that their type holds, so that sums in it would overflow.
    """
    _, coordinates, _, query = space
    rng = np.random.default_rng(seed)
    top = min(np.iinfo(kind).max, 2**40)
    y = rng.choice(np.array([top, top - 3, -top, 1]), size=(4, query.size)).astype(kind)
    number = len(coordinates.components.within)
    chosen = data.draw(st.sets(st.integers(0, number - 1), min_size=1))
    within = tuple(coordinates.components.within[c] for c in sorted(chosen))
    part = Coordinates(replace(coordinates.components, within=within))
    with mock.patch("das.tree.coordinates._FEW", 0):
        found = part.adjoint(query, y)
    wanted = part.adjoint(query, y.astype(np.float64))
    largest = top * max(1, np.abs(dense_matrix(query)).sum(0).max())
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-11 * largest)


def test_levels_of_one_group_are_added_up_and_others_not():
    a, b = Attribute("a", tuple("012345")), Attribute("b", tuple("xyz"))
    groups = {"low": ("0", "2", "5"), "mid": ("1", "4"), "top": ("3",)}
    schema = Schema("s", (a, b), (Recode.from_groups("r", a, groups),))
    texts = ("r", "r * b", "detailed", "prefix(a)")
    queries = [parse_query(schema, text) for text in texts]
    coordinates = Coordinates.of_queries(queries[:3])
    y = {q.name: np.arange(2 * q.size, dtype=np.int8).reshape(2, -1) ** 2 for q in queries}
    for within in coordinates.components.within:
        part = Coordinates(replace(coordinates.components, within=(within,)))
        for query in queries:
            answers = y[query.name]
            with mock.patch("das.tree.coordinates._FEW", 0):
                (found,) = part.adjoint(query, answers)
            (wanted,) = part.adjoint(query, answers.astype(np.float64))
            np.testing.assert_allclose(found, wanted, atol=1e-10)


@given(spaces(), st.integers(0, 2**32 - 1))
def test_fewer_components_hold_all_that_a_query_sees(space, seed):
    schema, coordinates, detailed, query = space
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(3, schema.size))
    part = coordinates.touched_by([query])
    held = part.select(coordinates, coordinates.adjoint(detailed, x))
    if held:
        np.testing.assert_allclose(part.answer(query, held), x @ dense_matrix(query).T, atol=1e-10)
        again = part.unflatten(part.flatten(held))
        for one, other in zip(held, again, strict=True):
            np.testing.assert_array_equal(one, other)
    else:
        assert not dense_matrix(query).any()


def test_a_total_touches_one_component_and_one_number():
    schema = Schema("s", (Attribute("a", tuple("0123")), Attribute("b", tuple("01"))))
    total, detailed = (parse_query(schema, text) for text in ("total", "detailed"))
    coordinates = Coordinates.of_queries([total, detailed])
    assert coordinates.size == 8
    assert coordinates.touched_by([total]).size == 1
    identity = tuple(np.ones((1, 1, 1)) for _ in coordinates.sizes)
    assert coordinates.variances(total, identity)[0, 0] == pytest.approx(8)
    assert coordinates.variances(detailed, identity)[0].tolist() == pytest.approx([1.0] * 8)


@given(spaces(), st.data(), st.integers(0, 2**32 - 1))
def test_covariances_of_two_queries_are_those_of_the_dense_matrix(space, data, seed):
    """Any covariance on the components, written out over the cells: Q C R'."""
    schema, coordinates, detailed, query = space
    other = data.draw(queries(schema))
    rng = np.random.default_rng(seed)
    roots = [rng.normal(size=(2, size, size)) for size in coordinates.sizes]
    matrices = tuple(root @ root.swapaxes(1, 2) for root in roots)
    held = coordinates.adjoint(detailed, np.eye(schema.size))
    for k in range(2):
        moved = tuple(one[k] @ part for one, part in zip(matrices, held, strict=True))
        cells = coordinates.answer(detailed, moved)
        expected = dense_matrix(query) @ cells @ dense_matrix(other).T
        found = coordinates.covariances(query, other, matrices)[k]
        np.testing.assert_allclose(found, expected, atol=1e-8 * max(1, np.abs(expected).max()))
    own = coordinates.covariances(query, query, matrices)
    np.testing.assert_allclose(
        np.einsum("kii->ki", own), coordinates.variances(query, matrices), rtol=1e-7, atol=1e-8
    )


@given(spaces(), st.integers(0, 2**32 - 1))
def test_alike_answers_have_equal_variances_and_all_are_counted(space, seed):
    _, coordinates, _, query = space
    rng = np.random.default_rng(seed)
    roots = [rng.normal(size=(1, size, size)) for size in coordinates.sizes]
    matrices = tuple(root @ root.swapaxes(1, 2) for root in roots)
    few, counts = coordinates.distinct_answers(query)
    found = np.repeat(coordinates.variances(few, matrices)[0], counts.astype(int))
    every = coordinates.variances(query, matrices)[0]
    np.testing.assert_allclose(np.sort(found), np.sort(every), rtol=1e-7, atol=1e-8)


def test_leaves_that_do_not_tell_cells_apart_are_refused():
    schema = Schema("s", (Attribute("a", tuple("012")),))
    total, detailed = (parse_query(schema, text) for text in ("total", "detailed"))
    (terms,) = spine_terms([[total, detailed]], [[]])
    evidence = gather_evidence(
        terms,
        noisy=[np.ones((1, 1)), np.ones((1, 3))],
        exact=[],
        kinds=Kinds(np.array([[1.0, 0.0]]), np.zeros(1, np.int64)),
    )
    with pytest.raises(SolverError, match="do not have full column rank"):
        combine(terms, evidence, None)
