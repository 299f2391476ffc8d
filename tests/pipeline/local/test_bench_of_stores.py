"""The bench of stores: a driver falls asleep before a step of a draw, or the bench says why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from das.errors import InputError
from tests.bench.storage import sleeping_driver


@pytest.mark.parametrize("step", ["begin", "accept"])
@pytest.mark.parametrize("base", ["{tmp_path}", "memory://bench/{tmp_path.name}"])
def test_a_driver_that_sleeps_costs_no_draw(tmp_path: Path, base: str, step: str) -> None:
    assert sleeping_driver(base.format(tmp_path=tmp_path), step) == (0, 0)


def test_a_driver_that_fails_before_it_sleeps_says_why(tmp_path, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise InputError("records.csv", "is of another state")

    monkeypatch.setattr("jobs.run.refuse_unreadable", refuse)
    with pytest.raises(SystemExit, match=r"nobody slept before begin: records.csv: is of another"):
        sleeping_driver(str(tmp_path), "begin")
