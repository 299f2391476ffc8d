"""Spark sessions: their settings, and what keeps them closed to others."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from das.errors import RuntimeSetupError
from jobs.pipeline.config.protection import (
    REMOTE_VARIABLE,
    is_local,
    lacks_secret,
    protection_of,
    refuse_open,
)
from jobs.pipeline.tasks.capacity import PATIENCE_SECONDS, await_executors, refuse_absent_master
from jobs.pipeline.tasks.java import (
    class_archive,
    driver_options,
    find_java_home,
    private_folder,
    quiet_submitted_java,
)

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


@contextmanager
def spark_session(
    name: str,
    *,
    master: str | None = None,
    driver_memory: str = "2g",
    properties: Mapping[str, str] | None = None,
    allow_open: bool = False,
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[SparkSession]:
    """Open a Spark session and close it afterwards.

    Under spark-submit the master and memory come from its command line; otherwise an embedded
    session is started on `master`, by default on all local cores. It authenticates whoever
    connects to it, and encrypts what crosses the network or is spilled to disk; for local threads
    Spark makes the secret, in memory.

    Args:
      name: Application name.
      master: Spark master; None leaves it to spark-submit or uses all local cores.
      driver_memory: Heap of an embedded driver.
      properties: Further Spark properties; they win.
      allow_open: Whether the session may lack protection. A cluster is then used as it is set up.
      tell: Is told what is waited for, if executors of a cluster are long in coming.

    Raises:
      RuntimeSetupError: Java is missing, Spark does not start, the session lacks protection, or the
        cluster cannot give it what it asks.
    """
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if not submitted:
        os.environ["JAVA_HOME"] = str(find_java_home())
        if is_local(master or "local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:  # somebody else's, such as a notebook's: use it and leave it open
        if not allow_open:
            refuse_open(session_properties(active))
        yield active
        return
    if submitted:
        quiet_submitted_java()
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.speculation": "false",
        "spark.python.worker.reuse": "true",
        "spark.task.maxFailures": "4",
        # Batches are made for the slots there are: see that (nearly) all have come.
        "spark.scheduler.minRegisteredResourcesRatio": "0.9",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{PATIENCE_SECONDS}s",
    }
    if not submitted:
        settings["spark.master"] = master or "local[*,4]"
        settings["spark.driver.memory"] = driver_memory
        settings["spark.driver.extraJavaOptions"] = driver_options(class_archive())
        os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        settings["spark.sql.warehouse.dir"] = str(private_folder())
        if is_local(settings["spark.master"]):
            settings["spark.python.daemon.module"] = "jobs.pipeline.tasks.warm_daemon"
            _add_to_python_path(Path(__file__).resolve().parents[3])
    elif master is not None:
        settings["spark.master"] = master
    own = properties or {}
    settings |= protection_of(settings.get("spark.master", ""), own, allow_open=allow_open)
    settings |= own
    builder = SparkSession.builder.appName(name).config(map={**settings})
    refuse_absent_master(settings.get("spark.master") or _submitted_master())
    remote = os.environ.pop(REMOTE_VARIABLE, None)  # the caller chose another master
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        raise lacks_secret(error) or RuntimeSetupError(
            "Spark", "did not start", got=_root_cause(error)[:500]
        ) from error
    finally:
        if remote is not None:
            os.environ[REMOTE_VARIABLE] = remote
    _keep_quiet(spark.sparkContext)
    try:
        if not allow_open:
            refuse_open(session_properties(spark))
        if not is_local(str(spark.sparkContext.master)):
            await_executors(spark.sparkContext, tell)
        yield spark
    finally:
        spark.stop()


def session_properties(spark: SparkSession) -> dict[str, str]:
    """Return the properties that a running session was started with."""
    return dict(spark.sparkContext.getConf().getAll())


def _root_cause(error: Exception) -> str:
    """Return the innermost cause that Java gives; other errors describe themselves."""
    java: Any = getattr(error, "java_exception", None)
    if java is None:
        return f"{type(error).__name__}: {error}"
    while (cause := java.getCause()) is not None:
        java = cause
    return str(java.toString())


def _submitted_master() -> str:
    """Return the master that spark-submit was given."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return str(SparkConf().get("spark.master", ""))


def _keep_quiet(context: SparkContext) -> None:
    """Let PySpark print no frames where Java is lost: the command says so in one line."""
    server: Any = getattr(context, "_accumulatorServer", None)
    if server is None:
        return
    tell = server.handle_error

    def handle_error(*request: object) -> None:
        if not isinstance(sys.exc_info()[1], (EOFError, ConnectionError)):
            tell(*request)

    server.handle_error = handle_error


def _add_to_python_path(folder: Path) -> None:
    """Let the Python processes that Spark starts import the project from where it is."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(folder) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(p for p in (str(folder), *paths) if p)
