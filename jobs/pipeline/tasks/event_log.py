"""The log of a run, one JSON object a line: appended to a file, or kept in a store.

A log that cannot be begun is an error, before anything was done. One that cannot be continued is
told once, and the run goes on without it: nothing of a release hangs on it.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from das.errors import OutputError
from jobs.pipeline.storage.files import refuse_foreign
from jobs.pipeline.storage.place import Place, StoredPlace
from jobs.pipeline.storage.stores.store import OWNER_ONLY

_KIND = "a log of runs"
_START = b'{"time": '  # other files of a run hold JSON lines as well: accounts, ledgers, journals
_IDLE = 10  # times what it takes to write a stored log passes before it is written again
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


class EventLog:
    """A log, whose failures, once it is begun, are told once and stop nothing.

    A file is appended to, and made readable by its owner only; so is a terminal or pipe. In a store
    nothing can be appended: all of the log is written again, now and then. What it holds of earlier
    runs stays before what is added.

    Args:
      place: Where.
      tell: Shows a line.
      every_seconds: Between two writings to a store at least; ten times what the last one took, if
        that is more, so that a slow store holds up no run.

    Raises:
      OutputError: It is another file, or cannot be read.
    """

    def __init__(self, place: Place, tell: Callable[[str], None], every_seconds: float) -> None:
        self._place = place
        self._tell = tell
        self._every = every_seconds
        self._next = time.monotonic()
        self._text = b""
        self._is_begun = self._is_told = self._is_behind = False
        if isinstance(place, StoredPlace) or place.is_file():
            refuse_foreign(place, _START, _KIND)
        if isinstance(place, StoredPlace):
            try:
                self._text = place.read_bytes()
            except FileNotFoundError:
                pass
            except OSError as error:
                raise OutputError(str(place), "cannot be read", got=error.strerror) from None
            atexit.register(self._end)

    def add(self, line: str, *, last: bool = False) -> None:
        """Keep a line.

        Args:
          line: Without its end.
          last: The run ends with it, so it is written at once.

        Raises:
          OutputError: It is the first one, and cannot be written.
        """
        try:
            if isinstance(self._place, Path):
                handle = os.open(self._place, _APPEND, OWNER_ONLY)
                with os.fdopen(handle, "a", encoding="utf-8") as file:
                    file.write(line + "\n")
            else:
                self._text += line.encode() + b"\n"
                self._is_behind = True
                if last or time.monotonic() >= self._next:
                    self._write(self._place)
        except OSError as error:
            if not self._is_begun:
                raise OutputError(
                    str(self._place), "cannot be written", got=error.strerror
                ) from None
            if not self._is_told:
                self._is_told = True
                self._tell(
                    f"log {self._place} cannot be written; the run goes on: {error.strerror}"
                )
        self._is_begun = True

    def _write(self, place: StoredPlace) -> None:
        began = time.monotonic()
        try:
            place.store.replace(place.key, self._text, mode=OWNER_ONLY)
            self._is_behind = False
        finally:
            ended = time.monotonic()
            self._next = ended + max(self._every, _IDLE * (ended - began))

    def _end(self) -> None:
        """Write what is left when the process ends by another way than the end of a run."""
        if self._is_behind and isinstance(self._place, StoredPlace):
            with suppress(OSError):  # was told before, or nobody is left to be told
                self._write(self._place)
