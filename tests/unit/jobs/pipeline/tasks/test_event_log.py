"""Logs in files and in stores, which may fail in the middle of a run."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from das.errors import ConfigError, OutputError
from jobs.cli.main import app
from jobs.pipeline.storage.place import StoredPlace
from jobs.pipeline.tasks import event_log
from jobs.pipeline.tasks.event_log import EventLog
from jobs.pipeline.tasks.progress import Reporter
from tests.builders import toy
from tests.builders.in_process import patch_spark


class Bucket:
    """A store of one file, which counts what is asked and fails when it is told to."""

    def __init__(self, *, seconds: float = 0.0) -> None:
        self.held: bytes | None = None
        self.writings = 0
        self.failure: OSError | None = None
        self.clock = 100.0
        self.seconds = seconds

    def replace(self, name: str, data: bytes, *, mode: int) -> None:
        self.writings += 1
        self.clock += self.seconds
        if self.failure is not None:
            raise self.failure
        self.held = data

    def read(self, name: str) -> bytes:
        if self.held is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        return self.held

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        return self.read(name)[start:stop]

    def stat(self, name: str) -> Any:
        return SimpleNamespace(st_size=len(self.read(name)), st_mtime_ns=0)

    def entries(self, folder: str) -> Any:
        return iter(())

    @property
    def events(self) -> list[str]:
        return [json.loads(line)["event"] for line in (self.held or b"").splitlines()]


PLACE = StoredPlace("s3://bucket", "logs/a.jsonl")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    made = Bucket()
    monkeypatch.setattr("jobs.pipeline.storage.place.store_at", lambda _: made)
    monkeypatch.setattr(event_log, "time", SimpleNamespace(monotonic=lambda: made.clock))
    return made


def test_a_stored_log_is_written_at_once_now_and_then_and_at_the_end(bucket: Bucket) -> None:
    reporter = Reporter(quiet=True, log=PLACE)
    reporter.event("stage_started")
    assert bucket.events == ["stage_started"]
    reporter.event("progress")
    assert bucket.writings == 1  # ten seconds have not passed
    bucket.clock += 10
    reporter.event("progress")
    assert bucket.events == ["stage_started", "progress", "progress"]
    reporter.event("straggler")
    reporter.event("run_finished")
    assert bucket.events[3:] == ["straggler", "run_finished"]
    assert bucket.writings == 3


def test_a_log_of_earlier_runs_is_added_to(bucket: Bucket) -> None:
    for name in ("run_failed", "run_finished"):
        Reporter(quiet=True, log=PLACE).event(name)
    assert bucket.events == ["run_failed", "run_finished"]


def test_a_slow_store_takes_no_more_than_a_tenth_of_the_time(bucket: Bucket) -> None:
    bucket.seconds = 30.0
    reporter = Reporter(quiet=True, log=PLACE)
    began = bucket.clock
    while bucket.clock < began + 3600:
        reporter.event("progress")
        bucket.clock += 1
    assert 2 <= bucket.writings <= 3600 / (11 * 30) + 1


def test_a_store_that_fails_in_the_middle_is_told_once_and_the_run_goes_on(
    bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    reporter = Reporter(quiet=True, log=PLACE)
    reporter.event("run_started")
    bucket.failure = PermissionError(errno.EACCES, "the key was taken away", "a")
    for _ in range(3):
        bucket.clock += 60
        reporter.event("progress")
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "das: log s3://bucket/logs/a.jsonl cannot be written; the run goes on" in said
    assert "the key was taken away" in said
    bucket.failure = None
    reporter.event("run_finished")  # a store that has come back gets all of it
    assert bucket.events == ["run_started", *["progress"] * 3, "run_finished"]


def test_a_store_that_fails_at_the_start_is_an_error(bucket: Bucket) -> None:
    bucket.failure = PermissionError(errno.EACCES, "writing is not allowed", "a")
    reporter = Reporter(quiet=True, log=PLACE)
    with pytest.raises(OutputError, match="writing is not allowed"):
        reporter.event("run_started")


@pytest.mark.parametrize("held", [b"Dear all,", b'{"line": 1, "kind": "claim"}'])
def test_another_file_is_not_written_over(bucket: Bucket, tmp_path: Path, held: bytes) -> None:
    bucket.held = held
    (tmp_path / "here.jsonl").write_bytes(held)
    for place in (PLACE, tmp_path / "here.jsonl"):
        with pytest.raises(OutputError, match="is another file and is not written over"):
            Reporter(log=place)
    assert bucket.held == held


def test_a_store_that_cannot_be_read_is_an_error(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> bytes:
        raise PermissionError(errno.EACCES, "there is no such bucket", name)

    monkeypatch.setattr(bucket, "read", refuse)
    with pytest.raises(OutputError, match="no such bucket"):
        Reporter(log=PLACE)


def test_what_is_left_is_written_when_the_process_ends(bucket: Bucket) -> None:
    log = EventLog(PLACE, print, 10.0)
    log.add('{"event": "run_started"}')
    log.add('{"event": "progress"}')
    assert bucket.events == ["run_started"]
    log._end()
    assert bucket.events == ["run_started", "progress"]
    log._end()
    assert bucket.writings == 2
    code = (
        "from jobs.pipeline.storage.place import place_of\n"
        "from jobs.pipeline.tasks.event_log import EventLog\n"
        "place = place_of('memory://a/log')\n"
        "import atexit; atexit.register(lambda: print(place.read_text()))\n"
        "log = EventLog(place, print, 10.0)\n"
        "log.add('first'); log.add('second')\n"
        "raise KeyboardInterrupt\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "first\nsecond\n\n", done.stderr


def test_a_full_disk_is_told_once_too(tmp_path: Path) -> None:
    told: list[str] = []
    path = tmp_path / "folder" / "log.jsonl"
    path.parent.mkdir()
    log = EventLog(path, told.append, 10.0)
    log.add("first")
    path.unlink()
    path.parent.rmdir()
    for word in ("second", "third"):
        log.add(word)
    assert len(told) == 1
    path.parent.mkdir()
    log.add("fourth", last=True)
    assert path.read_text() == "fourth\n"


def test_the_option_takes_an_address(
    tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy.write_records(tmp_path)
    config = toy.configuration(tmp_path)
    monkeypatch.chdir(tmp_path)
    patch_spark(monkeypatch)
    words = ["run", str(config), "--quiet", "--log-json"]
    done = CliRunner().invoke(app, [*words, str(PLACE)])
    assert done.exit_code == 0, (done.output, done.exception)
    assert bucket.events[-1] == "run_finished"
    assert bucket.events.count("stage_finished") > 10
    assert not [*tmp_path.rglob("a.jsonl")]
    for address in ("ftp://host/a", "s3://", "s3://me:secret@bucket/a"):
        done = CliRunner().invoke(app, [*words, address])
        assert isinstance(done.exception, ConfigError), address
