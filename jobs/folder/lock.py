"""One driver at a time: the lock of a run folder."""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from das.errors import OutputError

LOCK = "driver.lock"
_PATIENCE = 10.0  # seconds that a driver that was just killed is given to end


@contextmanager
def only_driver(out: Path, patience_seconds: float | None = None) -> Iterator[None]:
    """Hold a run folder: two drivers at once would remove each other's unpublished files.

    The hold ends with the process, however it ends. Who stops it from the keyboard is told how to
    go on.

    Args:
      out: The run folder.
      patience_seconds: How long another driver is given to end; default: ten seconds, in which one
        that was just killed does.

    Raises:
      OutputError: Another process works on the folder, or the lock cannot be written.
    """
    # The package filelock opens with O_TRUNC: who waits would erase who holds the folder.
    path = out / LOCK
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise OutputError(str(path), "cannot be written", got=error.strerror) from None
    try:
        patience = _PATIENCE if patience_seconds is None else patience_seconds
        deadline = time.monotonic() + patience
        while not _is_locked(path, handle):
            if time.monotonic() > deadline:
                raise OutputError(
                    str(out),
                    "another process works on this folder",
                    got=path.read_text(encoding="utf-8").strip() or None,
                    remedy="wait for its end, or end it",
                )
            time.sleep(0.1)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    except KeyboardInterrupt:
        sys.stderr.write(f"das: stopped; nothing is lost, go on with `das resume {out}`\n")
        raise
    finally:
        os.close(handle)


def _is_locked(path: Path, handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise OutputError(str(path), "cannot be locked", got=error.strerror) from None
    return True
