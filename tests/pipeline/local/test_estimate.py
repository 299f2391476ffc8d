"""The estimate stage on the toy state equals a dense solve of the files it read."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from typer.testing import CliRunner

from das.errors import ConfigError, InputError, OutputError, SchemaError
from das.queries.query import parse_query
from jobs.analysis.estimate import (
    IntervalSettings,
    estimate_areas,
    estimate_covariances,
    print_estimates,
)
from jobs.analysis.results import ResultFile
from jobs.cli.main import app, main
from jobs.pipeline.config.load import load_run
from jobs.pipeline.plan import Plan
from jobs.pipeline.release.estimate import EstimateStage, LevelEstimator
from jobs.pipeline.run import do_stages, open_job
from jobs.pipeline.storage.columns import with_lists
from jobs.pipeline.storage.dataset import MANIFEST, Dataset
from jobs.pipeline.storage.estimates import read_tables
from jobs.pipeline.storage.layout import EstimateLayout, ReleaseLayout
from jobs.pipeline.tasks.batches import TaskSize, all_geounits
from jobs.pipeline.tasks.executor import LocalTasks
from jobs.pipeline.tasks.progress import Reporter
from tests.builders import toy
from tests.builders.datasets import rows_of
from tests.builders.in_process import tasks_of
from tests.builders.places import release_of
from tests.builders.strategies import dense_matrix

TABLES = ("total", "sex", "age", "prefix(age)", "detailed")
SINGLE = 2.0**-24  # relative rounding of what is stored
# What that is at most where a few estimates of below 1,000 lead to one; noise is 1 and more.
ROUNDED = 2e-4


def tables_of(release: ReleaseLayout, level: str) -> list[dict[str, Any]]:
    """The rows of the tables of a geolevel, with their intervals."""
    rows: list[dict[str, Any]] = read_tables(
        Dataset.open(EstimateLayout.of(release).tables(level))
    ).to_pylist()
    return rows


def estimator(plan: Plan, release: ReleaseLayout) -> LevelEstimator:
    return LevelEstimator(plan, release, tuple(parse_query(plan.schema, t) for t in TABLES), 0.9)


def estimate(config: Path) -> tuple[Plan, ReleaseLayout]:
    """Measure the toy state and estimate it, in several tasks."""
    resolved = load_run(config)
    release = release_of(resolved.config.output.directory)
    tasks = tasks_of(resolved.config)
    with open_job(resolved, Reporter(quiet=True), tasks=tasks) as job:
        do_stages(job, ("plan", "read"))
        do_stages(job, ("resolve_constraints", "reserve_budget", "measure"))
        size = replace(tasks.sizing, estimate_numbers=TaskSize(10, 20_000_000))
        few = LocalTasks(size, slots=2)
        EstimateStage(estimator(resolved.plan, release), few).run()
    return resolved.plan, release


@pytest.fixture(scope="module")
def estimated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, ReleaseLayout]:
    folder = tmp_path_factory.mktemp("toy")
    toy.write_records(folder)
    return estimate(toy.configuration(folder))


@pytest.fixture(scope="module")
def dense(estimated) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Leaves under every geounit; estimate and covariance of all their cells."""
    return solve_dense(*estimated)


def solve_dense(plan: Plan, release: ReleaseLayout):
    leaves = sorted(row["geocode"] for row in rows_of(release.geography("block")))
    size, n = len(leaves) * plan.schema.size, plan.schema.size
    held = {
        row["geocode"]: np.array([leaf.startswith(row["geocode"]) for leaf in leaves], float)
        for level in toy.LEVELS
        for row in rows_of(release.geography(level))
    }
    design, right, weight, known, stated = [], [], [], [], []
    for level in toy.LEVELS:
        for row in rows_of(release.measurements(level)):
            query = parse_query(plan.schema, row["query"])
            design.append(np.kron(held[row["geocode"]][None], dense_matrix(query)))
            right += row["answers"]
            weight += [1 / row["variance"]] * query.size
        if (release.invariants(level) / MANIFEST).exists():
            for row in rows_of(release.invariants(level)):
                query = parse_query(plan.schema, row["query"])
                known.append(np.kron(held[row["geocode"]][None], dense_matrix(query)))
                stated += row["answers"]
    exact = np.concatenate(known)
    matrix, y, w = np.concatenate(design), np.array(right, float), np.array(weight)
    values, right_vectors = np.linalg.svd(exact)[1:]
    free = right_vectors[int((values > 1e-9).sum()) :].T
    base = np.linalg.lstsq(exact, np.array(stated, float), rcond=None)[0]
    covariance = free @ np.linalg.inv(free.T @ (matrix.T * w) @ matrix @ free) @ free.T
    found = base + covariance @ ((matrix.T * w) @ (y - matrix @ base))
    assert len(found) == size == len(leaves) * n
    return held, found, covariance


def differences(plan: Plan, release: ReleaseLayout, dense) -> float:
    """Largest difference of any estimate, standard error or bound of any table from the dense.

    Beyond that of storing an estimate and its error in single precision.
    """
    held, found, covariance = dense
    worst = 0.0
    for level in toy.LEVELS:
        seen = 0
        for row in tables_of(release, level):
            query = parse_query(plan.schema, row["query"])
            matrix = np.kron(held[row["geocode"]][None], dense_matrix(query))
            wanted = matrix @ found
            error = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", matrix, covariance, matrix), 0))
            half = 1.6448536269514722 * error
            rounding = 1.01 * SINGLE * (np.abs(wanted) + half)
            for name, values in (
                ("estimate", wanted),
                ("standard_error", error),
                ("lower", wanted - half),
                ("upper", wanted + half),
            ):
                beyond = np.abs(np.array(row[name]) - values) - rounding
                worst = max(worst, float(beyond.max()))
            seen += 1
        assert seen == len(TABLES) * len(rows_of(release.geography(level)))
    return worst


def test_every_table_of_every_geounit_equals_the_dense_solve(estimated, dense):
    plan, release = estimated
    # Standard errors are roots: what is exactly 0 may come out as the root of 1e-15.
    assert differences(plan, release, dense) < ROUNDED


@pytest.mark.parametrize("texts", [("sex * age", "total"), ("prefix(age)", "prefix(age)")])
def test_covariances_of_areas_equal_the_dense_solve(estimated, dense, texts):
    plan, release = estimated
    held, _, covariance = dense
    leaves = sorted(row["geocode"] for row in rows_of(release.geography("block")))
    areas = {"some": leaves[1:4], "far": [leaves[0], leaves[-1]]}
    tract = rows_of(release.geography("tract"))[0]["geocode"]
    pair = tuple(parse_query(plan.schema, text) for text in texts)
    rows = estimate_covariances(plan, release, pair, areas, [tract]).to_pylist()
    inside = {name: sum(held[code] for code in codes) for name, codes in areas.items()}
    inside[tract] = held[tract]
    first, second = pair
    same = first.name == second.name
    count = first.size * (first.size + 1) // 2 if same else first.size * second.size
    assert len(rows) == 3 * count
    for row in rows:
        ends = [
            np.kron(inside[row["area"]][None], dense_matrix(query))[query.labels().index(label)]
            for query, label in zip(pair, (row["label"], row["other_label"]), strict=True)
        ]
        assert row["covariance"] == pytest.approx(ends[0] @ covariance @ ends[1], abs=1e-7)
        variances = [end @ covariance @ end for end in ends]
        if min(variances) > 1e-6:
            ratio = ends[0] @ covariance @ ends[1] / np.sqrt(variances[0] * variances[1])
            assert row["correlation"] == pytest.approx(ratio, abs=1e-6)


def test_a_planted_fault_is_seen(estimated, dense, tmp_path):
    """One noisy answer of one block changed by one moves what is compared."""
    plan, release = estimated
    changed = release_of(tmp_path)
    shutil.copytree(release.shared, changed.shared)
    dataset = changed.measurements("block")
    part = next(part for part in Dataset.open(dataset).parts if part.rows)
    table = with_lists(pq.read_table(dataset / part.file, partitioning=None))
    answers = table.column("answers").to_pylist()
    answers[0][0] += 1
    column = pa.array(answers, table.schema.field("answers").type)
    index = table.schema.get_field_index("answers")
    pq.write_table(table.set_column(index, "answers", column), dataset / part.file)
    assert differences(plan, release, solve_dense(plan, changed)) > 5 * ROUNDED


def test_manifests_say_what_is_in_the_files(estimated):
    _, release = estimated
    facts = Dataset.open(EstimateLayout.of(release).tables("tract")).facts
    assert [q["query"] for q in facts["queries"]] == list(TABLES)
    assert facts["queries"][3]["labels"][0] == "up to under_18"
    assert facts["confidence"] == 0.9
    assert facts["not_for_release"] is True


def test_tasks_do_not_depend_on_how_the_work_is_cut(estimated, tmp_path):
    """One range, in this process, gives what several tasks gave."""
    plan, release = estimated
    one = estimator(plan, release)
    whole = LevelEstimator.descend(one, all_geounits(3)).tables
    assert whole.rows == len(TABLES) * len(rows_of(release.geography("block")))
    again = pq.read_table(one.layout.tables("block") / whole.file, partitioning=None).to_pylist()
    (one.layout.tables("block") / whole.file).unlink()
    published = {(r["geocode"], r["query"]): r for r in tables_of(release, "block")}
    for row in again:
        other = published[row["geocode"], row["query"]]
        for name in ("estimate", "standard_error"):
            np.testing.assert_allclose(row[name], other[name], rtol=2 * SINGLE, atol=1e-9)


def test_targets_are_the_subtree_estimates(estimated):
    plan, release = estimated
    one = estimator(plan, release)
    for level in (0, 1, 2):
        reader = one.reader(level)
        targets = reader.targets(reader.rows(all_geounits(level)))
        assert (targets.weights >= 0).all()
        assert targets.misfit.max() < 0.05
        total, _, detailed = (a.sum(axis=1) for a in targets.answers)
        np.testing.assert_allclose(total, detailed, atol=1e-8)


def test_without_measurements_there_is_no_estimate(estimated, tmp_path):
    plan, release = estimated
    bare = release_of(tmp_path)
    shutil.copytree(release.shared / "geography", bare.shared / "geography")
    with pytest.raises(OutputError, match="is not complete"):
        estimator(plan, bare).climb(all_geounits(3))
    assert not list(bare.shared.rglob("estimates/*/*/_manifest.json"))


PLAIN = IntervalSettings(0.9, simultaneous=False, positive=False)


@pytest.mark.parametrize(
    "pattern",
    [
        "1",  # one block
        "1111",  # a block group's worth: a whole tract
        "0110",  # part of a tract
        "10011111",  # a whole tract and part of another
        "100111110001" + "0110" + "0000" + "1",  # parts of all counties
        "1" * 21,
    ],
)
def test_areas_off_the_spine_equal_the_dense_solve(estimated, dense, pattern):
    for query in ["total", "sex * age", "prefix(age)"]:
        plan, release = estimated
        held, found, covariance = dense
        leaves = sorted(row["geocode"] for row in rows_of(release.geography("block")))
        inside = np.array([c == "1" for c in pattern.ljust(len(leaves), "0")])
        codes = [code for code, held_in in zip(leaves, inside, strict=True) if held_in]
        table = estimate_areas(plan, release, query, {"place": codes[::-1]}, [], PLAIN)
        matrix = np.kron(inside[None].astype(float), dense_matrix(parse_query(plan.schema, query)))
        errors = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", matrix, covariance, matrix), 0))
        np.testing.assert_allclose(
            table.column("estimate").to_numpy(), matrix @ found, atol=ROUNDED
        )
        np.testing.assert_allclose(table.column("standard_error").to_numpy(), errors, atol=1e-6)


def test_geounits_of_every_level_equal_the_tables(estimated):
    plan, release = estimated
    for level in toy.LEVELS:
        published = {
            row["geocode"]: row for row in tables_of(release, level) if row["query"] == "age"
        }
        for code in (min(published), max(published)):
            table = estimate_areas(plan, release, "age", {}, [code], PLAIN)
            for name in ("estimate", "standard_error", "lower", "upper"):
                np.testing.assert_allclose(
                    table.column(name).to_numpy(), published[code][name], 2 * SINGLE, atol=ROUNDED
                )


def test_intervals_of_the_command(estimated, tmp_path, capsys):
    """Wider at once than alone, none below zero, the exact total without any width."""
    plan, release = estimated
    table = {
        (at_once, positive): estimate_areas(
            plan, release, "detailed", {}, ["9900100000"], IntervalSettings(0.9, at_once, positive)
        ).to_pandas()
        for at_once in (False, True)
        for positive in (False, True)
    }
    width = {key: (found.upper - found.lower).to_numpy() for key, found in table.items()}
    assert (width[True, False] > 1.2 * width[False, False]).all()
    assert (table[True, True].lower >= 0).all()
    assert (table[True, True].upper >= table[False, True].upper).all()
    exact = estimate_areas(plan, release, "total", {}, ["99"], PLAIN).to_pylist()[0]
    assert exact["upper"] - exact["lower"] < 1e-5
    with pytest.raises(ConfigError, match="negative"):
        estimate_areas(
            plan, release, "contrasts(age)", {}, ["99"], IntervalSettings(0.9, False, True)
        )
    with pytest.raises(InputError, match="no such geounit"):
        estimate_areas(plan, release, "total", {}, ["98"], PLAIN)
    with pytest.raises(InputError, match="1 unknown of 2"):
        estimate_areas(plan, release, "total", {"a": ["9900100000", "x"]}, [], PLAIN)
    path = tmp_path / "found.parquet"
    some = estimate_areas(plan, release, "total", {}, ["99"], PLAIN)
    ResultFile(path).write(some)
    assert pq.read_table(path).equals(some)
    print_estimates(some, as_json=True)
    assert '"area": "99"' in capsys.readouterr().out
    print_estimates(some, as_json=False)
    assert "standard error" in capsys.readouterr().out


# --- the command line ----------------------------------------------------------------------------


def command(release: ReleaseLayout, *words: object) -> Result:
    config = release.shared.parents[1] / "run.yaml"
    return CliRunner().invoke(app, ["estimate", str(config), *map(str, words)])


def printed(release: ReleaseLayout, *words: object) -> list[dict]:
    result = command(release, "--json", *words)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_command_prints_geounits_and_areas_of_a_file(estimated, tmp_path):
    plan, release = estimated
    (tmp_path / "places.csv").write_text("a,9900100000\nb,9900100001\na,9900300000\n")
    words = ["--query", "sex", "--area", tmp_path / "places.csv"]
    rows = printed(release, *words, "--geounit", "99", "--geounit", "99001")
    areas = {"a": ["9900100000", "9900300000"], "b": ["9900100001"]}
    assert rows == estimate_areas(plan, release, "sex", areas, ["99", "99001"], PLAIN).to_pylist()
    assert [row["area"] for row in rows] == ["99", "99", "99001", "99001", "a", "a", "b", "b"]
    assert [row["label"] for row in rows[:2]] == list(toy.SEX)
    shown = command(release, *words)
    assert shown.exit_code == 0
    assert "standard error" in shown.output
    assert f"{rows[4]['estimate']:,.1f}" in shown.output


@pytest.mark.parametrize("geolevel", ["county", "tract"])
def test_all_geounits_of_a_geolevel_are_the_areas_of_their_blocks(estimated, tmp_path, geolevel):
    """By name, one by one, and as sets of blocks: three ways through the tree, the same numbers."""
    plan, release = estimated
    digits = plan.level(geolevel).digits
    codes = sorted({code[:digits] for code in toy.blocks()})
    blocks = "".join(f"{code[:digits]},{code}\n" for code in toy.blocks())
    (tmp_path / "areas.csv").write_text(blocks)
    words = ["--query", "sex * age"]
    rows = printed(release, *words, "--geolevel", geolevel)
    assert list(dict.fromkeys(row["area"] for row in rows)) == codes
    assert rows == printed(release, *words, *(w for code in codes for w in ("--geounit", code)))
    assert rows == printed(release, *words, "--area", tmp_path / "areas.csv")


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("positive", [False, True])
def test_the_command_passes_on_what_intervals_are_wanted(estimated, at_once, positive):
    plan, release = estimated
    flags = ["--simultaneous"] * at_once + ["--positive"] * positive
    words = ["--query", "detailed", "--geounit", "9900100000", "--confidence", 0.95, *flags]
    settings = IntervalSettings(0.95, at_once, positive)
    wanted = estimate_areas(plan, release, "detailed", {}, ["9900100000"], settings).to_pylist()
    assert printed(release, *words) == wanted
    assert {(r["simultaneous"], r["positive"], r["confidence"]) for r in wanted} == {
        (at_once, positive, 0.95)
    }


def test_the_command_writes_parquet(estimated, tmp_path):
    plan, release = estimated
    path = tmp_path / "found.parquet"
    result = command(release, "--geounit", "99", "--output", path)
    assert result.output == f"{path}  publishable\n"
    assert pq.read_table(path).equals(estimate_areas(plan, release, "total", {}, ["99"], PLAIN))


def test_a_folder_without_a_release_is_refused(tmp_path):
    result = CliRunner().invoke(app, ["estimate", str(tmp_path), "--geounit", "99"])
    assert isinstance(result.exception, OutputError)
    assert f"{tmp_path}: is not the folder of a finished release" in str(result.exception)


@pytest.mark.parametrize(
    ("words", "kind", "said"),
    [
        (["--geounit", "98"], InputError, "no such geounit; got 98"),
        (["--geolevel", "town"], ConfigError, "names an unknown geolevel; got town"),
        (["--area", "absent.csv"], InputError, "cannot be read"),
        ([], ConfigError, "names no area; expected --area, --geounit or --geolevel"),
        (
            ["--geounit", "99", "--query", "contrasts(age)", "--positive"],
            ConfigError,
            "can have negative answers; expected no --positive",
        ),
        (["--geounit", "99", "--query", "race"], SchemaError, "got race"),
    ],
)
def test_mistakes_on_the_command_line(estimated, monkeypatch, capsys, words, kind, said):
    _, release = estimated
    config = release.shared.parents[1] / "run.yaml"
    monkeypatch.setattr(sys, "argv", ["das", "estimate", str(config), *words])
    assert main() == kind.exit_code == 2
    error = capsys.readouterr().err
    assert error.startswith(f"das: {kind.__name__} ")
    assert said in error
