"""What a run costs: processor time and memory of this process and everything below it."""

from __future__ import annotations

import threading
import time

import psutil


def processor_seconds() -> float:
    """Processor seconds used so far by this process and its live descendants."""
    total = 0.0
    for process in _family():
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
        total += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return total


class PeakMemory:
    """Samples the memory of all processes of a run in the background.

    Shared pages are counted once where the system tells (proportional set size on Linux), else
    resident sizes are added.
    """

    def __init__(self, interval_seconds: float = 1.0) -> None:
        self._interval = interval_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.peak_bytes = 0

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.peak_bytes = max(self.peak_bytes, memory_bytes())
            if self._stop.wait(self._interval):
                return


def memory_bytes() -> int:
    """Bytes in memory of this process and its descendants."""
    total = 0
    for process in _family():
        try:
            full = process.memory_full_info()
            total += getattr(full, "pss", 0) or full.rss
        except psutil.Error:
            continue
    return total


class Stopwatch:
    """Wall and processor seconds since it was made."""

    def __init__(self) -> None:
        self._wall = time.monotonic()
        self._processor = processor_seconds()

    def read(self) -> tuple[float, float]:
        """(wall seconds, processor seconds); the latter never negative."""
        return time.monotonic() - self._wall, max(0.0, processor_seconds() - self._processor)


def _family() -> list[psutil.Process]:
    this = psutil.Process()
    try:
        return [this, *this.children(recursive=True)]
    except psutil.Error:
        return [this]
