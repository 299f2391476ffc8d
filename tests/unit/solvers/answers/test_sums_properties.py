"""Sums of answers over families are those of Python's integers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from das.tree import coordinates
from solvers.answers.sums import family_sums, group_sums


@contextmanager
def compiler(*, there: bool) -> Iterator[None]:
    """Sums as in an installation with numba, or without."""
    with pytest.MonkeyPatch.context() as patch:
        if not there:
            patch.setattr("solvers.answers.sums.has_compiler", lambda: False)
            patch.setattr("solvers.answers.sums.kernels", lambda _: pytest.fail("compiled"))
        yield


@given(
    sizes=st.lists(st.integers(1, 4), max_size=5),
    width=st.integers(0, 3),
    kind=st.sampled_from([np.int16, np.int32, np.int64]),
    seed=st.integers(0, 9),
    compiled=st.booleans(),
)
def test_sums_are_exact(sizes, width, kind, seed, compiled):
    most = np.iinfo(kind).max // (8 if kind is np.int64 else 1)  # the largest answers overflow none
    rng = np.random.default_rng(seed)
    answers = rng.integers(-most, most, (sum(sizes), width), kind, endpoint=True)
    starts = np.cumsum([0, *sizes])[:-1] if sizes else np.zeros(0, np.int64)
    with compiler(there=compiled):
        found = family_sums(answers, starts)
    assert (found.dtype, found.shape) == (np.int64, (len(sizes), width))
    rows = answers.tolist()
    for start, size, sums in zip(starts.tolist(), sizes, found.tolist(), strict=True):
        assert sums == [sum(column) for column in zip(*rows[start : start + size], strict=True)]


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("kind", [np.int16, np.int64])
def test_answers_in_any_memory_are_added(kind, there):
    answers = np.arange(12, dtype=kind).reshape(3, 4)
    answers.setflags(write=False)
    starts = np.array([0, 2])
    with compiler(there=there):
        assert family_sums(answers, starts).tolist() == [[4, 6, 8, 10], [8, 9, 10, 11]]
        assert family_sums(answers.T, starts).tolist() == [[1, 9, 17], [5, 13, 21]]


def test_a_family_without_geounits_has_no_answers():
    for there in (True, False):
        with compiler(there=there):
            assert family_sums(np.ones((2, 1), int), np.array([0, 1, 1])).tolist() == [
                [1],
                [0],
                [1],
            ]


@given(
    shape=st.lists(st.integers(1, 4), min_size=2, max_size=5),
    axis=st.integers(1, 4),
    kind=st.sampled_from([np.int16, np.int32, np.int64]),
    seed=st.integers(0, 99),
)
def test_groups_along_an_axis_are_those_of_arrays(shape, axis, kind, seed):
    axis = min(axis, len(shape) - 1)
    rng = np.random.default_rng(seed)
    group = np.unique(rng.integers(0, shape[axis], shape[axis]), return_inverse=True)[1]
    most = 2**30 if kind is np.int64 else np.iinfo(kind).max
    answers = rng.integers(-most, most, shape, kind, endpoint=True)
    found, wanted = (add(answers, axis, group) for add in (group_sums, coordinates.group_sums))
    assert found.dtype == wanted.dtype
    assert found.tolist() == wanted.tolist()
    (plain,) = (np.moveaxis(answers, axis, 0).astype(object),)
    sums = [
        sum(row for row, g in zip(plain, group, strict=True) if g == i)
        for i in range(group.max() + 1)
    ]
    assert np.moveaxis(found, axis, 0).tolist() == [np.asarray(one).tolist() for one in sums]
