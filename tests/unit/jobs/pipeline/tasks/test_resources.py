"""Processor time and memory: readings of many processes, added up once each."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest

from jobs.pipeline.tasks import resources
from jobs.pipeline.tasks.resources import (
    Meter,
    PeakMemory,
    Reading,
    executor_family,
    forget_task_peak,
    read_processes,
    task_peak_bytes,
)


@pytest.fixture
def alone(monkeypatch):
    """No process of this machine counts."""
    monkeypatch.setattr(resources, "family", list)


def later(seconds):
    return Reading(time.time() + 1, seconds)


def test_workers_of_other_machines_count_from_their_birth(alone):
    meter = Meter()
    meter.note({"a 1": later(5.0), "b 1": later(7.0)})
    assert meter.core_seconds() == pytest.approx(12)


def test_a_process_counts_once_whoever_reports_it(alone):
    meter = Meter()
    for seconds in (5.0, 9.0, 6.0):
        meter.note({"a 1": later(seconds)})
    assert meter.core_seconds() == pytest.approx(9)


def test_a_process_older_than_the_run_counts_from_when_it_was_seen(alone):
    meter = Meter()
    old = time.time() - 100
    meter.note({"a 1": Reading(old, 50.0)})
    meter.note({"a 1": Reading(old, 53.0)})
    assert meter.core_seconds() == pytest.approx(3)


def test_a_process_that_the_system_calls_a_little_too_old_counts_whole(alone):
    """Births are counted from the system's start, which is known in whole seconds."""
    meter = Meter()
    meter.note({"a 1": Reading(time.time() - 0.9, 2.4)})
    assert meter.core_seconds() == pytest.approx(2.4)


def test_what_ran_before_counts_from_the_start_of_the_run():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            name = next(iter(read_processes([psutil.Process(busy.pid)])))
            while read_processes([psutil.Process(busy.pid)])[name].seconds < 0.3:
                time.sleep(0.01)
            assert Meter().core_seconds() < 0.2
        finally:
            busy.kill()


def test_own_work_is_measured():
    meter = Meter()
    until = time.process_time() + 0.3
    while time.process_time() < until:
        pass
    assert 0.2 < meter.core_seconds() < 5


def test_processes_are_named_by_machine_and_number():
    (process, *_) = executor_family()
    (name,) = read_processes([process])
    assert name.endswith(f" {process.pid}")


def test_the_peak_of_a_task_forgets_what_was_before():
    code = (
        "from jobs.pipeline.tasks.resources import *\n"
        "before = bytearray(300 << 20); del before\n"
        "high = task_peak_bytes(); forget_task_peak()\n"
        "after = bytearray(100 << 20); now = task_peak_bytes(); print(high, now)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    high, now = map(int, done.stdout.split())
    assert high > 300 << 20
    if sys.platform == "linux":
        assert 100 << 20 < now < 300 << 20


def test_without_a_system_that_forgets_the_peak_is_that_of_the_process(monkeypatch):
    def refuse(*_, **__):
        raise OSError

    monkeypatch.setattr(resources.Path, "read_text", refuse)
    monkeypatch.setattr(resources.Path, "write_text", refuse)
    forget_task_peak()
    assert task_peak_bytes() > 10 << 20


@pytest.fixture
def clock(monkeypatch):
    """The time of `resources`, which a sample of memory takes a second of."""
    now = [0.0]
    sizes = iter([5, 3, 2, 4])

    def sample() -> int:
        now[0] += 1
        return next(sizes)

    monkeypatch.setattr(resources.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(resources, "memory_bytes", sample)
    return now


def test_peak_memory_is_taken_stage_by_stage(clock):
    memory = PeakMemory()
    memory._sample()
    clock[0] += 50
    assert memory.take() == 5
    clock[0] += 50
    assert memory.take() == 2
    assert memory.latest_bytes == 2


def test_samples_of_memory_are_rare_where_they_take_long(clock):
    memory = PeakMemory()
    assert memory.take() == 5
    clock[0] += 49
    assert memory.take() == 5
    clock[0] += 1
    assert memory.take() == 3
