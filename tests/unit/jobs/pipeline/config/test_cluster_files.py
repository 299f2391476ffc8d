"""Cluster files: each shipped one is valid, replaces the runtime, and changes nothing released."""

from __future__ import annotations

import pytest

from das.errors import ConfigError
from jobs.pipeline.config.load import load_run, on_cluster, read_cluster
from tests.checkout import ROOT

FILES = sorted((ROOT / "conf" / "cluster").glob("*.yaml"))
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def gigabytes(text: str) -> int:
    assert text.endswith("g")
    return int(text.removesuffix("g"))


def test_there_is_a_file_for_every_workload():
    names = [path.stem for path in FILES]
    assert names == ["laptop", "nation-cluster", "nation-machine", "small-cluster", "state"]


@each_file
def test_a_cluster_file_is_valid_and_complete(path):
    runtime = read_cluster(path)
    spark = runtime.spark
    if runtime.master is not None:
        assert runtime.master.startswith("local[")
        assert runtime.master.endswith(",4]")  # local masters give up at the first failure else
        assert spark == {}
        return
    instances, cores = int(spark["spark.executor.instances"]), int(spark["spark.executor.cores"])
    assert int(spark["spark.cores.max"]) == instances * cores
    # Tasks work in Python, outside of the heap.
    overhead = gigabytes(spark["spark.executor.memoryOverhead"])
    assert overhead >= 3 * cores
    assert overhead > gigabytes(spark["spark.executor.memory"])


@each_file
def test_the_runtime_is_replaced_and_the_release_is_the_same(path):
    run = load_run(ROOT / "conf" / "run" / "toy-units.yaml")
    placed = on_cluster(run, path)
    assert placed.config.runtime == read_cluster(path) != run.config.runtime
    assert placed.products is run.products
    assert placed.plan is run.plan
    assert placed.config.model_copy(update={"runtime": run.config.runtime}) == run.config


def test_no_file_changes_nothing():
    run = load_run(ROOT / "conf" / "run" / "toy.yaml")
    assert on_cluster(run, None, "local[1]") is run


def test_a_master_on_the_command_line_wins():
    run = load_run(ROOT / "conf" / "run" / "toy.yaml")
    assert on_cluster(run, FILES[0], "local[1]").config.runtime.master == "local[1]"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("runtime: {drivers: 2}", "runtime.drivers"),
        ("runtime: {batches_per_slot: 0}", "runtime.batches_per_slot"),
        ("privacy: {}", "runtime"),
        ("runtime: {}\nprivacy: {}", "privacy"),
        ("- a", "map of keys"),
    ],
)
def test_other_files_are_refused_by_name_and_key(tmp_path, text, said):
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=rf"cluster\.yaml.*{said}"):
        read_cluster(path)
