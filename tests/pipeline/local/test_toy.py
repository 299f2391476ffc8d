"""The whole pipeline on a toy state, in this process, and all that may befall it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from das.errors import DasError, InputError, OutputError, VerificationError
from jobs.pipeline.config.load import load_run
from jobs.pipeline.folder.progress import repair
from jobs.pipeline.release.verify import verify_release
from jobs.pipeline.run import run
from jobs.pipeline.storage.dataset import is_published
from jobs.pipeline.storage.histograms import SPARSE_SCHEMA
from jobs.pipeline.tasks.progress import Reporter
from tests.builders import toy
from tests.builders.in_process import execute, tasks_of
from tests.builders.places import release_of
from tests.release_checks import (
    geography,
    microdata_rows,
    output_equals_input,
    sparse,
    totals_are_exact,
    tree_is_consistent,
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of the toy state with all reports."""
    folder = tmp_path_factory.mktemp("toy")
    toy.write_records(folder)
    resolved = load_run(toy.configuration(folder, runtime__batches_per_slot=4))
    run(resolved, Reporter(quiet=True), tasks=tasks_of(resolved.config))
    return resolved.config.output.directory


def test_children_sum_to_their_parents(finished: Path) -> None:
    assert tree_is_consistent(finished, toy.LEVELS)


def test_state_total_is_exact(finished: Path) -> None:
    assert totals_are_exact(finished, "state")


def test_microdata_agrees_with_the_block_counts(finished: Path) -> None:
    expected: Counter[tuple[str, ...]] = Counter()
    for code, cells in sparse(release_of(finished).counts("block")).items():
        for cell, n in cells.items():
            expected[code, toy.SEX[cell // 3], toy.AGE[cell % 3]] += n
    assert microdata_rows(finished) == expected
    assert sum(expected.values()) > 0


def test_only_children_are_not_measured(finished: Path) -> None:
    measured = json.loads(
        (release_of(finished).measurements("tract") / "_manifest.json").read_text()
    )
    geography = json.loads(
        (finished / "release" / "geography" / "level=tract" / "_manifest.json").read_text()
    )
    rows = sum(f["rows"] for f in measured["files"])
    assert rows == 3 * (sum(f["rows"] for f in geography["files"]) - 1)


def test_noise_was_added(finished: Path) -> None:
    assert not output_equals_input(finished, "block")


def test_seeded_noise_marks_every_output(finished: Path) -> None:
    assert (finished / "release" / "NOT_FOR_RELEASE.txt").exists()
    assert json.loads((release_of(finished).manifest).read_text())["not_for_release"]
    for report in (
        "release/products/persons/report.html",
        "confidential/products/persons/report.html",
    ):
        assert "NOT FOR RELEASE" in (finished / report).read_text()
    for path in (finished / "release").rglob("_manifest.json"):
        if "geography" not in str(path) and "invariants" not in str(path):
            assert json.loads(path.read_text())["facts"]["not_for_release"] is True


def test_complete_run_is_not_repeated(finished: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in finished.rglob("*.parquet")}
    execute(finished.parent / "run.yaml")
    assert {p: p.stat().st_mtime_ns for p in finished.rglob("*.parquet")} == before


def test_half_written_stage_is_made_again(tmp_path: Path, finished: Path) -> None:
    toy.write_records(tmp_path)
    config = toy.configuration(tmp_path)
    out = execute(config)
    counts = release_of(out).counts("block")
    whole = sparse(counts)
    (counts / "_manifest.json").unlink()
    next(counts.glob("part-*")).write_bytes(b"half of a file")
    with pytest.raises(OutputError, match=r"level=block: is missing; `das run`"):
        execute(config)
    repair(load_run(config))
    execute(config)
    assert sparse(counts) == whole
    assert len(list(counts.glob("part-*"))) == len(
        json.loads((counts / "_manifest.json").read_text())["files"]
    )


def test_verify_accepts_a_release_and_finds_each_kind_of_damage(
    tmp_path: Path, finished: Path
) -> None:
    plan = load_run(finished.parent / "run.yaml").plan
    checked = verify_release(plan, release_of(finished))
    assert checked["families"] == 1 + 3 + 6
    assert checked["exact_answers"] == 1
    damaged = tmp_path / "damaged"
    shutil.copytree(finished, damaged)
    release = release_of(damaged)
    part = next(release.counts("block").glob("part-*"))
    whole = part.read_bytes()
    part.write_bytes(whole[:-1] + b"!")
    with pytest.raises(OutputError, match=part.name):
        verify_release(plan, release)
    part.unlink()
    with pytest.raises(OutputError, match="is missing"):
        verify_release(plan, release)
    forge(release.counts("block"))
    with pytest.raises(VerificationError, match="is not the one the manifest"):
        verify_release(plan, release)
    manifest = json.loads(release.manifest.read_text())
    for output in manifest["outputs"]:
        path = release.root / output["path"] / "_manifest.json"
        output["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    release.manifest.write_text(json.dumps(manifest))
    with pytest.raises(VerificationError, match="geounits of block do not sum to it"):
        verify_release(plan, release)


def forge(dataset: Path) -> None:
    """Replace all counts by one person, with a manifest that fits."""
    manifest = json.loads((dataset / "_manifest.json").read_text())
    rows = [{"geocode": "9900100000", "cells": [0], "counts": [1]}]
    table = pa.Table.from_pylist(rows, schema=SPARSE_SCHEMA)
    first = manifest["files"][0]
    pq.write_table(table, dataset / first["file"])
    first |= {"rows": 1, "low": "9900100000", "high": "9900100000"}
    first["sha256"] = hashlib.sha256((dataset / first["file"]).read_bytes()).hexdigest()
    for other in manifest["files"][1:]:
        (dataset / other["file"]).unlink(missing_ok=True)
    manifest["files"] = [first]
    (dataset / "_manifest.json").write_text(json.dumps(manifest))


def test_same_seed_same_release_fresh_keys_otherwise(tmp_path: Path, finished: Path) -> None:
    toy.write_records(tmp_path)
    again = execute(toy.configuration(tmp_path))
    expected = sparse(release_of(finished).counts("block"))
    assert sparse(release_of(again).counts("block")) == expected
    system = toy.configuration(
        tmp_path,
        privacy__randomness={"source": "operating_system"},
        output__directory=str(tmp_path / "system"),
    )
    released = execute(system)
    assert sparse(release_of(released).counts("block")) != expected
    assert not (released / "release" / "NOT_FOR_RELEASE.txt").exists()


def test_very_large_budget_gives_the_input_back(tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    out = execute(toy.configuration(tmp_path, privacy__rho="1000000000000"))
    for level in toy.LEVELS:
        assert output_equals_input(out, level), level


def test_invariants_at_blocks_hold(tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    out = execute(
        toy.configuration(
            tmp_path,
            invariants=[{"query": "total", "geolevel": "block"}],
            privacy__rho="1/100",
        )
    )
    for level in toy.LEVELS:
        assert totals_are_exact(out, level), level
    assert tree_is_consistent(out, toy.LEVELS)


def test_folder_of_another_configuration_is_refused(finished: Path) -> None:
    config = toy.configuration(finished.parent, privacy__rho="2")
    with pytest.raises(OutputError, match="belongs to a different configuration"):
        execute(config)
    toy.configuration(finished.parent)


def test_folder_with_foreign_files_is_refused(tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"thesis\.txt"):
        execute(toy.configuration(tmp_path))
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["thesis.txt"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root can write everywhere")
def test_unwritable_output_is_refused(tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    tmp_path.joinpath("locked").mkdir(mode=0o500)
    with pytest.raises(OutputError, match="cannot be"):
        execute(toy.configuration(tmp_path, output__directory=str(tmp_path / "locked" / "out")))


def test_output_below_a_file_is_refused(tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be created"):
        execute(toy.configuration(tmp_path, output__directory=str(tmp_path / "file" / "out")))


def test_bad_records_leave_nothing_published(tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    with (tmp_path / "records.csv").open("a") as handle:
        handle.write("9900100000,female,ancient\n")
    with pytest.raises(InputError, match=r"records\.csv, row 143, column age: unknown code"):
        execute(toy.configuration(tmp_path))
    published = [p.parent.name for p in (tmp_path / "out").rglob("_manifest.json")]
    assert all(name.startswith("level=") for name in published)
    assert not list((tmp_path / "out" / "release").rglob("measurements/*/_manifest.json"))
    assert not list((tmp_path / "out" / "confidential").rglob("histograms/*/_manifest.json"))


def test_mended_records_are_read_again(tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    good = (tmp_path / "records.csv").read_text()
    (tmp_path / "records.csv").write_text(good + "9900100000,female,ancient\n")
    config = toy.configuration(tmp_path)
    with pytest.raises(InputError):
        execute(config)
    (tmp_path / "records.csv").write_text(good)
    out = execute(config)
    assert totals_are_exact(out, "state")
    (tmp_path / "records.csv").write_text(good + "9900100000,female,under_18\n")
    with pytest.raises(InputError, match="changed since it was read"):
        execute(config)


def test_mended_records_leave_no_geounit_of_the_old_ones(tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    good = (tmp_path / "records.csv").read_text()
    ghost = "9900109009,female,under_18\n9900100000,female,ancient\n"
    (tmp_path / "records.csv").write_text(good + ghost)
    config = toy.configuration(tmp_path)
    document = yaml.safe_load(config.read_text())
    del document["geography"]["geounits"]
    config.write_text(yaml.safe_dump(document))
    with pytest.raises(InputError, match="unknown code"):
        execute(config)
    assert "9900109009" in geography(tmp_path / "out", "block")
    (tmp_path / "records.csv").write_text(good)
    out = execute(config)
    assert "9900109009" not in geography(out, "block")
    assert tree_is_consistent(out, toy.LEVELS)


def test_a_failing_node_stops_the_run_and_publishes_no_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy.write_records(tmp_path)
    config = toy.configuration(tmp_path, solve={"tolerance": 1e-300})
    with pytest.raises(DasError, match=r"least-squares stage stopped"):
        execute(config)
    release = release_of(tmp_path / "out")
    assert not is_published(release.counts("block"))
    assert not release.microdata.exists()
    assert not release.manifest.exists()
