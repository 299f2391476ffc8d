"""Progress: lines on the terminal while a run works, events for machines, costs of its stages.

Standard error gets one line per stage and geolevel, live on a terminal, there above one line for
the whole run; standard output is for results. An optional log gets one JSON object per line
(docs/operations.md). Both disclose nothing about the data but times.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from jobs.pipeline.documents.document import json_of, write_document
from jobs.pipeline.documents.statistics import SolveStatistics
from jobs.pipeline.documents.summary import SUMMARY, Part, read_summary, summary_of
from jobs.pipeline.printable import printable
from jobs.pipeline.storage.place import Place
from jobs.pipeline.tasks.event_log import EventLog
from jobs.pipeline.tasks.resources import Meter, PeakMemory
from jobs.pipeline.tasks.step import Step, watching

WIDE = 110  # characters of a terminal that live lines and all columns of costs need
_SOLVED = ("nodes", "copied", "trivial", "newton_steps", "seconds", "max_residual", "worst_nodes")


class Line:
    """One line of progress of a part of a stage. Work without Spark calls it with (done, total).

    Attributes:
      place: Stage, part of the stage, and geolevel if there is one.
      steps: The steps run so far.
    """

    def __init__(
        self, reporter: Reporter, place: Mapping[str, str | None], memory: Callable[[], int | None]
    ) -> None:
        self.place = place
        self.steps: list[Step] = []
        self._reporter = reporter
        self._memory = memory
        self._lagging: set[tuple[str, int]] = set()
        self._shown = time.monotonic()
        self.show: Callable[[int, int, str], None] = lambda done, total, speed: None

    def __call__(self, finished: int, total: int) -> None:
        """Show the progress of work without Spark."""
        self.show(finished, total, "")

    @property
    def geounits(self) -> int:
        """Count finished geounits; a geounit of two steps counts twice."""
        return sum(step.done for step in self.steps if step.in_geounits)

    def watch(self, step: Step) -> None:
        """Show the progress of a step, and each straggler once."""
        if not self.steps or self.steps[-1] is not step:
            self.steps.append(step)
        for straggler in step.stragglers():
            if (straggler.step, straggler.task) not in self._lagging:
                self._lagging.add((straggler.step, straggler.task))
                self._reporter.event("straggler", **self.place, **asdict(straggler))
                geocodes = f" {straggler.low}..{straggler.high}" if straggler.low else ""
                self._reporter.say(
                    f"{'':<20}straggler: task {straggler.task} of {straggler.step!r}{geocodes} "
                    f"{'runs for' if straggler.running else 'took'} {straggler.seconds:.0f} s, "
                    f"expected {straggler.expected_seconds:.0f} s"
                )
        unit = "geounits" if step.in_geounits else "tasks"
        speed = speed_text(step.rate, step.remaining_seconds)
        self.show(step.done, step.total, speed)
        if step.now - self._shown >= self._reporter.every_seconds:
            self._shown = step.now
            self._reporter.event(
                "progress",
                **self.place,
                step=step.label,
                unit=unit,
                done=step.done,
                total=step.total,
                rate=step.rate,
                remaining_seconds=step.remaining_seconds,
                memory_bytes=self._memory(),
            )
            if not self._reporter.console.is_terminal:
                self._reporter.say(f"{'':<20}{step.done:,} of {step.total:,} {unit}{speed}")


class Reporter:
    """Writer of progress to standard error, and of events to an optional log.

    Args:
      quiet: Whether standard error gets no lines.
      log: File of events, readable by its owner only if the file system has permissions.
      every_seconds: Seconds between reports of a line that is not live.

    Raises:
      OutputError: The log is a file of another kind.
    """

    def __init__(
        self,
        *,
        quiet: bool = False,
        log: Path | None = None,
        every_seconds: float = 10.0,
    ) -> None:
        self.console = Console(stderr=True, quiet=quiet, highlight=False, markup=False, emoji=False)
        self.log = log
        self.every_seconds = every_seconds
        self._events = None if log is None else EventLog(log, self.warn)

    @contextmanager
    def line(
        self,
        stage: str,
        what: str = "",
        geolevel: str | None = None,
        memory: Callable[[], int | None] = lambda: None,
    ) -> Iterator[Line]:
        """Show one line of progress for the steps of the block.

        Args:
          stage: Name of the stage.
          what: Name of the part of the stage.
          geolevel: Geolevel of the part; None if it has none.
          memory: Returns the bytes in use, for events.
        """
        place = {"stage": stage, "what": what, "geolevel": geolevel}
        line = Line(self, place, memory)
        began = time.monotonic()
        with ExitStack() as stack:
            if self.console.is_terminal:
                line.show = stack.enter_context(_live(self.console, stage, what))
            stack.enter_context(watching(line.watch))
            yield line
        if not self.console.is_terminal:
            seconds = time.monotonic() - began
            geounits = "geounit " if line.geounits == 1 else "geounits"
            rate = f"{line.geounits:>13,} {geounits}{line.geounits / seconds:>10,.0f}/s"
            self.say(f"{stage:<20}{what:<34}{seconds:8.1f} s{rate if line.geounits else ''}")

    def solved(self, place: Mapping[str, str | None], statistics: SolveStatistics) -> None:
        """Log how the nodes of a geolevel were solved, from its published statistics."""
        document = json_of(statistics)
        self.event("solved", **place, **{key: document[key] for key in _SOLVED})

    def event(self, event: str, /, **facts: object) -> None:
        """Add an event to the log; docs/operations.md lists all.

        Raises:
          OutputError: The first event cannot be written.
        """
        if self._events is not None:
            document = {"time": datetime.now(UTC).isoformat(), "event": event, **facts}
            self._events.add(json.dumps(document))

    def warn(self, text: str) -> None:
        """Print a warning, even if progress is off."""
        warnings = Console(stderr=True, highlight=False, markup=False, emoji=False)
        warnings.print(printable(f"das: {text}"), soft_wrap=True)

    def say(self, text: str) -> None:
        """Print a plain line."""
        self.console.print(printable(text), soft_wrap=True)


class Recorder:
    """Recorder of the costs of finished stages of a run."""

    def __init__(self, out: Place, reporter: Reporter, memory: PeakMemory) -> None:
        self._out = out
        self._reporter = reporter
        self._memory = memory
        self._meter = Meter()

    @contextmanager
    def stage(self, stage: str, what: str = "", geolevel: str | None = None) -> Iterator[Line]:
        """Show the progress of a stage or part of it, and add its costs to the summary.

        Core seconds include all processes of the run on this machine, and the executors of its
        tasks. A failed part adds nothing.
        """
        core_seconds, began = self._meter.core_seconds(), time.monotonic()
        self._memory.take()
        self._reporter.event("stage_started", stage=stage, what=what, geolevel=geolevel)
        with self._reporter.line(stage, what, geolevel, lambda: self._memory.latest_bytes) as line:
            yield line
        seconds = time.monotonic() - began
        reports = [report for step in line.steps for report in step.reports.values()]
        for report in reports:
            self._meter.note(report.processors)
        used = self._meter.core_seconds() - core_seconds
        part = Part(
            stage=stage,
            what=what,
            geolevel=geolevel,
            seconds=seconds,
            core_seconds=used,
            core_hours=used / 3600,
            peak_memory_bytes=self._memory.take(),
            task_peak_memory_bytes=max((report.peak_bytes for report in reports), default=0),
            geounits=line.geounits,
            rate=line.geounits / seconds if line.geounits else None,
            tasks=len(reports),
            stragglers=tuple(straggler for step in line.steps for straggler in step.stragglers()),
        )
        costs = json_of(part)
        del costs["core_hours"]  # events state seconds only
        self._reporter.event("stage_finished", **costs)
        write_document(self._out / SUMMARY, summary_of([*read_summary(self._out).parts, part]))


@contextmanager
def _live(console: Console, stage: str, what: str) -> Iterator[Callable[[int, int, str], None]]:
    """Draw a live line of a part of a stage on a terminal."""
    # Without the bar and some blanks, a line of small numbers fits 80 characters.
    is_wide = console.width >= WIDE
    columns = (
        TextColumn(
            f"{{task.fields[stage]:<20}}{{task.description:<{34 if is_wide else 26}}}", markup=False
        ),
        *([BarColumn(bar_width=24)] if is_wide else []),
        TextColumn("{task.fields[count]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(printable(what), stage=stage, total=None, count="")

        def show(done: int, total: int, speed: str) -> None:
            progress.update(task, completed=done, total=total, count=f"{done:,}/{total:,}{speed}")

        yield show
        done = progress.tasks[0]
        if done.total is None:
            progress.update(task, completed=1, total=1)
        else:
            progress.update(task, count=f"{done.completed:,.0f}/{done.total:,.0f}")


def speed_text(rate: float | None, remaining_seconds: float | None) -> str:
    """Format rate and remaining time; "" while they are None, before the first task has finished.

    >>> speed_text(123.4, 90.0)
    ', 123/s, 1:30 left'
    """
    if rate is None or remaining_seconds is None:
        return ""
    return f", {rate:,.{0 if rate >= 10 else 1}f}/s, {clock_text(remaining_seconds)} left"


def clock_text(seconds: float) -> str:
    """Format seconds as minutes and seconds, with hours if necessary.

    >>> clock_text(90.0), clock_text(3700.0)
    ('1:30', '1:01:40')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, of_hour = divmod(minutes, 60)
    return f"{hours}:{of_hour:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
