"""For whom a release is worse, as `das evaluate` says it: groups of records and types of areas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from jobs.pipeline.config.load import load_run
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.storage.histograms import read_histograms
from tests.builders import toy
from tests.builders.in_process import execute
from tests.builders.places import release_of, truth_of
from tests.builders.units import section, write_units

KINDS = ("city", "land")
GROUPS = {  # query to the group of each cell; cells are sex * age
    "sex": np.array([0, 0, 0, 1, 1, 1]),
    "votingage": np.array([0, 1, 1, 0, 1, 1]),
    "detailed": np.arange(6),
    "total": np.zeros(6, int),
    "age": np.array([0, 1, 2, 0, 1, 2]),
}


def tracts() -> list[str]:
    return sorted({code[:7] for code in toy.blocks()})


def kind_of(tract: str) -> str:
    return KINDS[int(tract[-1]) % 2]


def write_types(folder: Path, rows: list[tuple[str, str]] | None = None) -> dict[str, Any]:
    """A file of the types of tracts; returns the section `areas`."""
    rows = [(code, kind_of(code)) for code in tracts()] if rows is None else rows
    text = "\n".join(["geocode,type", *(f"{code},{kind}" for code, kind in reversed(rows))])
    (folder / "types.csv").write_text(text + "\n")
    return {"tract": {"path": str(folder / "types.csv")}}


@pytest.fixture(scope="module", name="finished")
def _finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run file of the toy state whose run is finished."""
    folder = tmp_path_factory.mktemp("groups")
    toy.write_records(folder)
    asked = {"groups": ["sex", "votingage", "age * sex"], "areas": write_types(folder), "floor": 5}
    config = toy.configuration(folder, evaluate=asked, output__tables=["age", "prefix(age)"])
    execute(config, figures=True)
    return config


def histograms(out: Path, geolevel: str) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Geocodes, true counts and released ones, from the files."""
    digits = dict(zip(toy.LEVELS, (2, 5, 7, 10), strict=True))[geolevel]
    codes = sorted({code[:digits] for code in toy.blocks()})
    datasets = (truth_of(out).histograms(geolevel), release_of(out).counts(geolevel))
    true, shown = (read_histograms(Dataset.open(path), codes, 6).dense() for path in datasets)
    return codes, true, shown


def by_hand(true: np.ndarray, shown: np.ndarray, group: np.ndarray, table: np.ndarray) -> list[Any]:
    """Per group: persons, released, answers, l1, sum of squares, largest."""
    out = []
    for g in range(group.max() + 1):
        rows = [(group == g) & (table == t) for t in sorted(set(table[group == g].tolist()))]
        errors = np.array([shown[:, r].sum(1) - true[:, r].sum(1) for r in rows])
        out.append(
            [int(true[:, group == g].sum()), int(shown[:, group == g].sum()), errors.size,
             int(np.abs(errors).sum()), int((errors**2).sum()), int(np.abs(errors).max())]
        )  # fmt: skip
    return out


def evaluation(config: Path, product: str = "persons") -> dict[str, Any]:
    layout = truth_of(load_run(config).config.output.directory, product)
    return dict(json.loads(layout.evaluation.read_text()))


def test_every_group_table_and_geolevel_is_as_counted_by_hand(finished: Path) -> None:
    rows = evaluation(finished)["parity"]
    pairs = [("sex", "total"), ("sex", "age"), ("votingage", "total"), ("votingage", "age"),
             ("detailed", "total")]  # fmt: skip
    by_query = [row for row in rows if row["kind"] == "query"]
    assert [(r["geolevel"], r["groups"], r["table"]) for r in by_query] == [
        (level, *pair) for level in toy.LEVELS for pair in pairs
    ]
    out = load_run(finished).config.output.directory
    for row in by_query:
        _, true, shown = histograms(out, row["geolevel"])
        expected = by_hand(true, shown, GROUPS[row["groups"]], GROUPS[row["table"]])
        everybody = by_hand(true, shown, GROUPS["total"], GROUPS[row["table"]])[0]
        relative = []
        for group, (persons, released, answers, l1, squares, largest) in zip(
            row["by_group"], expected, strict=True
        ):
            assert (group["persons"], group["released"]) == (persons, released)
            assert (group["answers"], group["l1"], group["max"]) == (answers, l1, largest)
            assert group["mae"] == l1 / answers
            assert group["rmse"] == pytest.approx((squares / answers) ** 0.5)
            assert group["bias"] == (released - persons) / answers
            assert group["relative"] == (l1 / persons if persons >= 5 else None)
            relative += [l1 / persons] if persons >= 5 else []
        k = len(relative)
        assert (row["k"], row["floor"], row["population_weight"]) == (k, 5, 1 / k)
        assert row["everybody"] == everybody[3] / everybody[0]
        assert row["parity"] == pytest.approx(sum(relative) + everybody[3] / everybody[0] / k)
        assert row["parity_mean"] == pytest.approx(row["parity"] / k)
        worst = max((g for g in row["by_group"] if g["relative"] is not None),
                    key=lambda group: group["relative"])  # fmt: skip
        assert row["worst"] == worst["group"]


def test_types_of_tracts_are_groups_of_tracts_and_blocks(finished: Path) -> None:
    rows = [row for row in evaluation(finished)["parity"] if row["kind"] == "areas"]
    assert [(r["geolevel"], r["groups"], r["table"]) for r in rows] == [
        (geolevel, "types of tract", table)
        for geolevel in ("tract", "block")
        for table in ("total", "age")
    ]
    for row in rows:
        codes, true, shown = histograms(load_run(finished).config.output.directory, row["geolevel"])
        assert [group["group"] for group in row["by_group"]] == [*KINDS]
        for group in row["by_group"]:
            own = np.array([kind_of(code[:7]) == group["group"] for code in codes])
            expected = by_hand(true[own], shown[own], GROUPS["total"], GROUPS[row["table"]])[0]
            found = [group[key] for key in ("persons", "released", "answers", "l1", "max")]
            assert found == [*expected[:4], expected[5]]


def test_noise_is_named_where_the_table_in_the_groups_was_measured(finished: Path) -> None:
    measured = {
        (level.geolevel, entry.query.name)
        for level in load_run(finished).plan.strategy.levels
        for entry in level.queries
    }
    results = {(r["geolevel"], r["query"]): r for r in evaluation(finished)["results"]}
    for row in evaluation(finished)["parity"]:
        joint = {("sex", "total"): "sex", ("sex", "age"): "detailed", ("detailed", "total"):
                 "detailed", ("votingage", "total"): "votingage"}  # fmt: skip
        name = joint.get((row["groups"], row["table"]))
        if (row["geolevel"], name) in measured:
            assert row["expected_rmse"] == results[row["geolevel"], name]["expected_rmse"] > 0
    assert any(row["expected_rmse"] for row in evaluation(finished)["parity"])


@pytest.mark.usefixtures("here")
def test_groups_are_asked_on_the_command_line(finished: Path, das) -> None:
    before = evaluation(finished)
    code, said = das("evaluate", finished, "--groups", "age, total")
    assert code == 0, said
    rows = evaluation(finished)["parity"]
    assert {(row["groups"], row["table"]) for row in rows if row["kind"] == "query"} == {
        ("age", "total"),
        ("total", "total"),
        ("total", "age"),
    }
    for row in rows:
        if row["groups"] == "total":
            assert row["parity"] == 2 * row["everybody"]  # everybody, and the one group
    code, said = das("evaluate", finished, "--groups", "age, height")
    assert code == 2
    assert "--groups" in said
    assert "height" in said
    code, said = das("evaluate", finished)
    assert code == 0, said
    assert evaluation(finished)["parity"] == before["parity"]


def test_groups_are_no_part_of_what_is_measured(tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    plain = load_run(toy.configuration(tmp_path)).plan.digest
    asked = {"groups": ["sex"], "areas": write_types(tmp_path), "floor": 3}
    assert load_run(toy.configuration(tmp_path, evaluate=asked)).plan.digest == plain


def test_groups_of_an_exact_query_have_no_error(tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    stated = [{"query": "total", "geolevel": "state"}, {"query": "votingage", "geolevel": "county"}]
    config = toy.configuration(
        tmp_path, invariants=stated, evaluate={"groups": ["votingage", "sex"], "tables": ["age"]}
    )
    execute(config, figures=True)
    rows = {(r["geolevel"], r["groups"], r["table"]): r for r in evaluation(config)["parity"]}
    exact = {key for key, row in rows.items() if row.get("exact")}
    assert exact == {(level, "votingage", "total") for level in ("state", "county")}
    for key, row in rows.items():
        if key in exact:
            assert row["parity"] == 0
            assert {group["max"] for group in row["by_group"]} == {0}
        else:
            assert row["parity"] > 0, key


@pytest.mark.usefixtures("here")
def test_a_solution_has_groups_of_its_own(tmp_path: Path, das) -> None:
    toy.write_records(tmp_path)
    assert das("run", toy.configuration(tmp_path))[0] == 0
    config = toy.configuration(tmp_path, solve={"fit_to": "level"})
    said = {}
    for command, part in (("run", ("--only", "solve")), ("evaluate", ())):
        code, said[command] = das(command, config, *part, "--solution", "own")
        assert code == 0, said[command]
    assert "CONFIDENTIAL" in said["evaluate"]
    assert "publishable" not in said["evaluate"]
    assert "CONFIDENTIAL" not in said["run"]
    out = load_run(config).config.output.directory
    first, other = truth_of(out).evaluation, truth_of(out, solution="own").evaluation
    parity = [json.loads(path.read_text())["parity"] for path in (first, other)]
    assert parity[0] != parity[1]


def test_each_product_has_groups_of_its_own(tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    write_units(tmp_path)
    config = toy.configuration(tmp_path, units=section(tmp_path))
    execute(config, figures=True)
    persons = {row["groups"] for row in evaluation(config)["parity"]}
    units = {row["groups"] for row in evaluation(config, "units")["parity"]}
    assert persons == {"sex", "age"}
    assert units == {"detailed"}  # its one attribute
    products = load_run(config, groups=["sex", "unit"]).products
    assert {name: [q.name for q in p.grouping.groups] for name, p in products.items()} == {
        "units": ["detailed"],
        "persons": ["sex"],
    }


BAD = {
    "unknown query": ({"groups": ["height"]}, "groups", "height"),
    "no partition": ({"groups": ["prefix(age)"]}, "groups", "does not count every record once"),
    "table is no partition": ({"tables": ["ranges(age)"]}, "tables", "does not count every"),
    "unknown table": ({"tables": ["weight"]}, "tables", "weight"),
    "unknown geolevel": ({"areas": {"parish": {"path": "t.csv"}}}, "areas.parish", "geolevel"),
    "the root": ({"areas": {"state": {"path": "t.csv"}}}, "areas.state", "geolevel"),
    "floor": ({"floor": 0}, "floor", "greater than or equal to 1"),
    "weight": ({"population_weight": "1"}, "population_weight", "is not a known key"),
    "key": ({"group": ["sex"]}, "evaluate.group", "not a known key"),
    "file type": ({"areas": {"tract": {"path": "t.xlsx"}}}, "areas.tract", "xlsx"),
}


@pytest.mark.parametrize("case", [*BAD])
def test_what_cannot_be_evaluated_is_refused_by_validate(tmp_path: Path, das, case: str) -> None:
    toy.write_records(tmp_path)
    asked, key, what = BAD[case]
    code, said = das("validate", toy.configuration(tmp_path, evaluate=asked))
    assert code == 2, said
    assert f"{key}" in said
    assert what in said
    assert "evaluate" in said


def types(change: str) -> list[tuple[str, str]]:
    rows = [(code, kind_of(code)) for code in tracts()]
    return {
        "missing": rows[1:],
        "unknown": [*rows, ("9900999", "land")],
        "twice": [*rows, rows[0]],
        "no type": [*rows[1:], (rows[0][0], "")],
        "short": [*rows[1:], ("990", "land")],
    }[change]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("missing", "lacks a geounit (1 such)"),
        ("unknown", "geocode is not in the list of geounits (1 such in these rows)"),
        ("twice", "geocode appears twice"),
        ("no type", "type is missing"),
        ("short", "geocode does not fit"),
    ],
)
def test_files_of_types_must_fit_the_geounits(tmp_path: Path, das, change: str, what: str) -> None:
    toy.write_records(tmp_path)
    config = toy.configuration(tmp_path, evaluate={"areas": write_types(tmp_path, types(change))})
    code, said = das("validate", config)
    assert code == 2, said
    assert what in said
    assert "types.csv" in said


@pytest.mark.usefixtures("here")
def test_types_of_geounits_of_the_data_are_checked_before_anything_is_claimed(tmp_path, das):
    toy.write_records(tmp_path)
    areas = write_types(tmp_path, types("missing"))
    config = toy.configuration(tmp_path, evaluate={"areas": areas})
    document = yaml.safe_load(config.read_text())
    del document["geography"]["geounits"]
    config.write_text(yaml.safe_dump(document, sort_keys=False))
    assert das("validate", config)[0] == 0  # which geounits there are is not known yet
    code, said = das("run", config)
    assert code == 2, said
    assert "types.csv" in said
    assert not (load_run(config).last.release.root / "measurements").exists()


@pytest.mark.usefixtures("here")
def test_a_file_of_types_that_is_not_there_is_named(tmp_path, das):
    toy.write_records(tmp_path)
    config = toy.configuration(tmp_path, evaluate={"areas": {"tract": {"path": "none.csv"}}})
    code, said = das("validate", config)
    assert "none.csv" in said
    code, said = das("run", config)
    assert code == 2
    assert "none.csv" in said
