"""The log of a run, one JSON object a line: appended to a file, or kept in a store.

A log that cannot be begun is an error, before anything was done. One that cannot be continued is
told once, and the run goes on without it: nothing of a release hangs on it.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable
from pathlib import Path

from das.errors import OutputError
from jobs.pipeline.storage.files import refuse_foreign
from jobs.pipeline.storage.place import Place
from jobs.pipeline.storage.stores.store import OWNER_ONLY

_KIND = "a log of runs"
_START = b'{"time": '  # other files of a run hold JSON lines as well: accounts, ledgers, journals
_IDLE = 10  # times what it takes to write a stored log passes before it is written again
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


class EventLog:
    """A file that is appended to, readable by its owner only; or a terminal, a pipe, a stored file.

    In a store nothing can be appended: all of it is written again, now and then. What it holds of
    earlier runs stays before what is added.
    """

    def __init__(self, place: Place, tell: Callable[[str], None], every_seconds: float) -> None:
        """Begin.

        Args:
          place: Where.
          tell: Shows a line.
          every_seconds: Between two writings of a stored log at least; ten times what the last one
            took, if that is more, so that a slow store holds up no run.

        Raises:
          OutputError: It is another file, or cannot be read.
        """
        self._place = place
        self._tell = tell
        self._every = every_seconds
        self._next = time.monotonic()
        self._text = b""
        self._is_behind = self._is_begun = self._is_told = False
        if isinstance(place, Path):
            if place.is_file():
                refuse_foreign(place, _START, _KIND)
            return
        refuse_foreign(place, _START, _KIND)
        try:
            self._text = place.read_bytes()
        except FileNotFoundError:
            pass
        except OSError as error:
            raise OutputError(str(place), "cannot be read", got=error.strerror) from None
        atexit.register(self._end)

    def add(self, line: str, *, last: bool = False) -> None:
        """Keep a line; a stored log is written if it is time.

        Args:
          line: Without its end.
          last: The run ends with it.

        Raises:
          OutputError: It is the first one, and cannot be written.
        """
        try:
            self._add(line.encode() + b"\n", last=last)
        except OSError as error:
            if not self._is_begun:
                raise OutputError(
                    str(self._place), "cannot be written", got=error.strerror
                ) from None
            if not self._is_told:
                self._is_told = True
                what = "cannot be written; the run goes on"
                self._tell(f"log {self._place} {what}: {error.strerror}")
        self._is_begun = True

    def _add(self, line: bytes, *, last: bool) -> None:
        if isinstance(self._place, Path):
            with os.fdopen(os.open(self._place, _APPEND, OWNER_ONLY), "ab") as handle:
                handle.write(line)
            return
        self._text += line
        self._is_behind = True
        if last or time.monotonic() >= self._next:
            self._write()

    def _write(self) -> None:
        """Write a stored log."""
        if isinstance(self._place, Path):
            return
        began = time.monotonic()
        try:
            self._place.store.replace(self._place.key, self._text, mode=OWNER_ONLY)
            self._is_behind = False
        finally:
            ended = time.monotonic()
            self._next = ended + max(self._every, _IDLE * (ended - began))

    def _end(self) -> None:
        """Write what is left when the process ends by another way than the end of a run."""
        if self._is_behind:
            try:
                self._write()
            except OSError:  # reported before, or the process ends
                return
