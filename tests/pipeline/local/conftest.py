"""What runs from the command line share: no Spark session."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest
from numba.core import event

from jobs.cli.main import main
from solvers.least_squares.machine_code import load_kernels
from tests.builders import in_process
from tests.builders.command_line import COMMANDS, command_of


class _NoCompiler(event.Listener):
    """Fails where numba wants machine code for types that `das prepare` does not compile.

    The lock is taken before the user's cache is searched, where earlier runs may have left it.
    """

    def on_start(self, event: event.Event) -> None:
        pytest.fail("das prepare leaves something to compile")

    def on_end(self, event: event.Event) -> None:
        pass


@pytest.fixture(scope="package", autouse=True)
def nothing_compiles() -> Iterator[None]:
    """Every run finds all machine code in the modules of kernels, as loaded."""
    load_kernels()
    with event.install_listener("numba:compiler_lock", _NoCompiler()):
        yield


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tasks in this process, reports without drawings; a second driver is refused at once."""
    in_process.patch_spark(monkeypatch)
    in_process.leave_out_figures(monkeypatch)
    monkeypatch.setattr("jobs.pipeline.folder.lock._PATIENCE", 0.0)


@pytest.fixture
def das(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Run a command, quietly if it can be quiet: exit code and all that it printed."""

    def call(*words: object) -> tuple[int, str]:
        typed = [*map(str, words)]
        command = COMMANDS[typed[0]] if COMMANDS[typed[0]].hidden else command_of(typed)[0]
        options = {option for one in command.params for option in one.opts}
        quiet = ["--quiet"] if "--quiet" in options - {*typed} else []
        monkeypatch.setattr(sys, "argv", ["das", *typed, *quiet])
        capsys.readouterr()
        code = main()
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return call
