"""Logs of runs, which may fail in the middle of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from das.errors import ConfigError, OutputError
from jobs.cli.main import app
from jobs.pipeline.folder.open import failure_logged
from jobs.pipeline.tasks.event_log import EventLog
from jobs.pipeline.tasks.progress import Reporter


@pytest.mark.parametrize("held", [b"Dear all,", b'{"line": 1, "kind": "claim"}'])
def test_another_file_is_not_written_over(tmp_path: Path, held: bytes) -> None:
    (tmp_path / "here.jsonl").write_bytes(held)
    with pytest.raises(OutputError, match="is another file and is not written over"):
        Reporter(log=tmp_path / "here.jsonl")
    assert (tmp_path / "here.jsonl").read_bytes() == held


def test_a_log_of_earlier_runs_is_added_to(tmp_path: Path) -> None:
    for name in ("run_failed", "run_finished"):
        Reporter(quiet=True, log=tmp_path / "log.jsonl").event(name)
    assert (tmp_path / "log.jsonl").read_text().count("\n") == 2


def test_the_log_says_why_a_run_was_lost(tmp_path: Path) -> None:
    """Java was killed: Python sees only that nobody listens."""
    reporter = Reporter(quiet=True, log=tmp_path / "log.jsonl")
    with pytest.raises(ConnectionRefusedError), failure_logged(reporter):
        raise ConnectionRefusedError
    event = json.loads((tmp_path / "log.jsonl").read_text())
    assert event["error"] == "RuntimeSetupError"
    assert "Java ended; see to memory, disks and machines" in event["message"]


def test_a_full_disk_is_told_once(tmp_path: Path) -> None:
    told: list[str] = []
    path = tmp_path / "folder" / "log.jsonl"
    path.parent.mkdir()
    log = EventLog(path, told.append)
    log.add("first")
    path.unlink()
    path.parent.rmdir()
    for word in ("second", "third"):
        log.add(word)
    assert len(told) == 1
    path.parent.mkdir()
    log.add("fourth")
    assert path.read_text() == "fourth\n"


def test_an_address_is_refused() -> None:
    done = CliRunner().invoke(app, ["run", "run.yaml", "--log-json", "s3://bucket/logs/a.jsonl"])
    assert isinstance(done.exception, ConfigError)
    assert "this must be a file of this machine" in str(done.exception)
