"""Errors of replicates as files: what is read is what was written, and sums are exact."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from das.errors import OutputError
from das.metrics.replicates import Compared, add_errors, compare
from das.queries.query import parse_query
from das.schema import Attribute, Schema
from jobs.pipeline.release.intervals import Asked, gather_errors, read_errors, write_errors
from tests.builders.histograms import from_dense

SCHEMA = Schema("s", (Attribute("a", ("x", "y")), Attribute("b", ("u", "v", "w"))))
ASKED = tuple(
    Asked(generation, "persons", geolevel, query)
    for generation in (1, 2)
    for geolevel in ("county", "block")
    for query in ("total", "a * b")
)


def errors(seed: int) -> dict[Asked, Compared]:
    rng = np.random.default_rng(seed)
    found = {}
    for asked in ASKED:
        one, other = (from_dense(rng.poisson(3, (50, 6))) for _ in range(2))
        found[asked] = compare(parse_query(SCHEMA, asked.query), one, other)
    return found


def same(one: Compared, other: Compared) -> bool:
    return all(
        np.array_equal(getattr(getattr(one, side), name), getattr(getattr(other, side), name))
        for side in ("by_release", "by_replicate")
        for name in ("keys", "counts")
    )


def test_what_is_gathered_is_the_sum_of_what_was_written(tmp_path: Path):
    written = [errors(1), errors(2), {a: e for a, e in errors(3).items() if a.generation == 1}]
    files = [tmp_path / f"{number}.parquet" for number in range(3)]
    for file, one in zip(files, written, strict=True):
        write_errors(file, one)
    gathered = gather_errors([read_errors(file) for file in files])
    assert sorted(gathered) == sorted(ASKED)
    for asked in ASKED:
        parts = [one[asked] for one in written if asked in one]
        wanted = Compared(
            add_errors(part.by_release for part in parts),
            add_errors(part.by_replicate for part in parts),
        )
        assert same(gathered[asked], wanted)


def test_what_is_no_file_of_errors_is_named(tmp_path: Path):
    file = tmp_path / "1.parquet"
    with pytest.raises(OutputError, match="is missing"):
        read_errors(file)
    write_errors(file, errors(1))
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(OutputError, match="is damaged"):
        read_errors(file)
