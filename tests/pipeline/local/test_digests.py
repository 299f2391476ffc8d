"""Small seeded runs come to the same on every processor, however they are cut."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench import digests
from tests.processors import PROCESSORS

FEW = ("toy-solve/full", "toy-planned/orp/sum_of_variances", "ri-2010-learned")
HERE = [name for name, one in PROCESSORS.items() if not one.lacking]


def line(
    environment: dict[str, str],
    *arguments: str,
) -> dict[str, str]:
    """What the bench prints in a process of its own."""
    command = [sys.executable, "-m", "bench.digests", "--quick", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def differing(one: dict[str, str], other: dict[str, str]) -> list[str]:
    return sorted(key for key in {*one, *other} if one.get(key) != other.get(key))


def test_two_processors_come_to_the_same():
    if len(HERE) < 2:
        pytest.skip(f"this machine can be no two of {', '.join(PROCESSORS)}")
    one, other = (line(PROCESSORS[name].variables(), "--only", *FEW) for name in HERE[:2])
    assert len(one) > 40
    assert differing(one, other) == []


@pytest.mark.long
@pytest.mark.parametrize("name", PROCESSORS)
def test_every_processor_comes_to_the_same(name, whole_line):
    if PROCESSORS[name].lacking:
        pytest.skip(f"this machine lacks {PROCESSORS[name].lacking}")
    assert differing(line(PROCESSORS[name].variables()), whole_line) == []


@pytest.mark.long
@pytest.mark.parametrize("threads", ["1", "2"])
def test_threads_hashing_places_and_times_change_nothing(threads, whole_line, tmp_path):
    other = {
        "OPENBLAS_NUM_THREADS": threads,
        "OMP_NUM_THREADS": threads,
        "PYTHONHASHSEED": threads,
        "TZ": "Asia/Kathmandu",
        "LC_ALL": "C",
        "HOME": str(tmp_path),
    }
    assert differing(line({**os.environ, **other}), whole_line) == []


@pytest.fixture(scope="module")
def whole_line() -> dict[str, str]:
    """The line as this machine prints it."""
    return line(dict(os.environ))


def test_digests_see_a_moved_person_and_no_moved_row(tmp_path: Path):
    """Rows in other files and another order are the same dataset; another count is not."""
    header, rows = "geocode,sex,count\n", ["1,f,3\n", "1,m,0\n", "2,f,1\n"]

    def write(name: str, *files: list[str]) -> str:
        folder = tmp_path / name
        folder.mkdir()
        for number, some in enumerate(files):
            (folder / f"{number}.csv").write_text(header + "".join(some))
        parts = [
            {"file": f"{number}.csv", "rows": len(some), "low": "", "high": "", "bytes": 0,
             "sha256": ""}
            for number, some in enumerate(files)
        ]  # fmt: skip
        (folder / "_manifest.json").write_text(json.dumps({"facts": {}, "files": parts}))
        return digests.digest_of(folder)

    first = write("one", rows)
    assert write("two", rows[2:], rows[:2]) == first
    assert write("changed", ["1,f,2\n", *rows[1:]]) != first
    assert write("twice", [*rows, rows[0]]) != first


@pytest.mark.parametrize("value", [0.0, 0.5, 1 / 3, 2.25, 1e-3, 2.5e-3, -7.0005, 1234.56789])
def test_last_digits_do_not_enter_digests(value: float):
    assert digests._on_grid(value + 1e-9) == digests._on_grid(value - 1e-9)
    assert digests._on_grid(value + 2e-3) != digests._on_grid(value)
