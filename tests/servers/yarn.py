"""A real YARN over an HDFS: one ResourceManager and one NodeManager on the loopback address.

Containers run as the user of the NodeManager, as on any cluster without Kerberos, under the default
container executor, which starts them and asks no kernel to confine them.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from jobs.pipeline.tasks.java import find_java_home
from tests.pipeline.spark.cluster import free_port
from tests.servers.hadoop import java_command, write_properties
from tests.servers.processes import running, wait_until
from tests.servers.store import StoreServer

_MANAGER = "yarn.resourcemanager"
_NODE = "yarn.nodemanager"


@dataclass(frozen=True)
class Yarn:
    """A running cluster.

    Attributes:
      environment: Variables by which spark-submit finds it, and the HDFS below it.
      containers: Folder with a folder of logs for each container.
      web: Address of the ResourceManager's REST interface.
    """

    environment: dict[str, str]
    containers: Path
    web: str

    def ask(self, path: str) -> dict[str, object]:
        """An answer of the REST interface, such as to `cluster/apps`."""
        with urllib.request.urlopen(f"{self.web}/ws/v1/{path}", timeout=10) as answer:
            return dict(json.load(answer))

    def has_node(self) -> bool:
        """Whether the NodeManager has joined."""
        metrics = self.ask("cluster/metrics")["clusterMetrics"]
        return isinstance(metrics, dict) and metrics["activeNodes"] == 1

    def states(self) -> dict[str, str]:
        """Final state of each application, by its id."""
        found = self.ask("cluster/apps")["apps"]
        apps = found.get("app", []) if isinstance(found, dict) else []
        return {app["id"]: app["finalStatus"] for app in apps}


@contextmanager
def yarn_cluster(folder: Path, hdfs: StoreServer) -> Iterator[Yarn]:
    """Start YARN.

    Args:
      folder: A folder for work and logs.
      hdfs: Where applications are staged; its configuration is extended.
    """
    configuration = Path(hdfs.environment["HADOOP_CONF_DIR"])
    local, containers = folder / "yarn-local", folder / "containers"
    web = f"127.0.0.1:{free_port()}"
    write_properties(
        configuration / "yarn-site.xml",
        {
            f"{_MANAGER}.hostname": "127.0.0.1",
            **{
                f"{_MANAGER}.{name}": f"127.0.0.1:{free_port()}"
                for name in (
                    "address",
                    "admin.address",
                    "resource-tracker.address",
                    "scheduler.address",
                )
            },
            f"{_MANAGER}.webapp.address": web,
            f"{_NODE}.hostname": "127.0.0.1",
            f"{_NODE}.address": "127.0.0.1:0",
            f"{_NODE}.localizer.address": "127.0.0.1:0",
            f"{_NODE}.webapp.address": "127.0.0.1:0",
            f"{_NODE}.collector-service.address": "127.0.0.1:0",
            f"{_NODE}.local-dirs": local,
            f"{_NODE}.log-dirs": containers,
            f"{_NODE}.resource.memory-mb": 6144,
            f"{_NODE}.resource.cpu-vcores": 4,
            f"{_NODE}.vmem-check-enabled": "false",
            f"{_NODE}.delete.debug-delay-sec": 600,
            "yarn.scheduler.minimum-allocation-mb": 128,
        },
    )
    write_properties(
        configuration / "capacity-scheduler.xml",
        {
            "yarn.scheduler.capacity.maximum-am-resource-percent": 1,
            "yarn.scheduler.capacity.root.queues": "default",
            "yarn.scheduler.capacity.root.default.capacity": 100,
        },
    )
    variables = {**hdfs.environment, "JAVA_HOME": str(find_java_home())}
    daemon = {"JAVA_HOME": variables["JAVA_HOME"]}
    yarn = Yarn(variables, containers, f"http://{web}")
    with ExitStack() as stack:
        for main, is_ready in (
            ("resourcemanager.ResourceManager", lambda: bool(yarn.ask("cluster/info"))),
            ("nodemanager.NodeManager", yarn.has_node),
        ):
            command = java_command(configuration, f"yarn.server.{main}")
            log = folder / f"{main}.log"
            process = stack.enter_context(running(command, log, daemon))
            wait_until(is_ready, process, log)
        yield yarn
