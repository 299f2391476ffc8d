"""The groups of `das --help`, the former names of commands, and options that exclude each other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from das.errors import ConfigError
from jobs.cli.main import app
from tests.builders.command_line import SHOWN, command_of
from tests.checkout import ROOT

GROUPS = {
    "Run a census": ["validate", "run", "evaluate", "account", "prepare", "demo"],
    "Design": ["init", "generate", "plan"],
    "Use a release": [
        *("verify", "inspect", "tables", "estimate", "areas", "explore", "export"),
        "compare",
        *("replicate", "nmf"),
    ],
    "Surveys": ["generate-survey"],
}


def test_help_shows_twenty_commands_in_four_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = CliRunner().invoke(app, ["--help"]).output
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if title := re.match(r"╭─ (.*?) ─", line):
            found[title[1]] = []
        elif (name := re.match(r"│ ([a-z-]+) ", line)) and not name[1].startswith("-"):
            [*found.values()][-1].append(name[1])
    assert found.pop("Options") == []
    assert found == GROUPS
    assert sum(map(len, found.values())) == len(SHOWN) == 20


def named() -> list[str]:
    """Return all commands that messages, docstrings and comments of the packages name."""
    packages = ("das", "geography", "invariants", "jobs", "solvers")
    files = [path for package in packages for path in sorted((ROOT / package).rglob("*.py"))]
    texts = [path.read_text(encoding="utf-8") for path in files]
    return sorted({text for one in texts for text in re.findall(r"`das ([a-z][^`\n]*)`", one)})


@pytest.mark.parametrize("text", named())
def test_a_command_that_the_program_names_exists_and_has_its_options(text: str) -> None:
    words = text.split()
    if words != ["nmf"]:
        command, rest = command_of(words)
        options = {word.partition("=")[0] for word in rest if word.startswith("--")}
        assert options <= {option for one in command.params for option in one.opts}


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["run", "FILE", "--check"], "--check"),
        (["run", "FILE", "--moved"], "--moved"),
        (["run", "FILE", "--config", "other.yaml"], "--config"),
        (["run", "FILE", "--solution", "own"], "--solution"),
        (["run", "FILE", "--only", "measure", "--solution", "own"], "--solution"),
        (["run", "FOLDER", "--only", "solve"], "--only"),
        (["run", "FOLDER", "--out", "other"], "--out"),
        (["inspect", "FOLDER", "--to", "other"], "--to"),
        (["inspect", "FOLDER", "--query", "total"], "--query"),
        (["inspect", "FOLDER", "--reports", "--geounit", "99"], "--geounit"),
        (["inspect", "FOLDER", "--reports", "--json"], "--json"),
        (["plan", "FILE", "--spine", "--tables", "total"], "--tables"),
        (["plan", "FILE", "--compare-planners", "--max-worsening", "1"], "--max-worsening"),
        (["plan", "FILE", "--order", "2"], "--order"),
        (["plan", "FILE", "--geolevel", "tract"], "--geolevel"),
        (["verify", "FOLDER", "--product", "units"], "--product"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_that_do_not_apply_are_refused(
    words: list[str], option: str, tmp_path: Path
) -> None:
    file = tmp_path / "run.yaml"
    file.touch()
    places = {"FILE": str(file), "FOLDER": str(tmp_path)}
    error = CliRunner().invoke(app, [places.get(word, word) for word in words]).exception
    assert isinstance(error, ConfigError)
    assert error.where == option
    assert list(tmp_path.iterdir()) == [file]
