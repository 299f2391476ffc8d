"""Sums of answers over families are those of Python's integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvers.answers.sums import family_sums


@given(
    sizes=st.lists(st.integers(1, 4), max_size=5),
    width=st.integers(0, 3),
    kind=st.sampled_from([np.int16, np.int32, np.int64]),
    seed=st.integers(0, 9),
)
def test_sums_are_exact(sizes, width, kind, seed):
    most = np.iinfo(kind).max // (8 if kind is np.int64 else 1)  # the largest answers overflow none
    rng = np.random.default_rng(seed)
    answers = rng.integers(-most, most, (sum(sizes), width), kind, endpoint=True)
    starts = np.cumsum([0, *sizes])[:-1] if sizes else np.zeros(0, np.int64)
    found = family_sums(answers, starts)
    assert (found.dtype, found.shape) == (np.int64, (len(sizes), width))
    rows = answers.tolist()
    for start, size, sums in zip(starts.tolist(), sizes, found.tolist(), strict=True):
        assert sums == [sum(column) for column in zip(*rows[start : start + size], strict=True)]


@pytest.mark.parametrize("kind", [np.int16, np.int64])
def test_answers_in_any_memory_are_added(kind):
    answers = np.arange(12, dtype=kind).reshape(3, 4)
    answers.setflags(write=False)
    starts = np.array([0, 2])
    assert family_sums(answers, starts).tolist() == [[4, 6, 8, 10], [8, 9, 10, 11]]
    assert family_sums(answers.T, starts).tolist() == [[1, 9, 17], [5, 13, 21]]
