"""The same release on a real cluster as on local threads, shipped as a zip."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e import toy
from tests.release_checks import sparse, totals_are_exact, tree_is_consistent
from tests.spark.cluster import ROOT, build_zip, standalone_cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_cluster_and_local_threads_release_the_same(tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    config = toy.configuration(tmp_path, runtime={})
    archive = build_zip(tmp_path)
    with standalone_cluster(tmp_path) as cluster:
        done = cluster.submit(archive, "run", config, "--out", tmp_path / "cluster")
        assert done.returncode == 0, done.stderr[-3000:]
        refused = cluster.submit(
            archive, "run", config, "--out", tmp_path / "records.csv" / "below"
        )
    assert refused.returncode == 2
    assert "cannot be created" in refused.stdout  # spark-submit merges the two streams
    local = [sys.executable, "-m", "jobs", "run", config, "--out", tmp_path / "local"]
    subprocess.run([*map(str, local), "--master", "local[1]"], check=True, cwd=ROOT)
    for level in toy.LEVELS:
        name = Path("release") / "counts" / f"level={level}"
        assert sparse(tmp_path / "cluster" / name) == sparse(tmp_path / "local" / name)
    assert tree_is_consistent(tmp_path / "cluster", toy.LEVELS)
    assert totals_are_exact(tmp_path / "cluster", "state")
    assert str(tmp_path / "cluster" / "confidential" / "report.html") in done.stdout
    manifest = json.loads((tmp_path / "cluster" / "release" / "manifest.json").read_text())
    assert manifest["environment"]["slots"] == 2
