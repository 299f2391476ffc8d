"""Paths of run files and of the command line are files of this machine, or refused at once."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import yaml
from pydantic import BaseModel
from typer.models import ArgumentInfo

from das.errors import ConfigError
from jobs.cli import app, main
from jobs.config.load import load_run
from jobs.config.local_path import is_endless, local_path
from jobs.config.models.run import RunConfig

URLS = [
    "s3a://bucket/x",
    "S3://bucket/x",
    "hdfs:///x",
    "gs://bucket/x",
    "abfss://container@account.example/x",
    "http://example.org/x",
    "s3a:/bucket/x",
]
REFUSED = {
    **{url: "object stores are not supported yet; mount one" for url in URLS},
    "file:///data/x": "write '/data/x'",
    "file:/data/x": "write '/data/x'",
    "~/x": "begins with ~",
    "~nobody/x": "begins with ~",
    "": "got no text",
    "a\x00b": "control character",
    "a\nb": "control character",
    "a\ud83d": "half of a character",
    "a" * 256: "is too long",
    "a/" * 3000: "is too long",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_path_of_this_machine_is_refused(text):
    with pytest.raises(ValueError, match=REFUSED[text]):
        local_path(text)


@pytest.mark.parametrize(
    "text", ["a", "/a/b", "../a", "a:b", "a b", "./~", "./s3a:/x", "a/s3a://x", "1:/x", "é" * 100]
)
def test_other_texts_are_paths(text):
    assert local_path(text) == Path(text)


# --- run files -----------------------------------------------------------------------------------


def write_files(folder: Path) -> dict[str, Any]:
    """Write a schema and an allocation; returns a run with every path that one may name."""
    schema = {"name": "s", "attributes": [{"name": "hhgq", "levels": ["home", "jail"]}]}
    units = {"name": "u", "attributes": [{"name": "kind", "levels": ["home", "jail"]}]}
    shares = {"detailed": "1"}
    levels = {name: {"share": "1/2", "queries": shares} for name in ("state", "block")}
    for name, document in (
        ("schema", schema),
        ("units", units),
        ("allocation", {"name": "a", "levels": levels}),
    ):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(document))
    table = {"path": "given.csv", "columns": {"jail": "jail"}}
    return {
        "name": "toy",
        "schema": "schema.yaml",
        "data": {"format": "records", "path": "persons.csv", "columns": {"hhgq": "hhgq"}},
        "geography": {
            "levels": [{"name": "state", "digits": 2}, {"name": "block", "digits": 5}],
            "geounits": {"path": "blocks.csv"},
        },
        "privacy": {"rho": "1", "allocation": "allocation.yaml", "account": "account.jsonl"},
        "invariants": [
            {"query": "total", "geolevel": "state", "table": {**table, "columns": {"total": "n"}}},
            {"facilities": "hhgq", "geolevel": "block", "table": table},
        ],
        "units": {
            "schema": "units.yaml",
            "data": {"format": "histograms", "path": "units.parquet"},
            "privacy": {"rho": "1", "allocation": "allocation.yaml"},
        },
        "output": {"directory": "out"},
    }


PATHS = [
    ("schema",),
    ("data", "path"),
    ("geography", "geounits", "path"),
    ("privacy", "allocation"),
    ("privacy", "account"),
    ("invariants", 0, "table", "path"),
    ("invariants", 1, "table", "path"),
    ("units", "schema"),
    ("units", "data", "path"),
    ("units", "privacy", "allocation"),
    ("output", "directory"),
]


@pytest.mark.parametrize("url", ["s3a://bucket/x", "file:///data/x", "~/x"])
@pytest.mark.parametrize("keys", PATHS, ids=lambda keys: ".".join(map(str, keys)))
def test_no_path_of_a_run_file_may_be_a_url(tmp_path, keys, url):
    document = write_files(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    at: Any = document
    for key in keys[:-1]:
        at = at[key]
    assert isinstance(at[keys[-1]], str)
    at[keys[-1]] = url
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(document))
    with pytest.raises(ConfigError) as caught:
        load_run(tmp_path / "run.yaml")
    assert ".".join(str(key) for key in keys) in str(caught.value)
    assert REFUSED.get(url, "begins with ~") in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == sorted([*before, tmp_path / "run.yaml"])


def path_fields(model: type[BaseModel]) -> Iterator[tuple[type[BaseModel], str]]:
    """Every field of the models of a run file that holds a path."""
    seen = set()

    def visit(annotation: Any) -> Iterator[tuple[type[BaseModel], str]]:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            if annotation in seen:
                return
            seen.add(annotation)
            for name, field in annotation.model_fields.items():
                if field.annotation is Path or Path in get_args(field.annotation):
                    yield annotation, name
                yield from visit(field.annotation)
        for argument in get_args(annotation):
            yield from visit(argument)

    yield from visit(model)


def test_every_path_of_the_models_is_checked():
    fields = list(path_fields(RunConfig))
    assert len(fields) >= 9
    for model, name in fields:
        field = model.model_fields[name]
        key = field.alias or name
        with pytest.raises(ValueError, match="object stores are not supported"):
            model.model_validate({key: "s3a://bucket/x"})


# --- the command line ----------------------------------------------------------------------------


def parameters(command: Callable[..., None]) -> dict[str, tuple[Any, Any, bool]]:
    """Of a command: parameter to its type, what typer is told of it, and whether it is required."""
    hints = get_type_hints(command, include_extras=True)
    found = {}
    for name, one in inspect.signature(command).parameters.items():
        kind, info = get_args(hints[name])[:2]
        found[name] = (kind, info, one.default is inspect.Parameter.empty)
    return found


COMMANDS = [command.callback for command in app.registered_commands]
COMMAND_PATHS = [
    pytest.param(command, name, id=f"{command.__name__}-{name}")
    for command in COMMANDS
    for name, (kind, _, _) in parameters(command).items()
    if kind is Path or Path in get_args(kind)
]


def test_the_command_line_has_many_paths():
    assert len(COMMAND_PATHS) >= 36


@pytest.mark.parametrize(("command", "name"), COMMAND_PATHS)
def test_no_path_of_the_command_line_may_be_a_url(tmp_path, monkeypatch, capsys, command, name):
    monkeypatch.chdir(tmp_path)
    arguments = []
    for other, (_, info, required) in parameters(command).items():
        value = "s3a://bucket/x" if other == name else "absent"
        if isinstance(info, ArgumentInfo):
            arguments.append(value)
        elif other == name or required:
            declared = info.default if isinstance(info.default, str) else f"--{other}"
            arguments += [declared, value]
    monkeypatch.setattr(sys, "argv", ["das", command.__name__, *arguments])
    assert main() == 2
    error = capsys.readouterr().err
    assert "ConfigError" in error
    assert "object stores are not supported yet" in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom"])
def test_devices_that_do_not_end_are_refused(tmp_path, monkeypatch, capsys, device):
    document = write_files(tmp_path)
    document["privacy"]["account"] = device
    (tmp_path / "run.yaml").write_text(json.dumps(document))
    with pytest.raises(ConfigError, match="is a device that does not end"):
        load_run(tmp_path / "run.yaml")
    monkeypatch.setattr(sys, "argv", ["das", "estimate", "run.yaml", "--area", device])
    assert main() == 2
    assert "is a device that does not end" in capsys.readouterr().err
    assert not is_endless(Path("/dev/null"))
    assert not is_endless(tmp_path)


def test_functions_for_notebooks_refuse_urls_too(tmp_path):
    (tmp_path / "run.yaml").write_text(json.dumps(write_files(tmp_path)))
    with pytest.raises(ConfigError, match="object stores"):
        load_run(Path("s3a://bucket/run.yaml"))
    with pytest.raises(ConfigError, match="object stores"):
        load_run(tmp_path / "run.yaml", output=Path("s3a://bucket/out"))
    assert list(load_run(tmp_path / "run.yaml").products) == ["units", "persons"]
