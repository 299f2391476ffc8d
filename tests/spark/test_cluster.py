"""The same release on a real cluster as on local threads, shipped as a zip."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from jobs.dataset import MANIFEST, is_published
from jobs.layout import release_layout
from tests.e2e import in_process, toy
from tests.release_checks import sparse, totals_are_exact, tree_is_consistent
from tests.spark.cluster import ROOT, Cluster, build_zip, standalone_cluster
from tests.spark.faults import Submitted

pytestmark = [pytest.mark.spark, pytest.mark.slow]


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
        yield Toy(folder, config, build_zip(folder), cluster)


def counts(out: Path) -> dict[str, dict[str, dict[int, int]]]:
    return {level: sparse(release_layout(out).counts(level)) for level in toy.LEVELS}


def test_cluster_and_local_threads_release_the_same(state: Toy) -> None:
    out, local = state.folder / "cluster", state.folder / "local"
    done = state.cluster.submit(state.archive, "run", state.config, "--out", out)
    assert done.returncode == 0, done.stderr[-3000:]
    below = state.folder / "records.csv" / "below"
    refused = state.cluster.submit(state.archive, "run", state.config, "--out", below)
    assert refused.returncode == 2
    assert "cannot be created" in refused.stdout  # spark-submit merges the two streams
    words = [sys.executable, "-m", "jobs", "run", state.config, "--out", local]
    subprocess.run([*map(str, words), "--master", "local[1]"], check=True, cwd=ROOT)
    assert counts(out) == counts(local)
    assert tree_is_consistent(out, toy.LEVELS)
    assert totals_are_exact(out, "state")
    assert str(out / "confidential" / "report.html") in done.stdout
    manifest = json.loads((out / "release" / "manifest.json").read_text())
    assert manifest["environment"]["slots"] == 2


def test_a_driver_killed_while_solving_is_resumed(
    state: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had measured and solved stays as it was, and the rest is what it would have been."""
    out, log = state.folder / "killed", state.folder / "killed.log"
    words = ("run", state.config, "--out", out)
    driver = Submitted(state.cluster.start(state.archive, *words, log=log), log)
    release = release_layout(out)
    driver.wait_until(lambda: is_published(release.counts("county")), "counties are solved")
    driver.kill()
    assert not is_published(release.microdata / "csv")
    before = {path: path.read_bytes() for path in out.rglob(MANIFEST)}
    done = state.cluster.submit(state.archive, "resume", out)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "measure      4 of 4 done" in done.stdout
    assert {path: path.read_bytes() for path in before} == before
    in_process.patch_spark(monkeypatch)
    toy.write_records(tmp_path)
    assert counts(out) == counts(in_process.execute(toy.configuration(tmp_path)))
