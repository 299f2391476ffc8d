"""The evaluation of a release on disk equals the comparison of the same arrays in memory."""

from __future__ import annotations

import json
import shutil
import stat
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from das.errors import OutputError
from das.metrics.accuracy import merge, summarize_query
from das.metrics.statistics import describe
from das.queries.query import parse_query
from das.schema import Attribute, Schema
from das.strategy import LevelStrategy, QueryShare, Strategy
from geography.lattice import Spine
from invariants.exact import Invariant
from jobs.pipeline.confidential import evaluate as module
from jobs.pipeline.confidential.evaluate import Slice, compare, evaluate, evaluated_queries
from jobs.pipeline.config.models.products import EvaluateConfig
from jobs.pipeline.config.product import grouping
from jobs.pipeline.documents.document import json_of, write_document
from jobs.pipeline.storage.histograms import sparse_table
from jobs.pipeline.tasks.batches import Sizing, TaskSize
from jobs.pipeline.tasks.executor import LocalTasks
from tests.builders.datasets import publish_tables
from tests.builders.histograms import from_dense
from tests.builders.places import release_of, truth_of
from tests.unit.jobs.pipeline.report.report_samples import budget_row, manifest, manifest_document

SCHEMA = Schema("toy", (Attribute("sex", ("f", "m")), Attribute("age", ("0", "1", "2"))))
SPINE = Spine(("state", "block"), (1, 3))
BLOCKS = [f"4{index:02d}" for index in range(11)]


@dataclass(frozen=True)
class Toy:
    schema: Schema
    spine: Spine
    strategy: Strategy
    invariants: tuple[Invariant, ...]

    @property
    def geolevels(self) -> tuple[str, ...]:
        return self.spine.levels


def level(name, *queries):
    shares = [QueryShare(parse_query(SCHEMA, q), Fraction(1, len(queries))) for q in queries]
    return LevelStrategy(name, Fraction(1, 2), tuple(shares))


DESIGN = Toy(
    SCHEMA,
    SPINE,
    Strategy((level("state", "total", "sex", "detailed"), level("block", "detailed"))),
    (Invariant.build(SCHEMA, SPINE.levels, "age", "state"),),
)


def counts(seed: int) -> dict[str, np.ndarray]:
    pattern = (np.arange(len(BLOCKS) * 6).reshape(-1, 6) * (seed + 3)) % 7
    leaf = np.where(pattern > 3, pattern - 3, 0) * (np.arange(len(BLOCKS)) % 4 > 0)[:, None]
    return {"state": leaf.sum(0, keepdims=True), "block": leaf}


CODES = {"state": ["4"], "block": BLOCKS}
TRUTH, RELEASED = counts(0), counts(1)


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    release, confidential = release_of(tmp_path), truth_of(tmp_path)
    for name, codes in CODES.items():
        geography = pa.table({"geocode": codes})
        publish_tables(release.geography(name), [geography.slice(0, 5), geography.slice(5)])
        for dataset, held in (
            (release.counts(name), RELEASED),
            (confidential.histograms(name), TRUTH),
        ):
            publish_tables(dataset, [sparse_table(codes, from_dense(held[name]))])
    return tmp_path


def expected(name: str, query: str) -> dict[str, object]:
    histograms = [from_dense(held[name]) for held in (TRUTH, RELEASED)]
    return describe(summarize_query(parse_query(SCHEMA, query), CODES[name], *histograms))


SIZING = Sizing(2)


def run_here(folder: Path, sizing: Sizing = SIZING) -> dict[str, object]:
    """Evaluate without Spark: every task at once, in order."""
    tasks = LocalTasks(sizing, slots=2)
    return json_of(evaluate(release_of(folder), truth_of(folder), DESIGN, tasks))


def check(document: dict[str, object]) -> None:
    assert [(r["geolevel"], r["query"]) for r in document["results"]] == [
        (name, query) for name in SPINE.levels for query in ("total", "sex", "age", "detailed")
    ]
    for result in document["results"]:
        for key, value in expected(result["geolevel"], result["query"]).items():
            assert result[key] == value, (result["geolevel"], result["query"], key)


def names(queries):
    return tuple(query.name for query in queries)


def test_evaluated_are_measured_exact_single_total_detailed_and_asked_queries():
    assert names(evaluated_queries(DESIGN)) == ("total", "sex", "age", "detailed")
    assert names(
        evaluated_queries(DESIGN, [parse_query(SCHEMA, text) for text in ("age * sex", "age")])
    ) == (
        "total",
        "sex",
        "age",
        "detailed",
    )
    wide = replace(DESIGN, invariants=())
    assert names(evaluated_queries(wide)) == ("total", "sex", "age", "detailed")


def test_results_equal_those_in_memory(folder):
    document = run_here(folder)
    check(document)
    measured = {(r["geolevel"], r["query"]) for r in document["results"] if r["measured"]}
    assert measured == {("state", "total"), ("state", "sex")} | {
        (n, "detailed") for n in SPINE.levels
    }
    assert all(r["expected_rmse"] is None for r in document["results"])


@pytest.mark.parametrize(("batch", "rows"), [(1, 1), (2, 3), (3, 100)])
def test_the_cut_into_slices_and_batches_changes_nothing(folder, monkeypatch, batch, rows):
    monkeypatch.setattr(module, "BATCH", batch)
    check(run_here(folder, replace(SIZING, evaluate_geounits=TaskSize(rows, rows))))


def test_noise_comes_from_the_manifest(folder):
    row = {
        **budget_row("nation", "sex"),
        "geolevel": "state",
        "chain_end": "state",
        "variance": 6.25,
    }
    described = manifest_document()["geography"][0]
    geography = [{**described, "geolevel": name} for name in SPINE.levels]
    finalized = manifest(budget=[row], geography=geography)
    write_document(release_of(folder).manifest, finalized)
    document = run_here(folder)
    noise = {(r["geolevel"], r["query"]): r["expected_rmse"] for r in document["results"]}
    assert noise.pop(("state", "sex")) == 2.5
    assert set(noise.values()) == {None}


def test_the_evaluation_is_written_whole_and_for_its_owner_only(folder):
    path = truth_of(folder).evaluation
    path.write_text("old")
    document = run_here(folder)
    assert json.loads(path.read_text()) == document
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in path.parent.iterdir() if p.is_file()] == ["evaluation.json"]


def test_a_level_that_was_not_solved_is_named(folder):
    (release_of(folder).counts("block") / "_manifest.json").unlink()
    with pytest.raises(OutputError, match="counts/level=block: is not complete"):
        run_here(folder)


@pytest.mark.parametrize(("start", "stop"), [(0, 11), (2, 3), (3, 9), (10, 11)])
def test_only_the_rows_of_the_slice_are_compared(folder, start, stop):
    piece = Slice(
        release_of(folder),
        truth_of(folder),
        (parse_query(SCHEMA, "detailed"),),
        "block",
        BLOCKS[start],
        BLOCKS[stop - 1],
        stop - start,
    )
    histograms = [from_dense(h["block"]).slice(start, stop) for h in (TRUTH, RELEASED)]
    query = parse_query(SCHEMA, "detailed")
    ((found,), _) = compare(piece)
    alone = summarize_query(query, BLOCKS[start:stop], *histograms)
    assert describe(found) == describe(alone)
    assert describe(merge(found, alone))["answers"] == 2 * 6 * (stop - start)


GROUPING = grouping(
    EvaluateConfig(groups=["sex", "age"]), SCHEMA, SPINE.levels, [parse_query(SCHEMA, "age")]
)


def by_group(folder: Path, rows: int = 100) -> list[dict[str, object]]:
    tasks = LocalTasks(replace(SIZING, evaluate_geounits=TaskSize(rows, rows)), slots=2)
    layouts = release_of(folder), truth_of(folder)
    return json_of(evaluate(*layouts, DESIGN, tasks, grouping=GROUPING))["parity"]


@pytest.mark.parametrize(("batch", "rows"), [(1, 1), (2, 3), (3, 100)])
def test_the_cut_into_slices_and_batches_changes_no_group(folder, monkeypatch, batch, rows):
    whole = by_group(folder)
    assert [(r["geolevel"], r["groups"], r["table"]) for r in whole] == [
        (name, *pair)
        for name in SPINE.levels
        for pair in (("sex", "total"), ("sex", "age"), ("age", "total"))
    ]
    monkeypatch.setattr(module, "BATCH", batch)
    assert by_group(folder, rows) == whole


KINDS = [0, 0, 0, 1, 0, 2, 2, 1, 1, 0, 1]  # of the blocks; backwards they are others


@pytest.mark.parametrize(("batch", "rows"), [(1, 1), (2, 3), (3, 100), (100, 100)])
def test_types_of_geounits_stay_with_them_however_files_and_work_are_cut(
    folder, monkeypatch, batch, rows
):
    labels = ("city", "land", "sea")
    lines = [f"{code},{labels[kind]}" for code, kind in zip(BLOCKS, KINDS, strict=True)]
    (folder / "types.csv").write_text("\n".join(["geocode,type", *lines[7:], *lines[:7]]) + "\n")
    areas = {"block": {"path": folder / "types.csv"}}
    config = EvaluateConfig.model_validate({"groups": ["sex"], "areas": areas})
    asked = grouping(config, SCHEMA, SPINE.levels, [parse_query(SCHEMA, "age")])
    monkeypatch.setattr(module, "BATCH", batch)
    tasks = LocalTasks(replace(SIZING, evaluate_geounits=TaskSize(rows, rows)), slots=2)
    layouts = release_of(folder), truth_of(folder)
    document = json_of(evaluate(*layouts, DESIGN, tasks, grouping=asked))
    found = {row["table"]: row["by_group"] for row in document["parity"] if row["kind"] == "areas"}
    kinds = np.array(KINDS)
    for table in ("total", "age"):
        for kind, group in enumerate(found[table]):
            truth, released = (
                parse_query(SCHEMA, table).answer(from_dense(held["block"][kinds == kind]))
                for held in (TRUTH, RELEASED)
            )
            assert group["group"] == labels[kind]
            assert (group["persons"], group["released"]) == (truth.sum(), released.sum())
            assert group["l1"] == np.abs(released - truth).sum()
            assert group["answers"] == truth.size


def test_what_an_invariant_publishes_in_groups_is_called_exact(folder):
    found = {(r["geolevel"], r["groups"], r["table"]): r.get("exact") for r in by_group(folder)}
    assert [key for key, is_exact in found.items() if is_exact] == [("state", "age", "total")]


def test_a_group_that_was_harmed_is_found(folder):
    """The release is the truth, but that every second man of the last age is left out."""
    for name, codes in CODES.items():
        harmed = TRUTH[name].copy()
        harmed[:, 5] -= harmed[:, 5] // 2
        path = release_of(folder).counts(name)
        shutil.rmtree(path)
        publish_tables(path, [sparse_table(codes, from_dense(harmed))])
    for row in by_group(folder):
        worst = {"sex": "m", "age": "2"}[row["groups"]]
        assert row["worst"] == worst
        for group in row["by_group"]:
            assert (group["l1"] > 0) == (group["group"] == worst)
            assert (group["bias"] < 0) == (group["group"] == worst)
            if group["group"] == worst:
                assert group["to_everybody"] > 1
