"""One small Spark session for all tests that need one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.executor import SparkTasks
from jobs.pipeline.tasks.session import spark_session


@pytest.fixture(scope="session")
def spark_tasks() -> Iterator[SparkTasks]:
    """Two slots; a task may fail twice before the job does."""
    properties = {"spark.sql.shuffle.partitions": "2", "spark.python.worker.reuse": "true"}
    with spark_session(
        "tests", master="local[2,3]", driver_memory="1g", properties=properties
    ) as session:
        yield SparkTasks(session, Sizing(4))


@pytest.fixture
def tasks(spark_tasks: SparkTasks) -> SparkTasks:
    """Those; a battery over several kinds has another fixture of this name."""
    return spark_tasks
