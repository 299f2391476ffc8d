"""Families of sets: which are laminar, and what contains what."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from solvers.rounding.sums import NO_SET, arrange


def groups_of(*sets: list[int], cells: int = 5) -> list[np.ndarray]:
    return [np.where(np.isin(np.arange(cells), one), 0, -1) for one in sets]


def coarsened(first: np.ndarray, second: np.ndarray) -> list[list[int]] | None:
    """For every set of the second partition, the sets of the first it is made of, if it is."""
    family, items = arrange([first, second])
    if family.parents is None:
        return None
    n = int(first.max()) + 1
    out = []
    for item in items[n:]:
        out.append([])
        for number, inner in enumerate(items[:n]):
            while inner not in (item, NO_SET):
                inner = family.parents[inner]
            if inner == item:
                out[-1].append(number)
    sizes = [sum((first == number).sum() for number in one) for one in out]
    return out if sizes == np.bincount(second).tolist() else None


def test_one_partition_coarsens_another_or_not():
    """The cases the 2020 system was checked with."""
    A, one_by_one, C = np.array([0, 1, 0, 1, 1]), np.arange(5), np.array([0, 1, 2, 3, 3])
    assert coarsened(A, one_by_one) is None
    assert coarsened(C, one_by_one) is None
    assert coarsened(A, C) is None
    assert coarsened(C, A) == [[0, 2], [1, 3]]
    assert coarsened(one_by_one, C) == [[0], [1], [2], [3, 4]]


def test_equal_sets_count_once_and_single_cells_are_cells():
    family, items = arrange(groups_of([0, 1], [2], [1, 0], [0, 1, 2]))
    assert items.tolist() == [1, 4, 1, 0]
    assert family.parents.tolist() == [NO_SET, 0, 1, 1, 0, NO_SET, NO_SET]
    assert family.incidence.toarray().tolist() == [[1, 1, 1, 0, 0], [1, 1, 0, 0, 0]]
    assert family.items.toarray().tolist() == [
        [1, 1, 1, 0, 0],
        [1, 1, 0, 0, 0],
        *np.eye(5, dtype=int).tolist(),
    ]


def test_sets_that_share_some_cells_cross():
    assert arrange(groups_of([0, 1, 2], [2, 3]))[0].parents is None
    assert arrange(groups_of([0, 1, 2], [3, 4]))[0].parents is not None


@given(st.lists(st.sets(st.integers(0, 4), min_size=1).map(sorted), min_size=1, max_size=5))
def test_parents_are_the_smallest_sets_around(sets):
    family, items = arrange(groups_of(*sets))
    distinct = {tuple(one) for one in sets}
    crossing = any(
        set(a) & set(b) and not set(a) <= set(b) and not set(b) <= set(a)
        for a, b in itertools.combinations(distinct, 2)
    )
    assert (family.parents is None) == crossing
    rows = [tuple(np.flatnonzero(row).tolist()) for row in family.items.toarray()]
    assert family.sizes.tolist() == [len(row) for row in rows[: family.n_sets]]
    values = np.arange(10).reshape(2, 5) ** 2
    assert np.array_equal(family.add(values), values @ family.incidence.toarray().T)
    assert [rows[item] for item in items] == [tuple(one) for one in sets]
    assert sorted(rows[: family.n_sets]) == sorted(one for one in distinct if len(one) > 1)
    if crossing:
        return
    for cells, parent in zip(rows, family.parents, strict=True):
        around = [one for one in distinct if set(cells) < set(one)]
        assert (rows[parent] if parent != NO_SET else ()) == min(around, key=len, default=())
