"""One driver at a time: whoever holds a folder is named, and its end frees it, however it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from das.errors import OutputError
from jobs.pipeline.folder import lock
from jobs.pipeline.folder.lock import LOCK, only_driver
from jobs.pipeline.storage.place import StoredPlace
from jobs.pipeline.storage.stores.objects import ObjectStoreFiles
from tests.checkout import ROOT

_HOLD = """
import pathlib, sys, time
from jobs.pipeline.folder.lock import only_driver
with only_driver(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_driver_is_told_who_works_on_the_folder(tmp_path: Path):
    with only_driver(tmp_path):
        holder = f"process {os.getpid()} on {socket.gethostname()}"
        with (
            pytest.raises(OutputError, match=f"another process works on this folder; got {holder}"),
            only_driver(tmp_path, patience_seconds=0),
        ):
            pass
        assert (tmp_path / LOCK).read_text().strip() == holder  # who waits erases nothing
    with only_driver(tmp_path, patience_seconds=0):
        pass


def test_a_killed_driver_leaves_the_folder_free(tmp_path: Path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", _HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with (
            pytest.raises(OutputError, match=f"process {other.pid} on"),
            only_driver(tmp_path, patience_seconds=0),
        ):
            pass
        other.send_signal(signal.SIGKILL)
    with only_driver(tmp_path, patience_seconds=5):
        assert (tmp_path / LOCK).read_text().startswith(f"process {os.getpid()} ")


def test_patience_is_kept_and_then_over(tmp_path: Path):
    with only_driver(tmp_path):
        began = time.monotonic()
        with pytest.raises(OutputError), only_driver(tmp_path, patience_seconds=0.3):
            pass
        assert time.monotonic() - began > 0.3


def test_a_folder_that_is_gone_cannot_be_locked(tmp_path: Path):
    with pytest.raises(OutputError, match="cannot be written"), only_driver(tmp_path / "gone"):
        pass


def test_whoever_stops_a_run_is_told_how_to_go_on(tmp_path: Path, capsys):
    with pytest.raises(KeyboardInterrupt), only_driver(tmp_path):
        raise KeyboardInterrupt
    assert f"go on with `das run {tmp_path}`" in capsys.readouterr().err


# --- in a store ----------------------------------------------------------------------------------


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> StoredPlace:
    """A run folder in a store where drivers give signs of life often."""
    monkeypatch.setattr(lock, "_BEAT", 0.05)
    monkeypatch.setattr(lock, "_LOOK", 0.01)
    return StoredPlace(f"memory://{uuid.uuid4().hex}", "runs/toy")


def test_a_second_driver_in_a_store_is_told_who_works_on_the_folder(stored: StoredPlace):
    with only_driver(stored) as hold:
        holder = f"process {os.getpid()} on {socket.gethostname()}"
        with (
            pytest.raises(OutputError, match=f"another process works on this folder; got {holder}"),
            only_driver(stored, patience_seconds=0),
        ):
            pass
        hold.refuse_overtaken()
    with only_driver(stored, patience_seconds=0) as hold:
        hold.refuse_overtaken()


def test_two_drivers_that_are_called_the_same_are_two(stored: StoredPlace):
    """In containers the number of the process and the host's name may be the same for both."""
    held: list[int] = []
    ends = threading.Event()

    def drive(who: int) -> None:
        with contextlib.suppress(OutputError), only_driver(stored, patience_seconds=0):
            held.append(who)
            ends.wait(30)

    drivers = [threading.Thread(target=drive, args=(who,)) for who in range(4)]
    for driver in drivers:
        driver.start()
    wait_until(lambda: sum(driver.is_alive() for driver in drivers) == 1)
    ends.set()
    for driver in drivers:
        driver.join()
    assert len(held) == 1


def test_a_driver_that_was_asleep_finds_out_that_another_took_over(stored, monkeypatch):
    monkeypatch.setattr(lock, "_SILENCE", 0.6)
    replace = ObjectStoreFiles.replace
    asleep = threading.Event()

    def beat(self: ObjectStoreFiles, name: str, data: bytes, **options: int) -> None:
        if not (asleep.is_set() and name.endswith("00000001")):
            replace(self, name, data, **options)

    monkeypatch.setattr(ObjectStoreFiles, "replace", beat)
    with only_driver(stored) as first:
        first.refuse_overtaken()
        asleep.set()
        with only_driver(stored) as second:
            asleep.clear()
            with pytest.raises(
                OutputError, match=r"was taken over by another process .*got process"
            ):
                first.refuse_overtaken()
            second.refuse_overtaken()
    with only_driver(stored, patience_seconds=0):
        pass


def wait_until(happened: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)
