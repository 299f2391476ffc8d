"""Sensitivities against all pairs of columns, and against all small neighboring data sets."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from das.queries.factor import Factor
from das.queries.query import Query, parse_query
from das.queries.sensitivity import Neighbors, l1_sensitivity, l2_sensitivity_sq
from das.schema import Attribute, Schema
from tests.builders.histograms import from_dense
from tests.builders.strategies import dense_matrix

NORMS = {l1_sensitivity: 1, l2_sensitivity_sq: 2}


def largest_move(matrix: np.ndarray, neighbors: Neighbors, power: int) -> int:
    """Largest sum of |move|^power of the answers of two geounits, over all pairs of columns."""
    columns = list(matrix.T)
    nothing = np.zeros(len(matrix), np.int64)
    if neighbors is Neighbors.UNBOUNDED:
        moves = [(column, nothing) for column in columns]
    else:
        pairs = list(itertools.product(columns, repeat=2))
        moves = [(a - b, nothing) for a, b in pairs] + [(a, -b) for a, b in pairs]
    return max(int((abs(np.concatenate(move)) ** power).sum()) for move in moves)


@st.composite
def products(draw: st.DrawFn, least: int = -3) -> Query:
    """1 to 3 signed factors of 1 to 3 levels; often one column is the negative of another."""
    factors = []
    for _ in range(draw(st.integers(1, 3))):
        rows, columns = draw(st.integers(1, 3)), draw(st.integers(1, 3))
        entries = st.lists(st.integers(least, 3), min_size=columns, max_size=columns)
        matrix = np.array(draw(st.lists(entries, min_size=rows, max_size=rows)), np.int64)
        if draw(st.booleans()):
            matrix[:, -1] = -matrix[:, 0] if least < 0 else matrix[:, 0]
        factors.append(Factor(matrix, ("row",) * rows))
    return Query("drawn", tuple(factors))


@pytest.mark.parametrize("neighbors", list(Neighbors))
@pytest.mark.parametrize("sensitivity", NORMS)
@given(query=st.one_of(products(), products(least=0)))
def test_the_sensitivity_is_the_largest_move_of_all_pairs_of_columns(sensitivity, neighbors, query):
    expected = largest_move(dense_matrix(query), neighbors, NORMS[sensitivity])
    assert sensitivity(query, neighbors) == expected


SCHEMA = Schema("s", (Attribute("sex", ("f", "m")), Attribute("age", ("0-17", "18-64", "65+"))))
TEXTS = (
    "total",
    "detailed",
    "prefix(age)",
    "ranges(age) * sex",
    "residual(sex)",
    "contrasts(age)",
    "residual(sex) * residual(age)",
    "residual(sex) * prefix(age)",
    "contrasts(sex) * contrasts(age)",
)


Records = tuple[tuple[int, int], ...]
PLACES = tuple(itertools.product(range(2), range(SCHEMA.size)))


def neighboring_data_sets(neighbors: Neighbors) -> Iterator[tuple[Records, Records]]:
    """All pairs of data sets of up to two records; a record is (geounit, cell)."""
    for rest in ((), *((place,) for place in PLACES)):
        for changed in PLACES:
            before = tuple(sorted((*rest, changed)))
            if neighbors is Neighbors.UNBOUNDED:
                yield before, rest
                continue
            for now in PLACES:
                yield before, tuple(sorted((*rest, now)))


def answers(query: Query, records: Records) -> np.ndarray:
    """Answers of the two geounits."""
    counts = np.zeros((2, SCHEMA.size), np.int64)
    for record in records:
        counts[record] += 1
    return query.answer(from_dense(counts))


def test_two_geounits_move_by_the_sensitivity_and_their_parent_by_no_more():
    for neighbors, text in itertools.product(list(Neighbors), TEXTS):
        query = parse_query(SCHEMA, text)
        found = {}
        children, parent = {1: 0, 2: 0}, {1: 0, 2: 0}
        for pair in neighboring_data_sets(neighbors):
            for records in pair:
                if records not in found:
                    found[records] = answers(query, records)
            move = found[pair[0]] - found[pair[1]]
            for power in NORMS.values():
                children[power] = max(children[power], int((abs(move) ** power).sum()))
                parent[power] = max(parent[power], int((abs(move.sum(0)) ** power).sum()))
        for sensitivity, power in NORMS.items():
            assert children[power] == sensitivity(query, neighbors)
            assert parent[power] <= children[power]
