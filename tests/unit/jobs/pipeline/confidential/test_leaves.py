"""Gathering entries equals adding them up in a dict, whatever their order, pieces and ranges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import jobs.pipeline.confidential.leaves
from das.errors import InputError
from jobs.pipeline.confidential.leaves import gather_leaves
from jobs.pipeline.confidential.read.reader import Reader
from jobs.pipeline.config.models.data import InputFormat
from jobs.pipeline.storage.dataset import is_published
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.executor import LocalTasks
from tests.release_checks import sparse

CODES = np.array(sorted(f"9{c}{t}{b:02d}" for c in "012" for t in "05" for b in range(7)), "S5")
Entry = tuple[str, int, int]


TASKS = LocalTasks(Sizing(4), slots=5)


class InMemory(Reader[InputFormat, list[Entry]]):
    """An input whose pieces are lists of entries."""

    def pieces(self) -> list[list[Entry]]:
        return self.held

    def entries(self, piece: list[Entry]) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(piece), 4):
            rows = piece[start : start + 4]
            yield pa.RecordBatch.from_pydict(
                {
                    "geocode": [r[0] for r in rows],
                    "cell": pa.array([r[1] for r in rows], pa.int64()),
                    "n": pa.array([r[2] for r in rows], pa.int64()),
                }
            )

    def geocodes(self, piece: list[Entry]) -> Iterator[pa.Array]:
        raise NotImplementedError

    def places(self, geocode: str) -> list[str]:
        return ["people.csv, row 7"]


def source(pieces: list[list[Entry]]) -> InMemory:
    reader = InMemory(None, None, 5)
    object.__setattr__(reader, "held", pieces)
    return reader


def entries(seed: int, n: int = 300) -> list[Entry]:
    rng = np.random.default_rng(seed)
    return [
        (CODES[rng.integers(len(CODES))].decode(), int(rng.integers(6)), int(rng.integers(1, 9)))
        for _ in range(n)
    ]


def added(rows: list[Entry]) -> dict[str, dict[int, int]]:
    sums: dict[str, Counter[int]] = {}
    for code, cell, n in rows:
        sums.setdefault(code, Counter())[cell] += n
    return {code: dict(cells) for code, cells in sums.items()}


@pytest.mark.parametrize("run_entries", [7, 1000])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_equals_a_dict_of_sums(
    tmp_path: Path, seed: int, run_entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs.pipeline.confidential.leaves, "_RUN_ENTRIES", run_entries)
    rows = entries(seed)
    pieces = [rows[:100], [], rows[100:]]
    dataset = tmp_path / "level=block"
    gather_leaves(source(pieces), CODES, n_cells=6, dataset=dataset, tasks=TASKS)
    assert sparse(dataset) == added(rows)
    assert not (tmp_path / "runs").exists()


def test_no_persons_at_all(tmp_path: Path) -> None:
    dataset = tmp_path / "leaf"
    gather_leaves(source([[]]), CODES, n_cells=6, dataset=dataset, tasks=TASKS)
    assert sparse(dataset) == {}


def test_unknown_geocode_publishes_nothing(tmp_path: Path) -> None:
    rows = [*entries(4), ("91103", 0, 1), ("91104", 0, 1), ("92604", 0, 1)]
    what = r"people.csv, row 7: geocode is not in the list of geounits"
    with pytest.raises(InputError, match=what) as caught:
        gather_leaves(source([rows]), CODES, n_cells=6, dataset=tmp_path / "leaf", tasks=TASKS)
    assert "91103" not in str(caught.value)
    assert not is_published(tmp_path / "leaf")
    assert not (tmp_path / "runs").exists()


def test_pieces_whose_sum_int64_cannot_hold_publish_nothing(tmp_path: Path) -> None:
    pieces = [[(CODES[i].decode(), 0, 2**61)] for i in range(2)]
    with pytest.raises(InputError, match="counts of all files add up to too many"):
        gather_leaves(source(pieces), CODES, n_cells=6, dataset=tmp_path / "leaf", tasks=TASKS)
    assert not (tmp_path / "runs").exists()
    assert not is_published(tmp_path / "leaf")


def test_ranges_cover_each_code_once() -> None:
    ranges = jobs.pipeline.confidential.leaves._ranges(CODES, 5, 50_000)
    assert len(ranges) == 5
    for code in CODES:
        assert sum(low <= code.decode() <= high for low, high in ranges) == 1
