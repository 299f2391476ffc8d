"""Spark sessions: their settings, what keeps them closed to others, and executors of a cluster.

Spark itself says little of a cluster: it looks a minute for a master that is not there, and waits
for ever for executors that no worker has room for. Here both are checked, and explained.
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
    REMOTE_VARIABLE,
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
    quiet_submitted_java,
)

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

# A worker takes some seconds to start and to register, and so does an executor. With the start of
# Java, 6 seconds here, what hinders them is said within 30.
PATIENCE_SECONDS = 20
# Queues, images and machines that are yet to be started take minutes.
_LONGEST_SECONDS = 600.0
_ANSWER_SECONDS = 5.0
_ALLOWED = "spark.scheduler.maxRegisteredResourcesWaitingTime"
_POLL_SECONDS = 0.25
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


# --- executors of a cluster -----------------------------------------------------------------------


@dataclass(frozen=True)
class Standalone:
    """What the master of a standalone cluster says of it and of one application.

    Attributes:
      workers: Those that live: host, cores and MB that each offers in all.
      others: Names of the other applications.
      cores: Of an executor, as the master counts; 1 if it may have any number.
      mebibytes: Memory of an executor, as the master counts.
      most_cores: Of all executors together; None without a limit.
    """

    workers: Sequence[tuple[str, int, int]]
    others: Sequence[str]
    cores: int
    mebibytes: int
    most_cores: int | None

    @property
    def hindrance(self) -> str | None:
        """Say why no executor can ever start, whatever else happens; None if one can."""
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
    """Refuse a standalone master at whose address nothing answers; others are Spark's to find.

    Args:
      master: As Spark has it, such as `spark://host:7077` or `spark://a:7077,b:7077`.

    Raises:
      RuntimeSetupError: None of the addresses answers.
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
    """Wait until the first executors have come, or say why none can.

    Args:
      context: Of a session on a cluster.
      tell: Is told once if it takes long, with what is waited for.

    Raises:
      RuntimeSetupError: The cluster can start none, or did not for so long that it is given up.
    """
    started, told = int(context.startTime) / 1000, False  # Spark itself may have waited since
    java: Any = context._jsc
    allowed = int(java.sc().conf().getTimeAsMs(_ALLOWED, "0s")) / 1000  # by who opened the session
    while not _executors(context):
        waited = time.time() - started
        is_over = waited >= max(_LONGEST_SECONDS, allowed)
        if is_over or (waited >= PATIENCE_SECONDS and not told):
            cluster = _standalone(context)
            hindrance = cluster.hindrance if cluster is not None and not told else None
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
            if not told:
                tell(f"{'':<20}no executor yet; {state}")
                told = True
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
    context.parallelize([None], 1).count()  # starts when as many have come as batches are made for


def _requested(context: SparkContext) -> str:
    """Describe what the session requests, in the words of its properties."""
    conf = context.getConf()
    names = ("instances", "cores", "memory", "memoryOverhead", "memoryOverheadFactor")
    values = {f"spark.executor.{name}": conf.get(f"spark.executor.{name}") for name in names}
    values["spark.executor.memory"] = values["spark.executor.memory"] or "1g"  # Spark's default
    values["spark.cores.max"] = conf.get("spark.cores.max")
    return "asked for " + ", ".join(f"{name} {value}" for name, value in values.items() if value)


def _executors(context: SparkContext) -> int:
    """Count the executors that have come.

    Raises:
      RuntimeSetupError: Spark has given up, since the cluster ended the application.
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
    """Read the state of a standalone cluster; None of another cluster, or if none is seen.

    Its master writes it as JSON on its page, which is looked for where the session's
    `spark.master.ui.port` says, by default at 8080.
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
            own, most = applications.pop(context.applicationId), conf.get("spark.cores.max")
            return Standalone(
                [
                    (one["host"], int(one["cores"]), int(one["memory"]))
                    for one in state["workers"]
                    if one["state"] == "ALIVE"
                ],
                [app["name"] for app in applications.values()],
                int(conf.get("spark.executor.cores", "1")),
                int(own["memoryperexecutor"]),
                int(most) if most else None,
            )
        except (OSError, HTTPException, ValueError, KeyError, TypeError):
            continue  # no page, or that of another program
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
