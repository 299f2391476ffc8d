"""Estimates of queries that do not determine every cell, against one dense problem."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from das.errors import SchemaError
from das.queries.query import Query, marginal, parse_query
from das.schema import Attribute, Recode, Schema
from das.tree.coordinates import Coordinates
from das.tree.model import partial_terms
from das.tree.span import span_of
from geography.lattice import Lattice, Spine
from tests.builders.strategies import dense_matrix, queries, schemas, trees
from tests.unit.das.tree.dense import null_space
from tests.unit.das.tree.estimation_trees import TreeCase, area_by_shares, estimate_tree

_RANK = 1e-9


def row_space(rows: np.ndarray) -> np.ndarray:
    """float64[n, rank]: an orthonormal basis."""
    _, values, right = np.linalg.svd(rows)
    return right[: int((values > _RANK).sum())].T


def known_spaces(case: TreeCase) -> list[np.ndarray]:
    """Per geolevel a basis of what it and every one above measure, in cells, from its definition."""
    unseen, out = np.zeros((case.n_cells, case.n_cells)), []
    for terms in case.terms:
        asked = [dense_matrix(query) for query in (*terms.measured, *terms.exact)]
        seen = row_space(np.vstack([np.zeros((1, case.n_cells)), *asked]).astype(float))
        unseen = unseen + np.eye(case.n_cells) - seen @ seen.T
        values, vectors = np.linalg.eigh(unseen)
        out.append(vectors[:, values < _RANK])
    return out


def pseudoinverse(matrix: np.ndarray) -> np.ndarray:
    """Of a positive semidefinite matrix; precisions are about 1, and what is less is rounding."""
    values, vectors = np.linalg.eigh(matrix)
    kept = vectors[:, values > _RANK]
    return kept / values[values > _RANK] @ kept.T


class Dense:
    """Cells of every geounit of every geolevel as unknowns; what is known at a geolevel adds up."""

    def __init__(self, case: TreeCase) -> None:
        self.case = case
        sizes = [len(case.held(level)) for level in range(len(case.terms))]
        self.offsets = np.concatenate(([0], np.cumsum(sizes))) * case.n_cells
        size = int(self.offsets[-1])
        spaces = known_spaces(case)
        design, right, weights = [np.zeros((1, size))], [np.zeros(1)], [np.ones(1)]
        known, stated = [np.zeros((1, size))], [np.zeros(1)]
        for level, one in enumerate(case.answers):
            for row, g in enumerate(np.flatnonzero(~one.is_only)):
                for column, query in enumerate(case.terms[level].measured):
                    design.append(self.rows(level, g, dense_matrix(query)))
                    right.append(one.noisy[column][row])
                    precision = one.precisions[one.kind[row], column]
                    weights.append(np.full(query.size, precision))
            for query, answers in zip(case.terms[level].exact, one.exact, strict=True):
                for g in range(len(answers)):
                    known.append(self.rows(level, g, dense_matrix(query)))
                    stated.append(answers[g])
            if not level:
                continue
            first = case.lattice.first_child[level - 1]
            for parent in range(len(first) - 1):
                children = range(first[parent], first[parent + 1])
                # An only child holds the persons of its parent, so all of it is the same.
                alone = len(children) == 1
                basis = np.eye(case.n_cells) if alone else spaces[level].T
                total = sum(self.rows(level, g, basis) for g in children)
                known.append(total - self.rows(level - 1, parent, basis))
                stated.append(np.zeros(len(basis)))
        x, y, w = np.vstack(design), np.concatenate(right), np.concatenate(weights)
        equations, a = np.vstack(known), np.concatenate(stated)
        free = null_space(equations, size)
        base = np.linalg.lstsq(equations, a, rcond=None)[0]
        inverse = pseudoinverse(free.T @ (x.T * w) @ x @ free)
        self.estimate = base + free @ inverse @ free.T @ ((x.T * w) @ (y - x @ base))
        self.covariance = free @ inverse @ free.T
        # What is not estimable has a part in the null space of the information.
        self.open = free - free @ inverse @ (free.T @ (x.T * w) @ x @ free)

    def rows(self, level: int, g: int, matrix: np.ndarray) -> np.ndarray:
        """A matrix over the cells of one geounit, over all unknowns."""
        out = np.zeros((len(matrix), int(self.offsets[-1])))
        first = int(self.offsets[level]) + g * self.case.n_cells
        out[:, first : first + self.case.n_cells] = matrix
        return out


def compare(found: np.ndarray, wanted: np.ndarray) -> None:
    scale = max(1.0, float(np.abs(wanted).max(initial=0.0)))
    np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-7 * scale)


def check(case: TreeCase, tables: tuple[Query, ...]) -> int:
    """Compare all tables that have estimates; returns how many there were."""
    dense = Dense(case)
    found = estimate_tree(case.terms, case.answers)
    spaces, compared = known_spaces(case), 0
    for table in tables:
        matrix = dense_matrix(table).astype(float)
        for level, whole in enumerate(found.whole):
            space = spaces[level]
            is_known = np.allclose(matrix @ space @ space.T, matrix, atol=1e-9)
            assert case.terms[level].determines(table) == is_known
            if not is_known:
                continue
            estimates = case.coordinates.answer(table, whole.values)
            variances = case.coordinates.variances(table, whole.matrices)[whole.kind]
            for g in range(len(estimates)):
                rows = dense.rows(level, g, matrix)
                assert np.abs(rows @ dense.open).max(initial=0.0) < 1e-6
                compare(estimates[g], rows @ dense.estimate)
                compare(variances[g], np.einsum("ij,jk,ik->i", rows, dense.covariance, rows))
                compared += 1
    return compared


@st.composite
def cases(draw: st.DrawFn) -> tuple[TreeCase, tuple[Query, ...]]:
    """Irregular trees with chains, other queries at every geolevel, an invariant or none."""
    spine, leaves = draw(trees(most_levels=3, most_leaves=6))
    lattice = Lattice.from_leaves(spine, leaves)
    schema = draw(schemas(most_attributes=2, most_levels=4))
    depth = len(spine.levels)
    pool = draw(st.lists(queries(schema), min_size=1, max_size=3))
    asked = [{q.name: q for q in draw(st.lists(st.sampled_from(pool)))} for _ in range(depth)]
    if draw(st.booleans()):
        asked = [{query.name: query for query in pool}] * depth
    assume(any(dense_matrix(query).any() for one in asked for query in one.values()))
    invariant = draw(st.one_of(st.none(), st.sampled_from(pool)))
    down_to = draw(st.integers(0, depth - 1))
    exact = [(invariant,) if invariant and level <= down_to else () for level in range(depth)]
    detailed = marginal(schema, [attribute.name for attribute in schema.attributes])
    tables = (*pool, detailed, marginal(schema, []), draw(queries(schema)))
    seed = draw(st.integers(0, 2**32 - 1))
    measured = [tuple(one.values()) for one in asked]
    return TreeCase.random(lattice, schema, measured, exact, seed, make=partial_terms), tables


@given(cases())
def test_what_is_known_everywhere_has_the_dense_estimate_and_variance(case):
    check(*case)


AGE = Attribute("age", ("0", "1", "2", "3", "4"))
SEX = Attribute("sex", ("f", "m", "x"))
SCHEMA = Schema(
    "s",
    (AGE, SEX),
    (
        Recode("young", "age", ("y", "n"), (0, 0, 1, 1, 1)),
        Recode("old", "age", ("a", "b", "c"), (0, 0, 1, 2, 2)),
    ),
)
LATTICE = Lattice.from_leaves(
    Spine(("nation", "state", "county", "block"), (0, 1, 2, 4)),
    ["1000", "1001", "1002", "1100", "1101", "2000", "3000", "3001", "3100", "3101", "3102"],
)
TABLES = ("total", "young", "old", "sex", "old * sex", "age", "detailed", "young * sex")


def asked(*texts: str) -> tuple[Query, ...]:
    return tuple(parse_query(SCHEMA, text) for text in texts)


@pytest.mark.parametrize(
    ("levels", "known"),
    [
        # the same everywhere: totals, two tables of one attribute, nothing of both
        ([("old", "sex")] * 4, [{"total", "young", "old", "sex"}] * 4),
        # a geolevel that asks more than the one above adds it up from nothing above
        ([("sex",), ("sex",), ("sex", "old"), ("sex", "old")], [{"total", "sex"}] * 4),
        ([("old * sex",), ("old",), ("young",), ("total",)], None),
        # nothing of what is exact is open, though it is measured too
        ([("total",), ("total",), ("old",), ("old",)], [{"total"}] * 4),
        # nothing is measured of the county
        ([("old",), ("old",), (), ("old",)], [{"total", "young", "old"}] * 2 + [set()] * 2),
    ],
)
def test_tables_have_estimates_where_they_follow_from_all_above(levels, known):
    measured = [asked(*texts) for texts in levels]
    for exact in ([()] * 4, [asked("total")] * 2 + [()] * 2):
        case = TreeCase.random(LATTICE, SCHEMA, measured, exact, 3, make=partial_terms)
        assert check(case, asked(*TABLES))
        if known is not None:
            found = [{t.name for t in asked(*TABLES) if one.determines(t)} for one in case.terms]
            assert found == known


@pytest.mark.parametrize("inside", [[0, 1, 2], [0, 3, 9], [1, 5, 6, 7], [8]])
def test_any_set_of_leaves_has_the_dense_estimate(inside):
    case = TreeCase.random(
        LATTICE, SCHEMA, [asked("old", "sex")] * 4, [asked("total")] * 2 + [()] * 2, 5,
        make=partial_terms,
    )  # fmt: skip
    dense = Dense(case)
    chosen = np.zeros(case.n_leaves, np.bool_)
    chosen[inside] = True
    found = area_by_shares(case, estimate_tree(case.terms, case.answers), chosen)
    for table in asked("total", "young", "old", "sex"):
        matrix = dense_matrix(table).astype(float)
        rows = sum(dense.rows(3, g, matrix) for g in inside)
        compare(case.coordinates.answer(table, found.values)[0], rows @ dense.estimate)
        spread = np.einsum("ij,jk,ik->i", rows, dense.covariance, rows)
        compare(case.coordinates.variances(table, found.matrices)[0], spread)


@given(st.data())
def test_coordinates_of_a_span_hold_what_the_queries_see(data):
    schema = data.draw(schemas(most_attributes=3, most_levels=4))
    pool = data.draw(st.lists(queries(schema), min_size=1, max_size=4))
    whole = Coordinates.of_queries(pool)
    assume(any(dense_matrix(query).any() for query in pool))
    spanned = whole.spanned_by(pool, 256)
    rows = np.vstack([dense_matrix(query) for query in pool])
    assert spanned.size <= np.prod([a.size for a in schema.attributes])
    assert (spanned.size == rows.shape[1]) >= (np.linalg.matrix_rank(rows) == rows.shape[1])
    cells = np.random.default_rng(1).normal(size=(2, rows.shape[1]))
    detailed = marginal(schema, [attribute.name for attribute in schema.attributes])
    values = spanned.adjoint(detailed, cells)
    for query in pool:
        wanted = cells @ dense_matrix(query).T
        compare(spanned.answer(query, values), wanted)
        compare(spanned.answer(query, spanned.unflatten(spanned.flatten(values))), wanted)
        for gram, span, other in zip(
            spanned.grams(query),
            spanned.spans,
            whole.touched_by(pool).components.grams(query),
            strict=True,
        ):
            compare(span @ gram @ span.T, other)


def test_terms_of_equal_queries_are_made_once():
    """As tasks of one process need them, whose queries are copies."""
    first = partial_terms([asked("old", "sex")] * 2, [asked("total"), ()])
    again = partial_terms([asked("old", "sex")] * 2, [asked("total"), ()])
    assert again is first
    for measured, exact in (
        ([asked("old", "sex")] * 2, [(), ()]),
        ([asked("old", "sex"), asked("old")], [asked("total"), ()]),
        ([asked("sex", "old")] * 2, [asked("total"), ()]),
        ([asked("young", "sex")] * 2, [asked("total"), ()]),
    ):
        other = partial_terms(measured, exact)
        assert other is not first
        names = [[query.name for query in terms.measured] for terms in other]
        assert names == [[query.name for query in queries] for queries in measured]


def test_a_span_of_too_many_groups_is_refused():
    query = asked("age")[0]
    atoms = (np.arange(5), np.zeros(3, np.int64))
    assert span_of([query], atoms, (False, False), 5).shape == (5, 5)
    with pytest.raises(SchemaError, match="more than 4 combinations"):
        span_of([query], atoms, (False, False), 4)


def test_a_span_is_that_of_gram_and_schmidt_in_the_order_of_the_rows():
    """The basis is the same wherever it is made: files hold numbers in it."""
    atoms = (np.array([0, 0, 1, 2, 2]), np.zeros(3, np.int64))
    half = np.sqrt([2.0, 1.0, 2.0])  # normalized sums over the atoms
    basis = span_of(asked("young"), atoms, (False, False), 9)
    first = np.array([0.0, 1.0, 2.0]) / half  # its rows, those of smaller numbers first
    assert basis[:, 0] == pytest.approx(first / np.linalg.norm(first))
    assert basis[:, 1] == pytest.approx([1.0, 0.0, 0.0])
    assert np.array_equal(span_of(asked("young", "old"), atoms, (False, False), 9), np.eye(3))
