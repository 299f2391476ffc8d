"""What a run cost: per stage seconds, core hours, memory and geounits, kept in OUT/summary.json.

The costs of reading and measuring depend on the truth, so the file stays outside of OUT/release.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from jobs.report import text
from jobs.storage.files import understanding, write_json
from jobs.tasks.progress import Line, Reporter
from jobs.tasks.resources import Meter, PeakMemory

SUMMARY = "summary.json"
_ADDED = ("seconds", "core_seconds", "geounits", "tasks")
_LARGEST = ("peak_memory_bytes", "task_peak_memory_bytes")

Costs = dict[str, Any]


class Recorder:
    """Records what the stages of a run cost, when each is done."""

    def __init__(self, out: Path, reporter: Reporter, memory: PeakMemory) -> None:
        self._path = out / SUMMARY
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
        costs = {
            **line.place,
            "seconds": seconds,
            "core_seconds": self._meter.core_seconds() - core_seconds,
            "peak_memory_bytes": self._memory.take(),
            "task_peak_memory_bytes": max((one.peak_bytes for one in reports), default=0),
            "geounits": line.geounits,
            "rate": line.geounits / seconds if line.geounits else None,
            "tasks": len(reports),
            "stragglers": [asdict(one) for step in line.steps for one in step.stragglers()],
        }
        self._reporter.event("stage_finished", **costs)
        write_json(self._path, summarized([*read_parts(self._path.parent), costs]))


def read_summary(out: Path) -> dict[str, Any]:
    """The summary of a run folder; that of no parts before the first is done.

    Raises:
      OutputError: It is damaged.
    """
    path = out / SUMMARY
    if not path.exists():
        return summarized([])
    with understanding(path, "remove it: only what the run cost so far is lost"):
        return summarized(json.loads(path.read_text("utf-8"))["parts"])


def read_parts(out: Path) -> list[Costs]:
    """Costs of every part of every stage so far."""
    return list(read_summary(out)["parts"])


def summarized(parts: Sequence[Costs]) -> dict[str, Any]:
    """Parts of the same place as one, and their sums by stage and in all.

    Seconds, core seconds, geounits and tasks are added up, over starts of the run too; of memory
    the largest is kept.
    """
    places: dict[tuple[str, str], list[Costs]] = {}
    stages: dict[str, list[Costs]] = {}
    for part in parts:
        places.setdefault((part["stage"], part["what"]), []).append(part)
        stages.setdefault(part["stage"], []).append(part)
    total = _together(parts)
    del total["geounits"], total["rate"]  # stages work on the same geounits
    return {
        "total": total,
        "stages": {name: _together(some) for name, some in stages.items()},
        "parts": [
            {
                **{key: some[0][key] for key in ("stage", "what", "geolevel")},
                **_together(some),
                "stragglers": [one for part in some for one in part["stragglers"]],
            }
            for some in places.values()
        ],
    }


def _together(parts: Sequence[Costs]) -> Costs:
    found: Costs = {key: sum(part[key] for part in parts) for key in _ADDED}
    found |= {key: max((part[key] for part in parts), default=0) for key in _LARGEST}
    found["core_hours"] = found["core_seconds"] / 3600
    found["rate"] = found["geounits"] / found["seconds"] if found["geounits"] else None
    return found


def summary_table(summary: Mapping[str, Any]) -> Table:
    """The stages of a summary and their sum."""
    table = Table(box=SIMPLE, show_footer=True)
    total = summary["total"]
    rows = [[name, *_cells(costs)] for name, costs in summary["stages"].items()]
    titles = ("Elapsed", "Core time", "Core hours", "Peak memory", "Largest task")
    footers = _cells(total)
    table.add_column("Stage", footer="all")
    for title, footer in zip((*titles, "Geounits", "Per second"), footers, strict=True):
        table.add_column(title, footer=footer, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def _cells(costs: Costs) -> list[str]:
    geounits = costs.get("geounits")
    return [
        text.duration(costs["seconds"]),
        text.duration(costs["core_seconds"]),
        f"{costs['core_hours']:.4f}",
        text.size(costs["peak_memory_bytes"]),
        text.size(costs["task_peak_memory_bytes"]) if costs["task_peak_memory_bytes"] else "",
        text.integer(geounits) if geounits else "",
        text.decimal(costs["rate"]) if geounits else "",
    ]
