"""What a session is told of a cluster that cannot give what it asks, or not yet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.checkout import ROOT
from tests.pipeline.spark.cluster import Cluster, free_port, standalone_cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SMALL = {
    "spark.executor.memory": "500m",
    "spark.executor.cores": "1",
    "spark.cores.max": "1",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "1s",
}
LONG = 600.0  # seconds that a session may wait for executors
# Opens one session after another in one Java, and prints a line for each: what it was told, and
# "came" or the error. It waits at most so many seconds for executors. A line read from standard
# input begins a session, and another ends it.
SESSIONS = """
import json, sys
from das.errors import DasError
from jobs.pipeline.tasks import session as capacity
from jobs.pipeline.tasks.session import spark_session

capacity.PATIENCE_SECONDS = 1.0
master, sessions = json.loads(sys.argv[1])
for longest, properties in sessions:
    capacity._LONGEST_SECONDS = longest
    sys.stdin.readline()
    try:
        with spark_session(
            "asking", master=master, driver_memory="600m", properties=properties,
            tell=lambda text: print("told", text.strip(), flush=True),
        ):
            print("came", flush=True)
            sys.stdin.readline()
    except DasError as error:
        print(type(error).__name__, error, flush=True)
"""


@dataclass
class Asking:
    """A process that opens sessions.

    Attributes:
      process: The process.
    """

    process: subprocess.Popen[str]

    def line(self) -> str:
        """What it says next."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def outcome(self) -> str:
        """What it says next but for what it waits for, as it may where the machine is busy."""
        while (said := self.line()).startswith("told "):
            pass
        return said

    def go_on(self) -> None:
        """Let it begin the next session, or close the one that it has."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@contextmanager
def ask(
    cluster: Cluster, *sessions: tuple[float, dict[str, str]], master: str | None = None
) -> Iterator[Asking]:
    """Open sessions with the secret of the cluster, as the documents say, by SPARK_CONF_DIR."""
    folder = cluster.folder / "conf"
    folder.mkdir(exist_ok=True)
    assert cluster.secret is not None
    properties = f"{cluster.secret.read_text()}spark.master.ui.port {cluster.page}\n"
    (folder / "spark-defaults.conf").write_text(properties)
    (folder / "spark-defaults.conf").chmod(0o600)
    words = json.dumps([master or cluster.url, sessions])
    with (
        (cluster.folder / "sessions.log").open("ab") as log,
        subprocess.Popen(
            [sys.executable, "-c", SESSIONS, words],
            env={**cluster.environment, "SPARK_CONF_DIR": str(folder), "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            yield Asking(process)
            assert process.wait(60) == 0
        finally:
            process.kill()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master without workers."""
    with standalone_cluster(tmp_path_factory.mktemp("capacity"), hosts=()) as cluster:
        yield cluster


def test_a_cluster_says_what_it_lacks_and_starts_what_fits(cluster: Cluster) -> None:
    sessions = (
        SMALL,
        SMALL | {"spark.executor.memory": "2g", "spark.executor.memoryOverhead": "1g"},
        SMALL | {"spark.executor.cores": "2", "spark.cores.max": "4"},
        SMALL,
    )
    with ask(cluster, *((LONG, session) for session in sessions)) as asking:
        asking.go_on()
        said = asking.line()
        assert "has no worker; got asked for spark.executor.cores 1" in said
        assert "workers: none" in said

        cluster.start_worker("127.0.0.2", cores=4, memory="9g")
        cluster.start_worker("127.0.0.3")
        wait_for_workers(cluster, 2)
        dead = cluster.workers.pop(0)
        dead.kill()
        dead.wait()
        for what, asked in (
            ("has no worker with room for an executor", "spark.executor.memoryOverhead 1g"),
            ("has no worker with room for an executor", "asked for spark.executor.cores 2"),
        ):
            asking.go_on()
            said = asking.line()
            assert said.startswith(f"RuntimeSetupError {cluster.url}: {what}"), said
            assert asked in said
            assert "workers: 127.0.0.3 with 1 core and 900 MB; other" in said
            assert "conf/cluster/small-cluster.yaml" in said
        asking.go_on()
        assert asking.outcome() == "came"
        # The only slot is taken: that is not a reason to give up, before long.
        with ask(cluster, (2.0, SMALL), (LONG, SMALL)) as second:
            second.go_on()
            assert_told_to_wait(second.line())
            assert "started no executor in" in second.line()
            second.go_on()
            assert_told_to_wait(second.line())
            asking.go_on()
            assert second.outcome() == "came"
            second.go_on()


def test_a_master_that_is_not_there_is_missed_before_java_starts(cluster: Cluster) -> None:
    nowhere = f"spark://127.0.0.1:{free_port()}"
    with ask(cluster, (LONG, SMALL), master=nowhere) as asking:
        asking.go_on()
        said = asking.line()
    assert said.startswith(f"RuntimeSetupError {nowhere}: no master of a Spark cluster answers")
    assert "Connection refused" in said


def assert_told_to_wait(said: str) -> None:
    """It is said what was asked for, and who has it."""
    assert said.startswith("told no executor yet; asked for spark.executor.co"), said
    assert "other applications: asking" in said


def wait_for_workers(cluster: Cluster, number: int) -> None:
    """Until so many have registered, by the log of the master."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        log = (cluster.folder / "cluster.log").read_text(errors="replace")
        if log.count("Registering worker") >= number:
            return
        time.sleep(0.2)
    raise TimeoutError(f"no {number} workers; {os.fspath(cluster.folder)}")
