"""Queries: parsing, names, labels, refinement; the cases known by hand."""

from __future__ import annotations

import numpy as np
import pytest

from das.errors import SchemaError
from das.histograms import Histograms
from das.queries.query import Factor, FactorKind, Query, is_refinement, marginal, parse_query
from das.queries.sensitivity import max_abs_row_sum
from das.schema.schema import Attribute, Recode, Schema

SEX = Attribute("sex", ("f", "m"))
AGE = Attribute("age", ("0-17", "18-64", "65+"))
VOTING = Recode.from_groups("voting", AGE, {"minor": ("0-17",), "adult": ("18-64", "65+")})
SCHEMA = Schema("s", (SEX, AGE), (VOTING,))


@pytest.mark.parametrize(
    ("text", "name", "labels"),
    [
        ("total", "total", ["total"]),
        (" sex ", "sex", ["f", "m"]),
        ("voting", "voting", ["minor", "adult"]),
        ("age*sex", "detailed", [f"{s} / {a}" for s in SEX.levels for a in AGE.levels]),
        ("detailed", "detailed", [f"{s} / {a}" for s in SEX.levels for a in AGE.levels]),
        (
            "voting *  sex",
            "sex * voting",
            ["f / minor", "f / adult", "m / minor", "m / adult"],
        ),
    ],
)
def test_parse_gives_the_canonical_name_and_labels(text, name, labels):
    query = parse_query(SCHEMA, text)
    assert (query.name, query.labels()) == (name, labels)
    assert query.size == len(labels)
    assert parse_query(SCHEMA, query.name).name == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("race", "schema s: has no such attribute; got race; expected one of ['sex', 'age']"),
        ("age * voting", "query ['age', 'voting']: uses an attribute twice; got age"),
        ("sex * sex", "query ['sex', 'sex']: uses an attribute twice; got sex"),
        ("", "schema s: has no such attribute; got ; expected one of ['sex', 'age']"),
        ("sex *", "schema s: has no such attribute; got ; expected one of ['sex', 'age']"),
    ],
)
def test_parse_refuses(text, message):
    with pytest.raises(SchemaError) as caught:
        parse_query(SCHEMA, text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("matrix", "kind"),
    [
        ([[1, 1, 1]], FactorKind.TOTAL),
        ([[1]], FactorKind.TOTAL),
        ([[1, 0], [0, 1]], FactorKind.IDENTITY),
        ([[0, 1], [1, 0]], FactorKind.PARTITION),
        ([[1, 0, 1], [0, 1, 0]], FactorKind.PARTITION),
        ([[1, 0, 1], [0, 1, 0], [0, 0, 0]], FactorKind.PARTITION),
        ([[1, 1, 0], [0, 1, 1]], FactorKind.GENERAL),  # one level counts twice
        ([[1, 0]], FactorKind.GENERAL),  # one level counts nowhere
        ([[2, 2]], FactorKind.GENERAL),
        ([[1, 2], [0, -1]], FactorKind.GENERAL),  # columns sum to 1
    ],
)
def test_kind_of_a_factor(matrix, kind):
    factor = Factor(np.array(matrix), tuple("abc"[: len(matrix)]))
    assert factor.kind is kind
    if kind is FactorKind.GENERAL:
        with pytest.raises(SchemaError, match="is not a partition of its levels"):
            _ = factor.codes
    else:
        rows = np.arange(len(matrix))[:, None]
        assert np.array_equal(factor.codes == rows, np.array(matrix) == 1)


def test_a_factor_is_its_own_copy_and_read_only():
    matrix = np.eye(2, dtype=np.int64)
    factor = Factor(matrix, ("a", "b"))
    matrix[0, 1] = 5
    assert factor.kind is FactorKind.IDENTITY
    with pytest.raises(ValueError, match="read-only"):
        factor.matrix[0, 0] = 2


def test_a_factor_needs_one_label_per_row():
    with pytest.raises(SchemaError, match=r"one label per row; got \(2, 2\)"):
        Factor(np.eye(2, dtype=np.int64), ("a",))
    with pytest.raises(SchemaError):
        Factor(np.ones(2, np.int64), ("a", "b"))


def test_a_histogram_of_another_schema_is_refused():
    histograms = Histograms.from_dense(np.ones((1, 5), np.int64))
    with pytest.raises(SchemaError) as caught:
        marginal(SCHEMA, ("sex",)).answer(histograms)
    assert str(caught.value) == (
        "query sex: was asked of histograms of another schema; got 5 cells; expected 6 cells"
    )


def test_rows_of_a_general_query_are_refused():
    query = Query("diff", (Factor(np.array([[1, -1]]), ("f-m",)),))
    assert not query.is_partition
    with pytest.raises(SchemaError, match="query diff: is not a partition of the cells"):
        query.rows_of(np.arange(2))


def test_sums_over_two_axes_of_a_known_array():
    axes = tuple(
        Attribute(name, tuple(map(str, range(size))))
        for name, size in zip("abc", (3, 4, 5), strict=True)
    )
    histogram = Histograms.from_dense(np.arange(60).reshape(1, 60))
    answer = marginal(Schema("s", axes), ("b",)).answer(histogram)
    assert answer.tolist() == [[330, 405, 480, 555]]


def _partition(*rows):
    matrix = np.array(rows)
    return Query("q", (Factor(matrix, tuple(map(str, range(len(matrix))))),))


A = _partition([1, 0, 1, 0, 0], [0, 1, 0, 1, 1])
IDENTITY = _partition(*np.eye(5, dtype=int).tolist())
C = _partition([1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 1])


@pytest.mark.parametrize(
    ("fine", "coarse", "expected"),
    [
        (A, IDENTITY, False),
        (C, IDENTITY, False),
        (A, C, False),
        (C, A, True),
        (IDENTITY, C, True),
        (IDENTITY, A, True),
        (A, A, True),
    ],
)
def test_refinement_of_known_partitions(fine, coarse, expected):
    assert is_refinement(fine, coarse) is expected


def test_refinement_needs_partitions():
    general = _partition([1, 1, 0, 0, 0])
    assert not is_refinement(IDENTITY, general)
    assert not is_refinement(general, IDENTITY)


def test_largest_row_sum_of_a_known_query():
    factors = (
        Factor(np.array([[1, -2], [3, 0]]), ("a", "b")),
        Factor(np.ones((1, 4), np.int64), ("all",)),
    )
    assert max_abs_row_sum(Query("q", factors)) == 3 * 4


def test_a_general_query_of_empty_geounits_is_zero():
    query = Query("diff", (Factor(np.array([[1, -1], [2, 0]]), ("a", "b")),))
    assert query.columns(np.zeros(0, np.int64)).shape == (2, 0)
    empty = Histograms.from_dense(np.zeros((3, 2), np.int64))
    assert query.answer(empty).tolist() == [[0, 0]] * 3


def test_a_factor_of_fractions_is_refused():
    with pytest.raises(SchemaError):
        Factor(np.array([[0.5, 1.7]]), ("a",))
