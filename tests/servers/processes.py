"""Servers that are processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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


def wait_until(
    is_ready: Callable[[], bool],
    process: subprocess.Popen[bytes],
    log: Path,
    seconds: float = 180,
) -> None:
    """Ask until a server is ready; what it raises as OSError or RuntimeError means "not yet".

    Raises:
      RuntimeError: The process has ended; with the end of its log.
      TimeoutError: It takes longer.
    """
    deadline = time.monotonic() + seconds
    while True:
        with suppress(OSError, RuntimeError):
            if is_ready():
                return
        if process.poll() is not None:
            raise RuntimeError(f"{log.name}: the server ended:\n{log.read_text()[-3000:]}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"{log.name}: not ready:\n{log.read_text()[-3000:]}")
        time.sleep(0.2)
