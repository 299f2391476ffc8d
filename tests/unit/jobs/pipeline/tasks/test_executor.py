"""Tasks in this process: one result per item, in order, watched, errors as they were raised."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from das.errors import InputError
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.executor import LocalTasks
from jobs.pipeline.tasks.step import watching

TASKS = LocalTasks(Sizing(3), slots=5)


@dataclass(frozen=True)
class Item:
    name: str
    cost: int


def test_one_result_per_item_in_their_order():
    assert TASKS.run("double", [3, 1, 2], lambda n: 2 * n) == [6, 2, 4]
    assert TASKS.run("double", [], lambda n: 2 * n) == []


def test_a_step_is_cut_for_the_slots_that_it_pretends_to_have():
    assert (TASKS.slots, TASKS.batches) == (5, 15)
    assert not TASKS.is_open
    assert TASKS.environment == {"spark": "none", "java": "none"}


def test_the_watch_sees_every_item_done():
    seen = []
    items = [Item("a", 10), Item("b", 5)]
    with watching(lambda step: seen.append((step.label, step.done, step.total))):
        TASKS.run("count", items, lambda item: item.name)
    assert seen == [("count", 10, 15), ("count", 15, 15)]


def test_the_first_error_ends_the_step():
    done = []

    def task(n: int) -> None:
        done.append(n)
        if n > 1:
            raise InputError("row 7", f"is broken in {n}")

    with pytest.raises(InputError, match="is broken in 2"):
        TASKS.run("break", [1, 2, 3], task)
    assert done == [1, 2]
