"""Sparse histograms on disk: rows only for geounits with persons, aligned on the way back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from das.errors import OutputError
from jobs.pipeline.storage.dataset import Dataset, PartWriter, publish
from jobs.pipeline.storage.histograms import (
    SPARSE_SCHEMA,
    align_histograms,
    read_counts,
    read_histograms,
    sparse_table,
)
from jobs.pipeline.storage.layout import ReleaseLayout
from tests.builders.datasets import publish_tables
from tests.builders.histograms import from_dense

CODES = ("01", "02", "03", "04")
DENSE = np.array([[0, 2, 0], [0, 0, 0], [1, 0, 5], [0, 0, 0]])


def test_rows_only_for_geounits_with_persons():
    table = sparse_table(CODES, from_dense(DENSE))
    assert table.schema == SPARSE_SCHEMA
    assert table.to_pylist() == [
        {"geocode": "01", "cells": [1], "counts": [2]},
        {"geocode": "03", "cells": [0, 2], "counts": [1, 5]},
    ]


def test_nobody_anywhere_is_no_row():
    table = sparse_table(CODES, from_dense(DENSE * 0))
    assert (table.num_rows, table.schema) == (0, SPARSE_SCHEMA)
    assert align_histograms(table, CODES, 3).dense().tolist() == [[0] * 3] * 4


def test_no_geounits_is_no_row():
    empty = from_dense(np.zeros((0, 3), np.int64))
    assert sparse_table((), empty).num_rows == 0


def test_rows_come_back_where_they_belong():
    table = sparse_table(CODES, from_dense(DENSE))
    assert np.array_equal(align_histograms(table, CODES, 3).dense(), DENSE)


def test_rows_of_other_geounits_are_left_out():
    table = sparse_table(CODES, from_dense(DENSE + 1))
    for wanted in (["01", "04"], ["03"], ["00", "02", "05"], []):
        expected = [
            (DENSE + 1)[CODES.index(code)].tolist() if code in CODES else [0] * 3 for code in wanted
        ]
        assert align_histograms(table, wanted, 3).dense().tolist() == expected


def test_rows_in_several_chunks():
    whole = sparse_table(CODES, from_dense(DENSE + 1))
    chunks = pa.concat_tables([whole.slice(0, 1), whole.slice(1, 2), whole.slice(3, 1)])
    assert np.array_equal(align_histograms(chunks, CODES, 3).dense(), DENSE + 1)
    assert np.array_equal(
        align_histograms(chunks.slice(1, 2), CODES, 3).dense()[1:3], (DENSE + 1)[1:3]
    )


def test_histograms_of_several_parts(tmp_path):
    histograms = from_dense(DENSE)
    publish_tables(
        tmp_path / "d",
        [
            sparse_table(CODES[start:stop], histograms.slice(start, stop))
            for start, stop in ((2, 4), (0, 2))
        ],
    )
    dataset = Dataset.open(tmp_path / "d")
    for start, stop in ((0, 4), (1, 3), (1, 2), (3, 4), (2, 2)):
        found = read_histograms(dataset, CODES[start:stop], 3)
        assert np.array_equal(found.dense(), DENSE[start:stop])
    assert np.array_equal(read_histograms(replace(dataset, parts=()), CODES, 3).dense(), DENSE * 0)


def test_counts_of_a_geolevel_that_is_not_solved(tmp_path):
    with pytest.raises(OutputError) as caught:
        read_counts(ReleaseLayout(tmp_path), "county", CODES, 3)
    assert str(caught.value).startswith(f"{tmp_path / 'counts' / 'level=county'}: is not complete")


def test_counts_of_a_solved_geolevel(tmp_path):
    layout = ReleaseLayout(tmp_path)
    writer = PartWriter(layout.counts("county"), SPARSE_SCHEMA)
    writer.write(sparse_table(CODES, from_dense(DENSE)))
    publish(layout.counts("county"), [writer.close()], {})
    assert np.array_equal(read_counts(layout, "county", CODES, 3).dense(), DENSE)
