"""One battery for everything that runs tasks: this process and a Spark session."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from das.errors import DasError, InfeasibleError, InputError, RuntimeSetupError
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.executor import LocalTasks, Tasks
from jobs.pipeline.tasks.failures import machine_failure
from jobs.pipeline.tasks.resources import Meter
from jobs.pipeline.tasks.step import Step, watching

pytestmark = pytest.mark.spark

MIB = 1 << 20


@pytest.fixture
def on_workers(spark_tasks: Tasks) -> Tasks:
    """Tasks in other processes, two at a time; one may fail twice before its step does."""
    return spark_tasks


@pytest.fixture(params=["local", "spark"])
def tasks(request: pytest.FixtureRequest) -> Tasks:
    if request.param == "local":
        return LocalTasks(Sizing(4), slots=2)
    tasks: Tasks = request.getfixturevalue("spark_tasks")
    return tasks


@dataclass(frozen=True)
class Work:
    """A task: what it costs by prediction, and how long it sleeps."""

    name: str
    cost: int = 10
    sleep: float = 0.0


def square(n: int) -> int:
    return n * n


def late_first(n: int) -> int:
    time.sleep(0.5 if n == 0 else 0.0)
    return n


def work(one: Work) -> str:
    time.sleep(one.sleep)
    return one.name


def broken_from_two(n: int) -> int:
    if n == 2:
        time.sleep(0.3)
        raise InfeasibleError("node 7", "has no solution", got=[1, 2], want="one", remedy="loosen")
    if n > 2:
        raise InputError(f"row {n}", "is broken")
    return n


def unforeseen(n: int) -> int:
    return 1 // n


def place(n: int) -> tuple[int, int, int]:
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.stageId(), context.partitionId(), os.getpid()


def many_bytes(n: int) -> bytes:
    return (n % 251).to_bytes(1, "big") * n


def digest(content: bytes) -> tuple[int, str]:
    return len(content), hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class Dying:
    """A task that ends its process the first `times` times."""

    marks: Path
    number: int
    times: int


def die(one: Dying) -> int:
    deaths = len(list(one.marks.glob(f"{one.number}-*")))
    if deaths < one.times:
        (one.marks / f"{one.number}-{deaths}").touch()
        os._exit(1)
    return one.number


# --- everywhere ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 5])
def test_one_result_per_item_in_their_order(tasks, n):
    assert tasks.run("square", [*range(n)], square) == [i * i for i in range(n)]
    assert tasks.run("late", [*range(n)], late_first) == [*range(n)]


def test_what_a_step_is_cut_for(tasks):
    assert (tasks.slots, tasks.batches) == (2, 8)
    assert not tasks.is_open
    assert set(tasks.environment) == {"spark", "java"}


def test_what_is_carried_may_be_a_closure(tasks):
    factor = 7
    assert tasks.run("times", [1, 2], lambda n: factor * n) == [7, 14]


def test_the_first_error_raised_on_purpose_keeps_type_and_facts(tasks):
    with pytest.raises(InfeasibleError) as told:
        tasks.run("broken", [0, 1, 2, 3], broken_from_two)
    error = told.value
    assert (error.where, error.what, error.got) == ("node 7", "has no solution", "[1, 2]")
    assert (error.want, error.remedy) == ("one", "loosen")


def test_an_unforeseen_error_is_a_defect_and_no_failure_of_the_machine(tasks):
    with pytest.raises(Exception, match=r"division") as told:
        tasks.run("broken", [1, 0, 1], unforeseen)
    assert not isinstance(told.value, DasError)
    assert machine_failure(told.value) is None
    assert tasks.run("square", [3], square) == [9]  # and the session goes on


def test_the_watch_sees_every_item_done(tasks):
    seen: list[tuple[int, int]] = []
    steps: list[Step] = []

    def watch(step: Step) -> None:
        steps.append(step)
        seen.append((step.done, step.total))

    items = [Work("slow", 10, 0.8), Work("a", 5), Work("b", 5), Work("c", 4)]
    with watching(watch):
        assert tasks.run("work", items, work) == ["slow", "a", "b", "c"]
    (step,) = set(steps)
    assert (step.label, seen[-1]) == ("work", (24, 24))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert sorted(step.reports) == [0, 1, 2, 3]
    assert step.reports[0].seconds >= 0.8 > step.reports[1].seconds


# --- in other processes --------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 3, 17])
def test_n_items_are_n_tasks_of_one_stage(on_workers, n):
    places = on_workers.run("place", [*range(n)], place)
    assert len({stage for stage, _, _ in places}) == 1
    assert [partition for _, partition, _ in places] == [*range(n)]
    assert os.getpid() not in {process for _, _, process in places}


def test_costs_of_tasks_are_costs_of_the_run(on_workers):
    meter, steps = Meter(), set[Step]()
    before = meter.core_seconds()
    with watching(steps.add):
        on_workers.run("burn", [1.2, 0.0], burn)
    (step,) = steps
    for report in step.reports.values():
        meter.note(report.processors)
        assert len(report.processors) == 3  # worker, daemon, Java
        assert report.peak_bytes > 10 * MIB
    assert meter.core_seconds() - before > 1.1


def burn(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


@pytest.mark.parametrize("size", [5 * MIB, pytest.param(70 * MIB, marks=pytest.mark.long)])
def test_results_may_be_larger_than_a_message(on_workers, size):
    sizes = [size, 3, size + 1]
    found = on_workers.run("large", sizes, many_bytes)
    assert [digest(one) for one in found] == [digest(many_bytes(n)) for n in sizes]


def test_items_may_be_larger_than_a_job_carries(on_workers):
    items = [many_bytes(n) for n in (9 * MIB, 9 * MIB + 1, 7, 20 * MIB)]
    assert on_workers.run("digest", items, digest) == [digest(one) for one in items]


def test_a_task_whose_process_dies_is_done_again(on_workers, tmp_path):
    items = [Dying(tmp_path, number, times) for number, times in enumerate((0, 2, 0, 1))]
    assert on_workers.run("die", items, die) == [0, 1, 2, 3]


def test_a_task_whose_processes_always_die_ends_the_step_as_a_failure_of_the_machine(
    on_workers, tmp_path
):
    with pytest.raises(Exception, match=r".+") as told:
        on_workers.run("die", [Dying(tmp_path, 0, 99)], die)
    failure = machine_failure(told.value)
    assert isinstance(failure, RuntimeSetupError)
    assert "das run" in str(failure)
    assert on_workers.run("square", [3], square) == [9]
