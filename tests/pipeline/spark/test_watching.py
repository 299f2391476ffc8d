"""What a step on a real session shows of its tasks: progress, costs, stragglers while they run."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

from das.errors import InputError
from jobs.pipeline.documents.summary import Straggler
from jobs.pipeline.tasks import step as steps
from jobs.pipeline.tasks.resources import Meter
from jobs.pipeline.tasks.step import Step, watching

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class Work:
    """A task: processor seconds to burn, bytes to hold, seconds to sleep."""

    name: str
    cost: int = 10
    burn: float = 0.0
    hold: int = 0
    sleep: float = 0.0

    @property
    def low(self) -> str:
        return self.name

    @property
    def high(self) -> str:
        return f"{self.name}~"


def work(one: Work) -> str:
    held = bytearray(one.hold)
    held[:: 1 << 12] = b"x" * len(held[:: 1 << 12])
    until = time.process_time() + one.burn
    while time.process_time() < until:
        pass
    time.sleep(one.sleep)
    if one.name == "broken":
        raise InputError("row 7", "is broken")
    return one.name


def test_tasks_report_what_they_cost(tasks):
    meter, seen = Meter(), []
    before = meter.core_seconds()
    with watching(seen.append):
        found = tasks.run("work", [Work("a", burn=1.5), Work("b", hold=300 << 20), Work("c")], work)
    assert found == ["a", "b", "c"]
    (step,) = set(seen)
    assert step.done == step.total == 30
    burnt, held, idle = (step.reports[index] for index in range(3))
    assert burnt.seconds > 1.5 > idle.seconds
    assert held.peak_bytes - idle.peak_bytes > 250 << 20  # workers are reused; peaks are per task
    for report in step.reports.values():
        meter.note(report.processors)
        assert len(report.processors) == 3  # worker, daemon, executor
    assert meter.core_seconds() - before > 1.4


def test_a_straggler_is_named_while_it_runs(tasks, monkeypatch):
    monkeypatch.setattr(steps, "_LEAST_SECONDS", 0.5)
    seen: list[list[Straggler]] = []

    def note(step: Step) -> None:
        seen.append(step.stragglers())

    descriptors = [Work("hang", sleep=3.0), *(Work(f"{i}", sleep=0.05) for i in range(4))]
    with watching(note):
        tasks.run("work", descriptors, work)
    running = [one for some in seen for one in some if one.running]
    assert running
    assert {(one.task, one.low, one.high) for one in running} == {(0, "hang", "hang~")}
    assert [(one.task, one.running) for one in seen[-1]] == [(0, False)]


def test_an_error_raised_on_purpose_comes_back_with_its_costs(tasks):
    seen: list[Step] = []
    with watching(seen.append), pytest.raises(InputError, match="row 7"):
        tasks.run("work", [Work("broken"), Work("fine")], work)
    assert len(seen[-1].reports) == 2
