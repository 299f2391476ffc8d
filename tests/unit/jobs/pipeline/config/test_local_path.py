"""Paths of run files and of the command line: which may be addresses, which files of this machine.

Data, lists of geounits, run folders and accounts may lie in a store. Files of configuration and what
is written beside them are files of this machine; an address in their place is refused at once.
"""

from __future__ import annotations

import inspect
import itertools
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
from jobs.cli.main import main
from jobs.cli.options import AnyPlace
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.local_path import is_endless, local_path, read_place, without_secrets
from jobs.pipeline.config.models.run import RunConfig
from jobs.pipeline.storage.place import Place, StoredPlace
from tests.builders.command_line import leaves
from tests.builders.run_files import to_products
from tests.servers.s3 import s3_server
from tests.servers.store import StoreServer

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
    **{url: "must be a file of this machine" for url in URLS},
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


def test_what_is_no_path_of_this_machine_is_refused():
    for text in REFUSED:
        with pytest.raises(ValueError, match=REFUSED[text]):
            local_path(text)


@pytest.mark.parametrize(
    "text", ["a", "/a/b", "../a", "a:b", "a b", "./~", "./s3a:/x", "a/s3a://x", "1:/x", "é" * 100]
)
def test_other_texts_are_paths(text):
    assert local_path(text) == Path(text)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("s3://bucket", "s3://bucket"),
        ("S3://bucket/a//b/", "s3://bucket/a/b"),
        ("s3a://bucket/x", "s3://bucket/x"),
        ("gs://bucket/x", "gs://bucket/x"),
        ("az://container/x", "az://container/x"),
        ("abfss://container@account.example/x", "abfss://container@account.example/x"),
        ("hdfs://host:8020/x", "hdfs://host:8020/x"),
    ],
)
def test_addresses_of_stores_are_read(text, place):
    found = read_place(text)
    assert isinstance(found, StoredPlace)
    assert str(found) == place
    assert read_place(found) is found


TOLD_BY_MISTAKE = "hunter2"
WRONG_ADDRESSES = {
    "s4://bucket/x": "s4:// is no kind of store that is known",
    "http://example.org/x": "http:// is no kind of store that is known",
    "memory://x/y": "is for tests",
    "s3:///x": "names no bucket or container",
    "hdfs:///x": "names no host",
    f"s3://name:{TOLD_BY_MISTAKE}@bucket/x": "holds a name and password",
    f"hdfs://{TOLD_BY_MISTAKE}@host/x": "holds a name and password",
    f"az://container/x?sig={TOLD_BY_MISTAKE}": "has `[?]` or `#`",
    "s3://bucket/a/../b": "leads upwards",
    "s3://bucket/a\nb": "control character",
    "s3a:/bucket/x": "must be a file of this machine",
    "file:///data/x": "write '/data/x'",
    "~/x": "begins with ~",
}


def test_what_is_no_address_either_is_refused_without_its_secret():
    for text in WRONG_ADDRESSES:
        with pytest.raises(ValueError, match=WRONG_ADDRESSES[text]) as caught:
            read_place(text)
        assert TOLD_BY_MISTAKE not in str(caught.value)
        assert TOLD_BY_MISTAKE not in without_secrets(text) or text.startswith("hdfs")


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
        "data": {"input_format": "records", "path": "persons.csv", "columns": {"hhgq": "hhgq"}},
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
            "data": {"input_format": "histograms", "path": "units.parquet"},
            "privacy": {"rho": "1", "allocation": "allocation.yaml"},
        },
        "output": {"directory": "out"},
    }


STORED = [
    ("data", "path"),
    ("geography", "geounits", "path"),
    ("privacy", "account"),
    ("invariants", 0, "table", "path"),
    ("invariants", 1, "table", "path"),
    ("units", "data", "path"),
    ("output", "directory"),
]
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


@pytest.fixture(scope="module")
def server() -> Iterator[StoreServer]:
    with s3_server() as server:
        yield server


@pytest.fixture
def bucket(server, monkeypatch) -> str:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server.url


def changed(document: dict[str, Any], keys: tuple[str | int, ...], value: str) -> dict[str, Any]:
    """A document with another value under some keys, which it must have."""
    at: Any = document
    for key in keys[:-1]:
        at = at[key]
    assert isinstance(at[keys[-1]], str)
    at[keys[-1]] = value
    return document


WRONG = [
    "file:///data/x",
    "~/x",
    "s4://bucket/x",
    "s3:///x",
    f"s3://name:{TOLD_BY_MISTAKE}@bucket/x",
]


def test_what_is_no_path_is_refused_where_it_stands(tmp_path):
    for keys, text in itertools.product(PATHS, ["s3a://bucket/x", *WRONG]):
        if keys in STORED and text not in WRONG:
            text = "s3a:/bucket/x"
        document = changed(write_files(tmp_path), keys, text)
        run = tmp_path / "run.yaml"
        run.write_text(yaml.safe_dump(to_products(document)))
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(ConfigError) as caught:
            load_run(run)
        assert ".".join(str(key) for key in keys) in str(caught.value)
        expected = WRONG_ADDRESSES if keys in STORED else REFUSED
        assert expected.get(text, "must be a file of this machine") in str(caught.value)
        assert TOLD_BY_MISTAKE not in str(caught.value)
        assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("keys", STORED, ids=lambda keys: ".".join(map(str, keys)))
def test_data_run_folder_and_account_may_lie_in_a_store(tmp_path, bucket, keys):
    suffix = "" if keys[-1] != "path" else ".parquet" if keys[0] == "units" else ".csv"
    url = f"{bucket.replace('s3:', 's3a:')}/x{suffix}"
    document = changed(write_files(tmp_path), keys, url)
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(to_products(document)))
    config = load_run(tmp_path / "run.yaml").config
    assert url.replace("s3a:", "s3:") in config.model_dump_json()


def path_fields(model: type[BaseModel]) -> Iterator[tuple[type[BaseModel], str, bool]]:
    """Every field of the models of a run file that holds a path, and whether in a store too."""
    seen = set()

    def visit(annotation: Any) -> Iterator[tuple[type[BaseModel], str, bool]]:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            if annotation in seen:
                return
            seen.add(annotation)
            for name, field in annotation.model_fields.items():
                kinds = {field.annotation, *inner(field.annotation)}
                if Path in kinds:
                    yield annotation, name, StoredPlace in kinds
                yield from visit(field.annotation)
        for argument in get_args(annotation):
            yield from visit(argument)

    yield from visit(model)


def inner(annotation: Any) -> Iterator[Any]:
    """The types that a type is made of."""
    for argument in get_args(annotation):
        yield argument
        yield from inner(argument)


def test_every_path_of_the_models_is_checked():
    fields = list(path_fields(RunConfig))
    assert len(fields) >= 9
    assert {is_stored for _, _, is_stored in fields} == {True, False}
    for model, name, is_stored in fields:
        key = model.model_fields[name].alias or name
        url, reason = "s3a://bucket/x", "must be a file of this machine"
        if is_stored:
            url, reason = "s4://bucket/x", "no kind of store that is known"
        with pytest.raises(ValueError, match=reason):
            model.model_validate({key: url})


# --- the command line ----------------------------------------------------------------------------


def parameters(command: Callable[..., None]) -> dict[str, tuple[Any, Any, bool]]:
    """Of a command: parameter to its type, what typer is told of it, and whether it is required."""
    hints = get_type_hints(command, include_extras=True)
    found = {}
    for name, one in inspect.signature(command).parameters.items():
        kind, info = get_args(hints[name])[:2]
        found[name] = (kind, info, one.default is inspect.Parameter.empty)
    return found


COMMANDS = {command.callback.__wrapped__: words for words, command in leaves()}
COMMAND_PATHS = [
    (command, name, AnyPlace in {kind, *get_args(kind)})
    for command in COMMANDS
    for name, (kind, _, _) in parameters(command).items()
    if {Path, AnyPlace} & {kind, *get_args(kind)}
]


def test_the_command_line_has_many_paths_and_addresses():
    assert len(COMMAND_PATHS) >= 36
    assert sum(is_stored for _, _, is_stored in COMMAND_PATHS) >= 13


def arguments_of(command: Callable[..., None], name: str, text: str) -> list[str]:
    """What is typed to give one parameter a text, and all that are required something absent."""
    arguments = []
    for other, (_, info, required) in parameters(command).items():
        value = text if other == name else "absent"
        if isinstance(info, ArgumentInfo):
            arguments.append(value)
        elif other == name or required:
            declared = (
                info.default if isinstance(info.default, str) else f"--{other}".replace("_", "-")
            )
            arguments += [declared, value]
    return [*COMMANDS[command], *arguments]


def test_what_is_no_path_of_the_command_line_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for command, name, is_stored in COMMAND_PATHS:
        text, reason = "s3a://bucket/x", "must be a file of this machine"
        if is_stored:
            text, reason = f"s3://name:{TOLD_BY_MISTAKE}@bucket/x", "holds a name and password"
        monkeypatch.setattr(sys, "argv", ["das", *arguments_of(command, name, text)])
        assert main() == 2, sys.argv
        error = capsys.readouterr().err
        assert "ConfigError" in error
        assert reason in error
        assert TOLD_BY_MISTAKE not in error
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom"])
def test_devices_that_do_not_end_are_refused(tmp_path, monkeypatch, capsys, device):
    document = write_files(tmp_path)
    document["privacy"]["account"] = device
    (tmp_path / "run.yaml").write_text(json.dumps(to_products(document)))
    with pytest.raises(ConfigError, match="is an endless device"):
        load_run(tmp_path / "run.yaml")
    monkeypatch.setattr(sys, "argv", ["das", "estimate", "run.yaml", "--area", device])
    assert main() == 2
    assert "is an endless device" in capsys.readouterr().err
    assert not is_endless(Path("/dev/null"))
    assert not is_endless(tmp_path)


def test_functions_for_notebooks_tell_addresses_from_paths(tmp_path, bucket):
    (tmp_path / "run.yaml").write_text(json.dumps(to_products(write_files(tmp_path))))
    with pytest.raises(ConfigError, match="must be a file of this machine"):
        load_run(Path("s3a://bucket/run.yaml"))
    with pytest.raises(ConfigError, match="must be a file of this machine"):
        load_run(tmp_path / "run.yaml", output=Path("s3a://bucket/out"))
    out: Place = read_place(f"{bucket}/out")
    assert load_run(tmp_path / "run.yaml", output=out).config.output.directory == out
    assert list(load_run(tmp_path / "run.yaml").products) == ["units", "persons"]
