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


class StoredLog:
    """A file in a store, where nothing can be appended: all of it is written again, now and then.

    Args:
      place: The file; what it holds of earlier runs stays before what is added.
      every_seconds: Between two writings at least; ten times what the last one took, if that is
        more, so that a slow store holds up no run.

    Raises:
      OutputError: It is another file, or the store does not say.
    """

    def __init__(self, place: StoredPlace, every_seconds: float) -> None:
        refuse_foreign(place, _START, _KIND)
        try:
            self._text = place.read_bytes()
        except FileNotFoundError:
            self._text = b""
        except OSError as error:
            raise OutputError(str(place), "cannot be read", got=error.strerror) from None
        self._place = place
        self._every = every_seconds
        self._next = time.monotonic()
        self._is_behind = False
        atexit.register(self._end)

    def add(self, line: str, *, last: bool = False) -> None:
        """Keep a line, and write all of them if it is time, or the last one."""
        self._text += line.encode() + b"\n"
        self._is_behind = True
        if last or time.monotonic() >= self._next:
            self._write()

    def _write(self) -> None:
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
            with suppress(OSError):  # was told before, or nobody is left to be told
                self._write()


class SteadyLog:
    """A log whose failures, once it is begun, are told once and stop nothing.

    Args:
      place: Where.
      tell: Shows a line.
      every_seconds: As for `StoredLog`.

    Raises:
      OutputError: It is another file, or cannot be read.
    """

    def __init__(self, place: Place, tell: Callable[[str], None], every_seconds: float) -> None:
        if isinstance(place, Path) and place.is_file():  # else a terminal or pipe, or absent
            refuse_foreign(place, _START, _KIND)
        self._place = place
        self._stored = None if isinstance(place, Path) else StoredLog(place, every_seconds)
        self._tell = tell
        self._is_begun = self._is_told = False

    def add(self, line: str, *, last: bool = False) -> None:
        """Keep a line; a file is appended to, and made readable by its owner only.

        Args:
          line: Without its end.
          last: The run ends with it.

        Raises:
          OutputError: It is the first one, and cannot be written.
        """
        try:
            if self._stored is not None:
                self._stored.add(line, last=last)
            else:
                handle = os.open(str(self._place), _APPEND, OWNER_ONLY)
                with os.fdopen(handle, "a", encoding="utf-8") as file:
                    file.write(line + "\n")
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
