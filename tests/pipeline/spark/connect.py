"""A real Spark Connect server on this machine, started as docs/cluster.md says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from jobs.pipeline.config.protection import TOKEN_VARIABLE
from jobs.pipeline.tasks.java import class_archive, driver_options, find_java_home
from tests.checkout import ROOT
from tests.pipeline.spark.cluster import SPARK, free_port

MASTER = "local[*,4]"  # what the documented command names, and a reader replaces
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


def documented_commands() -> str:
    """The first shell block of the section "Spark Connect" of docs/cluster.md."""
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    section = page.split("\n## Spark Connect\n", 1)[1]
    return section.split("```sh\n", 1)[1].split("```", 1)[0]


def documented_properties() -> dict[str, str]:
    """Those that the documented command starts a server with."""
    return dict(re.findall(r"--conf (\S+?)=(\S+)", documented_commands()))


@dataclass(frozen=True)
class Server:
    """A running server.

    Attributes:
      port: Where it listens, on the loopback address alone.
      token: What it asks for; None if it lets in everybody.
      process: Its Java process.
      log: What it says.
    """

    port: int
    token: str | None
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def url(self) -> str:
        return f"sc://localhost:{self.port}"

    @property
    def variables(self) -> dict[str, str]:
        """What a client's environment must have."""
        return {} if self.token is None else {TOKEN_VARIABLE: self.token}

    def kill(self) -> None:
        """End it and its workers as a power cut would."""
        below = psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        self.process.wait()
        for child in below:
            with suppress(psutil.NoSuchProcess):
                child.kill()


@contextmanager
def connect_server(
    folder: Path,
    *,
    token: str | None = "known to the tests alone",
    properties: Mapping[str, str] | None = None,
    python_path: Path | None = ROOT,
) -> Iterator[Server]:
    """Start a server with two slots, whose tasks may fail twice; stop it afterwards.

    Args:
      folder: Where it works.
      token: What it asks clients for.
      properties: Of its Spark, in the place of those that are documented.
      python_path: From where its workers import besides their libraries.
    """
    home = find_java_home()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK", "PYSPARK"))}
    variables = {
        **kept,
        "JAVA_HOME": str(home),
        "SPARK_HOME": str(SPARK),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": "" if python_path is None else str(python_path),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    if token is not None:
        variables[TOKEN_VARIABLE] = token
    port = free_port()
    own = {
        **(documented_properties() if properties is None else properties),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": driver_options(class_archive()),
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    words = [word for name, value in own.items() for word in ("--conf", f"{name}={value}")]
    log = folder / "server.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [
                *(str(SPARK / "bin" / "spark-submit"), "--class", SERVER),
                *("--master", "local[2,3]", *words, "spark-internal"),
            ],
            env=variables,
            cwd=folder,
            stdout=output,
            stderr=output,
        )
    server = Server(port, token, process, log)
    try:
        _wait_until_it_listens(server)
        yield server
    finally:
        if process.poll() is None:
            server.kill()


def _wait_until_it_listens(server: Server, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            break
        with suppress(psutil.Error):
            found = psutil.Process(server.process.pid).net_connections(kind="tcp")
            if any(one.status == "LISTEN" and one.laddr.port == server.port for one in found):
                return
        time.sleep(0.2)
    raise TimeoutError(server.log.read_text(errors="replace")[-3000:])
