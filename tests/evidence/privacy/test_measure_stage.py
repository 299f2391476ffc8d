"""The measuring stage: every query of every measured geounit has noise, drawn once, under its key.

Tasks run in this process, one after the other; nothing else of the stage is replaced.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from das.errors import ConfigError, OutputError
from das.mechanisms.entropy import NoiseKey
from geography.lattice import Lattice
from jobs.pipeline.confidential import measure as measuring
from jobs.pipeline.confidential.measure import MeasureStage, MeasureTask
from jobs.pipeline.config.load import load_run
from jobs.pipeline.storage.geography import write_geography
from jobs.pipeline.storage.histograms import sparse_table
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.executor import LocalTasks
from tests.builders import in_process, toy
from tests.builders.datasets import publish_tables, rows_of
from tests.builders.histograms import from_dense
from tests.builders.places import release_of, truth_of

PERSONS = 1000  # in every cell of every geounit
RHO = f"1/{10**18}"  # so little that no answer comes out exact by chance


@pytest.fixture
def keys(monkeypatch) -> list[NoiseKey]:
    """Keys that tasks were given, in order."""
    given = []

    def remember(*arguments) -> MeasureTask:
        task = MeasureTask(*arguments)
        given.append(task.key.key())
        return task

    monkeypatch.setattr(measuring, "MeasureTask", remember)
    return given


@pytest.fixture
def stage(tmp_path: Path, keys: list[NoiseKey]) -> MeasureStage:
    return stage_of(PERSONS, tmp_path)


def stage_of(persons: int, tmp_path: Path) -> MeasureStage:
    """The stage over geounits that all have this many persons in every cell."""
    plan = load_run(toy.configuration(tmp_path, privacy__rho=RHO)).plan
    release, truth = release_of(tmp_path), truth_of(tmp_path)
    lattice = Lattice.from_leaves(plan.spine, toy.blocks())
    write_geography(lattice, release)
    for level, name in enumerate(plan.spine.levels):
        codes = sorted({code[: plan.spine.digits[level]] for code in toy.blocks()})
        counts = np.full((len(codes), plan.schema.size), persons)
        publish_tables(truth.histograms(name), [sparse_table(codes, from_dense(counts))])
    return MeasureStage(plan, release, truth, LocalTasks(Sizing(4)))


KEY = NoiseKey.for_testing(8)


def rows(stage: MeasureStage, level: int) -> list[dict]:
    return rows_of(stage.release.measurements(stage.plan.spine.levels[level]))


def geounits(stage: MeasureStage, geolevel: str) -> list[dict]:
    return pq.read_table(stage.release.geography(geolevel), partitioning=None).to_pylist()


def test_every_geolevel_and_every_start_has_a_key_of_its_own(tmp_path, monkeypatch):
    """Also a geolevel that is drawn again because the driver died before it was published."""
    draw, given = MeasureStage.draw, []

    def dies_once(self: MeasureStage, index: int, key: NoiseKey, **named: bool) -> object:
        given.append(key)
        if len(given) == 2:
            raise KeyboardInterrupt
        return draw(self, index, key, **named)

    monkeypatch.setattr(MeasureStage, "draw", dies_once)
    toy.write_records(tmp_path)
    config = toy.configuration(tmp_path, privacy__randomness={"source": "operating_system"})
    with pytest.raises(KeyboardInterrupt):
        in_process.execute(load_run(config))
    in_process.execute(load_run(config))
    assert len(given) == len({key.secret for key in given}) == 5
    assert not any(key.is_for_testing for key in given)


def test_a_published_geolevel_is_never_measured_again(stage, keys):
    stage.measure(0, KEY)
    before = rows(stage, 0)
    stage.measure(0, KEY)
    assert len(keys) == 1
    assert rows(stage, 0) == before


def test_every_query_of_every_measured_geounit_is_published_with_noise(stage):
    """Only children are not measured."""
    for level, geolevel in enumerate(stage.plan.spine.levels):
        stage.measure(level, KEY)
        found = rows(stage, level)
        geography = geounits(stage, geolevel)
        wanted = {row["geocode"] for row in geography if not row["only_child"]}
        assert {row["geocode"] for row in found} == wanted
        queries = [entry.query for entry in stage.plan.strategy.levels[level].queries]
        assert len(found) == len(wanted) * len(queries)
        for query in queries:
            exact = PERSONS * stage.plan.schema.size // query.size
            answers = np.array([row["answers"] for row in found if row["query"] == query.name])
            assert answers.shape == (len(wanted), query.size)
            assert (answers != exact).all()


def test_noise_is_the_same_whatever_the_truth_is(stage, tmp_path):
    """Empty geounits have the noise that full ones have, under the same key."""
    (tmp_path / "empty").mkdir()
    empty, key = stage_of(0, tmp_path / "empty"), NoiseKey.for_testing(3)
    for level in range(len(stage.plan.spine.levels)):
        stage.measure(level, key)
        empty.measure(level, key)
        sizes = {q.query.name: q.query.size for q in stage.plan.strategy.levels[level].queries}
        for full, none in zip(rows(stage, level), rows(empty, level), strict=True):
            exact = PERSONS * stage.plan.schema.size // sizes[full["query"]]
            assert [answer - exact for answer in full["answers"]] == none["answers"]


def test_the_published_law_is_the_one_that_was_paid_for(stage):
    """Each row names the mechanism of its chain of only children."""
    plan = stage.plan
    for level, geolevel in enumerate(plan.spine.levels):
        stage.measure(level, KEY)
        ends = {row["geocode"]: row["chain_end"] for row in geounits(stage, geolevel)}
        for row in rows(stage, level):
            last = plan.spine.levels.index(ends[row["geocode"]])
            laws = {one.query.name: one.mechanism for one in plan.noise(level, last)}
            law = laws[row["query"]]
            assert (row["mechanism"], row["parameter"]) == (law.kind, str(law.parameter))


def test_a_key_that_can_be_guessed_is_refused_where_a_release_is_planned(stage, tmp_path):
    """Only a plan that is marked as not for release may have one."""
    document = yaml.safe_load((tmp_path / "run.yaml").read_text())
    del document["privacy"]["randomness"]
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(document))
    real = replace(stage, plan=load_run(tmp_path / "run.yaml").plan)
    assert not real.plan.not_for_release
    with pytest.raises(ConfigError, match="can be reproduced by anyone"):
        real.measure(0, NoiseKey.for_testing(5))
    assert not stage.release.measurements("state").exists()
    stage.measure(0, NoiseKey.for_testing(5))


def test_after_a_geolevel_its_key_cannot_be_put_together(stage, monkeypatch):
    tasks = []
    remembered = measuring.MeasureTask

    def remember(*arguments) -> MeasureTask:
        tasks.append(remembered(*arguments))
        return tasks[-1]

    monkeypatch.setattr(measuring, "MeasureTask", remember)
    stage.measure(0, KEY)
    with pytest.raises(OutputError, match="is gone"):
        tasks[0].key.key()
    assert not any(stage.confidential.keys.iterdir())
