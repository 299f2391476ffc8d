"""Steps: progress, predictions and stragglers, from reports alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from jobs.pipeline.tasks.step import Step, TaskReport, current_watch, watching

COSTS = (400, 200, 200, 100, 100)


def batches(costs=COSTS):
    return [SimpleNamespace(cost=c, low=f"{i}00", high=f"{i}99") for i, c in enumerate(costs)]


def report(index, seconds):
    return TaskReport(index, seconds, {}, 0)


def started_step(costs=COSTS):
    step = Step("solve block", batches(costs))
    return step, step.now


def test_progress_counts_geounits_and_predicts_the_rest():
    step, began = started_step()
    assert (step.done, step.total, step.rate, step.remaining_seconds) == (0, 1000, None, None)
    step.look([report(1, 4.0), report(3, 2.0)], 4, began + 6)
    assert step.in_geounits
    assert step.done == 300
    assert step.rate == pytest.approx(50)
    assert step.remaining_seconds == pytest.approx(14)


def test_a_report_that_comes_twice_counts_once():
    step, began = started_step()
    step.look([report(0, 1.0)], 2, began + 1)
    step.look([report(0, 1.0), report(1, 1.0)], 2, began + 2)
    assert step.done == 600


def test_descriptors_without_cost_count_as_tasks():
    step = Step("read input", ["a", "b"])
    step.look([report(0, 1.0)], 2, step.now + 2)
    assert not step.in_geounits
    assert (step.done, step.total) == (1, 2)


def test_a_running_task_lags_by_its_own_cost_and_says_its_range():
    step, began = started_step()
    step.look([], 2, began)
    finished = [report(1, 20.0), report(2, 20.0), report(3, 10.0)]  # 0.1 s a geounit
    step.look(finished, 5, began + 100)
    assert step.stragglers() == []  # the first takes 40 s by its cost, and runs for 100 s
    step.look(finished, 5, began + 121)
    (found,) = step.stragglers()
    assert (found.task, found.low, found.high, found.running) == (0, "000", "099", True)
    assert found.seconds == pytest.approx(121)
    assert found.expected_seconds == pytest.approx(40)
    assert found.step == "solve block"


def test_a_finished_task_lags_by_its_seconds():
    step, began = started_step()
    finished = [report(1, 20.0), report(2, 20.0), report(3, 10.0), report(4, 31.0)]
    step.look(finished, 5, began + 50)
    assert [(s.task, s.running) for s in step.stragglers()] == [(4, False)]


@pytest.mark.parametrize("seconds", [0.5, 9.0])
def test_short_tasks_are_left_alone(seconds):
    step, began = started_step()
    step.look([report(i, 0.02) for i in range(4)] + [report(4, seconds)], 5, began + 10)
    assert step.stragglers() == []


def test_nothing_is_predicted_from_two_tasks():
    step, began = started_step()
    step.look([report(3, 1.0), report(4, 1.0)], 5, began + 1000)
    assert step.stragglers() == []


def test_a_watch_ends_with_its_block():
    seen = []
    assert current_watch() is None
    with watching(seen.append):
        current_watch()("step")
    assert current_watch() is None
    assert seen == ["step"]
