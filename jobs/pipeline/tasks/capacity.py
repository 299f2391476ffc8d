"""Check that a cluster can give a session what it requests, before waiting for executors.

Spark itself says little: it looks a minute for a master that is not there, and waits for ever for
executors that no worker has room for.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.request import ProxyHandler, build_opener

from das.errors import RuntimeSetupError

if TYPE_CHECKING:
    from pyspark import SparkContext

# A worker takes some seconds to start and to register, and so does an executor. With the start of
# Java, 6 seconds here, what hinders them is said within 30.
PATIENCE_SECONDS = 20
# Queues, images and machines that are yet to be started take minutes.
_LONGEST_SECONDS = 600.0
_ANSWER_SECONDS = 5.0
_ALLOWED = "spark.scheduler.maxRegisteredResourcesWaitingTime"
_POLL_SECONDS = 0.25


class Worker(NamedTuple):
    """A living worker of a standalone cluster: its host, and all that it offers."""

    host: str
    cores: int
    mebibytes: int


@dataclass(frozen=True)
class Standalone:
    """What the master of a standalone cluster says of it and of one application.

    Attributes:
      workers: Those that live.
      others: Names of the other applications.
      cores: Of an executor, as the master counts; 1 if it may have any number.
      mebibytes: Memory of an executor, as the master counts.
      most_cores: Of all executors together; None without a limit.
    """

    workers: Sequence[Worker]
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
        if not any(w.cores >= self.cores and w.mebibytes >= self.mebibytes for w in self.workers):
            return "has no worker with room for an executor"
        return None

    def __str__(self) -> str:
        shown = (f"{w.host} with {w.cores} cores and {w.mebibytes:,} MB" for w in self.workers[:8])
        workers = ", ".join(shown) or "none"
        more = f" and {len(self.workers) - 8} more" if len(self.workers) > 8 else ""
        others = ", ".join(self.others[:8]) or "none"
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
    longest = int(java.sc().conf().getTimeAsMs(_ALLOWED, "0s")) / 1000  # of who opened the session
    while not _executors(context):
        waited = time.time() - started
        is_over = waited >= max(_LONGEST_SECONDS, longest)
        if is_over or (waited >= PATIENCE_SECONDS and not told):
            cluster = _standalone(context)
            if cluster is not None and cluster.hindrance is not None and not told:
                raise RuntimeSetupError(
                    str(context.master),
                    cluster.hindrance,
                    got=f"{_requested(context)}; {cluster}",
                    remedy="ask for less by the file of --cluster, such as "
                    "conf/cluster/small-cluster.yaml, or start workers that offer more (--cores "
                    "and --memory of a worker)",
                )
            none = f"no executor of application {context.applicationId} has registered"
            state = f"{_requested(context)}; {cluster or none}"
            if is_over:
                raise RuntimeSetupError(
                    str(context.master),
                    f"started no executor in {waited:.0f} seconds",
                    got=state,
                    remedy="see with the tools of the cluster why, such as a queue that is full or "
                    "an image that is not found; where it takes longer, raise under runtime.spark "
                    f"{_ALLOWED}",
                )
            tell(f"{'':<10}no executor yet; {state}")
            told = True
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

    Its master writes it as JSON on its page, where the session's `spark.master.ui.port` says, by
    default at 8080.
    """
    conf = context.getConf()
    page, most = int(conf.get("spark.master.ui.port", "8080")), conf.get("spark.cores.max")
    opener = build_opener(ProxyHandler({}))
    for host, port in _addresses(str(context.master)):
        name = f"[{host}]" if ":" in host else host
        try:
            with opener.open(f"http://{name}:{page}/json/", timeout=_ANSWER_SECONDS) as answer:
                state = json.load(answer)
            if not state["url"].endswith(f":{port}") or state["status"] != "ALIVE":
                continue  # the page of another master, or of one that stands by
            applications = {app["id"]: app for app in state["activeapps"]}
            own = applications.pop(context.applicationId)
            return Standalone(
                [
                    Worker(one["host"], int(one["cores"]), int(one["memory"]))
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
