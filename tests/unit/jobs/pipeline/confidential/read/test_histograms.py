"""Sparse histograms and their faults."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from das.errors import InputError
from jobs.pipeline.config.models.data import HistogramsData
from tests.unit.jobs.pipeline.confidential.read.reading import read

LISTS = pa.list_(pa.int64())


def write(folder: Path, rows: list[tuple[object, object, object]]) -> HistogramsData:
    path = folder / "truth.parquet"
    codes, cells, counts = zip(*rows, strict=True)
    columns = [pa.array(codes, pa.string()), pa.array(cells, LISTS), pa.array(counts, LISTS)]
    pq.write_table(pa.table(columns, names=["geocode", "cells", "counts"]), path)
    return HistogramsData(input_format="histograms", path=path)


def test_rows_in_any_order_with_empty_geounits_and_zeros(tmp_path: Path) -> None:
    data = write(tmp_path, [("0203", [5, 0], [1, 2]), ("0102", [], []), ("0101", [3], [0])])
    assert read(data) == Counter({("0203", 5): 1, ("0203", 0): 2})


@pytest.mark.parametrize(
    ("row", "what"),
    [
        (
            ("0102", [1, 2], [7777]),
            "row 2, columns cells and counts: cells and counts differ in length",
        ),
        (("0102", [6], [7777]), r"row 2, columns cells and counts: holds a cell outside 0..5"),
        (("0102", [-1], [7777]), r"row 2, columns cells and counts: holds a cell outside 0..5"),
        (("0102", [1], [-7777]), "row 2, columns cells and counts: count is negative"),
        (("0102", [1], [7777 * 10**15]), "row 2, columns cells and counts: count is too large"),
        (("0102", [1, 2], [7777, None]), "row 2, column counts: holds a missing value"),
        (("0102", None, [7777]), "row 2, column cells: list is missing"),
        (
            ("102", [1], [7777]),
            r"row 2, column geocode: geocode does not fit .* expected 4 letters",
        ),
        ((None, [1], [7777]), "row 2, column geocode: geocode is missing"),
    ],
)
def test_faults_name_the_row(tmp_path: Path, row: tuple[object, object, object], what: str) -> None:
    with pytest.raises(InputError, match=what) as caught:
        read(write(tmp_path, [("0101", [1], [1]), row]))
    assert "truth.parquet" in str(caught.value)
    assert "7777" not in str(caught.value)
    assert "102" not in str(caught.value).removeprefix(str(tmp_path))


def test_unsigned_counts_beyond_int64(tmp_path: Path) -> None:
    path = tmp_path / "truth.parquet"
    big = pa.array([[1], [1, 2**63 + 7777]], pa.list_(pa.uint64()))
    table = {"geocode": ["0101", "0102"], "cells": [[0], [0, 1]], "counts": big}
    pq.write_table(pa.table(table), path)
    with pytest.raises(InputError, match=r"row 2, columns .*: count is too large"):
        read(HistogramsData(input_format="histograms", path=path))


def test_the_first_fault_is_named(tmp_path: Path) -> None:
    rows = [("0101", [1], [1]), ("0102", [1], [-2]), ("0103", [9], [2]), ("0104", [1], [-3])]
    with pytest.raises(InputError, match=r"row 2, columns .*: count is negative"):
        read(write(tmp_path, rows))


def test_wrong_type(tmp_path: Path) -> None:
    path = tmp_path / "truth.parquet"
    pq.write_table(pa.table({"geocode": ["0101"], "cells": [1], "counts": [[1]]}), path)
    with pytest.raises(InputError, match="column cells: does not hold lists of integers"):
        read(HistogramsData(input_format="histograms", path=path))


def test_counts_that_no_population_has_are_refused_by_row(tmp_path: Path) -> None:
    quarter = 2**48
    rows = [(f"01{i:02d}", [0, 1], [quarter - 1, 1]) for i in range(3)]
    assert sum(read(write(tmp_path, rows)).values()) == 3 * quarter
    with pytest.raises(InputError, match=r"truth\.parquet, row 4: the counts of the file up to"):
        read(write(tmp_path, [*rows, ("0104", [0], [quarter])]))
    assert read(write(tmp_path, [*rows, ("0104", [0], [quarter - 1])]))["0104", 0] == quarter - 1
    largest = 10**18 - 1
    with pytest.raises(InputError, match=r"truth\.parquet, row 1: the counts of the file up to"):
        read(write(tmp_path, [("0101", [0, 1, 2, 3, 4], [largest] * 5)]))
