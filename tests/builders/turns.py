"""Drivers that work on one store at the same time, in any order of steps that a test chooses.

Each driver is a thread that stops before every operation on a store in memory, until the test says
what becomes of it. So an example is a list of turns, is the same every time, and can be shrunk.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from jobs.pipeline.storage.stores.objects import ObjectStoreFiles

OPERATIONS = ("create", "replace", "read", "read_range", "stat", "files", "entries", "remove")
GO = "goes on"
DIES = "dies before it"
DIES_AFTER = "dies after it"
FAILS = "fails"
LOST = "is done, and the answer is lost for good"
TURNS = (*[GO] * 12, DIES, DIES_AFTER, FAILS, LOST)
"""What may become of an operation; most go on."""

_HERE = threading.local()


class Died(BaseException):
    """Stands for a driver that is killed."""


@dataclass
class Driver:
    """A driver.

    Attributes:
      work: What it does.
      error: How it ended, if not well.
      ended: Whether it did.
    """

    work: Callable[[], None]
    error: BaseException | None = None
    ended: bool = False
    _told: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _waits: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _turn: str = GO
    _is_inside: bool = False

    def start(self) -> None:
        """Begin, up to the first operation."""
        threading.Thread(target=self._run, daemon=True).start()
        self._await()

    def step(self, turn: str) -> None:
        """Let the operation that it stands before go on, or not; up to the next one."""
        if not self.ended:
            self._turn = turn
            self._told.release()
            self._await()

    def operate(self, operation: Callable[[], Any]) -> Any:
        """Do an operation when told to; one that is part of another is done with it."""
        if self._is_inside:
            return operation()
        self._waits.release()
        self._told.acquire()
        self._is_inside = True
        try:
            if self._turn == DIES:
                raise Died
            if self._turn == FAILS:
                raise OSError(errno.EIO, "the store is out of order")
            result = operation()
            if self._turn == DIES_AFTER:
                raise Died
            if self._turn == LOST:
                raise OSError(errno.EIO, "the answer was lost")
            return result
        finally:
            self._is_inside = False

    def _run(self) -> None:
        _HERE.driver = self
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error
        finally:
            self.ended = True
            self._waits.release()

    def _await(self) -> None:
        assert self._waits.acquire(timeout=60), "a driver neither ends nor asks the store"


@contextmanager
def in_turns() -> Iterator[None]:
    """Stores in memory stop every driver before each operation."""
    with pytest.MonkeyPatch.context() as patch:
        for name in OPERATIONS:
            patch.setattr(ObjectStoreFiles, name, _stopping(getattr(ObjectStoreFiles, name)))
        yield


def _stopping(original: Callable[..., Any]) -> Callable[..., Any]:
    def operation(self: ObjectStoreFiles, *arguments: Any, **options: Any) -> Any:
        def run() -> Any:
            result = original(self, *arguments, **options)
            return iter(list(result)) if isinstance(result, Iterator) else result

        driver = getattr(_HERE, "driver", None)
        return run() if driver is None else driver.operate(run)

    return operation


def take_turns(
    works: Sequence[Callable[[], None]], turns: Sequence[tuple[int, str]]
) -> list[Driver]:
    """Let drivers work in turns, and those that are left to the end.

    Args:
      works: What each does.
      turns: Of which driver the next operation is (counted around), and what becomes of it.

    Returns:
      The drivers, all ended.
    """
    drivers = [Driver(work) for work in works]
    for driver in drivers:
        driver.start()
    for who, turn in turns:
        drivers[who % len(drivers)].step(turn)
    for driver in drivers:
        while not driver.ended:
            driver.step(GO)
    for driver in drivers:
        if isinstance(driver.error, AssertionError):
            raise driver.error
    return drivers
