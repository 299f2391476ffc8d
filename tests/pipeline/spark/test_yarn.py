"""The documented commands for YARN on a real one: the same release, and a lost driver started again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import time
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from jobs.pipeline.config.load import load_run
from jobs.pipeline.storage.dataset import MANIFEST, is_published
from jobs.pipeline.storage.place import Place, found_under, place_of
from tests.builders import in_process, toy
from tests.builders.places import release_of
from tests.checkout import ROOT
from tests.pipeline.spark.cluster import MANY_TASKS, SPARK, build_zip
from tests.release_checks import sparse, totals_are_exact, tree_is_consistent
from tests.servers.hdfs import USER, hdfs_server
from tests.servers.store import StoreServer
from tests.servers.yarn import Yarn, yarn_cluster

pytestmark = [pytest.mark.spark, pytest.mark.long]

# What the documented commands name, and a reader replaces.
CONFIGURATION = "/etc/hadoop/conf"
RUN_FILE = "/mnt/shared/run.yaml"
MEMORY = "--driver-memory 8g"
SIZES = """\
runtime:
  spark:
    spark.executor.instances: "2"
    spark.executor.cores: "1"
    spark.executor.memory: 640m
    spark.executor.memoryOverhead: 512m
    spark.dynamicAllocation.enabled: "false"
"""
# Of this machine: all on one address, and Spark's own jars are where they are instead of uploaded.
DEFAULTS = f"""\
spark.yarn.jars local:{SPARK}/jars/*
spark.executorEnv.SPARK_LOCAL_IP 127.0.0.1
spark.executorEnv.HADOOP_USER_NAME {USER}
spark.yarn.appMasterEnv.SPARK_LOCAL_IP 127.0.0.1
spark.yarn.appMasterEnv.HADOOP_USER_NAME {USER}
spark.executor.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""


@dataclass(frozen=True)
class Site:
    """A YARN, and a checkout with all that the documented commands take as made.

    Attributes:
      yarn: The cluster.
      hdfs: The file system below it.
      project: The checkout.
      config: Run file of the toy state.
      folder: Where runs lie.
    """

    yarn: Yarn
    hdfs: StoreServer
    project: Path
    config: Path
    folder: Path

    def start(self, mode: str, *options: str, config: Path | None = None) -> subprocess.Popen[str]:
        """The documented command of a mode, with further words for `das`, of `config` if not ours."""
        script = documented(mode)
        here = {
            CONFIGURATION: self.yarn.environment["HADOOP_CONF_DIR"],
            RUN_FILE: f"{config or self.config} {' '.join(options)}",
            MEMORY: "--driver-memory 700m",
        }
        for written, ours in here.items():
            assert script.count(written) == 1
            script = script.replace(written, ours)
        return subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", script],
            env=self._environment(),
            cwd=self.project,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _environment(self) -> dict[str, str]:
        ours = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK", "PYSPARK"))}
        return {
            **ours,
            **self.yarn.environment,
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
            "PYTHONPATH": "",
            "SPARK_HOME": str(SPARK),
            "SPARK_CONF_DIR": str(self.folder / "spark"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }


def documented(mode: str) -> str:
    """The block of the section on YARN that submits in a deploy mode."""
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    section = page.split("\n## YARN\n", 1)[1].split("\n## ", 1)[0]
    blocks = [block.split("```", 1)[0] for block in section.split("```sh\n")[1:]]
    (block,) = (block for block in blocks if f"--deploy-mode {mode}" in block)
    return block


def pack_environment(project: Path) -> None:
    """What `make pack` leaves: an environment of this one's libraries, and its archive."""
    environment = project / "build" / "env"
    venv.create(environment, symlinks=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (project / "dist").mkdir(exist_ok=True)
    with tarfile.open(project / "dist" / "das-env.tar.gz", "w:gz") as archive:
        archive.add(environment, ".")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("yarn")
    toy.write_records(folder)
    config = toy.configuration(folder, runtime={})
    project = build_zip(folder, MANY_TASKS).parents[1]
    pack_environment(project)
    (project / "conf" / "cluster" / "nation-cluster.yaml").write_text(SIZES)
    (folder / "spark").mkdir()
    (folder / "spark" / "spark-defaults.conf").write_text(DEFAULTS)
    with hdfs_server(folder / "hdfs") as hdfs, yarn_cluster(folder, hdfs) as yarn:
        yield Site(yarn, hdfs, project, config, folder)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    folder = tmp_path_factory.mktemp("expected")
    toy.write_records(folder)
    return counts(in_process.execute(toy.configuration(folder)))


def counts(out: Place) -> dict[str, object]:
    return {level: sparse(release_of(out).counts(level)) for level in toy.LEVELS}


def test_client_mode_releases_what_one_process_releases(
    site: Site, expected: dict[str, object]
) -> None:
    driver = site.start("client")
    output, _ = driver.communicate(timeout=600)
    assert driver.returncode == 0, output[-3000:]
    out = load_run(site.config).config.output.directory
    assert counts(out) == expected
    assert tree_is_consistent(out, toy.LEVELS)
    assert totals_are_exact(out, "state")
    manifest = json.loads((release_of(out).manifest).read_text())
    assert manifest["environment"]["slots"] == 2
    assert "open_sessions" not in manifest or not manifest["open_sessions"]
    assert [*site.yarn.states().values()] == ["SUCCEEDED"]


def test_cluster_mode_starts_a_lost_driver_again(site: Site, expected: dict[str, object]) -> None:
    """What the first driver measured and solved stays, and the rest is what it would have been."""
    out = site.folder / "lost"
    waiting = site.start("cluster", "--out", str(out))
    release = release_of(out)
    wait_until(lambda: is_published(release.counts("county")), waiting)
    container = driver_container(out)
    before = {path: path.read_bytes() for path in out.rglob(MANIFEST)}
    assert not is_published(release.microdata / "csv")
    for process in container:
        process.kill()
    output, _ = waiting.communicate(timeout=600)
    assert waiting.returncode == 0, output[-3000:]
    assert {path: path.read_bytes() for path in before} == before
    assert counts(out) == expected
    assert attempts(site.yarn) == 2


def test_data_and_all_files_on_hdfs(site: Site, expected: dict[str, object]) -> None:
    """Also with a driver that is lost: the next one takes over when it has been silent."""
    url = f"{site.hdfs.url}/toy"
    with site.hdfs.in_environment():
        config = toy.configuration(
            site.folder / "hdfs",
            **toy.upload(site.folder, url),
            output__directory=f"{url}/out",
            runtime={},
        )
        waiting = site.start("cluster", config=config)
        out = place_of(f"{url}/out")
        release = release_of(out)
        wait_until(lambda: is_published(release.counts("county")), waiting)
        container = driver_container(config)
        before = {place: place.read_bytes() for place in found_under(out, MANIFEST)}
        for process in container:
            process.kill()
        output, _ = waiting.communicate(timeout=600)
        assert waiting.returncode == 0, output[-3000:]
        assert {place: place.read_bytes() for place in before} == before
        assert counts(out) == expected
        assert attempts(site.yarn) == 2


def test_what_is_refused_in_cluster_mode_is_in_the_log_of_the_driver(site: Site) -> None:
    waiting = site.start("cluster", "--out", str(site.folder / "records.csv" / "below"))
    waiting.communicate(timeout=600)
    assert waiting.returncode == 1  # spark-submit's own, whatever the program's
    logs = [path.read_text() for path in site.yarn.containers.rglob("stdout")]
    assert any("cannot be created" in text for text in logs)
    assert attempts(site.yarn) == 2
    assert "exited with status 2" in str(site.yarn.ask(f"cluster/apps/{max(site.yarn.states())}"))


def driver_container(word: Path) -> list[psutil.Process]:
    """Processes, Java and Python, of the container whose driver was given a word."""
    found = [
        process
        for process in psutil.process_iter(["cmdline"])
        if str(word) in (process.info["cmdline"] or [])
    ]
    masters = [one for one in found if any("ApplicationMaster" in w for w in one.cmdline())]
    assert masters
    children = [child for one in masters for child in one.children(recursive=True)]
    return [*masters, *children]


def attempts(yarn: Yarn) -> int:
    """Of the last application."""
    last = max(yarn.states())
    found = yarn.ask(f"cluster/apps/{last}/appattempts")["appAttempts"]
    assert isinstance(found, dict)
    return len(found["appAttempt"])


def wait_until(is_so: Callable[[], bool], driver: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 600
    while not is_so():
        assert driver.poll() is None, driver.communicate()[0][-3000:]
        assert time.monotonic() < deadline
        time.sleep(0.01)
