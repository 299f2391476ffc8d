"""What invariants leave to compare, against all pairs of small data sets."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from das.privacy.neighborhoods import Comparable, Held, Invariance, Neighborhood
from das.privacy.semantics import Change

LEVELS = ("root", "county", "block")
PLACES = (("r", "a", "a1"), ("r", "a", "a2"), ("r", "b", "b1"), ("r", "b", "b2"))
ATTRIBUTES, SHAPE = ("sex", "age"), (2, 3)
N = 6

Data = tuple[tuple[int, int], ...]  # records (place, cell), sorted


def data_sets() -> list[Data]:
    """All data sets of at most two records."""
    records = list(itertools.product(range(len(PLACES)), range(N)))
    return [(), *((r,) for r in records), *itertools.combinations_with_replacement(records, 2)]


def answers(data: Data, rows: np.ndarray, deepest: int) -> dict[tuple[str, int], int]:
    """Sums of every geounit of the geolevels down to `deepest`, by dense rows."""
    out: dict[tuple[str, int], int] = {}
    for place, cell in data:
        for geounit in PLACES[place][: deepest + 1]:
            for row, weights in enumerate(rows):
                if weights[cell]:
                    spot = (geounit, row)
                    out[spot] = out.get(spot, 0) + int(weights[cell])
    return {spot: value for spot, value in out.items() if value}


def kind_of(one: Data, other: Data) -> Iterator[tuple[Change | None, str]]:
    """The statements that a pair of different data sets falls under."""
    left, right = list(one), list(other)
    for record in one:
        if record in right:
            left.remove(record)
            right.remove(record)
    if len(left) + len(right) == 1:
        yield None, ""
    if len(left) != 1 or len(right) != 1:
        return
    (place, cell), (other_place, other_cell) = left[0], right[0]
    yield Change.RECORD, ""
    digits = [tuple(int(d) for d in np.unravel_index(c, SHAPE)) for c in (cell, other_cell)]
    differing = [a for a, x, y in zip(ATTRIBUTES, *digits, strict=True) if x != y]
    if place == other_place and len(differing) == 1:
        yield Change.ATTRIBUTE, differing[0]
    if place != other_place and not differing:
        for level in (0, 1):
            if PLACES[place][level] == PLACES[other_place][level]:
                yield Change.WITHIN, LEVELS[level]


SUMS = {
    "total": np.ones((1, N), np.int64),
    "sex": np.kron(np.eye(2, dtype=np.int64), np.ones((1, 3), np.int64)),
    "age": np.kron(np.ones((1, 2), np.int64), np.eye(3, dtype=np.int64)),
    "adult": np.array([[1, 0, 0, 1, 0, 0], [0, 1, 1, 0, 1, 1]]),
    "old men": np.array([[0, 0, 0, 0, 0, 1]]),
    "difference": np.array([[1, 1, 1, -1, -1, -1]]),
    "some": np.array([[0, 0, 2, 0, 0, 1]]),
    "detailed": np.eye(N, dtype=np.int64),
}
STATED = [
    [],
    *([(name, level)] for name in SUMS for level in range(3)),
    [("total", 0), ("sex", 1)],
    [("total", 1), ("adult", 0)],
    [("total", 2), ("old men", 1)],
    [("sex", 1), ("age", 1)],
    [("sex", 2), ("age", 0), ("some", 1)],
    [("difference", 0), ("some", 2)],
]


def held(name: str, deepest: int) -> Held:
    rows = SUMS[name]
    labels = np.unique(rows.T, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return Held(name, deepest, labels, ~rows.any(axis=0))


def brute(
    stated: list[tuple[str, int]], possible: np.ndarray
) -> dict[tuple[Change | None, str], Comparable]:
    """For every statement: whether all, some or none of its pairs agree on everything."""
    legal = {d for d in data_sets() if all(possible[cell] for _, cell in d)}
    seen: dict[tuple[Change | None, str], set[bool]] = {}
    kept = {d: [answers(d, SUMS[name], deepest) for name, deepest in stated] for d in data_sets()}
    for one, other, kind in PAIRS:
        agree = one in legal and other in legal and kept[one] == kept[other]
        # A pair without any legal data set is no question that the zeros leave open.
        if one in legal or other in legal:
            seen.setdefault(kind, set()).add(agree)
    return {
        kind: Comparable.SOME
        if len(found) == 2
        else Comparable.ALL
        if found == {True}
        else Comparable.NONE
        for kind, found in seen.items()
    }


def _pairs() -> list[tuple[Data, Data, tuple[Change | None, str]]]:
    """All pairs of data sets that differ by one record, of at most one record and of two."""
    sets = data_sets()
    return [
        (one, other, kind)
        for index, one in enumerate(sets)
        for other in sets[index + 1 :]
        if abs(len(one) - len(other)) <= 1
        for kind in kind_of(one, other)
    ]


PAIRS = _pairs()


def everything(kept: Invariance) -> list[Neighborhood]:
    return [kept.added(), *kept.all()]


@pytest.mark.parametrize("stated", STATED, ids=str)
@pytest.mark.parametrize("zeros", [(), (5,), (2, 5), (1, 2, 4, 5), (0, 4, 5)], ids=str)
def test_as_many_neighbors_agree_as_in_all_small_data_sets(
    stated: list[tuple[str, int]], zeros: tuple[int, ...]
) -> None:
    possible = ~np.isin(np.arange(N), zeros)
    kept = Invariance(
        LEVELS, ATTRIBUTES, SHAPE, [held(*one) for one in stated], possible if zeros else None
    )
    expected = brute(stated, possible)
    found = {(one.change, one.name): one.comparable for one in everything(kept)}
    assert {kind: found[kind] for kind in expected} == expected


@pytest.mark.parametrize("stated", STATED, ids=str)
def test_moves_that_are_left_stay_where_it_is_said(stated: list[tuple[str, int]]) -> None:
    kept = Invariance(LEVELS, ATTRIBUTES, SHAPE, [held(*one) for one in stated])
    for found in everything(kept):
        if found.change is not Change.WITHIN or found.comparable is not Comparable.SOME:
            continue
        bound = LEVELS.index(found.stays_in)
        inside, across = set(), set()
        for one, other, kind in PAIRS:
            if kind != (Change.WITHIN, found.name):
                continue
            agree = all(answers(one, SUMS[n], d) == answers(other, SUMS[n], d) for n, d in stated)
            (left,), (right,) = Counter(one) - Counter(other), Counter(other) - Counter(one)
            is_inside = PLACES[left[0]][bound] == PLACES[right[0]][bound]
            (inside if is_inside else across).add(agree)
        assert inside <= {True}
        assert False in across


def test_what_limits_is_named() -> None:
    kept = Invariance(
        LEVELS, ATTRIBUTES, SHAPE, [held("total", 1), held("sex", 0)], places="the list"
    )
    assert kept.added().limited_by == ("total", "sex")
    assert kept.record() == Neighborhood(
        Change.RECORD, "", Comparable.SOME, ("total", "sex", "the list"), "county"
    )
    assert kept.attribute("sex") == Neighborhood(Change.ATTRIBUTE, "sex", Comparable.NONE, ("sex",))
    assert kept.attribute("age") == Neighborhood(Change.ATTRIBUTE, "age", Comparable.ALL)
    assert kept.within("root").stays_in == "county"
    assert kept.within("county").limited_by == ("the list",)


def test_limits_that_may_be_slack_leave_some() -> None:
    slack = Held("cap", 2, np.zeros(N, np.int64), np.zeros(N, np.bool_), is_exact=False)
    kept = Invariance(LEVELS, ATTRIBUTES, SHAPE, [slack])
    assert kept.added().comparable is Comparable.SOME
    assert kept.within("county") == Neighborhood(Change.WITHIN, "county", Comparable.SOME, ("cap",))
    assert kept.attribute("sex").comparable is Comparable.ALL


def test_a_million_cells_take_no_time_to_speak_of() -> None:
    shape = (2, 116, 2, 63, 42)
    n = int(np.prod(shape))
    labels = np.arange(n) // 42
    kept = Invariance(
        ("us", "block"), tuple("abcde"), shape, [Held("q", 0, labels, np.zeros(n, np.bool_))]
    )
    found = {one.name: one.comparable for one in kept.all()}
    assert found == {
        "": Comparable.SOME,
        **dict.fromkeys("abcd", Comparable.NONE),
        "e": Comparable.ALL,
        "us": Comparable.ALL,
    }
