"""Estimates beside on-demand queries: of what follows from the queries that are measured completely."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from das.errors import SchemaError
from jobs.pipeline.config.load import load_run
from jobs.pipeline.release.level import LevelReader
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.storage.estimates import read_tables
from jobs.pipeline.storage.layout import EstimateLayout
from jobs.pipeline.tasks.batches import all_geounits
from tests.builders import toy
from tests.builders.datasets import rows_of
from tests.builders.in_process import execute
from tests.builders.places import release_of

Das = Callable[..., tuple[int, str]]

LAZY = {"privacy__on_demand_queries": ["detailed"], "solve": {"fit_to": "level"}}
TABLES = ["total", "sex", "age", "sex * age"]


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finalized release in `out`; detailed is drawn where the parent has persons."""
    folder = tmp_path_factory.mktemp("office")
    toy.write_records(folder)
    execute(toy.configuration(folder, **LAZY, output__tables=TABLES))
    return folder


def dense(folder: Path, query: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Estimate and variance of `total` or `sex` in every geounit, by one dense problem over blocks.

    Complete queries are total and sex; the total of the state is exact.
    """
    plan = load_run(folder / "run.yaml").plan
    release = release_of(folder / "out")
    blocks = sorted(toy.blocks())
    size = 2 * len(blocks)
    design, right, weights = [], [], []
    held: dict[str, np.ndarray] = {}
    for level in plan.levels:
        found = {(r["geocode"], r["query"]): r for r in rows_of(release.measurements(level.name))}
        rows = LevelReader(plan, release, level.index).rows(all_geounits(level.index))
        for code, is_only in zip(rows.codes, rows.is_only, strict=True):
            inside = np.array([block.startswith(code) for block in blocks], float)
            held[code] = inside
            if is_only:
                continue
            for name, matrix in (("total", np.ones((1, 2))), ("sex", np.eye(2))):
                row = found[code, name]
                design.append(np.kron(inside, matrix))
                right += row["answers"]
                weights += [1 / row["variance"]] * len(matrix)
    x, y, w = np.vstack(design), np.array(right, float), np.array(weights)
    exact = np.ones((1, size))
    stated = rows_of(release.invariants("state"))[0]["answers"][0]
    free = np.linalg.svd(exact)[2][1:].T
    base = np.full(size, stated / size)
    covariance = free @ np.linalg.inv(free.T @ (x.T * w) @ x @ free) @ free.T
    cells = base + covariance @ (x.T * w) @ (y - x @ base)
    matrix = np.ones((1, 2)) if query == "total" else np.eye(2)
    out = {}
    for code, inside in held.items():
        rows = np.kron(inside, matrix)
        out[code] = rows @ cells, np.einsum("ij,jk,ik->i", rows, covariance, rows)
    return out


@pytest.mark.parametrize("query", ["total", "sex"])
def test_estimates_are_those_of_one_dense_problem(office: Path, query: str) -> None:
    wanted = dense(office, query)
    layout, compared = EstimateLayout.of(release_of(office / "out")), 0
    for geolevel in toy.LEVELS:
        dataset = Dataset.open(layout.tables(geolevel))
        assert [one["query"] for one in dataset.facts["queries"]] == ["total", "sex"]
        for row in read_tables(dataset).to_pylist():
            if row["query"] == query:
                estimate, variance = wanted[row["geocode"]]
                assert row["estimate"] == pytest.approx(estimate, abs=1e-4)
                errors = np.sqrt(np.maximum(variance, 0))
                assert row["standard_error"] == pytest.approx(errors, abs=1e-4)
                compared += 1
    assert compared == len(wanted)


def test_areas_and_geounits_have_estimates_from_the_release_alone(
    das: Das, office: Path, tmp_path: Path
) -> None:
    release = shutil.copytree(office / "out" / "release", tmp_path / "published")
    area = tmp_path / "area.txt"
    area.write_text("\n".join(toy.blocks()[2:9:3]))
    for words in (
        ("--query", "sex", "--geolevel", "county"),
        ("--query", "total", "--covariance", "sex", "--geounit", "99001"),
        ("--query", "sex", "--area", area),
    ):
        code, wanted = das("estimate", office / "run.yaml", *words, "--json")
        assert code == 0, wanted
        assert das("estimate", release, *words, "--json") == (0, wanted)
    found = json.loads(das("estimate", release, "--query", "sex", "--area", area, "--json")[1])
    dense_of = dense(office, "sex")
    sums = sum(dense_of[code][0] for code in toy.blocks()[2:9:3])
    assert [row["estimate"] for row in found] == pytest.approx(list(sums), abs=1e-4)


@pytest.mark.parametrize("where", [("--geounit", "99001"), ("--area",)])
def test_what_does_not_follow_is_refused_by_name(
    das: Das, office: Path, tmp_path: Path, where: tuple[str, ...]
) -> None:
    area = tmp_path / "area.txt"
    area.write_text("\n".join(toy.blocks()[:3]))
    words = (*where, area) if where == ("--area",) else where
    code, printed = das("estimate", office / "run.yaml", "--query", "age", *words)
    assert code == SchemaError.exit_code
    printed = " ".join(printed.split())
    assert "query age" in printed
    assert "measured completely" in printed
    assert "follows from detailed, which is on demand" in printed
    assert "a query that follows from total, sex" in printed


def test_districts_have_counts_of_all_tables_and_estimates_of_those_that_have_some(
    das: Das, office: Path, tmp_path: Path
) -> None:
    blocks = toy.blocks()
    table = tmp_path / "districts.csv"
    table.write_text(
        "block,district\n" + "".join(f"{c},{'ab'[at % 2]}\n" for at, c in enumerate(blocks))
    )
    words = ("--assign", table, "--table", "age", "--json")
    code, printed = das("areas", office / "out" / "release", *words)
    assert code == 0, printed
    rows = json.loads(printed)["rows"]
    dense_of = dense(office, "total")
    for row in rows:
        if row["table"] == "total":
            inside = [c for at, c in enumerate(blocks) if "ab"[at % 2] == row["area"]]
            estimate = sum(dense_of[c][0][0] for c in inside)
            assert row["estimate"] == pytest.approx(estimate, abs=1e-3)
        else:
            assert row["count"] is not None
            assert row["estimate"] is None
    assert {row["table"] for row in rows} == {"total", "age"}


def test_validate_says_which_tables_have_no_estimates(das: Das, office: Path) -> None:
    code, printed = das("validate", office / "run.yaml", "--json")
    assert code == 0, printed
    without = json.loads(printed)["without_estimates"]
    assert without == {"age": toy.LEVELS, "detailed": toy.LEVELS}
    printed = das("validate", office / "run.yaml")[1]
    assert "no estimates of age: " in printed


def test_a_finalized_release_is_whole_and_made_once(das: Das, office: Path) -> None:
    code, printed = das("verify", office / "run.yaml")
    assert code == 0, printed
    before = {path: path.read_bytes() for path in (office / "out" / "release").rglob("*.parquet")}
    execute(office / "run.yaml")
    assert before == {path: path.read_bytes() for path in before}


def _refused(das: Das, folder: Path, **changes: Any) -> str:
    toy.write_records(folder)
    config = toy.configuration(folder, **{**LAZY, **changes})
    out = execute(config)
    assert not (release_of(out).root / "estimates").exists()
    code, printed = das("estimate", config, "--geounit", "99")
    assert code == SchemaError.exit_code
    return " ".join(printed.split())


def test_without_a_complete_query_there_are_no_estimates(das: Das, tmp_path: Path) -> None:
    every = ["total", "sex", "detailed"]
    printed = _refused(das, tmp_path, privacy__on_demand_queries=every, invariants=[])
    assert "no query is measured completely" in printed
