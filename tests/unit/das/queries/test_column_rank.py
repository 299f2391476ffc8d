"""Full column rank of Kronecker queries, against dense matrices."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from das.errors import BudgetError
from das.queries.column_rank import has_full_column_rank
from das.queries.factor import Factor
from das.queries.query import Query, parse_query
from das.schema import Attribute, Schema
from das.strategy import LevelStrategy, QueryShare, Strategy
from das.tree.curvature import least_eigenvalue


def factor(matrix: np.ndarray) -> Factor:
    return Factor(np.asarray(matrix), tuple(map(str, range(len(matrix)))))


def choices(n: int) -> list[Factor]:
    """Row spaces that nest, cross and lean, of n levels."""
    eye = np.eye(n, dtype=int)
    lower = np.tril(np.ones((n, n), int))
    oblique = eye[1:].copy()
    oblique[:, 0] -= 3
    return [
        factor(np.ones((1, n), int)),
        factor(eye),
        factor(lower),
        factor(n * eye - 1),
        factor(oblique),
        factor(lower[[0, n - 1]]),
        factor(np.array([[1, -1] + [0] * (n - 2)])),
        factor(np.concatenate([eye[:1], 1 - eye[:1]])),
    ]


SIZES = (2, 3, 2)
FACTORS = [choices(n) for n in SIZES]


def query(picks: tuple[int, ...]) -> Query:
    return Query("q" + "".join(map(str, picks)), tuple(FACTORS[i][p] for i, p in enumerate(picks)))


def dense(queries: list[Query]) -> np.ndarray:
    return np.concatenate([one.columns(np.arange(one.n_cells)) for one in queries])


@given(st.lists(st.tuples(*[st.integers(0, 7)] * 3), min_size=1, max_size=9, unique=True))
def test_rank_is_that_of_the_dense_matrix(picks):
    queries = [query(one) for one in picks]
    rows = dense(queries)
    assert has_full_column_rank(queries) == (np.linalg.matrix_rank(rows) == rows.shape[1])


@given(
    st.lists(st.tuples(*[st.integers(0, 7)] * 3), min_size=1, max_size=6, unique=True),
    st.lists(st.floats(0.01, 1), min_size=6, max_size=6),
)
def test_the_least_eigenvalue_is_that_of_the_dense_matrix(picks, weights):
    queries = [query(one) for one in picks]
    gram = np.zeros((12, 12))
    for one, weight in zip(queries, weights, strict=False):
        rows = dense([one]).astype(float)
        gram += weight * rows.T @ rows / (rows**2).sum(0).max()
    found = least_eigenvalue(queries, weights[: len(queries)])
    assert found == pytest.approx(max(0.0, np.linalg.eigvalsh(gram)[0]), abs=1e-9)


def residuals(schema: Schema) -> list[Query]:
    """What a residual planner measures."""
    out = []
    for size in range(len(schema.attributes) + 1):
        for some in itertools.combinations(schema.attributes, size):
            text = " * ".join(f"residual({a.name})" for a in some)
            out.append(parse_query(schema, text or "total"))
    return out


def large() -> Schema:
    sizes = {"a": 8, "b": 2, "c": 116, "d": 2, "e": 6, "f": 2}
    return Schema(
        "large",
        tuple(Attribute(name, tuple(map(str, range(n)))) for name, n in sizes.items()),
    )


def test_tens_of_thousands_of_cells_take_no_matrix():
    queries = residuals(large())
    assert has_full_column_rank(queries)
    assert not has_full_column_rank(queries[:-1])
    assert least_eigenvalue(queries, [1 / 64] * 64) > 1e-3


@pytest.mark.parametrize("picks", [[(5, 1, 1), (6, 1, 1)], [(0, 1, 1), (6, 1, 1)]])
def test_the_bound_of_products_is_a_bound(picks, monkeypatch):
    """Beyond the sizes for which components are formed."""
    monkeypatch.setattr("das.tree.components.MOST_GROUPS", 0)
    queries = [query(one) for one in picks] + [query((3, 2, 3))]
    gram = np.zeros((12, 12))
    for one in queries:
        rows = dense([one]).astype(float)
        gram += rows.T @ rows / (rows**2).sum(0).max()
    assert 0 <= least_eigenvalue(queries, [1.0] * 3) <= np.linalg.eigvalsh(gram)[0] + 1e-12
    assert least_eigenvalue([query((1, 2, 1))], [0.5]) > 0.01
    grid = [query((a, 2, b)) for a in (0, 6) for b in (0, 6)]
    assert has_full_column_rank(grid)
    assert least_eigenvalue(grid, [1.0] * 4) > 0.01


def test_a_geolevel_that_leaves_cells_open_is_refused():
    schema = large()
    queries = residuals(schema)[:-1]
    shares = tuple(QueryShare(one, Fraction(1, len(queries))) for one in queries)
    strategy = Strategy((LevelStrategy("block", Fraction(1), shares),))
    with pytest.raises(BudgetError, match="do not have full column rank"):
        strategy.require_full_column_rank()
