"""The costs of a run by stage: seconds, core hours, memory and geounits, in OUT/summary.json.

The costs of reading and measuring depend on the true data, so the file is outside of OUT/release.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from jobs.pipeline.documents.document import document, read_document
from jobs.pipeline.storage import place as storage

SUMMARY = "summary.json"


@document
class Straggler:
    """A task that takes or took much longer than its cost predicts.

    Attributes:
      step: Label of the step.
      task: Number of the task.
      low: First geocode of its range; empty without a range.
      high: Last geocode of its range.
      cost: Predicted cost, in geounits; 1 without a prediction.
      seconds: Duration, so far if it still runs.
      expected_seconds: Duration predicted from finished tasks and the predicted costs.
      running: Whether the task still runs.
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
    """Total costs of some parts.

    Attributes:
      seconds: Elapsed seconds.
      core_seconds: Processor time of all processes: driver, its Java, and on every machine the
        executors and Python workers.
      tasks: Number of finished tasks.
      peak_memory_bytes: Peak memory of all processes of the run on the driver's machine, sampled
        once a second, including local workers.
      task_peak_memory_bytes: Largest resident size of a Python worker on any machine; 0 without
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
    """Costs of a stage, or of a part of it.

    Attributes:
      geounits: Geounits of all steps; a geounit in three steps counts three times.
      rate: Geounits per second; null without geounits.
    """

    geounits: int
    rate: float | None


@document
class Place:
    """A part of a run.

    Attributes:
      stage: Name of the stage.
      what: Name of the part within the stage.
      geolevel: Geolevel of the part; null if it has none.
    """

    stage: str
    what: str
    geolevel: str | None


@document
class Part(Costs, Place):
    """Costs of a part of a stage, over all starts of the run.

    Attributes:
      stragglers: Tasks that took much longer than predicted.
    """

    stragglers: tuple[Straggler, ...]


@document
class Summary:
    """Costs of a run so far.

    Attributes:
      format: 1.
      total: Costs of all stages.
      stages: Costs by name of the stage, in the order in which they began.
      parts: Costs of the parts of stages.
    """

    format: Literal[1]
    total: Total
    stages: dict[str, Costs]
    parts: tuple[Part, ...]


def summary_of(parts: Sequence[Part]) -> Summary:
    """Merge equal parts of several starts, and compute their sums by stage and in total.

    Seconds, core seconds, geounits and tasks are added up; of memory, the largest value is kept.
    """
    merged: dict[tuple[str, str], list[Part]] = {}
    stages: dict[str, list[Part]] = {}
    for part in parts:
        merged.setdefault((part.stage, part.what), []).append(part)
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
                stragglers=tuple(task for part in group for task in part.stragglers),
                **_costs(group),
            )
            for group in merged.values()
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
    """Read the summary of a run folder; empty before the first part is done.

    Raises:
      OutputError: The file is damaged.
    """
    path = folder / SUMMARY
    if not path.is_file():
        return summary_of(())
    remedy = "remove it: only what the run cost so far is lost"
    return read_document(Summary, path, remedy=remedy)
