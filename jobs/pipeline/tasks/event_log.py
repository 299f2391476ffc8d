"""The log of a run, one JSON object a line: appended to a file, or kept in a store.

A log that cannot be begun is an error at the start of a run. A log that cannot be continued gives
one warning, and the run goes on without it, since no release depends on the log.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from das.errors import OutputError
from jobs.pipeline.storage.files import naming_file, refuse_foreign
from jobs.pipeline.storage.place import Place, store_of
from jobs.pipeline.storage.stores.store import OWNER_ONLY

_KIND = "a log of runs"
_START = b'{"time": '  # other files of a run hold JSON lines as well: accounts, ledgers, journals
_IDLE = 10  # pause after writing a stored log, in multiples of its time; default, not measured
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


class EventLog:
    """Log of events: a file readable by its owner only, a terminal, a pipe, or a stored file.

    Stores cannot append, so a stored log is rewritten from time to time. Lines of earlier runs are
    kept.
    """

    def __init__(self, place: Place, tell: Callable[[str], None], every_seconds: float) -> None:
        """Open a log.

        Args:
          place: The file.
          tell: Shows a line to the user.
          every_seconds: Least seconds between two writes of a stored log. A slow store is written
            less often: after ten times the time of the last write.

        Raises:
          OutputError: The file is of another kind, or cannot be read.
        """
        self._place = place
        self._tell = tell
        self._every = every_seconds
        self._next = time.monotonic()
        self._text = b""
        self._is_behind = self._is_begun = self._is_reported = False
        if not isinstance(place, Path) or place.is_file():  # not a terminal or pipe
            refuse_foreign(place, _START, _KIND)
        if not isinstance(place, Path):
            with naming_file(place, "cannot be read"), suppress(FileNotFoundError):
                self._text = place.read_bytes()
            atexit.register(self._end)

    def add(self, line: str, *, last: bool = False) -> None:
        """Append a line; a stored log is written if it is due.

        Args:
          line: The line, without line feed.
          last: Whether it is the last line of the run.

        Raises:
          OutputError: The first line cannot be written.
        """
        try:
            if isinstance(self._place, Path):
                with os.fdopen(os.open(self._place, _APPEND, OWNER_ONLY), "ab") as handle:
                    handle.write(line.encode() + b"\n")
            else:
                self._text += line.encode() + b"\n"
                self._is_behind = True
                if last or time.monotonic() >= self._next:
                    self._write()
        except OSError as error:
            what = "cannot be written"
            if not self._is_begun:
                raise OutputError(str(self._place), what, got=error.strerror) from None
            if not self._is_reported:
                self._is_reported = True
                self._tell(f"log {self._place} {what}; the run goes on: {error.strerror}")
        self._is_begun = True

    def _write(self) -> None:
        """Write a stored log."""
        store, name = store_of(self._place)
        began = time.monotonic()
        try:
            store.replace(name, self._text, mode=OWNER_ONLY)
            self._is_behind = False
        finally:
            ended = time.monotonic()
            self._next = ended + max(self._every, _IDLE * (ended - began))

    def _end(self) -> None:
        """Write unsaved lines when the process ends before the end of the run."""
        if self._is_behind:
            with suppress(OSError):  # reported before, or the process ends
                self._write()
