"""One driver at a time: whoever holds a folder is named, and its end frees it, however it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from das.errors import OutputError
from jobs.folder.lock import LOCK, only_driver
from tests.checkout import ROOT

_HOLD = """
import pathlib, sys, time
from jobs.folder.lock import only_driver
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
    assert f"go on with `das resume {tmp_path}`" in capsys.readouterr().err
