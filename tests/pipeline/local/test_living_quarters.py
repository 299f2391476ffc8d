"""Runs of the toy state with living quarters: nobody is where there are none, and nothing else is."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from das.errors import InfeasibleError, InputError, VerificationError
from jobs.cli.main import app
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.product import Resolved
from jobs.pipeline.release.problems import questions_of
from jobs.pipeline.release.verify import _verify_limits, verify_release
from jobs.pipeline.storage.dataset import Dataset, PartWriter, replace_published, sweep
from jobs.pipeline.storage.histograms import SPARSE_SCHEMA
from jobs.pipeline.tasks.batches import Batch
from tests.builders import toy
from tests.builders.in_process import execute
from tests.builders.places import release_of
from tests.release_checks import sparse, tree_is_consistent

Rows = dict[str, tuple[int, int]]  # housing units and facilities of blocks


def quarters_of(people: list[tuple[str, str, str]]) -> Rows:
    """A unit for three persons; in every third inhabited block a facility instead."""
    persons = Counter(code for code, _, _ in people)
    return {
        code: (0, 1) if number % 3 == 0 else (-(-persons[code] // 3), 0)
        for number, code in enumerate(sorted(persons))
    }


def configuration(folder: Path, rows: Rows, *more: dict[str, Any], **changes: Any) -> Path:
    """The toy run, with a table of living quarters and other invariants."""
    with (folder / "quarters.csv").open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["geocode", "units", "other"])
        writer.writerows([code, *row] for code, row in rows.items())
    stated = {
        "living_quarters": ["units"],
        "geolevel": "block",
        "table": {
            "path": str(folder / "quarters.csv"),
            "columns": {"units": "units", "facilities": "other"},
        },
    }
    total = {"query": "total", "geolevel": "state"}
    changes = {"privacy__rho": "1/20", **changes}
    return toy.configuration(folder, invariants=[total, stated, *more], **changes)


Finished = tuple[Path, Rows, Path]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A run at little budget: without the table, most empty blocks would get persons."""
    folder = tmp_path_factory.mktemp("quarters")
    rows = quarters_of(toy.write_records(folder))
    config = configuration(folder, rows)
    return config, rows, execute(load_run(config))


def inhabited(out: Path, level: str) -> set[str]:
    """Geounits with persons in the release."""
    counts = sparse(release_of(out).counts(level))
    return {code for code, cells in counts.items() if sum(cells.values())}


def test_nobody_is_where_there_are_no_living_quarters(finished: Finished) -> None:
    _, rows, out = finished
    assert tree_is_consistent(out, toy.LEVELS)
    for level, digits in zip(toy.LEVELS, (2, 5, 7, 10), strict=True):
        assert inhabited(out, level) <= {code[:digits] for code in rows}
    assert len(rows) < len(toy.blocks())


def test_without_the_table_they_would_get_persons(tmp_path: Path, finished: Finished) -> None:
    _, rows, _ = finished
    toy.write_records(tmp_path)
    out = execute(load_run(toy.configuration(tmp_path, privacy__rho="1/20")))
    assert inhabited(out, "block") - set(rows)


@pytest.mark.parametrize(
    "solve",
    [{"fit_to": "level", "l2_passes": {"block": [["total"]]}}, {"empirical_bayes": ["block"]}],
    ids=["order", "learned"],
)
def test_every_way_of_solving_keeps_them(tmp_path: Path, solve: dict[str, Any]) -> None:
    rows = quarters_of(toy.write_records(tmp_path))
    out = execute(load_run(configuration(tmp_path, rows, solve=solve)))
    assert tree_is_consistent(out, toy.LEVELS)
    assert inhabited(out, "block") <= set(rows)


def test_lazy_answers_are_those_of_the_geounits_left(tmp_path: Path) -> None:
    rows = quarters_of(toy.write_records(tmp_path))
    lazy = {"privacy__on_demand_queries": ["detailed"], "solve": {"fit_to": "level"}}
    out = execute(load_run(configuration(tmp_path, rows, **lazy)))
    assert tree_is_consistent(out, toy.LEVELS)
    assert inhabited(out, "block") <= set(rows)


def test_quarters_counted_above_the_blocks_empty_the_blocks_too(tmp_path: Path) -> None:
    people = toy.write_records(tmp_path)
    rows = {code[:7]: (1, 0) for code, _, _ in people}
    config = configuration(tmp_path, rows)
    text = config.read_text().replace(
        "geolevel: block\n      table", "geolevel: tract\n      table"
    )
    assert text != config.read_text()
    config.write_text(text)
    out = execute(load_run(config))
    assert tree_is_consistent(out, toy.LEVELS)
    assert inhabited(out, "tract") <= set(rows)
    assert {code[:7] for code in inhabited(out, "block")} <= set(rows)


def test_facilities_of_a_type_that_is_not_counted_stand_only_in_quarters(tmp_path: Path) -> None:
    """Old people are counted by facility; whoever is younger may live in any quarters."""
    people = toy.write_records(tmp_path)
    old = Counter(code for code, _, age in people if age == "65_and_over")
    rows = quarters_of(people)
    with (tmp_path / "old.csv").open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["geocode", "homes"])
        writer.writerows(old.items())
    homes = {
        "facilities": "age",
        "geolevel": "block",
        "table": {"path": str(tmp_path / "old.csv"), "columns": {"65_and_over": "homes"}},
    }
    cap = {
        "name": "women",
        "row": [{"cells": {"sex": ["female"]}}],
        "geolevel": "block",
        "at_most": 40,
    }
    resolved = load_run(configuration(tmp_path, rows, homes, cap))
    out = execute(resolved)
    assert tree_is_consistent(out, toy.LEVELS)
    assert inhabited(out, "block") <= set(rows)
    assert verify_release(resolved.plan, release_of(out))["limited_geounits"] > 0


def test_families_are_still_solved_by_compiled_loops(finished: Finished) -> None:
    config, _, _ = finished
    plan = load_run(config).plan
    assert questions_of(plan, plan.leaf) is not None


def test_the_manifest_and_the_report_say_so(finished: Finished) -> None:
    _, _, out = finished
    manifest = json.loads((release_of(out).manifest).read_text())
    assert manifest["limits"] == [
        {
            "kind": "living quarters",
            "name": "nobody without them",
            "geolevels": toy.LEVELS,
            "types": ["units", "facilities"],
        }
    ]
    assert "living quarters in every block" in manifest["privacy"]["neighborhood"]["limited_by"]
    assert {"given/level=block", "implied/level=state"} <= {
        row["path"] for row in manifest["outputs"]
    }
    report = (release_of(out).report).read_text()
    assert "Counts of living quarters are public. Geounits without any have no persons." in report


def test_validate_says_so(finished: Finished) -> None:
    config, _, _ = finished
    result = CliRunner().invoke(app, ["validate", str(config)])
    assert result.exit_code == 0, result.output
    assert "living quarters in every block" in " ".join(result.stdout.split())


def test_persons_without_quarters_are_found_in_a_release(finished: Finished) -> None:
    """Planted in the counts of one block, which are put back afterwards."""
    config, rows, out = finished
    plan, release = load_run(config).plan, release_of(out)
    assert verify_release(plan, release)["limited_geounits"] == len(toy.blocks())
    dataset = release.counts("block")
    files = {p: p.read_bytes() for p in (*dataset.glob("part-*"), dataset / "_manifest.json")}
    empty = next(code for code in toy.blocks() if code not in rows)
    counts = pa.concat_tables([pq.read_table(p) for p in sorted(dataset.glob("part-*"))])
    planted = [
        *(row for row in counts.to_pylist() if row["geocode"] != empty),
        {"geocode": empty, "cells": [1], "counts": [1]},
    ]
    planted.sort(key=lambda row: row["geocode"])
    writer = PartWriter(dataset, SPARSE_SCHEMA)
    writer.write(pa.Table.from_pylist(planted, schema=SPARSE_SCHEMA))
    try:
        replace_published(Dataset.open(dataset), [writer.close()], {})
        with pytest.raises(VerificationError, match=f"{empty}: .*living quarters"):
            _verify_limits(plan, release, Batch(3, "", "\x7f", 21))
    finally:
        for path, content in files.items():
            path.write_bytes(content)
        sweep(dataset)


def refused(resolved: Resolved, kind: type[Exception]) -> Any:
    """The error of a run that is refused before anything is measured."""
    with pytest.raises(kind) as caught:
        execute(resolved)
    out = resolved.config.output.directory
    assert not list((out / "release").rglob("measurements/*/*.parquet"))
    return caught.value


def test_persons_in_the_data_without_quarters_are_refused(tmp_path: Path) -> None:
    rows = quarters_of(toy.write_records(tmp_path))
    code = sorted(rows)[1]
    error = refused(load_run(configuration(tmp_path, {**rows, code: (0, 0)})), InputError)
    assert (error.where, error.got) == (f"block {code}", "living quarters")


def test_a_facility_without_quarters_is_a_contradiction(tmp_path: Path) -> None:
    people = toy.write_records(tmp_path)
    rows = quarters_of(people)
    empty = next(code for code in toy.blocks() if code not in rows)
    young = Counter({empty: 1}) + Counter(code for code, _, age in people if age == "under_18")
    lines = [f"{code},{homes}" for code, homes in sorted(young.items())]
    (tmp_path / "homes.csv").write_text("\n".join(["geocode,homes", *lines]))
    homes = {
        "facilities": "age",
        "geolevel": "block",
        "table": {"path": str(tmp_path / "homes.csv"), "columns": {"under_18": "homes"}},
    }
    error = refused(load_run(configuration(tmp_path, rows, homes)), InfeasibleError)
    assert error.where == f"block {empty}"
    assert "living quarters" in error.got
    assert "facilities age" in error.got


def test_a_table_without_any_quarters_is_refused(tmp_path: Path) -> None:
    rows = quarters_of(toy.write_records(tmp_path))
    error = refused(load_run(configuration(tmp_path, dict.fromkeys(rows, (0, 0)))), InputError)
    assert error.where == "table of living quarters"
