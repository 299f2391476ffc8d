"""Noise is drawn once, on a real cluster whose processes are killed and stopped while measuring."""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

from jobs.design.synthetic.generate import GenerateSpec, generate
from jobs.pipeline.config.load import load_run
from jobs.pipeline.run import do_stages, open_job
from jobs.pipeline.storage.columns import with_lists
from jobs.pipeline.storage.dataset import Dataset, is_published
from jobs.pipeline.tasks.progress import Reporter
from jobs.pipeline.tasks.session import spark_session
from tests.builders.places import release_of, truth_of
from tests.builders.run_files import to_products
from tests.pipeline.spark import faults
from tests.pipeline.spark.cluster import MANY_TASKS, ROOT, Cluster, build_zip, standalone_cluster

pytestmark = [pytest.mark.spark, pytest.mark.long]

LEVELS = {"nation": 0, "state": 2, "county": 5, "tract": 11, "block_group": 12, "block": 15}
SEEDED = {"source": "seeded_not_for_release", "seed": 5}
FRESH = {"source": "operating_system"}
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "3s",
    # Else Spark kills a superseded attempt after two seconds, and it could not finish late.
    "spark.python.task.killTimeout": "10min",
}


@dataclass(frozen=True)
class Stage:
    """Runs that have read the nation and measured nothing yet, and the cluster to go on with.

    Attributes:
      folder: Where runs lie.
      archive: The project as a zip.
      cluster: A master and two workers.
      undisturbed: Folder of a seeded run that was measured on local threads.
    """

    folder: Path
    archive: Path
    cluster: Cluster
    undisturbed: Path

    def start(self, name: str, config: Path, **conf: str) -> faults.Submitted:
        """Submit `das run RUN --only measure` of a run in the background."""
        log = self.folder / f"{name}.log"
        process = self.cluster.start(
            self.archive, "run", "--only", "measure", config, log=log, conf=conf
        )
        return faults.Submitted(process, log)


def configuration(folder: Path, name: str, randomness: dict[str, Any], **spark: str) -> Path:
    """Write NAME.yaml: the 2,016 cells, queries and budget of the 2020 redistricting data."""
    document = {
        "name": name,
        "schema": str(ROOT / "conf" / "schema" / "pl94.yaml"),
        "data": {"input_format": "histograms", "path": str(folder / "nation" / "histograms")},
        "geography": {
            "levels": [{"name": level, "digits": digits} for level, digits in LEVELS.items()],
            "geounits": {"path": str(folder / "nation" / "geounits.parquet")},
        },
        "privacy": {
            "rho": "293764/114921",
            "allocation": str(ROOT / "conf" / "allocation" / "pl94-2020-us.yaml"),
            "randomness": randomness,
        },
        "invariants": [{"query": "total", "geolevel": "state"}],
        "output": {"directory": str(folder / name)},
        "runtime": {"batches_per_slot": 16, "spark": spark},
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(to_products(document)))
    return path


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("faults")
    generate(GenerateSpec(blocks=2500, format="histograms"), folder / "nation")
    quiet = Reporter(quiet=True)
    with spark_session("faults", master="local[2]"):
        with open_job(load_run(configuration(folder, "fresh", FRESH)), quiet) as job:
            do_stages(job, ("plan", "read"))
        with open_job(load_run(configuration(folder, "undisturbed", SEEDED)), quiet) as job:
            do_stages(job, ("plan", "read"))
            shutil.copytree(job.out, folder / "disturbed")
            do_stages(job, ("resolve_constraints", "reserve_budget", "measure"))
    with standalone_cluster(folder) as cluster:
        yield Stage(folder, build_zip(folder, MANY_TASKS), cluster, folder / "undisturbed")


@dataclass(frozen=True)
class Disturbed:
    """A seeded run that went through three faults, and what was seen on the way.

    Attributes:
      out: Folder of the run.
      attempts: All attempts of all tasks.
      lost: Files that the two killed attempts were writing.
      printed: What the driver printed.
    """

    out: Path
    attempts: list[faults.Attempt]
    lost: set[str]
    printed: str


@pytest.fixture(scope="module")
def disturbed(stage: Stage) -> Disturbed:
    """A straggler at block groups; at blocks a killed Python worker, then a killed executor."""
    out, cluster = stage.folder / "disturbed", stage.cluster
    event_log = stage.folder / "events"
    event_log.mkdir()
    events = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": event_log.as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }
    config = configuration(stage.folder, "disturbed", SEEDED, **SPECULATION)
    driver = stage.start("disturbed", config, **events)
    tract, group, block = (
        release_of(out).measurements(level) for level in ("tract", "block_group", "block")
    )

    driver.wait_until(lambda: is_published(tract), "tracts are published")
    asleep = driver.wait_until(
        lambda: faults.stop_before_task(cluster, group), "a worker between two tasks"
    )
    driver.wait_until(lambda: is_published(group), "block groups are published without it")
    driver.wait_until(lambda: faults.parts_on_disk(block), "blocks are begun, groups swept")
    for process in asleep:
        process.send_signal(signal.SIGCONT)

    driver.wait_until(lambda: faults.under_way(block, 4), "some blocks are measured")
    killed = driver.wait_until(lambda: faults.stop_in_task(cluster, block), "a task at blocks")
    killed.worker.kill()
    begun = len(faults.parts_on_disk(block)) + 4
    driver.wait_until(lambda: faults.under_way(block, begun), "more blocks are measured")
    robbed = driver.wait_until(lambda: faults.stop_in_task(cluster, block), "a task at blocks")
    robbed.executor.kill()
    lost = {killed.part.name, robbed.part.name}
    assert not is_published(block)
    assert lost <= faults.parts_on_disk(block)

    assert driver.finish() == 0, driver.tail()
    return Disturbed(out, faults.attempts(event_log), lost, driver.log.read_text("utf-8"))


def readable(out: Path, level: str) -> pa.Table:
    """Rows (geocode, query, answers) as later stages would read them, in order."""
    dataset = release_of(out).measurements(level)
    table = with_lists(Dataset.open(dataset).read()).select(["geocode", "query", "answers"])
    query = table.schema.get_field_index("query")
    table = table.set_column(query, "query", table.column("query").cast(pa.string()))
    return table.sort_by([("geocode", "ascending"), ("query", "ascending")]).combine_chunks()


def answers(table: pa.Table) -> dict[tuple[str, str], list[int]]:
    """Answers by geocode and query."""
    columns = (table[name].to_pylist() for name in ("geocode", "query", "answers"))
    return {(code, query): values for code, query, values in zip(*columns, strict=True)}


def every_answer_is_readable_once(out: Path, config: Path) -> None:
    plan = load_run(config).plan
    for index, level in enumerate(LEVELS):
        dataset = release_of(out).geography(level)
        geounits = Dataset.open(dataset).read()
        measured = geounits.filter(pc.invert(geounits["only_child"]))["geocode"].to_pylist()
        queries = [entry.query.name for entry in plan.strategy.levels[index].queries]
        expected = sorted((code, query) for code in measured for query in queries)
        table = readable(out, level)
        found = zip(table["geocode"].to_pylist(), table["query"].to_pylist(), strict=True)
        assert list(found) == expected, level


def digests(folder: Path) -> dict[str, str]:
    return {p.name: sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}


def test_a_straggler_that_wakes_after_publication_finds_no_key_and_writes_nothing(
    disturbed: Disturbed,
) -> None:
    """Its copy did the work; that it failed is harmless."""
    groups = [a for a in disturbed.attempts if a.step == "measure block_group"]
    copied = {a.index for a in groups if a.speculative and a.ending == "Success"}
    assert copied & {a.index for a in groups if not a.speculative}  # it did wake, and ended
    dataset = release_of(disturbed.out).measurements("block_group")
    assert not faults.unnamed_files(dataset)
    assert not any((truth_of(disturbed.out).keys).iterdir())


def test_killed_python_worker_and_killed_executor_leave_nothing(disturbed: Disturbed) -> None:
    endings = {a.ending for a in disturbed.attempts if a.step == "measure block"}
    assert {"ExceptionFailure", "ExecutorLostFailure"} <= endings
    dataset = release_of(disturbed.out).measurements("block")
    assert len(disturbed.lost) == 2
    assert not disturbed.lost & faults.parts_on_disk(dataset)
    assert not faults.unnamed_files(dataset)


def test_a_lost_executor_is_said_and_nothing_else_of_sparks_own(disturbed: Disturbed) -> None:
    """Under spark-submit Java runs before this program; the documented line quiets it."""
    lines = re.findall(r"^.*\b(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\b.*$", disturbed.printed, re.M)
    assert any("ERROR TaskSchedulerImpl: Lost executor" in line for line in lines), lines
    assert [line for line in lines if " ERROR " not in line] == []
    assert "log4j" not in disturbed.printed


def test_disturbed_and_undisturbed_runs_measure_the_same(
    stage: Stage, disturbed: Disturbed
) -> None:
    every_answer_is_readable_once(disturbed.out, stage.folder / "disturbed.yaml")
    for level in LEVELS:
        assert readable(disturbed.out, level).equals(readable(stage.undisturbed, level)), level


def test_killed_driver_keeps_what_is_published_and_draws_the_rest_anew(stage: Stage) -> None:
    out, config = stage.folder / "fresh", stage.folder / "fresh.yaml"
    release = release_of(out)
    block = release.measurements("block")
    driver = stage.start("killed", config)
    driver.wait_until(lambda: faults.under_way(block, 8), "some blocks are measured")
    driver.wait_until(lambda: faults.stop_in_task(stage.cluster, block), "a task at blocks")
    driver.kill()
    assert not is_published(block)
    published = [level for level in LEVELS if level != "block"]
    before = {level: digests(release.measurements(level)) for level in published}
    first = stage.folder / "first-attempt"
    shutil.copytree(block, first)

    again = stage.start("again", config)
    assert again.finish() == 0, again.tail()
    assert {level: digests(release.measurements(level)) for level in published} == before
    every_answer_is_readable_once(out, config)
    assert not faults.unnamed_files(block)
    assert not faults.parts_on_disk(first) & faults.parts_on_disk(block)

    drawn = answers(detailed(readable(out, "block")))
    compared = 0
    for part in whole_parts(first):
        for name, before_the_kill in answers(detailed(part)).items():
            assert drawn[name] != before_the_kill, f"{name} was drawn under the same key"
            compared += 1
    assert compared > 100


def detailed(table: pa.Table) -> pa.Table:
    """Rows with the answers to all 2,016 cells, which two keys do not give twice."""
    return table.filter(pc.equal(table["query"].cast(pa.string()), "detailed"))


def whole_parts(dataset: Path) -> Iterator[pa.Table]:
    """Parts that were finished before the driver died; the others have no end."""
    for name in sorted(faults.parts_on_disk(dataset)):
        try:
            yield pq.read_table(dataset / name, partitioning=None)
        except pa.ArrowInvalid:
            continue
