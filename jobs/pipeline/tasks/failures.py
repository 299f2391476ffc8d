"""Turn failures of the machine into errors for the user: a full disk, a store, an ended Spark."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

from das.errors import DasError, OutputError, RuntimeSetupError


def hide_bridge_logs() -> None:
    """Hide tracebacks after Java ended; `machine_failure` reports the failure in one line."""
    # They come from loggers of the bridge or from the root logger.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(lambda record: Path(record.pathname).parent.name != "py4j")


def machine_failure(error: BaseException | None) -> DasError | None:
    """Return the error for a full disk, a failing store or an ended Spark; None for a defect."""
    from py4j.protocol import Py4JError

    found = None
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            disk = str(error.filename or "the disk")
            return OutputError(disk, "is full", remedy="give it room, then `das run OUT`")
        if isinstance(error, OSError) and "://" in str(error.filename):
            return OutputError(
                str(error.filename),
                "fails",
                got=error.strerror,
                remedy="see to the store, then go on with `das run OUT`, or start again",
            )
        if isinstance(error, ConnectionRefusedError):  # of the bridge to Java; its cause says more
            found = _lost("Java ended")
        if isinstance(error, Py4JError) and "PythonException" not in str(error):
            lines = [*str(error).splitlines(), type(error).__name__]
            first = next((line for line in lines if line.startswith(": ")), lines[0])
            return _lost(first.removeprefix(": ") or type(error).__name__)
        error = error.__cause__ or error.__context__
    return found


def _lost(text: str) -> RuntimeSetupError:
    return RuntimeSetupError(
        "Spark",
        "was lost, or gave up a task whose processes were lost time and again",
        got=text[:300],
        remedy="see to memory, disks and machines, then go on with `das run OUT`",
    )
