"""Servers that are processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def running(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a server; end it, and what it started, at the end of the context.

    Args:
      command: Program and arguments.
      log: File that its output is appended to.
      environment: Variables beside those of this process.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, **(environment or {})},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=20)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
