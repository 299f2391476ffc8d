"""Running one step of a stage: the same function on every item, on Spark or in this process.

Spark Connect, which knows neither RDDs nor accumulators, is in `jobs.pipeline.tasks.connect`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from jobs.pipeline.config.models.run import RunConfig
from jobs.pipeline.config.protection import missing_protection
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.connect import ConnectTasks
from jobs.pipeline.tasks.connect_session import connect_session, is_connect_wanted, require_packages
from jobs.pipeline.tasks.java import java_in_use
from jobs.pipeline.tasks.session import session_properties, spark_session
from jobs.pipeline.tasks.step import (
    Failure,
    Step,
    TaskReport,
    Tasks,
    current_watch,
    outcome_of,
    results_of,
)

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = ["LocalTasks", "SparkTasks", "Tasks", "open_tasks", "require_run_packages"]

T = TypeVar("T")
R = TypeVar("R")

_OF_RUNS = ("numba", "ortools", "pyspark")  # heavy packages that reading a release does without
_POLL_SECONDS = 0.25  # between looks at how many tasks Spark has started


class LocalTasks(Tasks):
    """Tasks in this process, one after the other: no Java, and errors with all their frames.

    Steps are cut as if `slots` tasks ran at the same time.
    """

    @property
    def environment(self) -> Mapping[str, str]:
        """Return that neither Spark nor Java is used."""
        return {"spark": "none", "java": "none"}

    def run(self, label: str, items: Sequence[T], task: Callable[[T], R]) -> list[R]:
        """Implement `Tasks.run`; what tasks cost is part of what this process costs."""
        step, watch = Step(label, items), current_watch()
        results: list[R] = []
        for index, item in enumerate(items):
            began = time.monotonic()
            results.append(task(item))
            now = time.monotonic()
            step.look([TaskReport(index, now - began, {}, 0)], index + 1, now)
            if watch:
                watch(step)
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
        watch = current_watch()

        def run_on_worker(numbered: tuple[int, T]) -> R | Failure:
            outcome, report = outcome_of(task, *numbered)
            reports.add([report])
            return outcome

        def show(n_started: int) -> None:
            step.look(list(reports.value), n_started, time.monotonic())
            if watch:
                watch(step)

        numbered = list(enumerate(items))
        with _polled(context, label, show):
            outcomes = context.parallelize(numbered, len(numbered)).map(run_on_worker).collect()
        show(len(items))
        return results_of(outcomes)


def require_run_packages() -> None:
    """Refuse to begin a run that could not go on; nothing is imported.

    Raises:
      RuntimeSetupError: The extra `run` is not installed.
    """
    require_packages("this installation", "reads releases and makes none", _OF_RUNS, "run")


@contextmanager
def open_tasks(
    config: RunConfig, tell: Callable[[str], None] = lambda text: None
) -> Iterator[Tasks]:
    """Start Spark as a run file wants it, or go to its server, and stop or leave it afterwards.

    Args:
      config: Of the run.
      tell: Is told what is waited for, if a cluster takes long.

    Raises:
      RuntimeSetupError: Java or packages are missing, Spark does not start, the session lacks
        protection, the cluster cannot give it what it asks, or the server cannot be reached or run
        the tasks.
    """
    require_run_packages()
    runtime = config.runtime
    sizing = Sizing(runtime.batches_per_slot)
    if is_connect_wanted(runtime.master):
        with connect_session(
            runtime.master, properties=runtime.spark, allow_open=runtime.allow_open_cluster
        ) as server:
            yield ConnectTasks(server.session, sizing, server.slots, bool(server.doors))
        return
    with spark_session(
        config.name,
        master=runtime.master,
        driver_memory=runtime.driver_memory,
        properties=runtime.spark,
        allow_open=runtime.allow_open_cluster,
        tell=tell,
    ) as session:
        yield SparkTasks(session, sizing)


@contextmanager
def _polled(context: SparkContext, label: str, show: Callable[[int], None]) -> Iterator[None]:
    """Name the Spark jobs of the block, and show how many of their tasks were started."""
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
            except (Py4JError, OSError):  # Java is lost, as the tasks' own call will report
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
