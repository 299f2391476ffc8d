"""A real standalone Spark cluster on the loopback addresses: one master, two workers."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyspark

from jobs.pipeline.tasks.java import find_java_home
from tests.checkout import ROOT, checkout, environment

SPARK = Path(pyspark.__file__).parent
SPARK_CLASS = str(SPARK / "bin" / "spark-class")
HOSTS = ("127.0.0.2", "127.0.0.3")
# What the documented commands name, and a reader replaces.
MASTER = "spark://host:7077"
SECRET_FILE = "secret.conf"
RUN_FILE = "conf/run/demo.yaml"
# Appended to a module: small states are cut into as many tasks as large ones.
MANY_TASKS = {
    "jobs/pipeline/tasks/executor.py": """
from dataclasses import fields, replace

_ordinary = Sizing


def Sizing(batches_per_slot):
    sizing = _ordinary(batches_per_slot)
    sizes = [field.name for field in fields(sizing) if field.name != "batches_per_slot"]
    least = {name: replace(getattr(sizing, name), least=1) for name in sizes}
    return replace(sizing, **least)
"""
}


def documented_commands() -> list[str]:
    """Command lines of the first shell block of the section "On a cluster" of the README."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## On a cluster\n", 1)[1]
    block = section.split("```sh\n", 1)[1].split("```", 1)[0]
    return block.replace("\\\n", " ").splitlines()


def build_zip(folder: Path, appended: Mapping[str, str] | None = None) -> Path:
    """`make zip` in a copy of the project, with text appended to files; returns the archive."""
    (make,) = (line for line in documented_commands() if line.startswith("make "))
    project = checkout(folder, appended)
    subprocess.run(
        shlex.split(make), cwd=project, env=environment(project), check=True, capture_output=True
    )
    return project / "dist" / "das.zip"


@dataclass
class Cluster:
    """Processes of a running cluster.

    Attributes:
      url: The master.
      page: Port of the master's page.
      environment: Of all processes.
      folder: Where logs and work folders lie.
      secret: Properties file with the secret of the cluster; none if it is open to all.
      of_workers: Further variables of the workers. If there are any, each worker has a home, a
        folder for temporary files and a working directory of its own.
      workers: The workers.
      drivers: What was submitted.
    """

    url: str
    page: int
    environment: dict[str, str]
    folder: Path
    secret: Path | None
    of_workers: Mapping[str, str] = field(default_factory=dict)
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    drivers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def run_documented(self, project: Path, config: Path) -> subprocess.CompletedProcess[str]:
        """The documented commands as they are, but for the master's address and the run file."""
        script = "\n".join(documented_commands())
        assert SECRET_FILE in script
        if self.secret:
            shutil.copy2(self.secret, project / SECRET_FILE)
        for written, here in ((MASTER, self.url), (RUN_FILE, str(config))):
            assert script.count(written) == 1
            script = script.replace(written, here)
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            env=self.environment,
            cwd=project,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def submit(
        self,
        archive: Path,
        *words: object,
        conf: dict[str, str] | None = None,
        patience_seconds: float = 300,
    ) -> subprocess.CompletedProcess[str]:
        """The documented spark-submit with the words of another command, in the archive's project."""
        return subprocess.run(
            self._command(archive, words, conf),
            env=self.environment,
            cwd=archive.parents[1],
            capture_output=True,
            text=True,
            timeout=patience_seconds,
            check=False,
        )

    def start(
        self, archive: Path, *words: object, log: Path, conf: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Submit in the background; the process becomes the Java process of the driver."""
        with log.open("wb") as output:
            driver = subprocess.Popen(
                self._command(archive, words, conf),
                env=self.environment,
                cwd=archive.parents[1],
                stdout=output,
                stderr=output,
            )
        self.drivers.append(driver)
        return driver

    def start_embedded(self, archive: Path, *words: object, log: Path) -> subprocess.Popen[bytes]:
        """Start a command on two local threads in the background; Java is a child of its Python."""
        with log.open("wb") as output:
            driver = subprocess.Popen(
                [sys.executable, "-m", "jobs", *map(str, words), "--master", "local[2,4]"],
                env={**self.environment, "PYTHONPATH": str(archive)},
                cwd=archive.parent,
                stdout=output,
                stderr=output,
            )
        self.drivers.append(driver)
        return driver

    def start_worker(self, host: str, *, cores: int = 1, memory: str = "900m") -> None:
        """Start a worker on a loopback address, which offers so many slots and so much memory."""
        environment = {**self.environment, "SPARK_LOCAL_IP": host, **self.of_workers}
        place = self.folder / host if self.of_workers else None
        if place is not None:
            for name, variable in (
                ("home", "HOME"),
                ("tmp", "TMPDIR"),
                ("local", "SPARK_LOCAL_DIRS"),
            ):
                environment[variable] = str(place / name)
                (place / name).mkdir(parents=True)
        with (self.folder / "cluster.log").open("ab") as log:
            worker = subprocess.Popen(
                [
                    *(SPARK_CLASS, "org.apache.spark.deploy.worker.Worker"),
                    *("--host", host, "--cores", str(cores), "--memory", memory),
                    *("--webui-port", "0", "--work-dir", str(self.folder / host)),
                    *_properties_file(self.secret),
                    self.url,
                ],
                env=environment,
                cwd=place,
                stdout=log,
                stderr=log,
            )
        self.workers.append(worker)

    def _command(
        self, archive: Path, words: tuple[object, ...], conf: dict[str, str] | None
    ) -> list[str]:
        (line,) = (line for line in documented_commands() if line.startswith("spark-submit "))
        ours = {MASTER: self.url, SECRET_FILE: str(self.secret)}
        command = [ours.get(word, word) for word in shlex.split(line)]
        assert {*ours.values()} < {*command}
        if self.secret is None:
            command.remove("None")
            command.remove("--properties-file")
        assert archive == archive.parents[1] / command[command.index("--py-files") + 1]
        entry = next(at for at, word in enumerate(command) if word.endswith(".py"))
        extra = [word for pair in (conf or {}).items() for word in ("--conf", "=".join(pair))]
        return [*command[:entry], *extra, command[entry], *map(str, words)]


def make_secret(folder: Path) -> Path:
    """The properties file that the documented command makes, in a folder."""
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    section = page.split("\n## A secret for the cluster\n", 1)[1]
    command = section.split("```sh\n", 1)[1].split("```", 1)[0]
    subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=folder, check=True)
    path = folder / SECRET_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return path


def _properties_file(secret: Path | None) -> list[str]:
    return [] if secret is None else ["--properties-file", str(secret)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(address: tuple[str, int], seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(address) == 0:
                return
        time.sleep(0.2)
    raise TimeoutError(f"nothing listens on {address}")


def cluster_environment() -> dict[str, str]:
    """Variables of the processes of a cluster on this machine, and of who submits to it."""
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith(("SPARK", "PYSPARK"))},
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
        "JAVA_HOME": str(find_java_home()),
        "SPARK_HOME": str(SPARK),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": "",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "127.0.0.1",
        "SPARK_DRIVER_MEMORY": "700m",
        "SPARK_EXECUTOR_MEMORY": "700m",
        # Short lives: the second compiler and the parallel collector would cost more than they give.
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }


@contextmanager
def standalone_cluster(
    folder: Path,
    *,
    is_open: bool = False,
    hosts: Sequence[str] = HOSTS,
    of_workers: Mapping[str, str] | None = None,
) -> Iterator[Cluster]:
    """Start a master and workers, each on its own loopback address; stop them afterwards.

    All that connect know a secret, and what crosses the network is encrypted, unless it `is_open`.
    """
    port, page = free_port(), free_port()
    variables = cluster_environment()
    url = f"spark://127.0.0.1:{port}"
    secret = None if is_open else make_secret(folder)
    cluster = Cluster(url, page, variables, folder, secret, of_workers=of_workers or {})
    with (folder / "cluster.log").open("ab") as log:
        master = subprocess.Popen(
            [
                *(SPARK_CLASS, "-Dspark.master.rest.enabled=false"),
                "org.apache.spark.deploy.master.Master",
                *("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page)),
                *_properties_file(secret),
            ],
            env=variables,
            stdout=log,
            stderr=log,
        )
    try:
        wait_for(("127.0.0.1", port))
        for host in hosts:
            cluster.start_worker(host)
        yield cluster
    finally:
        processes = [*cluster.drivers, *cluster.workers, master]
        children = [
            child
            for process in processes
            if process.poll() is None
            for child in psutil.Process(process.pid).children(recursive=True)
        ]
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for child in children:  # a stopped one does not end by itself
            with suppress(psutil.NoSuchProcess):
                child.kill()
