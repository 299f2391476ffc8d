"""Numbers come back from bytes as they were, whatever their size, slices and chunks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.pipeline.storage.columns import (
    PACKED,
    packed,
    row_sizes,
    unpacked,
    with_lists,
)

MOST = np.iinfo(np.int64)
EDGES = [0, 126, 127, 128, -127, -128, -129, 32767, 32768, -32767, -32768, -32769, MOST.min,
         MOST.max]  # fmt: skip
numbers = st.lists(st.sampled_from(EDGES) | st.integers(-200, 200), max_size=6)


def table_of(rows: list[list[int]]) -> pa.Table:
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    values = np.array([n for row in rows for n in row], np.int64)
    columns = [pa.array(range(len(rows)), pa.int64()), *packed(values, offsets)]
    return pa.table(columns, schema=pa.schema([("row", pa.int64()), *PACKED]))


@given(
    groups=st.lists(st.lists(numbers, min_size=1, max_size=5), min_size=1, max_size=3),
    cut=st.tuples(st.integers(0, 6), st.integers(0, 6)),
)
def test_rows_come_back(groups: list[list[list[int]]], cut: tuple[int, int]) -> None:
    """Tables of several widths in one, a slice of it, and what a file makes of it."""
    whole = pa.concat_tables([table_of(rows) for rows in groups])
    rows = [row for group in groups for row in group]
    start, stop = sorted(cut)
    for table, wanted in ((whole, rows), (whole.slice(start, stop - start), rows[start:stop])):
        assert unpacked(table).tolist() == [n for row in wanted for n in row]
        assert unpacked(table).dtype == np.int64
        assert row_sizes(table).tolist() == [len(row) for row in wanted]
        assert with_lists(table).column("answers").to_pylist() == wanted
    sink = pa.BufferOutputStream()
    pq.write_table(whole, sink)
    assert with_lists(pq.read_table(pa.BufferReader(sink.getvalue()))).column(
        "answers"
    ).to_pylist() == rows  # fmt: skip


@pytest.mark.parametrize(
    ("values", "width", "escaped"),
    [
        (range(-127, 128), 1, 0),
        ([*range(-63, 64), 128], 1, 1),
        ([*range(-63, 64), -128], 1, 1),  # stands for others, so it is one of them
        ([1, 2, 128], 2, 0),
        ([*[1000] * 63, 40_000], 2, 1),
        ([1000, 40_000], 8, 0),
        ([], 1, 0),
    ],
)
def test_most_numbers_decide_the_width(values: list[int], width: int, escaped: int) -> None:
    table = table_of([list(values)])
    assert table.column("width").to_pylist() == [width]
    assert len(table.column("answers")[0].as_py()) == width * len(values)
    assert len(table.column("escaped")[0].as_py()) == 8 * escaped


@pytest.mark.parametrize("rows", [[[1, 2, 3], [4], [], [5, 6], [7] * 4, [8]], [[], []], []])
def test_bytes_beyond_what_offsets_hold_are_another_chunk(monkeypatch, rows) -> None:
    monkeypatch.setattr("jobs.pipeline.storage.columns._MOST_BYTES", 4)
    table = table_of(rows)
    chunks = table.column("answers").chunks
    assert all(len(b"".join(chunk.to_pylist())) <= 4 for chunk in chunks)
    assert len(chunks) == (4 if len(rows) > 2 else 1)
    assert unpacked(table).tolist() == [n for row in rows for n in row]
    assert row_sizes(table).tolist() == [len(row) for row in rows]
    with pytest.raises(ValueError, match="a row of 5 bytes, more than 4"):
        table_of([[1], [1, 2, 3, 4, 5]])


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_any_integers_are_packed(dtype: type) -> None:
    values = np.array([np.iinfo(dtype).min, -1, 0, np.iinfo(dtype).max], dtype)
    columns = packed(values, np.array([0, 4]))
    assert unpacked(pa.table(columns, schema=pa.schema(PACKED))).tolist() == values.tolist()
