"""What invariants leave to compare, against all pairs of small data sets."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import numpy as np

from das.privacy.neighborhoods import Comparable, Distance, Held, Invariance, Neighborhood
from das.privacy.semantics import Change
from das.queries.sensitivity import Neighbors

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


def weighted(name: str, deepest: int) -> Held:
    """As `held`; the sums of one row by its weights, as a linear row has them."""
    rows = SUMS[name]
    if len(rows) > 1 or name == "total":
        return held(name, deepest)
    return Held(name, deepest, rows[0], rows[0] == 0, is_weighted=True)


def nearest(stated: list[tuple[str, int]], possible: np.ndarray, *, bounded: bool) -> int | None:
    """The fewest records, at most four to add and remove, between data sets that agree."""
    cells = [(place, cell) for place in range(len(PLACES)) for cell in np.flatnonzero(possible)]
    spots: dict[tuple[int, str, int], int] = {}
    rows = []
    for record in cells:
        row = {(0, "records", 0): 1} if bounded else {}
        for number, (name, deepest) in enumerate(stated):
            for spot, value in answers((record,), SUMS[name], deepest).items():
                row[number, *spot] = value
        for spot in row:
            spots.setdefault(spot, len(spots))
        rows.append(row)
    signatures = np.zeros((len(cells), max(1, len(spots))), np.int64)
    for index, row in enumerate(rows):
        for spot, value in row.items():
            signatures[index, spots[spot]] = value
    eye = np.eye(len(cells), dtype=np.int64)
    signed = np.concatenate([eye, -eye])
    pairs = [signed[i] + signed[j] for i in range(len(signed)) for j in range(i, len(signed))]
    changes = np.unique(
        np.concatenate([np.zeros((1, len(cells)), np.int64), signed, pairs]), axis=0
    )
    groups: dict[bytes, list[np.ndarray]] = {}
    for change, total in zip(changes, changes @ signatures, strict=True):
        groups.setdefault(total.tobytes(), []).append(change)
    sizes = []
    for group in groups.values():
        for index, one in enumerate(group[:-1]):
            sizes.append(int(np.abs(np.stack(group[index + 1 :]) - one).sum(axis=1).min()))
    if not sizes:
        return None
    return min(sizes) // (2 if bounded else 1)


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


def test_as_many_neighbors_agree_as_in_all_small_data_sets() -> None:
    for stated, zeros in itertools.product(STATED, [(), (5,), (2, 5), (1, 2, 4, 5), (0, 4, 5)]):
        possible = ~np.isin(np.arange(N), zeros)
        kept = Invariance(
            LEVELS, ATTRIBUTES, SHAPE, [held(*one) for one in stated], possible if zeros else None
        )
        expected = brute(stated, possible)
        found = {(one.change, one.name): one.comparable for one in everything(kept)}
        assert {kind: found[kind] for kind in expected} == expected


def test_moves_that_are_left_stay_where_it_is_said() -> None:
    for stated in STATED:
        kept = Invariance(LEVELS, ATTRIBUTES, SHAPE, [held(*one) for one in stated])
        for found in everything(kept):
            if found.change is not Change.WITHIN or found.comparable is not Comparable.SOME:
                continue
            bound = LEVELS.index(found.stays_in)
            inside, across = set(), set()
            for one, other, kind in PAIRS:
                if kind != (Change.WITHIN, found.name):
                    continue
                agree = all(
                    answers(one, SUMS[n], d) == answers(other, SUMS[n], d) for n, d in stated
                )
                (left,), (right,) = Counter(one) - Counter(other), Counter(other) - Counter(one)
                is_inside = PLACES[left[0]][bound] == PLACES[right[0]][bound]
                (inside if is_inside else across).add(agree)
            assert inside <= {True}
            assert False in across


FAR = [
    [("detailed", 0), ("total", 2)],  # records may swap places
    [("detailed", 1), ("total", 2)],
    [("weights", 2)],
    [("weights", 2), ("total", 2)],
    [("weights", 0), ("detailed", 1), ("sex", 2)],
    [("difference", 2), ("age", 2)],
    [("signs", 2)],
    [("powers", 2), ("total", 1)],
]
SUMS["weights"] = np.array([[1, 2, 3, 4, 5, 7]])
SUMS["signs"] = np.array([[1, 2, 4, -1, 8, 16]])
SUMS["powers"] = np.array([[1, 5, 25, 125, 625, 3125]])


def test_the_nearest_data_sets_are_as_far_as_among_all_changes_of_four_records() -> None:
    for stated, zeros in itertools.product([*STATED[::3], *FAR], [(), (2, 5), (1, 2, 3, 4, 5)]):
        possible = ~np.isin(np.arange(N), zeros)
        kept = Invariance(
            LEVELS,
            ATTRIBUTES,
            SHAPE,
            [weighted(*one) for one in stated],
            possible if zeros else None,
        )
        for neighbors in Neighbors:
            bounded = neighbors is Neighbors.BOUNDED
            least = nearest(stated, possible, bounded=bounded)
            found = kept.distance(neighbors)
            if least is not None:
                assert found == Distance(least)
            else:
                assert found in {Distance(None), Distance(3 if bounded else 5, is_least=False)}


def test_what_is_published_whole_leaves_no_other_data_set() -> None:
    kept = Invariance(LEVELS, ATTRIBUTES, SHAPE, [held("detailed", 2)])
    assert {kept.distance(neighbors) for neighbors in Neighbors} == {Distance(None)}


def test_of_many_cells_it_says_that_there_may_be_nearer_ones() -> None:
    shape = (1000,)
    weights = np.arange(1, 1001)
    none = np.zeros(1000, np.bool_)
    kept = Invariance(
        ("us", "block"), ("a",), shape, [Held("w", 1, weights, none, is_weighted=True)]
    )
    assert kept.distance(Neighbors.UNBOUNDED) == Distance(2, is_least=False)
    assert kept.distance(Neighbors.BOUNDED) == Distance(2, is_least=False)


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
