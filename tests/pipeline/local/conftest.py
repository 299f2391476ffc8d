"""What runs from the command line share: one Spark session per process, or none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest
import typer.main

from jobs.cli.main import app, main
from jobs.pipeline.tasks.session import spark_session
from tests.builders import in_process

COMMANDS = typer.main.get_command(app).commands


@pytest.fixture(scope="package")
def session() -> Iterator[None]:
    """An open session, which runs of tests that ask for this use and leave open."""
    with spark_session("tests", master="local[2,3]", driver_memory="1g", properties={}):
        yield


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tasks in this process; a second driver is refused at once."""
    in_process.patch_spark(monkeypatch)
    monkeypatch.setattr("jobs.pipeline.folder.lock._PATIENCE", 0.0)


@pytest.fixture
def das(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Run a command, quietly if it can be quiet: exit code and all that it printed."""

    def call(*words: object) -> tuple[int, str]:
        options = {option for one in COMMANDS[str(words[0])].params for option in one.opts}
        quiet = ["--quiet"] if "--quiet" in options - {*map(str, words)} else []
        monkeypatch.setattr(sys, "argv", ["das", *map(str, words), *quiet])
        capsys.readouterr()
        code = main()
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return call
