"""All stages of a run in this process, task after task, so that tests can look into tasks."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TypeVar

import psutil
import pytest
from markupsafe import Markup

from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.models.run import RunConfig
from jobs.pipeline.config.product import Resolved
from jobs.pipeline.report import budget, groups
from jobs.pipeline.run import run
from jobs.pipeline.tasks.batches import Sizing, TaskSize
from jobs.pipeline.tasks.executor import LocalTasks, Tasks
from jobs.pipeline.tasks.progress import Reporter
from jobs.survey.report import public

T = TypeVar("T")
R = TypeVar("R")


def fine(batches_per_slot: int) -> Sizing:
    """Small states are cut into as many tasks as large ones: no work is too little for a task."""
    sizing = Sizing(batches_per_slot)
    sizes = {field.name: getattr(sizing, field.name) for field in fields(sizing)}
    least = {
        name: replace(size, least=1) for name, size in sizes.items() if isinstance(size, TaskSize)
    }
    return replace(sizing, **least)


class PickledTasks(LocalTasks):
    """Tasks whose results are pickled, as those of Spark are."""

    def run(self, label: str, items: Sequence[T], task: Callable[[T], R]) -> list[R]:
        """As `LocalTasks.run`."""
        return [pickle.loads(pickle.dumps(result)) for result in super().run(label, items, task)]


def tasks_of(config: RunConfig) -> LocalTasks:
    """Tasks of a run file in this process, cut as for two slots.

    A step has two tasks, unless the run file says how many: tasks are half of what a toy run takes.
    """
    stated = "batches_per_slot" in config.runtime.model_fields_set
    return PickledTasks(fine(config.runtime.batches_per_slot if stated else 1), slots=2)


@contextmanager
def open_here(config: RunConfig, tell: Callable[[str], None] = print) -> Iterator[Tasks]:
    """Stands in for `jobs.pipeline.tasks.executor.open_tasks`."""
    yield tasks_of(config)


def patch_spark(patch: pytest.MonkeyPatch) -> None:
    """Let commands, which nothing can be passed to, run their tasks in this process."""
    leave_out_children(patch)
    patch.setattr("jobs.pipeline.run.open_tasks", open_here)
    patch.setattr("jobs.analysis.replicate.open_tasks", open_here)
    patch.setattr("jobs.pipeline.confidential.geounits.open_tasks", open_here)


def leave_out_children(patch: pytest.MonkeyPatch) -> None:
    """Let the costs of a run be those of this process, which runs all of its tasks.

    Children are looked for among all processes of the machine, 33 times in a toy run: a tenth of
    its time.
    """
    patch.setattr("jobs.pipeline.tasks.resources.family", lambda: [psutil.Process()])


def leave_out_figures(patch: pytest.MonkeyPatch) -> None:
    """Let reports have no drawings: a quarter of a toy run, and nearly half of that of a survey."""
    for module in (budget, groups, public):
        for name in ("line_panels", "dot_rows", "span_rows"):
            if hasattr(module, name):
                patch.setattr(module, name, lambda *_: Markup())


def execute(config: Path | Resolved, tasks: Tasks | None = None, *, figures: bool = False) -> Path:
    """Run what is not complete, but for the internal report; returns the run folder.

    Figures are for tests whose runs have other names, groups or products than the toy state: those
    of the toy state are drawn whenever a test types `das run`.
    """
    resolved = load_run(config) if isinstance(config, Path) else config
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jobs.pipeline.run.write_internal_reports", lambda *_: [])
        if not figures:
            leave_out_figures(patch)
        leave_out_children(patch)
        run(resolved, Reporter(quiet=True), tasks=tasks or tasks_of(resolved.config))
    return resolved.config.output.directory
