"""Progress on the terminal: one line per stage and geolevel, live where the terminal allows."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

Tick = Callable[[int, int], None]


def result_console() -> Console:
    """Console for results on standard output; wide where no terminal sets a width."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 140)


class Reporter:
    """Writes progress to standard error; standard output stays for results."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet, highlight=False)

    @contextmanager
    def line(self, stage: str, what: str = "") -> Iterator[Tick]:
        """Show one line while the block runs; yields a callback for (finished, all) tasks."""
        started = time.monotonic()
        if not self.console.is_terminal:
            yield lambda finished, total: None
            self.console.print(f"{stage:<10}{what:<34}{time.monotonic() - started:8.1f} s")
            return
        columns = (
            TextColumn("{task.fields[stage]:<10}{task.description:<34}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console) as progress:
            task = progress.add_task(what, stage=stage, total=None)

            def tick(finished: int, total: int) -> None:
                progress.update(task, completed=finished, total=total)

            yield tick
            progress.update(task, completed=1, total=1) if progress.tasks[0].total is None else None

    def say(self, text: str) -> None:
        """Print a plain line."""
        self.console.print(text)
