"""One Spark session for the end-to-end runs of a process: Java starts once, not once per run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jobs.tasks.session import spark_session


@pytest.fixture(scope="package")
def session() -> Iterator[None]:
    """An open session, which runs of tests that ask for this use and leave open."""
    with spark_session("tests", master="local[2,3]", driver_memory="1g", properties={}):
        yield
