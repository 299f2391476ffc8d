"""Run one step of a stage: the same function on every item, on Spark or in this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

from das.errors import RuntimeSetupError
from jobs.pipeline.config.models.run import RunConfig
from jobs.pipeline.config.protection import missing_protection
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.java import java_in_use
from jobs.pipeline.tasks.session import session_properties, spark_session
from jobs.pipeline.tasks.step import (
    Failure,
    Step,
    TaskReport,
    Tasks,
    outcome_of,
    results_of,
)

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = ["LocalTasks", "SparkTasks", "Tasks", "open_tasks", "require_run_packages"]

T = TypeVar("T")
R = TypeVar("R")

_OF_RUNS = ("numba", "ortools", "pyspark")  # heavy packages that readers of a release do not need
_POLL_SECONDS = 0.25  # seconds between polls of started Spark tasks; default, not measured


class LocalTasks(Tasks):
    """Tasks in this process, one after the other, without Java and with full tracebacks.

    Steps are cut as if `slots` tasks ran at the same time.
    """

    @property
    def environment(self) -> Mapping[str, str]:
        """Return "none" for Spark and Java."""
        return {"spark": "none", "java": "none"}

    def run(self, label: str, items: Sequence[T], task: Callable[[T], R]) -> list[R]:
        """Implement `Tasks.run`; costs of tasks are part of the costs of this process."""
        step = Step(label, items)
        results: list[R] = []
        for index, item in enumerate(items):
            began = time.monotonic()
            results.append(task(item))
            now = time.monotonic()
            step.look([TaskReport(index, now - began, {}, 0)], index + 1, now)
        return results


class SparkTasks(Tasks):
    """Tasks as Spark jobs of an open session, one per step."""

    def __init__(self, session: SparkSession, sizing: Sizing) -> None:
        slots = max(1, session.sparkContext.defaultParallelism)
        is_open = bool(missing_protection(session_properties(session)))
        super().__init__(sizing, slots, is_open=is_open)
        self.session = session

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the versions of Spark and Java."""
        return {"spark": self.session.version, "java": java_in_use()}

    def run(self, label: str, items: Sequence[T], task: Callable[[T], R]) -> list[R]:
        """Implement `Tasks.run`; the label is the description of the Spark job."""
        if not items:
            return []
        from pyspark.accumulators import AddingAccumulatorParam

        context = self.session.sparkContext
        step = Step(label, items)
        none: list[TaskReport] = []
        reports = context.accumulator(none, AddingAccumulatorParam([*none]))  # two lists: both grow

        def run_on_worker(numbered: tuple[int, T]) -> R | Failure:
            outcome, report = outcome_of(task, *numbered)
            reports.add([report])
            return outcome

        def show(n_started: int) -> None:
            step.look(list(reports.value), n_started, time.monotonic())

        numbered = list(enumerate(items))
        with _polled(context, label, show):
            outcomes = context.parallelize(numbered, len(numbered)).map(run_on_worker).collect()
        show(len(items))
        return results_of(outcomes)


def require_run_packages() -> None:
    """Check that the packages of runs are installed, without importing them.

    Raises:
      RuntimeSetupError: The extra `run` is not installed.
    """
    absent = [name for name in _OF_RUNS if find_spec(name) is None]
    if absent:
        raise RuntimeSetupError(
            "this installation",
            "reads releases and makes none",
            got=f"no {', '.join(absent)}",
            remedy="`pip install 'topdown-das[run]'`, or '.[run]' in a clone",
        )


@contextmanager
def open_tasks(
    config: RunConfig, tell: Callable[[str], None] = lambda text: None
) -> Iterator[Tasks]:
    """Start Spark by the run file, and stop it afterwards.

    Args:
      config: The run file.
      tell: Called with the reason if a cluster takes long to start.

    Raises:
      RuntimeSetupError: Java or packages are missing, Spark does not start, the session lacks
        protection, or the cluster cannot fulfill the request.
    """
    require_run_packages()
    runtime = config.runtime
    with spark_session(
        config.name,
        master=runtime.master,
        driver_memory=runtime.driver_memory,
        properties=runtime.spark,
        allow_open=runtime.allow_open_cluster,
        tell=tell,
    ) as session:
        yield SparkTasks(session, Sizing(runtime.batches_per_slot))


@contextmanager
def _polled(context: SparkContext, label: str, show: Callable[[int], None]) -> Iterator[None]:
    """Name the Spark jobs of the block, and show the number of started tasks repeatedly."""
    from py4j.protocol import Py4JError

    group = f"{label}-{time.monotonic_ns()}"
    finished = threading.Event()

    def poll() -> None:
        tracker = context.statusTracker()
        while not finished.wait(_POLL_SECONDS):
            n_started = 0
            try:
                for job in tracker.getJobIdsForGroup(group):
                    info = tracker.getJobInfo(job)
                    for stage in info.stageIds if info else ():
                        tasks = tracker.getStageInfo(stage)
                        n_started += tasks.numCompletedTasks + tasks.numActiveTasks if tasks else 0
            except (Py4JError, OSError):  # Java is lost; the call that runs the tasks reports it
                return
            show(n_started)

    context.setJobGroup(group, label)
    poller = threading.Thread(target=poll, daemon=True)
    poller.start()
    try:
        yield
    finally:
        finished.set()
        poller.join()
