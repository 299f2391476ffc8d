"""A stranger connects to every port of a session that measures, and asks for what its tasks carry.

The session is opened as `das run RUN --only measure` opens it, by a run file.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from jobs.pipeline.storage.dataset import Dataset
from tests.builders import toy
from tests.builders.places import release_of, truth_of
from tests.pipeline.spark.stranger import FAILURE, Door, RefusedError, ask_for_block, doors

pytestmark = [pytest.mark.spark]

BLOCKS = [f"broadcast_{number}_piece0" for number in range(24)]
# What tasks carried stays, and as it was pickled, so that all of it can be searched.
KEPT = {"spark.cleaner.referenceTracking": "false", "spark.broadcast.compress": "false"}


@dataclass(frozen=True)
class Measured:
    """A run that has measured all, while its session is open."""

    out: Path
    ports: list[Door]
    keys: list[bytes]
    shares: list[bytes]

    def served(self) -> tuple[list[bytes], list[str]]:
        """Blocks that the ports gave a stranger, and the refusals."""
        blocks, refusals = [], []
        for port in self.ports:
            for block in BLOCKS:
                try:
                    blocks.append(ask_for_block(port, block))
                except RefusedError as refusal:
                    refusals.append(str(refusal))
                    if "kind" not in str(refusal):  # not a port for blocks
                        break
        return blocks, refusals


@contextmanager
def measured(folder: Path, **runtime: Any) -> Iterator[Measured]:
    toy.write_records(folder)
    (folder / "tmp").mkdir()
    config = toy.configuration(folder, runtime={"master": "local[2,3]", **runtime})
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.spark.measuring", str(config)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=toy.ROOT,
        umask=0,
        env={**os.environ, "TMPDIR": str(folder / "tmp"), "XDG_CACHE_HOME": str(folder / "cache")},
    )
    try:
        line = process.stdout.readline()
        assert line, "it ended before it had measured"
        found = json.loads(line)
        keys, shares = (list(map(bytes.fromhex, found[name])) for name in ("keys", "shares"))
        ports = doors(psutil.Process(found["java"]))
        yield Measured(folder / "out", ports, keys, shares)
    finally:
        process.communicate(timeout=60)


def assert_closed(folder: Path) -> None:
    """No folder or file in a shared folder can be entered or read by others."""
    modes = {path.name: stat.S_IMODE(path.lstat().st_mode) for path in folder.iterdir()}
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}


def test_a_stranger_gets_nothing_from_a_session(tmp_path: Path) -> None:
    with measured(tmp_path, spark=KEPT) as run:
        blocks, refusals = run.served()
        assert_closed(tmp_path / "tmp")
        ours = (tmp_path / "cache").glob("topdown-das")  # not where Java and kernels need none
        assert {stat.S_IMODE(path.stat().st_mode) for path in ours} <= {0o700}
        assert list((tmp_path / "tmp").glob("*/blockmgr-*"))  # Spark does work there
    assert blocks == []
    assert list((tmp_path / "tmp").iterdir()) == []
    # The driver and its block manager both speak the protocol, and ask who is there.
    assert sum(f"kind {FAILURE}" in text for text in refusals) >= 2 * len(BLOCKS)
    assert all("Sasl" in text or "uthent" in text for text in refusals if "kind" in text)


def test_an_open_session_serves_what_tasks_carry_and_no_key_is_in_it(tmp_path: Path) -> None:
    off = {"spark.authenticate": "false", **KEPT}
    with measured(tmp_path, spark=off, allow_open_cluster=True) as run:
        blocks, _ = run.served()
        assert list(truth_of(run.out).keys.iterdir()) == []
    assert len(run.keys) == len({*run.keys, *run.shares}) / 2 == len(toy.LEVELS)
    everything = b"".join(blocks)
    assert all(share in everything for share in run.shares)  # so it did read the tasks
    assert not any(key in everything for key in run.keys)
    for level in toy.LEVELS:
        assert Dataset.open(release_of(run.out).measurements(level)).facts["open_session"]
