"""Queries: parsing, names, labels, refinement; the cases known by hand."""

from __future__ import annotations

import pickle
import tracemalloc

import numpy as np
import pytest

from das.errors import SchemaError
from das.histograms import Histograms
from das.queries.factor import (
    FUNCTIONS,
    Factor,
    FactorKind,
    contrasts,
    identity,
    partition,
    prefix,
    ranges,
    residual,
    total,
)
from das.queries.query import Query, is_answered_by, is_refinement, kronecker, marginal, parse_query
from das.schema import Attribute, Recode, Schema
from tests.builders.histograms import from_dense

SEX = Attribute("sex", ("f", "m"))
AGE = Attribute("age", ("0-17", "18-64", "65+"))
VOTING = Recode.from_groups("voting", AGE, {"minor": ("0-17",), "adult": ("18-64", "65+")})
SCHEMA = Schema("s", (SEX, AGE), (VOTING,))
ATTRIBUTES_WANTED = "expected total, detailed, or some of ['sex', 'age', 'voting'] joined by *"
FUNCTIONS_WANTED = f"expected one of {list(FUNCTIONS)}"


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
        ("prefix(age)", "prefix(age)", ["up to 0-17", "up to 18-64", "up to 65+"]),
        (
            " ranges ( age ) ",
            "ranges(age)",
            ["0-17", "0-17 to 18-64", "0-17 to 65+", "18-64", "18-64 to 65+", "65+"],
        ),
        (
            "residual(voting)*sex",
            "sex * residual(voting)",
            [f"{s} / residual of {v}" for s in "fm" for v in ("minor", "adult")],
        ),
        (
            "prefix(voting) * contrasts(sex)",
            "contrasts(sex) * prefix(voting)",
            ["f less m / up to minor", "f less m / up to adult"],
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
        ("race", "schema s: has no such attribute or recode; got race; " + ATTRIBUTES_WANTED),
        ("age * voting", "query age * voting: uses an attribute twice; got age"),
        ("sex * sex", "query sex * sex: uses an attribute twice; got sex"),
        (
            "prefix(voting) * sex * age",
            "query sex * prefix(voting) * age: uses an attribute twice; got age",
        ),
        (
            "median(age)",
            "query median(age): applies an unknown function; got median; " + FUNCTIONS_WANTED,
        ),
        ("(age)", "query (age): applies an unknown function; got ; " + FUNCTIONS_WANTED),
        (
            "prefix(race)",
            "schema s: has no such attribute or recode; got race; " + ATTRIBUTES_WANTED,
        ),
        ("prefix()", "schema s: has no such attribute or recode; got ; " + ATTRIBUTES_WANTED),
        ("prefix", "schema s: has no such attribute or recode; got prefix; " + ATTRIBUTES_WANTED),
        (
            "prefix(sex * age)",
            "schema s: has no such attribute or recode; got prefix(sex; " + ATTRIBUTES_WANTED,
        ),
        (
            "prefix(ranges(age))",
            "schema s: has no such attribute or recode; got ranges(age); " + ATTRIBUTES_WANTED,
        ),
        ("", "schema s: has no such attribute or recode; got ; " + ATTRIBUTES_WANTED),
        ("sex *", "schema s: has no such attribute or recode; got ; " + ATTRIBUTES_WANTED),
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
    with pytest.raises(SchemaError, match=r"one label per row; got \(0, 2\)"):
        Factor(np.ones((0, 2), np.int64), ())
    with pytest.raises(SchemaError, match=r"one label per row; got \(1, 0\)"):
        total(())


def test_a_histogram_of_another_schema_is_refused():
    histograms = from_dense(np.ones((1, 5), np.int64))
    with pytest.raises(SchemaError) as caught:
        marginal(SCHEMA, ("sex",)).answer(histograms)
    assert str(caught.value) == (
        "query sex: was evaluated on histograms of another schema; got 5 cells; expected 6 cells"
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
    histogram = from_dense(np.arange(60).reshape(1, 60))
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


@pytest.mark.parametrize(
    ("known", "asked", "expected"),
    [
        ([0, 0, 1, 1, 2], [[1, 1, -2, -2, 5]], True),
        ([0, 0, 1, 1, 2], [[1, 1, -2, -1, 5]], False),
        ([0, 0, 0, 0, 0], [[3, 3, 3, 3, 3], [1, 1, 1, 1, 1]], True),
        ([0, 0, 0, 0, 0], [[4, -1, -1, -1, -1]], False),
    ],
)
def test_what_the_sums_of_groups_answer(known, asked, expected):
    groups = tuple(str(group) for group in range(max(known) + 1))
    partition_ = Query("known", (partition(groups, tuple(known)),))
    general = Query("asked", (Factor(np.array(asked), tuple("ab"[: len(asked)])),))
    assert is_answered_by(partition_, general) is expected


def test_a_general_query_of_empty_geounits_is_zero():
    query = Query("diff", (Factor(np.array([[1, -1], [2, 0]]), ("a", "b")),))
    assert query.columns(np.zeros(0, np.int64)).shape == (2, 0)
    empty = from_dense(np.zeros((3, 2), np.int64))
    assert query.answer(empty).tolist() == [[0, 0]] * 3


def test_a_factor_of_fractions_is_refused():
    with pytest.raises(SchemaError):
        Factor(np.array([[0.5, 1.7]]), ("a",))


LEVELS = ("a", "b", "c")


@pytest.mark.parametrize(
    ("factor", "rows"),
    [
        (total(LEVELS), [[1, 1, 1]]),
        (identity(LEVELS), [[1, 0, 0], [0, 1, 0], [0, 0, 1]]),
        (partition(("x", "y"), (1, 0, 1)), [[0, 1, 0], [1, 0, 1]]),
        (prefix(LEVELS), [[1, 0, 0], [1, 1, 0], [1, 1, 1]]),
        (
            ranges(LEVELS),
            [[1, 0, 0], [1, 1, 0], [1, 1, 1], [0, 1, 0], [0, 1, 1], [0, 0, 1]],
        ),
        (residual(LEVELS), [[2, -1, -1], [-1, 2, -1], [-1, -1, 2]]),
        (contrasts(LEVELS), [[1, -1, 0], [1, 0, -1]]),
    ],
)
def test_known_factors(factor, rows):
    assert factor.matrix.tolist() == rows
    assert len(set(factor.labels)) == len(rows)


@pytest.mark.parametrize("n", [2, 3, 7])
def test_contrasts_follow_exactly_from_residuals(n):
    levels = tuple(map(str, range(n)))
    sub, xi = contrasts(levels).matrix, residual(levels).matrix
    assert np.array_equal(sub @ xi, n * sub)
    assert not (sub @ np.ones(n)).any()
    assert not (xi @ np.ones(n)).any()
    assert np.linalg.matrix_rank(xi) == np.linalg.matrix_rank(sub) == n - 1


@pytest.mark.parametrize("function", ["residual", "contrasts"])
def test_one_level_has_no_residual(function):
    schema = Schema("s", (Attribute("only", ("one",)), SEX))
    with pytest.raises(SchemaError, match=rf"{function} of \['one'\]: needs at least two levels"):
        parse_query(schema, f"{function}(only) * sex")


def test_functions_of_one_level_are_its_count():
    schema = Schema("s", (Attribute("only", ("one",)), SEX))
    for function in ("prefix", "ranges"):
        query = parse_query(schema, f"{function}(only) * sex")
        assert query.answer(from_dense(np.array([[3, 4]]))).tolist() == [[3, 4]]
        assert query.labels() == ["f", "m"]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_of_a_recode_is_the_product_of_the_matrices(function):
    recode = Recode.from_groups("r", AGE, {"ends": ("0-17", "65+"), "middle": ("18-64",)})
    schema = Schema("s", (SEX, AGE), (recode,))
    factor = parse_query(schema, f"{function}(r)").factors[1]
    expected = FUNCTIONS[function](recode.groups).matrix @ [[1, 0, 1], [0, 1, 0]]
    assert np.array_equal(factor.matrix, expected)
    assert factor.labels == FUNCTIONS[function](recode.groups).labels


def test_a_name_with_parentheses_is_still_a_name():
    hours = Attribute("hours (usual)", ("none", "some"))
    schema = Schema("s", (hours, Attribute("prefix", ("a", "b")), SEX))
    assert parse_query(schema, "hours (usual)").labels() == ["none", "some"]
    both = parse_query(schema, "prefix(hours (usual)) * prefix")
    assert both.name == "prefix(hours (usual)) * prefix"
    assert both.shape == (2, 2, 1)


def test_a_user_gives_any_integer_matrix():
    years = Factor(np.array([[10, 40, 70], [0, 0, 1]]), ("years", "old"))
    women = Factor(np.array([[1, 0]]), ("women",))
    query = kronecker(SCHEMA, "years of women", [("age", years), ("sex", women)])
    assert query.labels() == ["women / years", "women / old"]
    answer = query.answer(from_dense(np.array([[1, 2, 3, 9, 9, 9]])))
    assert answer.tolist() == [[300, 3]]
    ratio = Factor(np.array([[-2, 1]]), ("adults over twice the minors",))
    grouped = kronecker(SCHEMA, "adults", [("voting", ratio)])
    assert grouped.factors[1].matrix.tolist() == [[-2, 1, 1]]


def test_factors_that_do_not_fit_are_refused():
    pair = Factor(np.array([[1, 2]]), ("row",))
    with pytest.raises(SchemaError) as caught:
        kronecker(SCHEMA, "q", [("age", pair)])
    assert str(caught.value) == (
        "query q: has a factor that does not fit age; got 2 columns; expected 3 columns"
    )
    with pytest.raises(SchemaError, match="fit voting; got 3 columns; expected 2 columns"):
        kronecker(SCHEMA, "q", [("voting", identity(AGE.levels))])
    with pytest.raises(SchemaError, match="query q: uses an attribute twice; got sex"):
        kronecker(SCHEMA, "q", [("sex", pair), ("sex", pair)])


def test_counts_of_ten_billion_persons_keep_their_last_digit():
    many = 10**10 + np.arange(6)
    histograms = from_dense(many.reshape(1, 6))
    for text in ("ranges(age) * prefix(sex)", "residual(age) * residual(sex)"):
        query = parse_query(SCHEMA, text)
        expected = [
            sum(int(q) * int(x) for q, x in zip(row, many, strict=True))
            for row in query.columns(np.arange(6))
        ]
        assert query.answer(histograms).tolist() == [expected]


def test_answers_beyond_63_bits_are_refused_without_saying_how_many_live_there():
    query = Query("large", (Factor(np.array([[1, -(2**40)]]), ("row",)),))
    most = 2**23 - 1
    fits = from_dense(np.array([[most, 0], [0, most]]))
    assert query.answer(fits).tolist() == [[most], [-most * 2**40]]
    with pytest.raises(SchemaError) as caught:
        query.answer(from_dense(np.array([[2**22, 2**22]])))
    assert str(caught.value) == (
        "query large: needs numbers of more than 63 bits; "
        f"got coefficients up to {2**40}, 2 combinations of levels"
    )


def test_the_least_coefficient_is_refused_too():
    least = Query("least", (Factor(np.array([[-(2**63), 1]]), ("row",)),))
    with pytest.raises(SchemaError, match="needs numbers of more than 63 bits"):
        least.answer(from_dense(np.array([[2, 1]])))


def test_a_schema_of_many_cells_is_no_obstacle_unless_a_query_tells_them_apart():
    many = 2**18
    two = Factor(np.array([[1, -1]]), ("row",))
    ones = Factor(np.ones((1, many), np.int64), ("all",))
    halves = Factor(np.repeat([[1, 2]], many // 2, axis=1), ("row",))
    each = Factor(np.arange(many)[None, :], ("row",))
    last = np.full(512, 2 * many**3 - 1)
    histograms = Histograms(2 * many**3, np.arange(513), last, np.arange(1, 513))
    for others, coefficient in (((ones,) * 3, -1), ((halves,) * 3, -8)):
        answers = Query("fits", (two, *others)).answer(histograms)
        assert answers[:, 0].tolist() == [coefficient * persons for persons in range(1, 513)]
    with pytest.raises(SchemaError, match=f"{2 * many**3} combinations of levels"):
        Query("apart", (two, each, each, each)).answer(histograms)


def test_answers_of_thousands_of_cells_never_form_the_kronecker_product():
    schema = Schema("s", tuple(Attribute(a, tuple(map(str, range(16)))) for a in "abc"))
    counts = np.arange(4 * 16**3).reshape(4, -1) % 5
    histograms = from_dense(counts)
    query = parse_query(schema, "prefix(a) * residual(b) * prefix(c)")
    tracemalloc.start()
    try:
        answers = query.answer(histograms)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    below = counts.reshape(4, 16, 16, 16).cumsum(1).cumsum(3)
    expected = 16 * below - below.sum(2, keepdims=True)
    assert np.array_equal(answers, expected.reshape(4, -1))
    assert peak < 20 * answers.nbytes < query.size * query.n_cells * 8 / 50


def test_a_factor_is_sent_without_its_matrix():
    """A task gets 16 bytes a level, not the square of the levels, and no cached results."""
    levels = tuple(f"level_{number}" for number in range(500))
    for factor in (identity(levels), total(levels), partition(("odd", "even"), (0, 1) * 250)):
        assert factor.gram.size == 500**2
        sent = pickle.dumps(factor)
        assert len(sent) < 25 * 500
        assert np.array_equal(pickle.loads(sent).matrix, factor.matrix)
        assert pickle.loads(sent).labels == factor.labels
    general = prefix(levels[:3])
    assert np.array_equal(pickle.loads(pickle.dumps(general)).matrix, general.matrix)
