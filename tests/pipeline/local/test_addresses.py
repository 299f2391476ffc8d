"""Commands that are given addresses: data, run folder and account in a bucket, as users type them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.storage.place import found_under, place_of, store_of
from tests.builders import toy
from tests.servers.s3 import s3_server
from tests.servers.store import StoreServer

Das = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def server() -> Iterator[StoreServer]:
    with s3_server() as server:
        yield server


@pytest.fixture
def bucket(server: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder of its own in a bucket that this process may use."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return f"{server.url}/{tmp_path.name}"


@pytest.fixture
def config(tmp_path: Path, bucket: str) -> Path:
    return in_bucket(tmp_path, bucket)


def in_bucket(folder: Path, url: str, **changes: Any) -> Path:
    """The toy state with data, account and run folder in a bucket; noise of a real run."""
    toy.write_records(folder)
    for name in ("records.csv", "blocks.csv"):
        store, key = store_of(place_of(f"{url}/data/{name}"))
        store.replace(key, (folder / name).read_bytes())
        (folder / name).unlink()
    return toy.configuration(
        folder,
        **{
            "data__path": f"{url}/data/records.csv",
            "geography__geounits": {"path": f"{url}/data/blocks.csv"},
            "privacy__randomness": {"source": "operating_system"},
            "output__directory": f"{url}/out",
            **changes,
        },
    )


def done(das: Das, *words: object) -> str:
    code, text = das(*words)
    assert code == 0, text
    return text


def refused(das: Das, *words: object) -> str:
    code, text = das(*words)
    assert code in (2, 3), text
    return text


def names(url: str) -> list[str]:
    """Names of all files below an address."""
    place = place_of(url)
    return [str(one).removeprefix(url) for one in found_under(place, "*") if one.is_file()]


def test_every_command_takes_the_addresses_of_a_run(
    tmp_path: Path, bucket: str, config: Path, das: Das, here: None
) -> None:
    assert "rho" in done(das, "validate", config)
    assert names(bucket) == ["/data/blocks.csv", "/data/records.csv"], "nothing is left of a probe"
    out = f"{bucket}/out"
    printed = done(das, "run", config)
    assert f"{out}/confidential/report.html" in printed
    assert printed.count("CONFIDENTIAL") == 1
    assert json.loads(done(das, "verify", config).splitlines()[-1])
    assert "complete" in done(das, "resume", out)
    assert "sealed: True" in done(das, "inspect", out)
    assert "protected_total" in done(das, "inspect", out, "--geocode", "99")
    store, key = store_of(place_of(f"{bucket}/area.txt"))
    store.replace(key, "\n".join(toy.blocks()[:2]).encode())
    assert "total" in done(das, "estimate", config, "--area", f"{bucket}/area.txt")
    assert f"{out}/release/report.html" in done(das, "report", out)
    assert "toy" in done(das, "account", config)
    assert f"{out}/confidential/evaluation.json" in done(das, "evaluate", config)
    assert [path.name for path in tmp_path.iterdir()] == ["run.yaml"], "nothing lies beside it"


def test_out_may_be_an_address_where_the_run_file_names_a_folder(
    tmp_path: Path, bucket: str, das: Das, here: None
) -> None:
    config = in_bucket(tmp_path, bucket, output__directory=str(tmp_path / "out"))
    assert f"{bucket}/other/release" in done(das, "measure", config, "--out", f"{bucket}/other")
    assert not (tmp_path / "out").exists()
    assert "give the output.directory of a run" in refused(das, "inspect", f"{bucket}/nothing")


def test_a_store_that_refuses_is_told_in_words(
    config: Path, bucket: str, das: Das, here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobs.storage.stores.objects import ObjectStoreFiles

    def refuse(self: ObjectStoreFiles, folder: str) -> Iterator[tuple[str, bool]]:
        raise PermissionError(13, "it does not let this process list", self._root)

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStoreFiles, "entries", refuse)
        text = refused(das, "run", config)
    assert "it does not let this process list" in text
    assert "das resume" in text
    assert "Traceback" not in text
    done(das, "validate", config)
