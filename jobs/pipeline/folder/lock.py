"""The lock of a run folder: one driver at a time.

On a disk, the lock is a file lock, which ends with the process. In an object store, a driver writes
a heartbeat every few seconds; without heartbeats for 30 seconds it counts as dead. Safety does not
depend on this lock: a suspended driver may resume while another one works, and still nothing is
drawn or published twice (`jobs.pipeline.folder.draws`, `jobs.pipeline.storage.dataset`). It notices
before its next step, and stops.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from das.errors import OutputError
from jobs.pipeline.storage.files import naming_file
from jobs.pipeline.storage.place import Place, StoredPlace

LOCK = "driver.lock"
_PATIENCE = 10.0  # seconds to wait for a driver that was just killed; default, not measured
_BEAT = 5.0  # seconds between heartbeats in a store; default, not measured
_LOOK = 1.0  # seconds between checks of another driver's heartbeat; default, not measured
_SILENCE = 30.0  # seconds without heartbeat after which a driver counts as dead; default
_ENDED = b"ended\n"


@dataclass(frozen=True)
class Hold:
    """A lock that this process holds on a run folder.

    Attributes:
      out: The run folder.
      sign: File of its heartbeats in a store; None on a disk, where the lock cannot be lost.
    """

    out: Place
    sign: StoredPlace | None = None

    def refuse_overtaken(self) -> None:
        """Stop a driver if another one has taken over.

        Raises:
          OutputError: Another driver has taken over the run folder, or the store cannot be read.
        """
        if self.sign is None or not isinstance(self.out, StoredPlace):
            return
        with naming_file(self.out, "cannot be read"):
            number, holder = _holder(self.out)
        if number > int(self.sign.name):
            what = "was taken over by another process while this one gave no sign of life"
            raise _held(self.out, _words(holder), what)


@contextmanager
def only_driver(out: Place, patience_seconds: float | None = None) -> Iterator[Hold]:
    """Lock a run folder: two drivers at once would remove each other's unpublished files.

    The lock ends with the process. After Ctrl-C, a message names the command to continue.

    Args:
      out: The run folder.
      patience_seconds: How long to wait for another driver to end; default: 10 seconds.

    Raises:
      OutputError: Another process works on the folder, or the lock cannot be written.
    """
    patience = _PATIENCE if patience_seconds is None else patience_seconds
    lock = _only_local(out, patience) if isinstance(out, Path) else _only_stored(out, patience)
    try:
        with lock as hold:
            yield hold
    except KeyboardInterrupt:
        sys.stderr.write(
            f"das: stopped; nothing is lost, go on with `das run {shlex.quote(str(out))}`\n"
        )
        raise


@contextmanager
def _only_local(out: Path, patience: float) -> Iterator[Hold]:
    # The package filelock opens with O_TRUNC: a waiting process would erase the holder's name.
    path = out / LOCK
    with naming_file(path, "cannot be written"):
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        deadline = time.monotonic() + patience
        while not _is_locked(path, handle):
            if time.monotonic() > deadline:
                raise _held(out, path.read_text(encoding="utf-8").strip() or None)
            time.sleep(0.1)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{_process()}\n".encode(), 0)
        yield Hold(out)
    finally:
        os.close(handle)


@contextmanager
def _only_stored(out: StoredPlace, patience: float) -> Iterator[Hold]:
    token = uuid.uuid4().hex
    sign = _take(out, token, patience)
    ended = threading.Event()

    def beat() -> None:
        for number in count(1):
            if ended.wait(_BEAT):
                return
            with suppress(OSError):  # a store may be out of reach for one heartbeat
                sign.store.replace(sign.key, _sign(token, number))

    life = threading.Thread(target=beat, daemon=True)
    life.start()
    try:
        yield Hold(out, sign)
    finally:
        ended.set()
        life.join()
        with suppress(OSError):
            sign.store.replace(sign.key, _ENDED)


def _take(out: StoredPlace, token: str, patience: float) -> StoredPlace:
    """Become the driver of a folder, after the previous driver ended or fell silent."""
    began = since = time.monotonic()
    last: tuple[StoredPlace, bytes] | None = None
    lives = False
    while True:
        with naming_file(out, "cannot be locked"):
            number, holder = _holder(out)
            now = time.monotonic()
            if holder is None or holder[1] == _ENDED or (last == holder and now - since > _SILENCE):
                sign = out / f"{LOCK}.d" / f"{number + 1:08d}"
                if sign.store.create(sign.key, _sign(token, 0)):
                    return sign
        if last is not None and last != holder:
            lives, since = True, now
        last = holder
        if lives and now - began > patience:
            raise _held(out, _words(holder))
        time.sleep(_LOOK)


def _holder(out: StoredPlace) -> tuple[int, tuple[StoredPlace, bytes] | None]:
    """Return number and last heartbeat of the latest driver; 0 and None without any."""
    for key in sorted(out.store.files(f"{out.key}/{LOCK}.d".lstrip("/")), reverse=True):
        sign = StoredPlace(out.root, key)
        if sign.name.isdigit():
            with suppress(FileNotFoundError):
                return int(sign.name), (sign, sign.read_bytes())
    return 0, None


def _process() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _sign(token: str, number: int) -> bytes:
    """Return a heartbeat. The token distinguishes containers with equal process and host name."""
    return f"{_process()}, sign of life {number}\n{token}\n".encode()


def _held(
    out: Place, holder: str | None, what: str = "another process works on this folder"
) -> OutputError:
    return OutputError(str(out), what, got=holder, remedy="wait for its end, or end it")


def _words(holder: tuple[StoredPlace, bytes] | None) -> str | None:
    return holder[1].decode(errors="replace").splitlines()[0] if holder else None


def _is_locked(path: Path, handle: int) -> bool:
    with naming_file(path, "cannot be locked"), suppress(BlockingIOError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
