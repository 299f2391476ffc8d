"""Reading a range gives what a naive filter over all rows gives."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import jobs.pipeline.storage.dataset
from jobs.pipeline.storage.dataset import Dataset, PartWriter, RangeReader, publish, verify_files

SCHEMA = pa.schema([("geocode", pa.string()), ("value", pa.int64())])
CODES = st.text(alphabet="0129", min_size=1, max_size=3)
BOUND = st.one_of(CODES, st.just(""), st.just("\x7f"))


@given(
    st.sets(CODES, max_size=14),
    st.lists(st.integers(0, 14), max_size=4),
    st.lists(st.tuples(BOUND, BOUND), min_size=1, max_size=4),
    st.sampled_from([1, 60, 1 << 22]),
)
def test_reading_a_range_is_a_filter(codes, cuts, ranges, row_group_bytes):
    rows = [(code, index) for index, code in enumerate(sorted(codes))]
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    before = jobs.pipeline.storage.dataset.ROW_GROUP_BYTES
    jobs.pipeline.storage.dataset.ROW_GROUP_BYTES = row_group_bytes
    try:
        with tempfile.TemporaryDirectory() as folder:
            dataset = Path(folder) / "level=block"
            parts = []
            for start, stop in zip(edges, edges[1:], strict=False):
                writer = PartWriter(dataset, SCHEMA)
                for code, value in rows[start:stop]:
                    writer.write(pa.table({"geocode": [code], "value": [value]}, schema=SCHEMA))
                parts.append(writer.close())
            publish(dataset, parts[::-1], {})
            opened = Dataset.open(dataset)
            verify_files(dataset)
            reader = RangeReader(opened)
            for low, high in ranges:
                expected = [row for row in rows if low <= row[0] <= high]
                for table in (opened.read(low, high), reader.read(low, high)):
                    assert table.schema == SCHEMA
                    assert list(zip(*table.to_pydict().values(), strict=True)) == expected
    finally:
        jobs.pipeline.storage.dataset.ROW_GROUP_BYTES = before
