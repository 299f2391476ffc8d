"""A measuring task may run again: the same key gives the same file, a new key other noise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from das.errors import ConfigError, OutputError, SpentError
from das.mechanisms.entropy import NoiseKey
from geography.lattice import Lattice
from jobs.pipeline.confidential.measure import MeasureTask, measure_batch
from jobs.pipeline.confidential.noise_key import lent
from jobs.pipeline.config.load import load_run
from jobs.pipeline.storage.dataset import PartFile
from jobs.pipeline.storage.geography import write_geography
from jobs.pipeline.storage.histograms import SPARSE_SCHEMA
from jobs.pipeline.tasks.batches import Batch
from tests.builders import toy
from tests.builders.datasets import publish_tables
from tests.builders.places import release_of, truth_of

CODES = [code for code in toy.blocks() if code[2:5] == "001"]
FIRST = sorted(toy.blocks()).index(CODES[0])
BATCH = Batch(3, CODES[0], CODES[-1], len(CODES), FIRST)


@pytest.fixture
def task(tmp_path: Path) -> Iterator[MeasureTask]:
    plan = load_run(toy.configuration(tmp_path)).plan
    release, truth = release_of(tmp_path), truth_of(tmp_path)
    write_geography(Lattice.from_leaves(plan.spine, toy.blocks()), release)
    rows = {"geocode": CODES[:1], "cells": [[0, 4]], "counts": [[7, 2]]}
    publish_tables(truth.histograms("block"), [pa.table(rows, schema=SPARSE_SCHEMA)])
    with lent(NoiseKey.draw(), truth.keys) as key:
        yield MeasureTask(plan, plan.level("block"), release, truth, key)


def answers(task: MeasureTask, part: PartFile) -> dict[tuple[str, str], list[int]]:
    dataset = task.release.measurements(task.level.name)
    rows = pq.read_table(dataset / part.file, partitioning=None).to_pylist()
    return {(row["geocode"], row["query"]): row["answers"] for row in rows}


def test_two_attempts_write_the_same_bytes_under_two_names(task: MeasureTask) -> None:
    first, second = measure_batch(BATCH, task), measure_batch(BATCH, task)
    assert first.file != second.file
    assert first.sha256 == second.sha256
    assert len(answers(task, first)) == first.rows > 0


def test_noise_does_not_depend_on_the_range_of_the_task(task: MeasureTask) -> None:
    whole = answers(task, measure_batch(BATCH, task))
    low = measure_batch(replace(BATCH, high=CODES[3]), task)
    high = measure_batch(replace(BATCH, low=CODES[4], first=FIRST + 4), task)
    assert answers(task, low) | answers(task, high) == whole


def test_a_new_key_draws_other_noise(task: MeasureTask) -> None:
    first = answers(task, measure_batch(BATCH, task))
    with lent(NoiseKey.draw(), task.confidential.keys) as other:
        second = answers(task, measure_batch(BATCH, replace(task, key=other)))
    assert first.keys() == second.keys()
    same = [first[name][i] == second[name][i] for name in first for i in range(len(first[name]))]
    assert sum(same) < 0.8 * len(same)


def test_a_range_that_nobody_counted_is_not_measured(task: MeasureTask) -> None:
    """Its noise would be that of the first geounits of the geolevel."""
    with pytest.raises(ConfigError, match="have no numbers"):
        measure_batch(replace(BATCH, first=None), task)


def test_an_error_after_a_draw_spends_the_part_and_shows_no_value(
    task: MeasureTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(codes: list[str], name: str, laws: object, answers: object) -> None:
        raise ValueError(f"bad answers {answers}")

    monkeypatch.setattr("jobs.pipeline.confidential.measure.measurement_table", fails)
    with pytest.raises(SpentError, match="failed after noise was drawn") as caught:
        measure_batch(BATCH, task)
    assert "bad answers" not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


@pytest.mark.parametrize("error", [OSError("disk"), MemoryError(), OutputError("x", "is full")])
def test_what_the_machine_does_wrong_spends_nothing(
    task: MeasureTask, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr("jobs.pipeline.confidential.measure.measurement_table", fails)
    with pytest.raises((RuntimeError, OutputError)):
        measure_batch(BATCH, task)
