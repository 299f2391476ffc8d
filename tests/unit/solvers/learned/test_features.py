"""Features of released answers: by hand for one family."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from das.queries.query import parse_query
from das.schema import Attribute, Schema
from solvers.learned.features import STEPS, Released

SCHEMA = Schema("s", (Attribute("sex", ("f", "m")), Attribute("age", ("young", "old"))))
QUERIES = [parse_query(SCHEMA, text) for text in ("total", "sex", "detailed")]
PARENT = np.array([[6, 2, 4, 0]])  # nobody is an old man
COUNTS = np.array([[4, 0, 1, 0], [2, 2, 3, 0]])
ANSWERS = [
    np.array([[8], [5]]),
    np.array([[3, 2], [4, 3]]),
    np.array([[5, 1, 1, 9], [1, 1, 2, -9]]),
]
WEIGHTS = [np.array([0.5, 0.5]), np.array([0.25, 0.25]), np.array([1.0, 1.0])]


@pytest.fixture
def released() -> Released:
    """Two children of one parent."""
    return Released(QUERIES, np.array([0, 0]), PARENT, COUNTS, ANSWERS, WEIGHTS)


def test_estimates_weigh_all_finer_queries_and_leave_out_what_is_known(released: Released) -> None:
    """A total is 0.5 of its answer, 0.25 / 2 of two sexes, 1 / 3 of three cells that can live."""
    _, totals, _ = released.known[0]
    by_hand = (0.5 * 8 + 0.125 * (3 + 2) + (5 + 1 + 1) / 3) / (0.5 + 0.125 + 1 / 3)
    assert totals[0, 0] == pytest.approx(by_hand)
    _, sexes, _ = released.known[1]
    assert sexes[0].tolist() == pytest.approx([(0.75 + 6 / 2) / 0.75, (0.5 + 1) / 1.25])
    assert released.known[2][1][0].tolist() == pytest.approx([5, 1, 1, 0], nan_ok=True)


def test_only_answers_with_records_in_the_parent_are_described(released: Released) -> None:
    child, answer = released.live(2)
    assert [*zip(child.tolist(), answer.tolist(), strict=True)] == [
        (c, a) for c in (0, 1) for a in (0, 1, 2)
    ]
    assert all(len(column) == 6 for column in released.columns(2))


def test_features_of_totals(released: Released) -> None:
    columns = np.array(released.columns(0)) / STEPS
    z = released.known[0][1][:, 0]
    gap = (12 - z.sum()) / 2
    by_hand = [
        [5, 7],
        z - [5, 7],
        z - [5, 7] + gap,
        [12, 12],
        [6 - 5, 6 - 7],
        [2, 2],
        [2, 3],
    ]
    assert np.abs(columns - np.array(by_hand)).max() <= 0.5 / STEPS + 1e-9


def test_coarser_queries_are_features_too(released: Released) -> None:
    """Of cells those of the total and of the sex, four each: 7 + 8."""
    assert [len(released.columns(number)) for number in range(3)] == [7, 11, 15]
    rest_of_sex = released.columns(2)[11]
    assert (rest_of_sex / STEPS).tolist() == [0, 4, 0, 2, 2, 0]
    share = released.columns(2)[10]  # of the total: 6 * 5 / 12 - 4 for the first cell
    assert share[0] == STEPS * (6 * 5 / 12 - 4)


def test_living_quarters_are_features_where_they_are_public(released: Released) -> None:
    """Three units for one child and one for the other, which has a facility: 12 persons."""
    known = replace(released, quarters=np.array([[3, 0], [1, 1]]))
    plain, columns = released.columns(1), known.columns(1)
    assert len(columns) == len(plain) + 5
    units, facilities, by_share, persons, size = np.array(columns[len(plain) :]) / STEPS
    assert units.tolist() == [3, 3, 1, 1]
    assert facilities.tolist() == [0, 0, 1, 1]
    assert by_share.tolist() == [8 * 0.75 - 4, 4 * 0.75 - 1, 8 * 0.25 - 4, 4 * 0.25 - 3]
    assert persons.tolist() == [9 - 5, 9 - 5, 3 - 7, 3 - 7]
    assert size.tolist() == [3, 3, 3, 3]
