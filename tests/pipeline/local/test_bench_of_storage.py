"""`python -m bench.storage` puts a driver to sleep before each step of a draw, or says why not."""

from __future__ import annotations

import uuid

import pytest

from bench.storage import STEPS, sleeping_driver
from das.errors import InputError


@pytest.mark.parametrize("step", STEPS)
def test_a_driver_that_sleeps_past_its_lock_makes_no_second_draw(step: str) -> None:
    assert sleeping_driver(f"memory://{uuid.uuid4().hex}/asleep", step) == (0, 0)


def test_a_driver_that_fails_before_it_sleeps_says_why(tmp_path, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise InputError("records.csv", "is of another state")

    monkeypatch.setattr("jobs.pipeline.run.refuse_unreadable", refuse)
    with pytest.raises(SystemExit, match=r"nobody slept before begin: records.csv: is of another"):
        sleeping_driver(str(tmp_path), "begin")
