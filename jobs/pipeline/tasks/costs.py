"""Records what the stages of a run cost, as they are done."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from jobs.pipeline.documents.document import json_of, write_document
from jobs.pipeline.documents.summary import SUMMARY, Part, read_summary, summary_of
from jobs.pipeline.storage.place import Place
from jobs.pipeline.tasks.progress import Line, Reporter
from jobs.pipeline.tasks.resources import Meter, PeakMemory


class Recorder:
    """Records what the stages of a run cost, when each is done."""

    def __init__(self, out: Place, reporter: Reporter, memory: PeakMemory) -> None:
        self._out = out
        self._reporter = reporter
        self._memory = memory
        self._meter = Meter()

    @contextmanager
    def stage(self, stage: str, what: str = "", geolevel: str | None = None) -> Iterator[Line]:
        """Show the progress of a stage, or of a part of it, and add its costs to the summary.

        Core seconds are those of all processes of the run on this machine and of all executors
        that did its tasks, as the tasks report them. A part that fails adds nothing.
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
        del costs["core_hours"]  # an event has it in seconds alone
        self._reporter.event("stage_finished", **costs)
        write_document(self._out / SUMMARY, summary_of([*read_summary(self._out).parts, part]))
