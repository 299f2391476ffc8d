"""All stages of a run in this process, task after task, so that tests can look into tasks."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.config.load import Resolved, load_run
from jobs.run import run
from jobs.tasks.progress import Reporter

USES_SPARK = (
    "confidential.check",
    "confidential.evaluate",
    "confidential.exact",
    "confidential.histograms",
    "confidential.leaves",
    "confidential.measure",
    "confidential.read.formats",
    "release.estimate",
    "release.implied",
    "release.microdata",
    "release.solve",
    "release.tables",
)


def run_here(spark: object, label: str, descriptors: Sequence[Any], task: Callable) -> list[Any]:
    """Stands in for `jobs.tasks.session.run_tasks`."""
    return [task(descriptor) for descriptor in descriptors]


@contextmanager
def no_session(name: str, **_: object) -> Iterator[SimpleNamespace]:
    """Stands in for `jobs.tasks.session.spark_session`; knows no more than the number of slots."""
    yield SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2), version="none")


def patch_spark(patch: pytest.MonkeyPatch) -> None:
    """Let every stage do its tasks in this process, and make many of little work."""
    for least in (
        "confidential.measure._TASK_NUMBERS",
        "release.solve._TASK_VARIABLES",
        "confidential.exact._TASK_GEOUNITS",
        "release.microdata._TASK_GEOUNITS",
        "release.tables._TASK_GEOUNITS",
    ):
        patch.setattr(f"jobs.{least}", 0)
    for name in USES_SPARK:
        patch.setattr(importlib.import_module(f"jobs.{name}"), "run_tasks", run_here)
    patch.setattr("jobs.run.spark_session", no_session)


def execute(config: Path | Resolved) -> Path:
    """Run what is not complete, but for the internal report; returns the run folder."""
    resolved = load_run(config) if isinstance(config, Path) else config
    with pytest.MonkeyPatch.context() as patch:
        patch_spark(patch)
        patch.setattr("jobs.run.write_internal_reports", lambda *_: [])
        run(resolved, Reporter(quiet=True))
    return resolved.config.output.directory
