"""One driver at a time: the lock of a run folder.

On a disk it is a lock of the file system, which ends with the process. Stores have none; there a
driver leaves a sign of life every few seconds, and one that is silent for long enough counts as
dead. That is a courtesy, not what safety rests on: a driver that was only asleep may wake up and
work on beside the one that took over, and still nothing is drawn or published twice
(`jobs.pipeline.folder.draws`, `jobs.pipeline.storage.dataset`). It finds out before its next step,
and stops.
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
from jobs.pipeline.storage.place import Place, StoredPlace

LOCK = "driver.lock"
_PATIENCE = 10.0  # seconds that a driver that was just killed is given to end
_BEAT = 5.0  # seconds between signs of life in a store
_LOOK = 1.0  # seconds between looks at another driver's
_SILENCE = 30.0  # seconds without one, after which a driver counts as dead
_ENDED = b"ended\n"


@dataclass(frozen=True)
class Hold:
    """A run folder that this process drives.

    Attributes:
      out: The folder.
      sign: Where it leaves signs of life; none on a disk, where nobody can take the hold away.
    """

    out: Place
    sign: StoredPlace | None = None

    def refuse_overtaken(self) -> None:
        """Stop a driver that was silent for so long that another one took over.

        Raises:
          OutputError: Another one did, or the store does not say.
        """
        if self.sign is None or not isinstance(self.out, StoredPlace):
            return
        try:
            number, holder = _holder(self.out)
        except OSError as error:
            raise OutputError(str(self.out), "cannot be read", got=error.strerror) from None
        if number > int(self.sign.name):
            raise OutputError(
                str(self.out),
                "was taken over by another process while this one gave no sign of life",
                got=_words(holder),
                remedy="wait for its end, or end it",
            )


@contextmanager
def only_driver(out: Place, patience_seconds: float | None = None) -> Iterator[Hold]:
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
    patience = _PATIENCE if patience_seconds is None else patience_seconds
    if isinstance(out, StoredPlace):
        holding = _only_stored(out, patience)
    else:
        holding = _only_local(out, patience)
    try:
        with holding as hold:
            yield hold
    except KeyboardInterrupt:
        sys.stderr.write(
            f"das: stopped; nothing is lost, go on with `das run {shlex.quote(str(out))}`\n"
        )
        raise


@contextmanager
def _only_local(out: Path, patience: float) -> Iterator[Hold]:
    # The package filelock opens with O_TRUNC: who waits would erase who holds the folder.
    path = out / LOCK
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise OutputError(str(path), "cannot be written", got=error.strerror) from None
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
    own = _take(out, token, patience)
    ended = threading.Event()

    def beat() -> None:
        for number in count(1):
            if ended.wait(_BEAT):
                return
            with suppress(OSError):  # a store that is out of reach now may be back at the next
                own.store.replace(own.key, _sign(token, number))

    life = threading.Thread(target=beat, daemon=True)
    life.start()
    try:
        yield Hold(out, own)
    finally:
        ended.set()
        life.join()
        with suppress(OSError):
            own.store.replace(own.key, _ENDED)


def _take(out: StoredPlace, token: str, patience: float) -> StoredPlace:
    """Become the driver of a folder, after one that ended or has been silent."""
    began = since = time.monotonic()
    last: tuple[StoredPlace, bytes] | None = None
    lives = False
    while True:
        try:
            number, holder = _holder(out)
            now = time.monotonic()
            if holder is None or holder[1] == _ENDED or (last == holder and now - since > _SILENCE):
                own = out / f"{LOCK}.d" / f"{number + 1:08d}"
                if own.store.create(own.key, _sign(token, 0)):
                    return own
        except OSError as error:
            raise OutputError(str(out), "cannot be locked", got=error.strerror) from None
        if last is not None and last != holder:
            lives, since = True, now
        last = holder
        if lives and now - began > patience:
            raise _held(out, _words(holder))
        time.sleep(_LOOK)


def _holder(out: StoredPlace) -> tuple[int, tuple[StoredPlace, bytes] | None]:
    """Number and last sign of life of the driver that came last; 0 and None if there was none."""
    for key in sorted(out.store.files(f"{out.key}/{LOCK}.d".lstrip("/")), reverse=True):
        place = StoredPlace(out.root, key)
        if place.name.isdigit():
            with suppress(FileNotFoundError):
                return int(place.name), (place, place.read_bytes())
    return 0, None


def _process() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _sign(token: str, number: int) -> bytes:
    """Who is alive. In containers two may have one number and host name: the token tells them."""
    return f"{_process()}, sign of life {number}\n{token}\n".encode()


def _held(out: Place, holder: str | None) -> OutputError:
    return OutputError(
        str(out),
        "another process works on this folder",
        got=holder,
        remedy="wait for its end, or end it",
    )


def _words(holder: tuple[StoredPlace, bytes] | None) -> str | None:
    return holder[1].decode(errors="replace").splitlines()[0] if holder else None


def _is_locked(path: Path, handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise OutputError(str(path), "cannot be locked", got=error.strerror) from None
    return True
