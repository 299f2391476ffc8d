"""`das generate` with a run file or a schema of the user's: invented data that runs read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import yaml

from jobs.pipeline.config.load import load_run
from tests.builders import foreign, toy
from tests.builders.in_process import execute
from tests.builders.places import release_of
from tests.checkout import ROOT
from tests.unit.jobs.pipeline.confidential.read import reading

VILLAGES = ROOT / "tests" / "data" / "villages"

Das = Callable[..., tuple[int, str]]


def summary(said: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


def test_a_proposal_is_rehearsed(das: Das, tmp_path: Path) -> None:
    """In the form of the file: its columns, codes, separator and lost zeros; and it runs."""
    listed = ("--geounits", VILLAGES / "villages.csv")
    assert das("init", VILLAGES / "persons.csv", tmp_path / "new", *listed)[0] == 0
    seeded = "  randomness: {source: seeded_not_for_release, seed: 3}\n"  # of `privacy`, the last
    run = tmp_path / "new" / "run.yaml"
    run.write_text(run.read_text() + seeded)
    code, said = das("generate", tmp_path / "rehearsal", "--like", run, "--persons", 900)
    assert code == 0, said
    found = summary(said)
    assert (found["invented"], found["leaves"], found["left_out"]) == (True, 47, [])
    path = tmp_path / "rehearsal" / "data" / "persons" / "persons.csv"
    header, *lines = path.read_text().replace('"', "").splitlines()
    assert header == "Village;Sex;agegrp ;Marital status;Nationality"
    assert len(lines) == found["persons"]["persons"]
    assert {line.partition(";")[0] for line in lines} <= {
        str(int(code)) for code, _ in foreign.villages()
    }
    assert len({line.split(";")[2] for line in lines}) == len(foreign.AGES)
    rehearsed = load_run(tmp_path / "rehearsal" / "run.yaml")
    assert rehearsed.config.name.endswith(", invented data")
    assert rehearsed.plan.budget == load_run(run).plan.budget
    assert (release_of(execute(rehearsed)).manifest).exists()
    assert not (tmp_path / "new" / "out").exists()


def test_the_same_seed_invents_the_same(das: Das, tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    run, made = toy.configuration(tmp_path), []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert das("generate", tmp_path / name, "--like", run, "--seed", seed)[0] == 0
        made.append((tmp_path / name / "data" / "persons" / "records.csv").read_bytes())
    assert made[0] == made[1] != made[2]


def test_the_data_need_not_be_there_and_the_account_is_not_touched(
    das: Das, tmp_path: Path
) -> None:
    """A list of geounits is invented where there is none, for all geolevels."""
    account = tmp_path / "account.jsonl"
    run = toy.configuration(
        tmp_path,
        data__path=str(tmp_path / "missing.parquet"),
        geography__geounits=None,
        privacy__account=str(account),
        privacy__randomness={"source": "operating_system"},
    )
    code, said = das("generate", tmp_path / "new", "--like", run, "--blocks", 16)
    assert code == 0, said
    made = load_run(tmp_path / "new" / "run.yaml")
    records = pq.read_table(made.config.products["persons"].input.path)
    assert {len(code.as_py()) for code in records["block"]} == {10}
    assert set(records["sex"].to_pylist()) == set(toy.SEX)
    execute(made)
    assert not account.exists()
    assert list((tmp_path / "new").rglob("*.das-account.jsonl"))


def test_nobody_is_invented_who_cannot_be(das: Das, tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    zero = {"zero": {"sex": ["male"], "age": ["65_and_over"]}}
    few = {"name": "few", "row": [{"cells": {}}], "geolevel": "state", "at_most": 5}
    run = toy.configuration(
        tmp_path, invariants=[zero, few, {"query": "total", "geolevel": "state"}]
    )
    code, said = das("generate", tmp_path / "new", "--like", run)
    assert code == 0, said
    assert summary(said)["left_out"] == ["products.persons.invariants.1"]
    people = pa_csv.read_csv(tmp_path / "new" / "data" / "persons" / "records.csv")
    pairs = set(zip(people["sex"].to_pylist(), people["age"].to_pylist(), strict=True))
    assert len(pairs) == 5
    assert ("male", "65_and_over") not in pairs
    made = load_run(tmp_path / "new" / "run.yaml").config.products["persons"]
    assert [type(entry).__name__ for entry in made.invariants] == ["ZeroConfig", "InvariantConfig"]
    assert das("validate", tmp_path / "new" / "run.yaml")[0] == 0


@pytest.mark.parametrize(
    "data",
    [
        {"input_format": "histograms", "path": "h.parquet"},
        {"input_format": "block_table", "path": "b.csv", "pattern": "s{sex}a{age}",
         "checks": {"all": {}}},
    ],
)  # fmt: skip
def test_other_formats_are_invented(das: Das, tmp_path: Path, data: dict[str, Any]) -> None:
    toy.write_records(tmp_path)
    run = toy.configuration(tmp_path, data=data)
    code, said = das("generate", tmp_path / "new", "--like", run)
    assert code == 0, said
    made = load_run(tmp_path / "new" / "run.yaml")
    counts = reading.read(made.last.config.input, made.plan.schema, 10)
    assert sum(counts.values()) == summary(said)["persons"]["persons"] > 0


def test_columns_that_two_attributes_read_have_values_of_both(das: Das, tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    codes = {"1": "female", "2": "male", "3": "male"}
    ages = {"1": "under_18", "3": "65_and_over", "9": "18_to_64"}
    columns = {"sex": {"column": "x", "codes": codes}, "age": {"column": "x", "codes": ages}}
    run = toy.configuration(tmp_path, data__columns=columns)
    assert das("generate", tmp_path / "new", "--like", run)[0] == 0
    people = pa_csv.read_csv(tmp_path / "new" / "data" / "persons" / "records.csv")
    assert set(people["x"].to_pylist()) == {1, 3}
    columns["age"]["codes"] = {"9": "18_to_64"}
    run = toy.configuration(tmp_path, data__columns=columns)
    code, said = das("generate", tmp_path / "other", "--like", run)
    assert (code, (tmp_path / "other" / "run.yaml").exists()) == (2, False)
    assert "has no code in common with ['age'], which read the same column" in said


def test_a_full_folder_and_other_formats_are_refused(das: Das, tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    run = toy.configuration(tmp_path)
    code, said = das("generate", tmp_path, "--like", run)
    assert code == 2
    assert "is not an empty folder; name a new one, or remove it" in said
    for words in (("--seed", -1), ("--blocks", 0), ("--persons", 0)):
        code, said = das("generate", tmp_path / "new", "--like", run, *words)
        assert (code, "cannot invent these data" in said) == (2, True)
    schema = str(ROOT / "conf" / "schema" / "housing_units.yaml")
    allocation = str(ROOT / "conf" / "allocation" / "housing-units.yaml")
    data = {"input_format": "pl94", "path": "x.zip", "product": "housing_units"}
    levels = [{"name": "state", "digits": 2}, {"name": "block", "digits": 15}]
    document = yaml.safe_load(Path(allocation).read_text())
    shares = {name: {"share": "1/2", "queries": {"detailed": "1"}} for name in ("state", "block")}
    own = tmp_path / "allocation.yaml"
    own.write_text(yaml.safe_dump({**document, "levels": shares}))
    run = toy.configuration(
        tmp_path, schema=schema, data=data, geography={"levels": levels},
        privacy__allocation=str(own), invariants=[],
    )  # fmt: skip
    code, said = das("generate", tmp_path / "new", "--like", run)
    assert code == 2
    assert "data.input_format: is not invented; got pl94" in said
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("kind", ["records", "histograms", "block_table"])
def test_persons_of_a_schema_of_ones_own(das: Das, tmp_path: Path, kind: str) -> None:
    schema = tmp_path / "mine.yaml"
    levels = {"work": ["yes", "no"], "home": ["a", "b", "c"]}
    attributes = [{"name": name, "levels": own} for name, own in levels.items()]
    schema.write_text(yaml.safe_dump({"name": "mine", "attributes": attributes}))
    words = ("--schema", schema, "--format", kind, "--blocks", 20, "--persons", 500)
    code, said = das("generate", tmp_path / "new", *words)
    assert code == 0, said
    found = summary(said)
    assert (found["invented"], found["blocks"]) == (True, 20)
    listed = pq.read_table(tmp_path / "new" / "geounits.parquet")["geocode"].to_pylist()
    assert len(listed) == 20
    assert {len(code) for code in listed} == {15}
    table = pq.read_table(found["data"])
    if kind == "records":
        assert table.num_rows == found["persons"]
        assert table.column_names == ["geocode", "work", "home"]
        assert 250 < table.num_rows < 1000
    code, said = das("generate", tmp_path / "new", *words)
    assert "is not an empty folder" in said


def test_persons_of_a_schema_over_a_list_of_ones_own(das: Das, tmp_path: Path) -> None:
    """A spreadsheet's list: its separator and its lost zeros are found out."""
    words = ("--schema", ROOT / "conf" / "schema" / "toy.yaml", "--list", VILLAGES / "villages.csv")
    code, said = das("generate", tmp_path / "new", *words, "--columns", "village")
    assert code == 2
    assert "expected one of ['Village', 'Prov']; name it by --columns" in said
    code, said = das("generate", tmp_path / "new", *words, "--columns", "Village")
    assert code == 0, said
    listed = pq.read_table(tmp_path / "new" / "geounits.parquet")["geocode"].to_pylist()
    assert listed == sorted(code for code, _ in foreign.villages())
    code, said = das("generate", tmp_path / "x", *words, "--columns", "Village", "--format", "xml")
    assert (code, "format: is unknown; got xml" in said) == (2, True)
