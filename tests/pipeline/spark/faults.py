"""Killing and stopping the processes of a Spark run on this machine, in the middle of a stage.

A task is found by what it does: it is the Python process that holds a part file of the dataset
open for writing. It is stopped before anything else is done, so "in mid task" is seen, not hoped.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

from jobs.pipeline.storage.dataset import MANIFEST, Dataset, is_published
from tests.pipeline.spark.cluster import Cluster

T = TypeVar("T")

PARTS = "part-*.parquet"


@dataclass(frozen=True)
class RunningTask:
    """A task attempt in flight.

    Attributes:
      worker: The Python process that works on it.
      part: The file it is writing.
    """

    worker: psutil.Process
    part: Path

    @property
    def executor(self) -> psutil.Process:
        """The Java process that the task belongs to: parent of the daemon that forked the worker."""
        return self.worker.parents()[1]


@dataclass(frozen=True)
class Attempt:
    """What Spark's event log says of one finished attempt of a task.

    Attributes:
      step: Label of the job, such as "measure block".
      index: Number of the task.
      speculative: Whether another attempt was still running when it was started.
      ending: Spark's word: Success, ExecutorLostFailure, ExceptionFailure, TaskKilled.
    """

    step: str
    index: int
    speculative: bool
    ending: str


@dataclass
class Submitted:
    """A driver in the background.

    Attributes:
      process: spark-submit, which has become the Java process of the driver.
      log: What it prints.
    """

    process: subprocess.Popen[bytes]
    log: Path

    def wait_until(self, condition: Callable[[], T | None], what: str, seconds: float = 300) -> T:
        """Poll until the condition gives something; fail if the driver ends before."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            ended = self.process.poll() is not None
            found = condition()
            if found:
                return found
            assert not ended, f"the driver ended before {what}:\n{self.tail()}"
            time.sleep(0.005)
        raise TimeoutError(f"waited {seconds:.0f} s for {what}:\n{self.tail()}")

    def finish(self, seconds: float = 300) -> int:
        """Wait for the end; returns the exit code."""
        return self.process.wait(timeout=seconds)

    def kill(self) -> None:
        """Kill the driver, Python and Java, as the loss of its machine would."""
        java = psutil.Process(self.process.pid)
        for process in [*java.children(recursive=True), java]:
            process.kill()
        self.process.wait(timeout=20)

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]


def python_workers(cluster: Cluster) -> Iterator[psutil.Process]:
    """The Python processes that work on tasks: forks of the daemons, which are children of Java."""
    for worker in cluster.workers:
        for process in _alive(psutil.Process(worker.pid).children(recursive=True)):
            try:
                parent = process.parent()
                forked = parent is not None and parent.name().startswith("python")
            except psutil.Error:
                continue
            if forked:
                yield process


def stop_in_task(cluster: Cluster, dataset: Path) -> RunningTask | None:
    """Stop one worker that is writing a part of the dataset; None if there is none right now."""
    for worker in python_workers(cluster):
        if _part_of(worker, dataset):
            worker.send_signal(signal.SIGSTOP)
            part = _part_of(worker, dataset)
            if part:
                return RunningTask(worker, part)
            worker.send_signal(signal.SIGCONT)  # it was just finishing
    return None


def stop_before_task(cluster: Cluster, dataset: Path) -> list[psutil.Process] | None:
    """Stop the workers of one executor before their next task of the dataset.

    Returns:
      The stopped workers; None if there is none that writes no part right now.
    """
    daemons = {worker.ppid(): worker.parent() for worker in python_workers(cluster)}
    for daemon in daemons.values():
        workers = daemon.children() if daemon else []
        for worker in workers:
            worker.send_signal(signal.SIGSTOP)
        if workers and not any(_part_of(worker, dataset) for worker in workers):
            return workers
        for worker in workers:
            worker.send_signal(signal.SIGCONT)
    return None


def parts_on_disk(dataset: Path) -> set[str]:
    """Names of the part files in the folder, whoever wrote them."""
    return {path.name for path in dataset.glob(PARTS)}


def unnamed_files(dataset: Path) -> set[str]:
    """Names of the files in a published folder that the manifest does not name."""
    named = {part.file for part in Dataset.open(dataset).parts} | {MANIFEST}
    return {path.name for path in dataset.iterdir()} - named


def under_way(dataset: Path, n_parts: int) -> bool:
    """Whether some parts are begun and nothing is published."""
    return len(parts_on_disk(dataset)) >= n_parts and not is_published(dataset)


def attempts(event_log: Path) -> list[Attempt]:
    """All finished attempts of all tasks, from an uncompressed event log of one application."""
    (path,) = (p for p in event_log.iterdir() if p.is_file())
    steps: dict[int, str] = {}
    found = []
    for line in path.read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerJobStart":
            label = event["Properties"].get("spark.job.description", "")
            steps |= dict.fromkeys(event["Stage IDs"], label)
        elif event["Event"] == "SparkListenerTaskEnd":
            info, ending = event["Task Info"], event["Task End Reason"]["Reason"]
            step = steps[event["Stage ID"]]
            found.append(Attempt(step, info["Index"], info["Speculative"], ending))
    return found


def _alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def _part_of(worker: psutil.Process, dataset: Path) -> Path | None:
    try:
        held = [Path(file.path) for file in worker.open_files()]
    except psutil.Error:
        return None
    return next((path for path in held if path.parent == dataset and path.match(PARTS)), None)
