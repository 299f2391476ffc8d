"""Open Spark sessions: settings, protection, and executors of a cluster.

Spark looks a minute for an absent master, and waits forever for executors that fit no worker. This
module checks and explains both.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import ProxyHandler, build_opener

from das.errors import RuntimeSetupError
from jobs.pipeline.config.protection import (
    is_local,
    lacks_secret,
    protection_of,
    refuse_open,
)
from jobs.pipeline.tasks.java import (
    class_archive,
    driver_options,
    find_java_home,
    private_folder,
)

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

# Workers and executors take some seconds to start and register. With the start of Java, 6 seconds
# here, an obstacle is reported within 30 seconds.
PATIENCE_SECONDS = 20
# Queues, images and machines can take minutes to start. Default, not measured.
_LONGEST_SECONDS = 600.0
_ANSWER_SECONDS = 5.0
_ALLOWED = "spark.scheduler.maxRegisteredResourcesWaitingTime"
_POLL_SECONDS = 0.25
_REMOTE = "SPARK_REMOTE"
_LISTED = 8  # workers that an error names


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

    Under spark-submit, master and memory come from its command line. Otherwise an embedded session
    starts on `master`, by default on all local cores. It authenticates connections, and encrypts
    network traffic and spilled data. For local threads Spark makes the secret in memory.

    Args:
      name: Application name.
      master: Spark master; None leaves it to spark-submit or uses all local cores.
      driver_memory: Heap of an embedded driver.
      properties: Further Spark properties, which take precedence.
      allow_open: Whether the session may lack protection. A cluster is then used as it is set up.
      tell: Called with the state of the cluster if executors take long to register.

    Raises:
      RuntimeSetupError: Java is missing, Spark does not start, the session lacks protection, or the
        cluster cannot fulfill the request.
    """
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if not submitted:
        os.environ["JAVA_HOME"] = str(find_java_home())
        if is_local(master or "local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:  # a session of the caller, such as a notebook: use it, leave it open
        if not allow_open:
            refuse_open(session_properties(active))
        yield active
        return
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.speculation": "false",
        "spark.python.worker.reuse": "true",
        "spark.task.maxFailures": "4",
        # Batches are cut for the available slots: wait until nearly all have registered.
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
    more = properties or {}
    settings |= protection_of(settings.get("spark.master", ""), more, allow_open=allow_open)
    settings |= more
    builder = SparkSession.builder.appName(name).config(map={**settings})
    refuse_absent_master(settings.get("spark.master") or _submitted_master())
    remote = os.environ.pop(_REMOTE, None)  # names a Connect server, on which no task runs
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        raise lacks_secret(error) or RuntimeSetupError(
            "Spark", "did not start", got=_root_cause(error)[:500]
        ) from error
    finally:
        if remote is not None:
            os.environ[_REMOTE] = remote
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
    """Return the properties with which a session was started."""
    return dict(spark.sparkContext.getConf().getAll())


def _root_cause(error: Exception) -> str:
    """Return the innermost cause of a Java error, or the text of another error."""
    java: Any = getattr(error, "java_exception", None)
    if java is None:
        return f"{type(error).__name__}: {error}"
    while (cause := java.getCause()) is not None:
        java = cause
    return str(java.toString())


def _submitted_master() -> str:
    """Return the master given to spark-submit."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return str(SparkConf().get("spark.master", ""))


def _keep_quiet(context: SparkContext) -> None:
    """Hide PySpark's traceback after Java ended; the command reports the failure in one line."""
    server: Any = getattr(context, "_accumulatorServer", None)
    if server is None:
        return
    tell = server.handle_error

    def handle_error(*request: object) -> None:
        if not isinstance(sys.exc_info()[1], (EOFError, ConnectionError)):
            tell(*request)

    server.handle_error = handle_error


def _add_to_python_path(folder: Path) -> None:
    """Add the folder of the project to PYTHONPATH, for the Python processes of Spark."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(folder) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(p for p in (str(folder), *paths) if p)


# --- executors of a cluster -----------------------------------------------------------------------


@dataclass(frozen=True)
class Standalone:
    """State of a standalone cluster and of one application, from its master.

    Attributes:
      workers: Live workers: host, total cores and total MB.
      others: Names of the other applications.
      cores: Cores of an executor by the master; 1 if it may have any number.
      mebibytes: Memory of an executor by the master.
      most_cores: Limit of cores of all executors together; None without a limit.
    """

    workers: Sequence[tuple[str, int, int]]
    others: Sequence[str]
    cores: int
    mebibytes: int
    most_cores: int | None

    @property
    def hindrance(self) -> str | None:
        """Return why no executor can ever start; None if one can."""
        if not self.workers:
            return "has no worker"
        if self.most_cores is not None and self.most_cores < self.cores:
            return "may use fewer cores in all (spark.cores.max) than one executor is to have"
        if not any(cores >= self.cores and mb >= self.mebibytes for _, cores, mb in self.workers):
            return "has no worker with room for an executor"
        return None

    def __str__(self) -> str:
        listed = [
            f"{host} with {cores} core{'' if cores == 1 else 's'} and {mb:,} MB"
            for host, cores, mb in self.workers
        ]
        others = ", ".join(self.others[:_LISTED]) or "none"
        workers = ", ".join(listed[:_LISTED]) or "none"
        more = f" and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
        return f"workers: {workers}{more}; other applications: {others}"


def refuse_absent_master(master: str) -> None:
    """Refuse a standalone master whose addresses do not answer; other masters are not checked.

    Args:
      master: URL of the master, such as `spark://host:7077` or `spark://a:7077,b:7077`.

    Raises:
      RuntimeSetupError: No address answers.
    """
    refusals = []
    for host, port in _addresses(master):
        try:
            socket.create_connection((host, port), _ANSWER_SECONDS).close()
        except OSError as error:
            refusals.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return
    if refusals:
        raise RuntimeSetupError(
            master,
            "no master of a Spark cluster answers there",
            got="; ".join(refusals),
            want="the address that the master's log names, by default of port 7077",
            remedy="start the master, or give the address of one that runs (docs/cluster.md)",
        )


def await_executors(context: SparkContext, tell: Callable[[str], None]) -> None:
    """Wait until the first executors have registered, or explain why none can.

    Args:
      context: Context of a session on a cluster.
      tell: Called once with the state of the cluster if it takes long.

    Raises:
      RuntimeSetupError: The cluster cannot start an executor, or did not in time.
    """
    started, is_reported = int(context.startTime) / 1000, False  # Spark may have waited since
    java: Any = context._jsc
    allowed = int(java.sc().conf().getTimeAsMs(_ALLOWED, "0s")) / 1000  # set by the caller
    while not _executors(context):
        waited = time.time() - started
        is_over = waited >= max(_LONGEST_SECONDS, allowed)
        if is_over or (waited >= PATIENCE_SECONDS and not is_reported):
            cluster = _standalone(context)
            hindrance = cluster.hindrance if cluster is not None and not is_reported else None
            none = f"no executor of application {context.applicationId} has registered"
            state = f"{_requested(context)}; {cluster or none}"
            if hindrance is not None:
                raise RuntimeSetupError(
                    str(context.master),
                    hindrance,
                    got=state,
                    remedy="ask for less by the file of --cluster, such as "
                    "conf/cluster/small-cluster.yaml, or start workers that offer more (--cores "
                    "and --memory of a worker)",
                )
            if not is_reported:
                tell(f"{'':<20}no executor yet; {state}")
                is_reported = True
            if is_over:
                raise RuntimeSetupError(
                    str(context.master),
                    f"started no executor in {waited:.0f} seconds",
                    got=state,
                    remedy="see with the tools of the cluster why, such as a queue that is full or "
                    "an image that is not found; where it takes longer, raise under runtime.spark "
                    f"{_ALLOWED}",
                )
        time.sleep(_POLL_SECONDS)
    context.parallelize([None], 1).count()  # starts when enough executors have registered


def _requested(context: SparkContext) -> str:
    """Describe the requested executors by Spark properties."""
    conf = context.getConf()
    names = ("instances", "cores", "memory", "memoryOverhead", "memoryOverheadFactor")
    values = {f"spark.executor.{name}": conf.get(f"spark.executor.{name}") for name in names}
    values["spark.executor.memory"] = values["spark.executor.memory"] or "1g"  # Spark's default
    values["spark.cores.max"] = conf.get("spark.cores.max")
    return "asked for " + ", ".join(f"{name} {value}" for name, value in values.items() if value)


def _executors(context: SparkContext) -> int:
    """Count the registered executors.

    Raises:
      RuntimeSetupError: The cluster ended the application.
    """
    java: Any = context._jsc
    spark = java.sc()
    if spark.isStopped():
        raise RuntimeSetupError(
            str(context.master),
            "ended the application before an executor came",
            got=_requested(context),
            remedy="read the logs of the cluster and of its executors: they die as they start "
            "where Java or Python is not found, or where they do not reach the driver",
        )
    return int(spark.getExecutorMemoryStatus().size()) - 1  # the driver is among them


def _standalone(context: SparkContext) -> Standalone | None:
    """Read the state of a standalone cluster; None for other clusters, or if it is not visible.

    The master serves it as JSON on its page at `spark.master.ui.port`, by default 8080.
    """
    conf = context.getConf()
    page = int(conf.get("spark.master.ui.port", "8080"))
    opener = build_opener(ProxyHandler({}))
    for host, port in _addresses(str(context.master)):
        name = f"[{host}]" if ":" in host else host
        try:
            with opener.open(f"http://{name}:{page}/json/", timeout=_ANSWER_SECONDS) as answer:
                state = json.load(answer)
            if not state["url"].endswith(f":{port}") or state["status"] != "ALIVE":
                continue  # the page of another master, or of one that stands by
            applications = {app["id"]: app for app in state["activeapps"]}
            this, most = applications.pop(context.applicationId), conf.get("spark.cores.max")
            return Standalone(
                [
                    (worker["host"], int(worker["cores"]), int(worker["memory"]))
                    for worker in state["workers"]
                    if worker["state"] == "ALIVE"
                ],
                [app["name"] for app in applications.values()],
                int(conf.get("spark.executor.cores", "1")),
                int(this["memoryperexecutor"]),
                int(most) if most else None,
            )
        except (OSError, HTTPException, ValueError, KeyError, TypeError):
            continue  # no page, or the page of another program
    return None


def _addresses(master: str) -> list[tuple[str, int]]:
    """Split the address of standalone masters into hosts and ports.

    >>> _addresses("spark://a:7077,[::1]:7078"), _addresses("yarn")
    ([('a', 7077), ('::1', 7078)], [])
    """
    if not master.startswith("spark://"):
        return []
    found = re.findall(r"(\[[^\]]+\]|[^,:]+):(\d+)", master.removeprefix("spark://"))
    return [(host.strip("[]"), int(port)) for host, port in found]
