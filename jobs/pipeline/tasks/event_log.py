"""The log of a run: one JSON object a line, appended to a file.

A log that cannot be begun is an error at the start of a run. A log that cannot be continued gives
one warning, and the run goes on without it, since no release depends on the log.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from das.errors import OutputError
from jobs.pipeline.storage.files import refuse_foreign
from jobs.pipeline.storage.stores.store import OWNER_ONLY

_KIND = "a log of runs"
_START = b'{"time": '  # other files of a run hold JSON lines as well: accounts, ledgers, journals
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


class EventLog:
    """Log of events: a file readable by its owner only, a terminal or a pipe."""

    def __init__(self, path: Path, tell: Callable[[str], None]) -> None:
        """Open a log.

        Args:
          path: The file.
          tell: Shows a line to the user.

        Raises:
          OutputError: The file is of another kind, or cannot be read.
        """
        self._path = path
        self._tell = tell
        self._is_begun = self._is_reported = False
        if path.is_file():  # not a terminal or pipe
            refuse_foreign(path, _START, _KIND)

    def add(self, line: str) -> None:
        """Append a line without line feed.

        Raises:
          OutputError: The first line cannot be written.
        """
        try:
            with os.fdopen(os.open(self._path, _APPEND, OWNER_ONLY), "ab") as handle:
                handle.write(line.encode() + b"\n")
        except OSError as error:
            what = "cannot be written"
            if not self._is_begun:
                raise OutputError(str(self._path), what, got=error.strerror) from None
            if not self._is_reported:
                self._is_reported = True
                self._tell(f"log {self._path} {what}; the run goes on: {error.strerror}")
        self._is_begun = True
