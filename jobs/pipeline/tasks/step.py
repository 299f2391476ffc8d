"""The tasks of one step: what each gives back and costs, how far they are, which lag behind."""

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

_FACTOR = 3.0  # times its predicted seconds after which a task lags
_LEAST_SECONDS = 10.0  # beyond the predicted ones, so that short tasks are left alone
_LEAST_FINISHED = 3  # tasks from which seconds are predicted


class Tasks(ABC):
    """What runs the tasks of a stage; all that a stage knows of it.

    Attributes:
      sizing: How much work a task gets.
      slots: Tasks that run at the same time.
      is_open: Whether what the tasks send each other lacks authentication or encryption.
    """

    def __init__(self, sizing: Sizing, slots: int = 1, *, is_open: bool = False) -> None:
        self.sizing = sizing
        self.slots = slots
        self.is_open = is_open

    @property
    def batches(self) -> int:
        """Return how many tasks a step is cut into where there is work enough."""
        return self.slots * self.sizing.batches_per_slot

    @property
    @abstractmethod
    def environment(self) -> Mapping[str, str]:
        """Return the versions of `spark` and `java`, for the manifest."""

    @abstractmethod
    def run(self, label: str, items: Sequence[T], task: Callable[[T], R]) -> list[R]:
        """Run a function on every item, one task each, first item first.

        Exactly one result per item comes back, in their order, whatever was retried. How far the
        tasks are and what they cost is shown to the watch of `jobs.pipeline.tasks.step.watching`.

        Args:
          label: Name of the step.
          items: Small picklable values; tasks read their data themselves.
          task: Plain function of one item.

        Raises:
          DasError: The one a task raised on purpose, first item first.
        """


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What a finished task cost. Tells nothing of what it read or wrote.

    Attributes:
      index: Which task of its step.
      seconds: How long it took.
      processors: Processor time of its process and those of its executor.
      peak_bytes: Largest resident size of its process.
    """

    index: int
    seconds: float
    processors: Readings
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Failure:
    """A task's own error, sent back as a value so that its type and facts survive."""

    error: DasError


def outcome_of(task: Callable[[T], R], index: int, item: T) -> tuple[R | Failure, TaskReport]:
    """Run one task where it is: errors raised on purpose are values, costs are measured.

    Args:
      task: What to do.
      index: Which task of its step.
      item: Its descriptor.
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
      DasError: The one a task raised on purpose, first item first.
    """
    results: list[R] = []
    for outcome in outcomes:
        if isinstance(outcome, Failure):
            raise outcome.error
        results.append(outcome)
    return results


class Step:
    """One Spark job of one task per descriptor, as the driver sees it.

    Progress counts geounits where descriptors have a `cost`, else tasks. Spark starts tasks in
    order, so when n were started, these are the first n. Where reports come in the order of the
    tasks, as from a server, some that finished have not told yet: `unseen` of those started.
    """

    def __init__(self, label: str, descriptors: Sequence[object]) -> None:
        self.label = label
        self.in_geounits = all(hasattr(one, "cost") for one in descriptors)
        self.costs = [max(1, int(getattr(one, "cost", 1))) for one in descriptors]
        self._ranges = [
            (str(getattr(one, "low", "")), str(getattr(one, "high", ""))) for one in descriptors
        ]
        self.reports: dict[int, TaskReport] = {}
        self._since: list[float] = []
        self._unseen = 0
        self._began = self.now = time.monotonic()

    @property
    def total(self) -> int:
        """Count the geounits or tasks of the step."""
        return sum(self.costs)

    @property
    def done(self) -> int:
        """Count finished geounits or tasks; of tasks without a report, the least they can be."""
        reported = sum(self.costs[index] for index in self.reports)
        waiting = sorted(self.costs[index] for index in self._waiting()[1:])
        return reported + sum(waiting[: self._unseen])

    @property
    def rate(self) -> float | None:
        """Return finished geounits or tasks per second; None before the first."""
        return self.done / max(self.now - self._began, 1e-9) if self.done else None

    @property
    def remaining_seconds(self) -> float | None:
        """Estimate what the rest takes at this rate; None before the first task has finished."""
        return None if self.rate is None else (self.total - self.done) / self.rate

    def look(
        self, reports: Iterable[TaskReport], n_started: int, now: float, n_finished: int = 0
    ) -> None:
        """Take in what is known of the tasks.

        Args:
          reports: Of tasks that finished.
          n_started: Tasks started by now.
          now: Monotonic seconds.
          n_finished: Tasks that finished by now, if more than reports have come of.
        """
        for report in reports:
            self.reports[report.index] = report
        self._since += [now] * (min(n_started, len(self.costs)) - len(self._since))
        self._unseen = max(0, n_finished - len(self.reports))
        self.now = now

    def _waiting(self) -> list[int]:
        """List started tasks without a report, first task first. The first of them runs."""
        return [index for index in range(len(self._since)) if index not in self.reports]

    def stragglers(self) -> list[Straggler]:
        """List tasks that lag, finished ones and running ones, first task first."""
        if len(self.reports) < _LEAST_FINISHED:
            return []
        each = median(one.seconds / self.costs[one.index] for one in self.reports.values())
        # Where some have finished and not told, only the first is known to run.
        running = self._waiting()[: 1 if self._unseen else None]
        seconds = {index: self.now - self._since[index] for index in running}
        seconds |= {index: one.seconds for index, one in self.reports.items()}
        expected = {index: each * self.costs[index] for index in seconds}
        return [
            Straggler(
                step=self.label,
                task=index,
                low=self._ranges[index][0],
                high=self._ranges[index][1],
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
    """Let every step that is run inside the block be shown to `watch`, again and again."""
    token = _WATCH.set(watch)
    try:
        yield
    finally:
        _WATCH.reset(token)


def current_watch() -> Watch | None:
    """Return what steps are shown to here and now."""
    return _WATCH.get()
