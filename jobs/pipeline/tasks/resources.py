"""Measure processor time and memory of a run, on this machine and on workers."""

from __future__ import annotations

import os
import resource
import socket
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

_REST = 50  # pause after a memory sample in multiples of its time: at most 2 percent of a core
# Seconds by which a process can seem older than it is: the system counts births from its start,
# which it knows in whole seconds. Without them the start of Java, 2.4 core seconds, was left out on
# a machine that had started at the end of a second.
_EARLY = 1.0
_ABOVE = 3  # processes above a worker that belong to its executor: its daemon and its Java


class Reading(NamedTuple):
    """Processor time of one process.

    Attributes:
      born: Start time, seconds since the epoch.
      seconds: User and system seconds of all threads so far.
    """

    born: float
    seconds: float


Readings = Mapping[str, Reading]  # by machine and process number


class Meter:
    """Meter of the processor seconds of a run since its creation, on all machines.

    Readings only grow, so they may be repeated or late. A process older than the run, such as a
    session of a notebook, counts from its first reading.
    """

    def __init__(self) -> None:
        self._began = time.time() - _EARLY
        running = read_processes(family())
        self._before = {name: reading.seconds for name, reading in running.items()}
        self._spent: dict[str, float] = {}

    def note(self, readings: Readings) -> None:
        """Add readings of processes."""
        for name, (born, seconds) in readings.items():
            before = self._before.setdefault(name, seconds if born < self._began else 0.0)
            self._spent[name] = max(self._spent.get(name, 0.0), seconds - before)

    def core_seconds(self) -> float:
        """Sum processor seconds so far of local processes and of all added readings."""
        self.note(read_processes(family()))
        return sum(self._spent.values())


def read_processes(processes: Iterable[psutil.Process]) -> dict[str, Reading]:
    """Read processor times of local processes; ended processes are left out."""
    host, readings = socket.gethostname(), {}
    for process in processes:
        with suppress(psutil.Error):
            times = process.cpu_times()
            spent = times.user + times.system
            readings[f"{host} {process.pid}"] = Reading(process.create_time(), spent)
    return readings


def family() -> list[psutil.Process]:
    """List this process, its descendants and, under spark-submit, its Java parent."""
    this = psutil.Process()
    try:
        parent = this.parent() if "PYSPARK_GATEWAY_PORT" in os.environ else None
        root = parent or this
        return [root, *root.children(recursive=True)]
    except psutil.Error:
        return [this]


def executor_family() -> list[psutil.Process]:
    """List the process of this task, the daemon that forked it, and the Java of its executor."""
    processes = [psutil.Process()]
    with suppress(psutil.Error):
        while len(processes) < _ABOVE and (above := processes[-1].parent()) is not None:
            processes.append(above)
            if above.name().startswith("java"):
                break
    return processes


def forget_task_peak() -> None:
    """Reset the peak of `task_peak_bytes`, if the system can (Linux)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def task_peak_bytes() -> int:
    """Return the largest resident size of this process since the last reset, or since its start."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


class PeakMemory:
    """Background sampler of the memory of all processes of a run on this machine.

    Shared pages are counted once if the system can (proportional set size on Linux), else resident
    sizes are summed. A sample walks through all pages, so sampling is limited to 1/50 of a core.
    """

    def __init__(self, interval_seconds: float = 1.0) -> None:
        self._interval = interval_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._peak_bytes = 0
        self._next = 0.0
        self.latest_bytes = 0

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def take(self) -> int:
        """Return the largest sample since the last call, or the latest if there is none."""
        self._sample()
        peak, self._peak_bytes = self._peak_bytes, 0
        return peak or self.latest_bytes

    def _sample(self) -> None:
        began = time.monotonic()
        if began < self._next:
            return
        self.latest_bytes = memory_bytes()
        self._peak_bytes = max(self._peak_bytes, self.latest_bytes)
        now = time.monotonic()
        self._next = now + _REST * (now - began)

    def _watch(self) -> None:
        while not self._stop.wait(self._interval):
            self._sample()


def memory_bytes() -> int:
    """Return the bytes in memory of all local processes of this run."""
    total = 0
    for process in family():
        with suppress(psutil.Error):
            full = process.memory_full_info()
            total += getattr(full, "pss", 0) or full.rss
    return total
