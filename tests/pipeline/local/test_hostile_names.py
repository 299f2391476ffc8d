"""Names that mean something to a terminal or to a markup language: all shown, none obeyed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from das.errors import ConfigError
from jobs.cli.main import app
from jobs.pipeline.tasks.progress import Reporter
from tests.builders import toy
from tests.builders.in_process import execute

NAMES = (
    "[/x]",
    "[bold]x",
    "a[b]c",
    "[link=http://x]y",
    ":warning:",
    "two\u2028lines",
)


def _folder(name: str) -> str:
    return name.replace("/", "_")


def shown(name: str) -> str:
    """How a name must appear."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def hostile(folder: Path, name: str, **changes: Any) -> Path:
    """A toy run in which the name is that of the run, an attribute, a level, a recode, a row, an
    account's product and grant, a file and a folder."""
    if name.isprintable():  # other paths are refused
        folder = folder / _folder(name)
        folder.mkdir()
    toy.write_records(folder)
    text = (folder / "records.csv").read_text()
    (folder / "records.csv").write_text(text.replace(",female,", f',"{name}",'), newline="")
    schema = {
        "name": name,
        "attributes": [
            {"name": name, "levels": [name, "male"]},
            {"name": "age", "levels": list(toy.AGE)},
        ],
        "recodes": [
            {"name": f"{name}2", "attribute": "age",
             "groups": {name: ["under_18"], "adult": list(toy.AGE[1:])}}
        ],
    }  # fmt: skip
    shares = {"total": "1/4", name: "1/4", "detailed": "1/2"}
    levels = {level: {"share": "1/4", "queries": shares} for level in toy.LEVELS}
    for file, document in (("schema", schema), ("allocation", {"name": name, "levels": levels})):
        (folder / f"{file}.yaml").write_text(yaml.safe_dump(document, allow_unicode=False))
    return toy.configuration(
        folder,
        name=name,
        schema=str(folder / "schema.yaml"),
        privacy__allocation=str(folder / "allocation.yaml"),
        privacy__randomness={"source": "operating_system"},
        privacy__product=name,
        privacy__budget_id=name,
        data__columns={name: "sex", "age": "age"},
        invariants=[
            {"query": f"{name}2", "geolevel": "state"},
            {"name": f"{name}3", "row": [{"cells": {name: [name]}}], "geolevel": "state",
             "at_most": 9999},
        ],
        output__tables=["total", name],
        solve={"rounding_passes": [["total"], [f"{name}2", "detailed"]]},
        **changes,
    )  # fmt: skip


def said(*words: object) -> str:
    """What a command prints; it must end well and print nothing that a terminal obeys."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, (result.output, result.exception)
    assert all(c.isprintable() or c == "\n" for c in result.output)
    return "".join(result.output.split())  # cells are wrapped anywhere


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_validate_and_plan(tmp_path: Path, name: str) -> None:
    config = hostile(tmp_path, name)
    wanted = "".join(shown(name).split())
    for command in ("validate", "plan"):
        text = said(command, config, *(["--quiet"] if command == "plan" else []))
        for part in (
            f"{wanted}schema{wanted},",
            f"only{wanted}",
            f"{wanted}2inevery",
            f"{wanted}3",
        ):
            assert part in text, (command, part)


@pytest.mark.parametrize("name", [NAMES[0], NAMES[-1]], ids=("markup", "line"))
def test_run_inspect_account_and_estimate(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = hostile(tmp_path, name)
    out = execute(config, figures=True)
    wanted = "".join(shown(name).split())
    assert not name.isprintable() or _folder(name) in said("inspect", out)
    assert wanted in said("inspect", out, "--geounit", "99001")
    assert wanted in said("estimate", config, "--geounit", "99001", "--query", name)
    assert wanted in said("account", config)
    (tmp_path / "areas.csv").write_text("9900100000,red\x1b[31m[/x]\n")
    assert "red\\x1b[31m[/x]" in said("estimate", config, "--area", tmp_path / "areas.csv")
    assert said("inspect", out, "--geounit", "99001", "--query", "[/y]")
    assert json.loads(CliRunner().invoke(app, ["inspect", str(out), "--json"]).stdout)[
        "run_file"
    ].startswith(str(tmp_path))
    capsys.readouterr()
    with Reporter().line("solve", name):
        pass
    assert all(c.isprintable() or c == "\n" for c in capsys.readouterr().err)


def test_what_a_terminal_obeys_is_refused_in_a_run_file(tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    result = CliRunner().invoke(
        app, ["validate", str(toy.configuration(tmp_path, name="red\x1b[31m"))]
    )
    assert isinstance(result.exception, ConfigError)
    assert "control character" in str(result.exception)
    assert str(result.exception).isprintable()
