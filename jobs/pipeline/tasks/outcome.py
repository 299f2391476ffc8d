"""What a task gives back: its result, or the error it raised on purpose; and what it cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from das.errors import DasError
from jobs.pipeline.tasks.step import TaskGauge, TaskReport

T = TypeVar("T")
R = TypeVar("R")


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
    gauge = TaskGauge()
    try:
        result: R | Failure = task(item)
    except DasError as error:
        result = Failure(error)
    return result, gauge.report(index)


def results_of(outcomes: Iterable[R | Failure]) -> list[R]:
    """The results of the tasks of a step, in the order of their items.

    Raises:
      DasError: The one a task raised on purpose, first item first.
    """
    results: list[R] = []
    for outcome in outcomes:
        if isinstance(outcome, Failure):
            raise outcome.error
        results.append(outcome)
    return results
