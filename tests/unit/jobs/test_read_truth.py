"""Writing sorted entries: any batches give the same histograms; a second try leaves no trace."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from das.histograms import Histograms
from jobs.dataset import publish, read_manifest
from jobs.layout import ConfidentialLayout
from jobs.truth import read_truth, write_sorted

CODES = np.array([f"{i:04d}" for i in range(12)], np.bytes_)
N_CELLS = 5

entries = st.lists(
    st.tuples(st.integers(0, 11), st.integers(0, N_CELLS - 1), st.integers(1, 9)), max_size=60
)


def batches(rows: list[tuple[int, int, int]], cuts: list[int]) -> list[pa.RecordBatch]:
    rows = sorted(rows)
    edges = sorted({0, *(cut for cut in cuts if cut < len(rows)), len(rows)})
    out = []
    for low, high in zip([0, *edges], edges, strict=False):
        some = rows[low:high]
        columns = {
            "geocode": pa.array([CODES[g].decode() for g, _, _ in some], pa.string()),
            "cell": pa.array([cell for _, cell, _ in some], pa.int64()),
            "n": pa.array([n for _, _, n in some], pa.int64()),
            "bucket": pa.array([g // 5 for g, _, _ in some], pa.int32()),
        }
        out.append(pa.RecordBatch.from_pydict(columns))
    return out


@settings(max_examples=60, deadline=None)
@given(entries, st.lists(st.integers(0, 60), max_size=6))
def test_any_batches_give_the_same_histograms(
    rows: list[tuple[int, int, int]], cuts: list[int]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        layout = ConfidentialLayout(Path(folder))
        dataset = layout.histograms("block")
        attempts = [
            list(write_sorted(batches(rows, some), dataset, n_cells=N_CELLS, digits=4))
            for some in ([], cuts)
        ]
        publish(dataset, attempts[1], {})
        parts, _ = read_manifest(dataset)
        assert {path.name for path in dataset.glob("part-*")} == {part.file for part in parts}
        assert len(parts) == len({g // 5 for g, _, _ in rows})
        assert sum(part.facts["persons"] for part in parts) == sum(n for _, _, n in rows)
        found = read_truth(layout, "block", CODES, N_CELLS).reveal()
    owners, cells, counts = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    wanted = Histograms.from_entries(N_CELLS, 12, owners, cells, counts)
    assert np.array_equal(found.dense(), wanted.dense())
