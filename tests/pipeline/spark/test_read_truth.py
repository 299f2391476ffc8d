"""The truth of all geolevels: equals naive sums, resumes, and is read back in order."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from das.confidential import Confidential
from das.errors import GeographyError, InputError, OutputError
from das.schema import Schema
from geography.lattice import Lattice, Spine
from jobs.design.synthetic.generate import GenerateSpec, generate
from jobs.design.synthetic.schemas import schema_named
from jobs.pipeline.confidential.histograms import read_truth, write_truth
from jobs.pipeline.confidential.read.formats import read_geocodes, reader_of
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.models.data import HistogramsData
from jobs.pipeline.storage.dataset import Dataset, is_published, verify_files
from jobs.pipeline.storage.layout import ConfidentialLayout
from jobs.pipeline.tasks.batches import TaskSize
from jobs.pipeline.tasks.executor import SparkTasks
from tests.builders.places import truth_of
from tests.unit.jobs.pipeline.confidential.read.reading import ROOT, read

pytestmark = pytest.mark.spark

SPINE = Spine(("nation", "state", "county", "tract", "block_group", "block"), (0, 2, 5, 11, 12, 15))
SCHEMA = schema_named("block16")


@pytest.fixture(scope="module")
def nation(tmp_path_factory: pytest.TempPathFactory) -> HistogramsData:
    out = tmp_path_factory.mktemp("nation")
    spec = GenerateSpec(seed=3, blocks=700, states=2, schema="block16", format="histograms")
    generate(spec, out)
    return HistogramsData(input_format="histograms", path=out / "histograms")


def truth(data: HistogramsData, out: Path, tasks: SparkTasks) -> tuple[ConfidentialLayout, Lattice]:
    layout = truth_of(out)
    lattice = Lattice.from_leaves(
        SPINE, read_geocodes(reader_of(data, SCHEMA, SPINE.digits[-1]), tasks)
    )
    entries = reader_of(data, SCHEMA, SPINE.digits[-1])
    write_truth(entries, lattice, schema=SCHEMA, layout=layout, tasks=tasks)
    return layout, lattice


def truth_at(layout, geolevel, codes):
    """The truth of geounits, whose geocodes are bytes in a lattice and text in files."""
    dataset = Dataset.open(layout.histograms(geolevel))
    return read_truth(dataset, [str(code, "ascii") for code in codes], SCHEMA.size)


def as_counter(
    layout: ConfidentialLayout, lattice: Lattice, level: int
) -> Counter[tuple[str, int]]:
    name, codes = lattice.spine.levels[level], lattice.codes[level]
    found = truth_at(layout, name, codes).reveal()
    assert found.n_geounits == len(codes)
    return Counter(
        {
            (codes[owner].decode(), int(cell)): int(n)
            for owner, cell, n in zip(found.owners(), found.cells, found.counts, strict=True)
        }
    )


@pytest.mark.parametrize("sizes", [(20_000, 2_000, 50_000), (50, 20, 30)])
def test_every_geolevel_equals_naive_sums(
    tasks: SparkTasks,
    tmp_path: Path,
    nation: HistogramsData,
    sizes: tuple[int, int, int],
) -> None:
    leaves, children = TaskSize(1, sizes[0]), TaskSize(*sizes[1:])
    sizing = replace(tasks.sizing, merge_leaves=leaves, truth_children=children)
    layout, lattice = truth(nation, tmp_path, SparkTasks(tasks.session, sizing))
    leaves = read(nation, SCHEMA, 15)
    for level, digits in enumerate(SPINE.digits):
        naive: Counter[tuple[str, int]] = Counter()
        for (code, cell), n in leaves.items():
            naive[code[:digits] or "0", cell] += n
        assert as_counter(layout, lattice, level) == naive
        dataset = layout.histograms(SPINE.levels[level])
        verify_files(dataset)
        histograms = Dataset.open(dataset)
        assert histograms.facts["n_cells"] == SCHEMA.size
        assert histograms.rows == len({code for code, _ in naive})
        assert all(a.high < b.low for a, b in pairwise(histograms.parts))
    assert len(Dataset.open(layout.histograms("block")).parts) > (1 if sizes[0] == 50 else 0)


def test_reads_some_geounits_in_order_empty_ones_included(
    tasks: SparkTasks, tmp_path: Path, nation: HistogramsData
) -> None:
    layout, lattice = truth(nation, tmp_path, tasks)
    codes = lattice.codes[-1]
    everything = truth_at(layout, "block", codes).reveal().dense()
    assert (everything.sum(1) == 0).any()
    some = np.arange(17, 400, 3)
    found = truth_at(layout, "block", codes[some])
    assert isinstance(found, Confidential)
    assert np.array_equal(found.reveal().dense(), everything[some])
    none = truth_at(layout, "block", []).reveal()
    assert none.n_geounits == 0
    empty = codes[everything.sum(1) == 0][:2]
    assert len(truth_at(layout, "block", empty).reveal().cells) == 0
    with pytest.raises(GeographyError, match="not sorted"):
        truth_at(layout, "block", codes[::-1])


def test_nation_without_persons(tasks: SparkTasks, tmp_path: Path) -> None:
    lists = pa.array([[], []], pa.list_(pa.int64()))
    codes = ["010010001001000", "010010001001001"]
    path = tmp_path / "none.parquet"
    pq.write_table(pa.table({"geocode": codes, "cells": lists, "counts": lists}), path)
    data = HistogramsData(input_format="histograms", path=path)
    layout, lattice = truth(data, tmp_path / "out", tasks)
    for level in range(6):
        assert as_counter(layout, lattice, level) == Counter()


def test_resumes_at_the_first_missing_geolevel(
    tasks: SparkTasks, tmp_path: Path, nation: HistogramsData
) -> None:
    layout, lattice = truth(nation, tmp_path, tasks)
    before = [as_counter(layout, lattice, level) for level in range(6)]
    stamps = {p: p.stat().st_mtime_ns for p in layout.histograms("tract").iterdir()}
    shutil.rmtree(layout.histograms("county"))
    (layout.histograms("nation") / "_manifest.json").unlink()
    assert not is_published(layout.histograms("nation"))
    with pytest.raises(OutputError, match="is not complete"):
        truth_at(layout, "county", lattice.codes[2])
    truth(nation, tmp_path, tasks)
    assert [as_counter(layout, lattice, level) for level in range(6)] == before
    assert {p: p.stat().st_mtime_ns for p in layout.histograms("tract").iterdir()} == stamps


def test_refuses_persons_outside_the_lattice(
    tasks: SparkTasks, tmp_path: Path, nation: HistogramsData
) -> None:
    codes = read_geocodes(reader_of(nation, SCHEMA, SPINE.digits[-1]), tasks)
    live = sorted({code for code, _ in read(nation, SCHEMA, 15)})
    lattice = Lattice.from_leaves(SPINE, codes[codes != live[5].encode()])
    entries = reader_of(nation, SCHEMA, SPINE.digits[-1])
    layout = truth_of(tmp_path)
    with pytest.raises(InputError, match=r"row \d+: geocode is not in the list") as caught:
        write_truth(entries, lattice, schema=SCHEMA, layout=layout, tasks=tasks)
    assert live[5] not in str(caught.value)
    assert not is_published(layout.histograms("block"))


def test_error_in_the_data_leaves_nothing_published(
    tasks: SparkTasks, tmp_path: Path, nation: HistogramsData
) -> None:
    lattice = Lattice.from_leaves(
        SPINE, read_geocodes(reader_of(nation, SCHEMA, SPINE.digits[-1]), tasks)
    )
    small = Schema("small", SCHEMA.attributes[:1])
    entries = reader_of(nation, small, SPINE.digits[-1])
    layout = truth_of(tmp_path)
    with pytest.raises(InputError, match=r"part-00000.parquet, row \d+, columns cells"):
        write_truth(entries, lattice, schema=small, layout=layout, tasks=tasks)
    assert not is_published(layout.histograms("block"))


def test_rhode_island(tasks: SparkTasks, tmp_path: Path) -> None:
    resolved = load_run(ROOT / "conf" / "run" / "ri-2010.yaml")
    data, spine = resolved.last.config.data, resolved.plan.spine
    lattice = Lattice.from_leaves(
        spine, read_geocodes(reader_of(data, SCHEMA, spine.digits[-1]), tasks)
    )
    assert list(lattice.sizes().values()) == [1, 5, 41, 139, 4_714]
    entries = reader_of(data, SCHEMA, spine.digits[-1])
    layout = truth_of(tmp_path)
    write_truth(entries, lattice, schema=SCHEMA, layout=layout, tasks=tasks)
    for level, codes in zip(spine.levels, lattice.codes, strict=True):
        totals = truth_at(layout, level, codes).reveal().totals()
        assert totals.sum() == 171_111
