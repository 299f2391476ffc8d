"""What people get wrong on the way to a first release: told by `das validate`, cause and way out."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from jobs.cli.main import app
from tests.builders import toy
from tests.checkout import ROOT

Das = Callable[..., tuple[int, str]]
TOY = yaml.safe_load((ROOT / "conf" / "allocation" / "toy.yaml").read_text())


def rewritten(name: str, *changes: tuple[str, str]) -> Callable[[Path], dict[str, Any]]:
    """A file of the toy state with other text."""

    def change(folder: Path) -> dict[str, Any]:
        text = (folder / name).read_text()
        for before, after in changes:
            text = text.replace(before, after)
        (folder / name).write_text(text)
        return {}

    return change


def allocation(**levels: Any) -> Callable[[Path], dict[str, Any]]:
    """The allocation with other geolevels; None leaves one out."""

    def change(folder: Path) -> dict[str, Any]:
        found = {key: one for key, one in (TOY["levels"] | levels).items() if one is not None}
        (folder / "own.yaml").write_text(yaml.safe_dump({"name": "own", "levels": found}))
        return {"privacy__allocation": str(folder / "own.yaml")}

    return change


def says(**changes: Any) -> Callable[[Path], dict[str, Any]]:
    return lambda _: changes


MISTAKES: dict[str, tuple[Callable[[Path], dict[str, Any]], tuple[str, ...]]] = {
    "a share that is no fraction": (
        allocation(state={**TOY["levels"]["state"], "share": 0.25}),
        ("levels.state.share", "0.25", '"1/4"'),
    ),
    "semicolons": (
        rewritten("records.csv", (",", ";")),
        ("['block', 'sex', 'age']", "separated by ';': set data.delimiter"),
    ),
    "semicolons in the list": (
        rewritten("blocks.csv", ("geocode", "geocode;name"), ("000\n", "000;x\n")),
        ("separated by ';': set geography.geounits.delimiter",),
    ),
    "several roots": (
        rewritten("blocks.csv", ("99001", "98001")),
        ("do not share one root", "add a geolevel with 0 digits on top"),
    ),
    "a geolevel without a share": (
        allocation(tract=None),
        ("tract", "give every geolevel of the run a share and queries under `levels`"),
    ),
    "nothing detailed": (
        allocation(block={**TOY["levels"]["block"], "queries": {"total": "1"}}),
        ("geolevel block", "give detailed a share"),
    ),
    "a blank in a header": (
        rewritten("records.csv", ("age", "age ")),
        ("columns ['block', 'sex', 'age ']", "also ['age']"),
    ),
    "a workbook": (
        says(data__path="persons.xlsx"),
        ("persons.xlsx: has an unknown file type", ".parquet"),
    ),
    "leading zeros of the list": (
        rewritten("blocks.csv", ("99", "9")),
        ("blocks.csv", "expected 10 letters or digits", "leading_zeros: lost"),
    ),
    "a table of nothing": (
        says(output__tables=["totals"]),
        ("got totals", "total, detailed, or some of ['sex', 'age', 'votingage'] joined by *"),
    ),
    "another name for an attribute": (
        says(data__columns={"sex": "sex", "agegrp": "age"}),
        ("lacks the attribute age", "data.columns.agegrp: is no attribute of the schema"),
    ),
    "labels instead of codes": (
        says(data__columns={"sex": {"column": "sex", "codes": {"1": "man"}}, "age": "age"}),
        ("data.columns.sex.codes.1: names an unknown level; got man",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_before_anything_is_read(das: Das, tmp_path: Path, mistake: str) -> None:
    toy.write_records(tmp_path)
    change, words = MISTAKES[mistake]
    code, said = das("validate", toy.configuration(tmp_path, **change(tmp_path)))
    assert code in (2, 3), said
    assert [word for word in words if word not in said] == []
    assert not (tmp_path / "out").exists()


def test_a_key_of_another_section_is_told_with_its_place(das: Das, tmp_path: Path) -> None:
    run = toy.configuration(tmp_path)
    document = yaml.safe_load(run.read_text())
    (product,) = document["products"].values()
    product["privacy"]["budget_id"] = "2"
    run.write_text(yaml.safe_dump(document))
    said = das("validate", run)[1]
    assert "budget_id: is not a known key here; it belongs to privacy.budget_id" in said


@pytest.mark.parametrize(
    ("name", "what"), [("schema", "a schema"), ("allocation", "an allocation")]
)
def test_a_file_that_a_run_file_names_is_no_run_file(das: Das, name: str, what: str) -> None:
    code, said = das("run", ROOT / "conf" / name / "toy.yaml")
    assert (code, f"toy.yaml: is {what}; expected the run file that names it" in said) == (2, True)


def test_a_folder_that_is_not_there_is_told(das: Das, tmp_path: Path) -> None:
    assert "absent: does not exist; expected a run file" in das("run", tmp_path / "absent")[1]
    assert "does not exist" in das("run", tmp_path / "absent", "--check")[1]


@pytest.mark.parametrize("command", ["account", "evaluate"])
def test_a_folder_is_no_run_file(das: Das, tmp_path: Path, command: str) -> None:
    release = tmp_path / "out" / "release"
    release.mkdir(parents=True)
    assert "is a folder; expected a run file" in das(command, release)[1]
    (tmp_path / "out" / "run.json").write_text('{"run_file": "/office/run.yaml"}')
    for folder in (release, release.parent):
        assert "is a folder; expected its run file /office/run.yaml" in das(command, folder)[1]


def test_an_account_that_is_not_there_is_told(das: Das, tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    code, said = das("account", toy.configuration(tmp_path))
    assert (code, "no budget was granted yet" in said) == (0, True)


def test_mistakes_of_all_files_are_told_together(das: Das, tmp_path: Path) -> None:
    """Of the data, of the list and of a public table, after those of the run file."""
    toy.write_records(tmp_path)
    rewritten("records.csv", ("age", "Age"))(tmp_path)
    rewritten("blocks.csv", ("geocode", "code"))(tmp_path)
    table = {"path": str(tmp_path / "table.csv"), "columns": {"total": "all"}}
    (tmp_path / "table.csv").write_text("geocode,everybody\n99,7\n")
    invariants = [{"query": "total", "geolevel": "state", "table": table}]
    code, said = das("validate", toy.configuration(tmp_path, invariants=invariants))
    assert code == 2
    for name, missing in (("records", "['age']"), ("blocks", "['geocode']"), ("table", "['all']")):
        assert f"{name}.csv: lacks columns" in said
        assert missing in said


def test_no_more_than_names_of_columns_is_read_of_the_data(das: Das, tmp_path: Path) -> None:
    """What stands below the header may be anything; `das validate` does not see it."""
    toy.write_records(tmp_path)
    (tmp_path / "records.csv").write_bytes(b"block,sex,age\n" + b"\xff\x00;" * 50)
    code, said = das("validate", toy.configuration(tmp_path))
    assert code == 0, said
    assert "does not exist yet" not in said


def test_mistakes_of_all_columns_are_told_in_one_pass(das: Das, tmp_path: Path) -> None:
    """On the terminal, with codes; the account says that a check failed, and nothing else."""
    toy.write_records(tmp_path)
    data = tmp_path / "records.csv"
    good = data.read_text()
    header, *rows = good.splitlines()
    rows[1] = rows[1].replace("male", "secretcode", 1)
    rows[2] = ",".join([*rows[2].split(",")[:-1], ""])
    rows[3] = f"98{rows[3][2:]}"
    data.write_text("\n".join([header, *rows, ""]))
    run = toy.configuration(tmp_path)
    assert das("validate", run)[0] == 0
    code, said = das("validate", run, "--data")
    assert code == 2, said
    assert "row 3, column sex: unknown code" in said
    assert "secretcode" in said
    assert "row 4, column age: code is missing" in said
    refusal = said.splitlines()[-1]
    assert "data: do not fit the run file" in refusal
    assert "secretcode" not in refusal
    (account,) = tmp_path.glob("*.das-account.jsonl")
    assert account.read_text().count('"failed_check"') == 1
    assert "secretcode" not in account.read_text()
    assert "row 3" not in account.read_text()
    assert not (tmp_path / "out").exists()
    data.write_text("\n".join([header, *rows[3:], ""]))
    code, said = das("validate", run, "--data")
    assert (code, "records.csv, row 2: is not in the list" in said) == (2, True), said
    data.write_text(good)
    code, said = das("validate", run, "--data")
    assert (code, "every geocode and code is legal" in said) == (0, True), said


def test_a_record_that_is_there_twice_is_found(das: Das, tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    data = tmp_path / "records.csv"
    header, *rows = data.read_text().splitlines()
    numbered = [f"{header},house,nr", *(f"{row},{n // 3},{n % 3}" for n, row in enumerate(rows))]
    data.write_text("\n".join([*numbered, ""]))
    run = toy.configuration(tmp_path)
    document = yaml.safe_load(run.read_text())
    (product,) = document["products"].values()
    product["data"]["unique"] = ["house", "nr"]
    run.write_text(yaml.safe_dump(document))
    code, said = das("validate", run, "--data")
    assert (code, "every geocode and code is legal" in said) == (0, True), said
    data.write_text("\n".join([*numbered, rows[0] + ",0 ,1", ""]))
    assert das("validate", run)[0] == 0
    code, said = das("validate", run, "--data")
    assert code == 2, said
    assert f"row {len(rows) + 2}: repeats the record of an earlier row" in said
    (account,) = tmp_path.glob("*.das-account.jsonl")
    assert account.read_text().count('"failed_check"') == 1
    code, said = das("generate", tmp_path / "invented", "--like", run, "--persons", 50)
    assert (code, "data.unique" in said) == (0, True), said
    assert "unique" not in (tmp_path / "invented" / "run.yaml").read_text()


def test_names_that_are_almost_right_are_told(das: Das, tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    run = toy.configuration(tmp_path, output__tables=["votinage"])
    assert "got votinage, did you mean votingage?" in das("validate", run)[1]
    run.write_text(run.read_text().replace("allocation:", "alocation:"))
    assert "alocation: is not a known key, did you mean allocation?" in das("validate", run)[1]
    assert (
        "got prsons, did you mean persons?"
        in das("plan", toy.configuration(tmp_path), "--product", "prsons")[1]
    )


def test_data_that_are_not_there_are_told_before_an_account(das: Das, tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    (tmp_path / "people.csv.das-account.jsonl").touch()
    real = {"privacy__randomness": {"source": "operating_system"}}
    code, said = das("validate", toy.configuration(tmp_path, data__path="absent.csv", **real))
    assert (code, "does not exist yet: products.persons.data.path" in said) == (0, True), said


def test_files_that_are_not_there_yet_are_named_and_the_others_checked(
    das: Das, tmp_path: Path
) -> None:
    toy.write_records(tmp_path)
    (tmp_path / "records.csv").unlink()
    code, said = das("validate", toy.configuration(tmp_path))
    assert code == 0, said
    line = f"does not exist yet: products.persons.data.path: {tmp_path}/records.csv"
    assert line in " ".join(said.split())  # lines are folded to the width of the terminal
    rewritten("blocks.csv", ("geocode", "code"))(tmp_path)
    code, said = das("validate", toy.configuration(tmp_path))
    assert code == 2
    assert "blocks.csv: lacks columns" in said


def test_who_may_not_read_the_data_can_check_the_rest(
    das: Das, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy.write_records(tmp_path)
    rewritten("records.csv", ("age", "Age"))(tmp_path)
    data, may = str(tmp_path / "records.csv"), os.access
    monkeypatch.setattr("os.access", lambda path, mode: str(path) != data and may(path, mode))
    code, said = das("validate", toy.configuration(tmp_path))
    assert code == 0, said
    line = f"cannot be read here, so not checked: products.persons.data.path: {data}"
    assert line in " ".join(said.split())


@pytest.mark.parametrize("command", ["validate", "plan", "run --only measure"])
def test_a_list_that_comes_from_the_data_is_told(here: None, tmp_path: Path, command: str) -> None:
    """In every command that stands before the first draw, with what to do."""
    toy.write_records(tmp_path)
    run = toy.configuration(tmp_path, geography__geounits=None)
    done = CliRunner().invoke(app, [*command.split(), str(run)])
    assert done.exit_code == 0, done.output
    line = "which block exists comes from the data and is published; give geography.geounits"
    assert line in " ".join(done.output.split())
