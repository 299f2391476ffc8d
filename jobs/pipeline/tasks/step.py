"""Tasks of one step: results, costs, progress and stragglers."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, TypeVar

from das.errors import DasError
from jobs.pipeline.documents.summary import Straggler
from jobs.pipeline.tasks.resources import (
    Readings,
    executor_family,
    forget_task_peak,
    read_processes,
    task_peak_bytes,
)

if TYPE_CHECKING:
    from jobs.pipeline.tasks.batches import Sizing

T = TypeVar("T")
R = TypeVar("R")

# A task lags if it exceeds both limits. Defaults, not measured.
_FACTOR = 3.0  # times its predicted seconds
_LEAST_SECONDS = 10.0  # seconds beyond the predicted ones, so that short tasks are left alone
_LEAST_FINISHED = 3  # finished tasks needed to predict seconds


class Tasks(ABC):
    """Runner of the tasks of a stage, on Spark or in this process.

    Attributes:
      sizing: Amounts of work per task.
      slots: Number of tasks that run at the same time.
      is_open: Whether traffic between tasks lacks authentication or encryption.
    """

    def __init__(self, sizing: Sizing, slots: int = 1, *, is_open: bool = False) -> None:
        self.sizing = sizing
        self.slots = slots
        self.is_open = is_open

    @property
    def batches(self) -> int:
        """Return the number of tasks into which a step with enough work is cut."""
        return self.slots * self.sizing.batches_per_slot

    @property
    @abstractmethod
    def environment(self) -> Mapping[str, str]:
        """Return the versions of `spark` and `java`, for the manifest."""

    @abstractmethod
    def run(self, label: str, items: Sequence[T], task: Callable[[T], R]) -> list[R]:
        """Run a function on every item, one task each, first item first.

        Exactly one result per item is returned, in order, despite retries. Progress and costs of
        the tasks go to the watch of `jobs.pipeline.tasks.step.watching`.

        Args:
          label: Name of the step.
          items: Small picklable values; tasks read their data themselves.
          task: A function of one item.

        Raises:
          DasError: The error of the first item whose task raised one.
        """


@dataclass(frozen=True, slots=True)
class TaskReport:
    """Costs of a finished task, without facts about the data.

    Attributes:
      index: Number of the task in its step.
      seconds: Elapsed seconds.
      processors: Processor time of the processes of the task and its executor.
      peak_bytes: Largest resident size of the process.
    """

    index: int
    seconds: float
    processors: Readings
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Failure:
    """Error of a task, returned as a value so that its type and facts survive."""

    error: DasError


def outcome_of(task: Callable[[T], R], index: int, item: T) -> tuple[R | Failure, TaskReport]:
    """Run one task and measure its costs; a DasError is returned as a value.

    Args:
      task: The function.
      index: Number of the task in its step.
      item: The item of the task.
    """
    forget_task_peak()
    began = time.monotonic()
    try:
        result: R | Failure = task(item)
    except DasError as error:
        result = Failure(error)
    seconds = time.monotonic() - began
    return result, TaskReport(index, seconds, read_processes(executor_family()), task_peak_bytes())


def results_of(outcomes: Iterable[R | Failure]) -> list[R]:
    """Return the results of the tasks of a step, in the order of their items.

    Raises:
      DasError: The error of the first item whose task raised one.
    """
    results: list[R] = []
    for outcome in outcomes:
        if isinstance(outcome, Failure):
            raise outcome.error
        results.append(outcome)
    return results


class Step:
    """One Spark job of one task per descriptor, as the driver sees it.

    Progress counts geounits if descriptors have a `cost`, else tasks. Spark starts tasks in order,
    so n started tasks are the first n.
    """

    def __init__(self, label: str, descriptors: Sequence[object]) -> None:
        self.label = label
        self.in_geounits = all(hasattr(item, "cost") for item in descriptors)
        self.costs = [max(1, int(getattr(item, "cost", 1))) for item in descriptors]
        self._ranges = [
            {end: str(getattr(item, end, "")) for end in ("low", "high")} for item in descriptors
        ]
        self.reports: dict[int, TaskReport] = {}
        self._since: list[float] = []
        self._watch = current_watch()
        self._began = self.now = time.monotonic()

    @property
    def total(self) -> int:
        """Count the geounits or tasks of the step."""
        return sum(self.costs)

    @property
    def done(self) -> int:
        """Count finished geounits or tasks."""
        return sum(self.costs[index] for index in self.reports)

    @property
    def rate(self) -> float | None:
        """Return finished geounits or tasks per second; None before the first."""
        return self.done / max(self.now - self._began, 1e-9) if self.done else None

    @property
    def remaining_seconds(self) -> float | None:
        """Estimate the remaining seconds; None before the first task has finished."""
        return None if self.rate is None else (self.total - self.done) / self.rate

    def look(self, reports: Iterable[TaskReport], n_started: int, now: float) -> None:
        """Update the state of the tasks, and call the watch of the context that made the step.

        Args:
          reports: Reports of finished tasks.
          n_started: Number of started tasks.
          now: Monotonic seconds.
        """
        for report in reports:
            self.reports[report.index] = report
        self._since += [now] * (min(n_started, len(self.costs)) - len(self._since))
        self.now = now
        if self._watch:
            self._watch(self)

    def stragglers(self) -> list[Straggler]:
        """List finished and running tasks that took far longer than predicted, by task number.

        The prediction is the cost of the task times the median seconds per unit of cost of the
        finished tasks. The list is empty while fewer than three tasks have finished.
        """
        if len(self.reports) < _LEAST_FINISHED:
            return []
        each = median(r.seconds / self.costs[r.index] for r in self.reports.values())
        seconds = {index: self.now - began for index, began in enumerate(self._since)}
        seconds |= {index: report.seconds for index, report in self.reports.items()}
        expected = {index: each * self.costs[index] for index in seconds}
        return [
            Straggler(
                step=self.label,
                task=index,
                **self._ranges[index],
                cost=self.costs[index],
                seconds=spent,
                expected_seconds=expected[index],
                running=index not in self.reports,
            )
            for index, spent in sorted(seconds.items())
            if spent > max(_FACTOR * expected[index], expected[index] + _LEAST_SECONDS)
        ]


Watch = Callable[[Step], None]
_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Call `watch` repeatedly with every step that runs inside the block."""
    token = _WATCH.set(watch)
    try:
        yield
    finally:
        _WATCH.reset(token)


def current_watch() -> Watch | None:
    """Return the watch of the current context; None if there is no watch."""
    return _WATCH.get()
