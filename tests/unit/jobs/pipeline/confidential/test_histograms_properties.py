"""Histograms mean the same as sums in a plain dict."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import pprint
import traceback
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.pretty import pretty_repr

from das.confidential import Confidential
from das.errors import DasError
from das.histograms import Histograms
from das.metrics.accuracy import Change, summarize
from jobs.pipeline.input.files import Batch, Chunk, Table
from jobs.pipeline.storage.dataset import PartFile
from tests.builders.histograms import from_dense
from tests.builders.strategies import dense_counts

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
    histograms = from_dense(counts)
    assert np.array_equal(histograms.dense(), counts)
    assert (histograms.counts > 0).all()


@given(dense_counts(6, most_geounits=5), st.data())
def test_a_slice_is_the_rows_of_the_dense_table(counts, data):
    start = data.draw(st.integers(0, len(counts)))
    stop = data.draw(st.integers(start, len(counts)))
    part = from_dense(counts).slice(start, stop)
    assert np.array_equal(part.dense(), counts[start:stop])
    assert np.array_equal(part.totals(), counts[start:stop].sum(1))


# --- what holds truth does not show it -----------------------------------------------------------

SECRETS = st.lists(st.integers(10**9, 10**12), min_size=1, max_size=6)


def holders(secrets: list[int]) -> list[object]:
    """One of every class that holds true counts or rows of the input."""
    histograms = from_dense(np.array([secrets, secrets[::-1]], np.int64))
    here, n = Path("here"), secrets[0]
    chunk, table = Chunk(here, "csv", 0, 9), Table(here, ("n",))
    part = PartFile("part", 1, "1", "1", 9, "", {"persons": n})
    return [
        Confidential(n),
        Confidential(histograms),
        Confidential(np.array(secrets)),
        histograms,
        Batch(pa.table({"n": secrets}), chunk, 0, table),
        part,
        Change(-n, "1", n, n),
        summarize(["1", "2"], histograms.totals(), histograms.dense(), histograms.dense()),
    ]


def texts_of(value: object) -> list[str]:
    """Every way in which a value becomes text by accident."""
    record = logging.LogRecord("das", logging.INFO, "", 0, "read %s and %r", (value, value), None)
    error = DasError("here", "is wrong", got=value)
    return [
        *(repr(value), str(value), f"{value}", f"{value!r:>300}"),
        *(str([value]), repr({"a": (value,)}), pprint.pformat([value]), pretty_repr([value])),
        *(record.getMessage(), json.dumps({"a": value}, default=str), str(error)),
        *traceback.format_exception(ValueError(value)),
    ]


@given(SECRETS)
def test_no_text_form_shows_a_count(secrets):
    for value in holders(secrets):
        for text in texts_of(value):
            assert not any(str(n) in text or f"{n:,}" in text for n in secrets), type(value)
            assert not any(f"{float(n):.6e}"[:7] in text for n in secrets), type(value)
        with pytest.raises(TypeError):
            vars(value)


@given(SECRETS)
def test_the_text_of_histograms_is_their_shape(secrets):
    both = from_dense(np.array([secrets, secrets], np.int64))
    one = from_dense(np.array([secrets, [0] * len(secrets)], np.int64))
    assert repr(one) == repr(both) == f"Histograms(2 geounits, {len(secrets)} cells)"


@given(SECRETS, st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_nothing_confidential_is_pickled(secrets, protocol):
    for value in holders(secrets)[:3]:
        with pytest.raises(DasError, match="must not be pickled") as caught:
            pickle.dumps([value], protocol)
        with pytest.raises(DasError):
            copy.deepcopy(value)
        assert not any(str(n) in str(caught.value) for n in secrets)


def test_histograms_survive_the_way_to_another_process():
    given_one = from_dense(np.array([[1, 0], [2, 3]]))
    copied = pickle.loads(pickle.dumps(given_one))
    assert np.array_equal(copied.dense(), given_one.dense())
