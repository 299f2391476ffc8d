"""What a run costs: processor time and memory of its processes, on this machine and on workers."""

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

_REST = 50  # times a sample of memory takes, until the next
# Seconds by which a process may seem older than it is: the system counts births from its own start,
# which it knows in whole seconds. Without them the start of Java, 2.4 core seconds, was left out on
# a machine that had started at the end of a second.
_EARLY = 1.0
_ABOVE = 3  # processes above a worker that belong to its executor: its daemon and its Java


class Reading(NamedTuple):
    """Processor time of one process.

    Attributes:
      born: When it started, seconds since the epoch.
      seconds: User and system seconds so far, of all its threads.
    """

    born: float
    seconds: float


Readings = Mapping[str, Reading]  # by machine and process number


class Meter:
    """Processor seconds of a run since the meter was made, wherever its processes are.

    Readings only grow, so any may be taken twice or late. A process older than the run, such as a
    notebook's session, counts from when it was first seen.
    """

    def __init__(self) -> None:
        self._began = time.time() - _EARLY
        running = read_processes(family())
        self._before = {name: reading.seconds for name, reading in running.items()}
        self._spent: dict[str, float] = {}

    def note(self, readings: Readings) -> None:
        """Take readings in."""
        for name, (born, seconds) in readings.items():
            before = self._before.setdefault(name, seconds if born < self._began else 0.0)
            self._spent[name] = max(self._spent.get(name, 0.0), seconds - before)

    def core_seconds(self) -> float:
        """Sum processor seconds so far of this machine's processes and of all that were noted."""
        self.note(read_processes(family()))
        return sum(self._spent.values())


def read_processes(processes: Iterable[psutil.Process]) -> dict[str, Reading]:
    """Read processor time of processes of this machine; those that ended meanwhile are left out."""
    host, found = socket.gethostname(), {}
    for process in processes:
        with suppress(psutil.Error):
            times = process.cpu_times()
            spent = times.user + times.system
            found[f"{host} {process.pid}"] = Reading(process.create_time(), spent)
    return found


def family() -> list[psutil.Process]:
    """List this process, those below it, and the Java process above it under spark-submit."""
    this = psutil.Process()
    try:
        parent = this.parent() if "PYSPARK_GATEWAY_PORT" in os.environ else None
        root = parent or this
        return [root, *root.children(recursive=True)]
    except psutil.Error:
        return [this]


def executor_family() -> list[psutil.Process]:
    """List the process of this task, the daemon that forked it and the Java of its executor."""
    found = [psutil.Process()]
    with suppress(psutil.Error):
        while len(found) < _ABOVE and (above := found[-1].parent()) is not None:
            found.append(above)
            if above.name().startswith("java"):
                break
    return found


def forget_task_peak() -> None:
    """Let `task_peak_bytes` speak of what comes now, where the system can forget (Linux)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def task_peak_bytes() -> int:
    """Return the largest resident size of this process since `forget_task_peak`, else its start."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


class PeakMemory:
    """Samples the memory of all processes of a run on this machine in the background.

    Shared pages are counted once where the system tells (proportional set size on Linux), else
    resident sizes are added. The system walks through all pages for it, so samples are as far
    apart as keeps that below a fiftieth of one core.
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
        """Return the largest sample since the last call; the one before if none was due since."""
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
    """Sum the bytes in memory of this run's processes on this machine."""
    total = 0
    for process in family():
        try:
            full = process.memory_full_info()
            total += getattr(full, "pss", 0) or full.rss
        except psutil.Error:
            continue
    return total
