"""Histograms mean the same as sums in a plain dict."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from das.histograms import Histograms
from tests.strategies import dense_counts

ENTRIES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(0, 3)), max_size=25)


def as_dict(histograms: Histograms) -> dict[tuple[int, int], int]:
    triples = zip(histograms.owners(), histograms.cells, histograms.counts, strict=True)
    return {(int(g), int(cell)): int(count) for g, cell, count in triples}


@given(ENTRIES)
def test_entries_are_summed_in_any_order(entries):
    expected: Counter[tuple[int, int]] = Counter()
    for g, cell, count in entries:
        expected[g, cell] += count
    columns = np.array(entries, np.int64).reshape(-1, 3).T
    histograms = Histograms.from_entries(7, 5, *columns)
    assert as_dict(histograms) == {key: count for key, count in expected.items() if count}
    assert histograms.n_geounits == 5
    assert histograms.totals().tolist() == [
        sum(count for (g, _), count in expected.items() if g == geounit) for geounit in range(5)
    ]


@given(dense_counts(6, most_geounits=5))
def test_dense_round_trip(counts):
    histograms = Histograms.from_dense(counts)
    assert np.array_equal(histograms.dense(), counts)
    assert (histograms.counts > 0).all()


@given(dense_counts(6, most_geounits=5), st.data())
def test_a_slice_is_the_rows_of_the_dense_table(counts, data):
    start = data.draw(st.integers(0, len(counts)))
    stop = data.draw(st.integers(start, len(counts)))
    part = Histograms.from_dense(counts).slice(start, stop)
    assert np.array_equal(part.dense(), counts[start:stop])
    assert np.array_equal(part.totals(), counts[start:stop].sum(1))
