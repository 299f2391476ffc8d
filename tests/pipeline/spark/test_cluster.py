"""The same release on a real cluster, shipped as a zip, as in one process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

from jobs.pipeline.config.load import load_run
from jobs.pipeline.storage.dataset import MANIFEST, is_published
from tests.builders import in_process, toy
from tests.builders.places import release_of, truth_of
from tests.pipeline.spark.cluster import MANY_TASKS, Cluster, build_zip, standalone_cluster
from tests.pipeline.spark.faults import Submitted
from tests.pipeline.spark.stranger import RefusedError, ask_for_block, doors
from tests.release_checks import sparse, totals_are_exact, tree_is_consistent

pytestmark = [pytest.mark.spark, pytest.mark.slow]
Counts = dict[str, dict[str, dict[int, int]]]


@dataclass(frozen=True)
class Toy:
    """The toy state and a cluster to run it on.

    Attributes:
      folder: Where runs lie.
      config: The run file.
      archive: The project as a zip.
      cluster: A master and two workers.
    """

    folder: Path
    config: Path
    archive: Path
    cluster: Cluster


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toy]:
    folder = tmp_path_factory.mktemp("cluster")
    toy.write_records(folder)
    config = toy.configuration(folder, runtime={})
    with standalone_cluster(folder) as cluster:
        yield Toy(folder, config, build_zip(folder, MANY_TASKS), cluster)


def counts(out: Path) -> Counts:
    return {level: sparse(release_of(out).counts(level)) for level in toy.LEVELS}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Counts:
    folder = tmp_path_factory.mktemp("expected")
    toy.write_records(folder)
    return counts(in_process.execute(toy.configuration(folder)))


def test_a_killed_driver_is_resumed_and_releases_what_one_process_releases(
    state: Toy, expected: Counts
) -> None:
    """What it had measured and solved stays as it was; the documented commands do the rest."""
    out, log = load_run(state.config).config.output.directory, state.folder / "killed.log"
    driver = Submitted(state.cluster.start(state.archive, "run", state.config, log=log), log)
    release = release_of(out)
    driver.wait_until(lambda: is_published(release.counts("county")), "counties are solved")
    assert_nobody_sees(state.cluster.secret)
    with standing_still(executors(state.cluster)):
        working = [psutil.Process(driver.process.pid), *executors(state.cluster)]
        assert_strangers_are_refused(working)
    driver.kill()
    assert not is_published(release.microdata / "csv")
    before = {path: path.read_bytes() for path in out.rglob(MANIFEST)}
    done = state.cluster.run_documented(state.archive.parents[1], state.config)
    assert done.returncode == 0, done.stderr[-3000:]
    java = [line for line in done.stderr.splitlines() if "JAVA_TOOL_OPTIONS" in line]  # of the test
    assert done.stderr.splitlines() == java  # the program's own lines are merged into the other
    assert {path: path.read_bytes() for path in before} == before
    assert counts(out) == expected
    assert tree_is_consistent(out, toy.LEVELS)
    assert totals_are_exact(out, "state")
    assert str(truth_of(out).report) in done.stdout
    manifest = json.loads(release.manifest.read_text())
    assert manifest["environment"]["slots"] == 2


def assert_nobody_sees(secret: Path) -> None:
    """The secret is on no command line of this machine, though two workers and a driver use it."""
    lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    assert sum(str(secret) in line for line in lines) >= 3
    (value,) = (line.split()[1] for line in secret.read_text().splitlines() if ".secret " in line)
    assert not any(value in word for line in lines for word in line)


def executors(cluster: Cluster) -> list[psutil.Process]:
    """The Java processes that work for the driver."""
    children = [child for one in cluster.workers for child in psutil.Process(one.pid).children()]
    return [child for child in children if child.name() == "java"]


@contextmanager
def standing_still(working: list[psutil.Process]) -> Iterator[None]:
    """Stop the tasks, not what listens: on a quick machine they would end before all is asked."""
    below = [child for one in working for child in one.children(recursive=True)]
    for process in below:
        process.suspend()
    try:
        yield
    finally:
        for process in below:
            process.resume()


def assert_strangers_are_refused(processes: list[psutil.Process]) -> None:
    """Driver and executors serve nothing to who connects without the secret."""
    assert len(processes) >= 2
    for process in processes:
        refusals = []
        for door in doors(process):
            with pytest.raises(RefusedError) as refused:
                ask_for_block(door, "broadcast_0_piece0")
            refusals.append(str(refused.value))
        assert any("uthent" in text or "Sasl" in text for text in refusals), refusals


def test_who_does_not_know_the_secret_is_told_so_before_anything_is_read(state: Toy) -> None:
    out = state.folder / "stranger"
    stranger = replace(state.cluster, secret=None)
    done = stranger.submit(state.archive, "run", state.config, "--out", out)
    assert done.returncode == 7
    assert "spark.authenticate.secret: is not given" in done.stdout
    assert not any(path.is_file() for path in out.rglob("*.parquet"))


@pytest.mark.long
def test_a_cluster_without_a_secret_works_only_if_the_run_file_accepts_it(
    tmp_path: Path, state: Toy
) -> None:
    accepted = tmp_path / "open.yaml"
    accepted.write_text("runtime: {allow_open_cluster: true}\n")
    words = ("run", state.config, "--out", tmp_path / "out")
    with standalone_cluster(tmp_path, is_open=True) as cluster:
        refused = cluster.submit(state.archive, *words)
        done = cluster.submit(state.archive, *words, "--cluster", accepted)
    assert refused.returncode == 7
    assert "allow_open_cluster" in refused.stdout
    assert done.returncode == 0, done.stdout[-3000:]
    manifest = json.loads((release_of(tmp_path / "out").manifest).read_text())
    assert manifest["open_sessions"] == toy.LEVELS
