"""`python -m tests.bench.storage` puts a driver to sleep before each step of a draw."""

from __future__ import annotations

import uuid

import pytest

from tests.bench.storage import STEPS, sleeping_driver


@pytest.mark.parametrize("step", STEPS)
def test_a_driver_that_sleeps_past_its_lock_makes_no_second_draw(step: str) -> None:
    assert sleeping_driver(f"memory://{uuid.uuid4().hex}/asleep", step) == (0, 0)
