"""All stages of a run in this process, task after task, so that tests can look into tasks."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TypeVar

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
    """Tasks of a run file in this process, cut as for two slots."""
    return PickledTasks(fine(config.runtime.batches_per_slot), slots=2)


@contextmanager
def open_here(config: RunConfig, tell: Callable[[str], None] = print) -> Iterator[Tasks]:
    """Stands in for `jobs.pipeline.tasks.executor.open_tasks`."""
    yield tasks_of(config)


def patch_spark(patch: pytest.MonkeyPatch) -> None:
    """Let commands, which nothing can be passed to, run their tasks in this process."""
    patch.setattr("jobs.pipeline.run.open_tasks", open_here)
    patch.setattr("jobs.analysis.replicate.open_tasks", open_here)
    patch.setattr("jobs.pipeline.confidential.geounits.open_tasks", open_here)


def leave_out_figures(patch: pytest.MonkeyPatch) -> None:
    """Let reports have no drawings, a quarter of a toy run."""
    for module in (budget, groups):
        for name in ("line_panels", "dot_rows"):
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
        run(resolved, Reporter(quiet=True), tasks=tasks or tasks_of(resolved.config))
    return resolved.config.output.directory
