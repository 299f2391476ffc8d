"""What a run cost: per stage seconds, core hours, memory and geounits, kept in OUT/summary.json.

The costs of reading and measuring depend on the truth, so the file stays outside of OUT/release.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from jobs.pipeline.documents.document import document, read_document
from jobs.pipeline.storage import place as storage

SUMMARY = "summary.json"

# Stages under the names that versions before 0.2 gave them.
_RENAMED = {"settle": "resolve_constraints", "claim": "reserve_budget", "seal": "finalize"}


@document
class Straggler:
    """A task that takes or took much longer than its cost predicts.

    Attributes:
      step: Label of its step.
      task: Its number.
      low: First geocode of its range, "" if it has none.
      high: Last geocode.
      cost: Predicted cost, in geounits, or 1 where nothing is predicted.
      seconds: How long it took, or runs so far.
      expected_seconds: By the median of finished tasks and the costs.
      running: Whether it still runs.
    """

    step: str
    task: int
    low: str
    high: str
    cost: int
    seconds: float
    expected_seconds: float
    running: bool


@document
class Total:
    """What several parts cost.

    Attributes:
      seconds: Elapsed.
      core_seconds: Processor time of all processes: driver, its Java, and on every machine the
        executors and Python workers.
      tasks: Finished tasks.
      peak_memory_bytes: Of all processes of the run on the driver's machine, sampled once a second;
        local workers included.
      task_peak_memory_bytes: Largest Python worker on any machine, as resident size; 0 without
        tasks.
      core_hours: `core_seconds` in hours.
    """

    seconds: float
    core_seconds: float
    tasks: int
    peak_memory_bytes: int
    task_peak_memory_bytes: int
    core_hours: float


@document
class Costs(Total):
    """What a stage, or a part of it, cost.

    Attributes:
      geounits: Geounits of all steps; one that three steps handle counts three times.
      rate: Geounits per second; null without geounits.
    """

    geounits: int
    rate: float | None


@document
class Place:
    """Which part of a run it is.

    Attributes:
      stage: Name of the stage.
      what: What of it.
      geolevel: The geolevel it is about; null if it is not about one.
    """

    stage: str
    what: str
    geolevel: str | None


@document
class Part(Costs, Place):
    """What a part of a stage cost, over all starts of the run that worked on it.

    Attributes:
      stragglers: Its tasks that lagged.
    """

    stragglers: tuple[Straggler, ...]


@document
class Summary:
    """What a run cost so far.

    Attributes:
      format: 1.
      total: All stages.
      stages: By name, in the order in which they began.
      parts: The parts of the stages.
    """

    format: Literal[1]
    total: Total
    stages: dict[str, Costs]
    parts: tuple[Part, ...]

    @property
    def stragglers(self) -> list[Straggler]:
        """The tasks of all parts that lagged."""
        return [straggler for part in self.parts for straggler in part.stragglers]


def summary_of(parts: Sequence[Part]) -> Summary:
    """Parts of the same place as one, and their sums by stage and in all.

    Seconds, core seconds, geounits and tasks are added up, over starts of the run too; of memory
    the largest is kept.
    """
    places: dict[tuple[str, str], list[Part]] = {}
    stages: dict[str, list[Part]] = {}
    for part in parts:
        places.setdefault((part.stage, part.what), []).append(part)
        stages.setdefault(part.stage, []).append(part)
    return Summary(
        format=1,
        total=Total(**_added(parts)),
        stages={stage: Costs(**_costs(group)) for stage, group in stages.items()},
        parts=tuple(
            Part(
                stage=group[0].stage,
                what=group[0].what,
                geolevel=group[0].geolevel,
                stragglers=tuple(one for part in group for one in part.stragglers),
                **_costs(group),
            )
            for group in places.values()
        ),
    )


def _added(parts: Sequence[Part]) -> dict[str, Any]:
    core_seconds = sum(part.core_seconds for part in parts)
    return {
        "seconds": sum(part.seconds for part in parts),
        "core_seconds": core_seconds,
        "tasks": sum(part.tasks for part in parts),
        "peak_memory_bytes": max((part.peak_memory_bytes for part in parts), default=0),
        "task_peak_memory_bytes": max((part.task_peak_memory_bytes for part in parts), default=0),
        "core_hours": core_seconds / 3600,
    }


def _costs(parts: Sequence[Part]) -> dict[str, Any]:
    added, geounits = _added(parts), sum(part.geounits for part in parts)
    return {
        **added,
        "geounits": geounits,
        "rate": geounits / added["seconds"] if geounits else None,
    }


def read_summary(folder: storage.Place) -> Summary:
    """Read the summary of a run folder; it has no parts before the first is done.

    Stages of older versions get the names of today.

    Raises:
      OutputError: It is damaged.
    """
    path = folder / SUMMARY
    if not path.is_file():
        return summary_of(())
    remedy = "remove it: only what the run cost so far is lost"
    parts = read_document(Summary, path, remedy=remedy).parts
    return summary_of([replace(part, stage=_RENAMED.get(part.stage, part.stage)) for part in parts])
