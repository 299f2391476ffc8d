"""Commands that are given addresses: data, run folder and account in a bucket, as users type them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.pipeline.storage.account import read_account
from jobs.pipeline.storage.place import found_under, place_of, store_of
from tests.builders import toy
from tests.builders.survey import write_survey
from tests.servers.faults import FORBIDDEN, fault_proxy
from tests.servers.s3 import Lie, s3_server
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
def closed(bucket: str) -> Iterator[str]:
    """Another bucket of the same server, empty."""
    with s3_server() as other:
        yield other.url


@pytest.fixture
def config(tmp_path: Path, bucket: str) -> Path:
    return in_bucket(tmp_path, bucket)


def in_bucket(folder: Path, url: str, **changes: Any) -> Path:
    """The toy state with data, account and run folder in a bucket; noise of a real run."""
    toy.write_records(folder)
    uploaded = toy.upload(folder, f"{url}/data")
    for name in ("records.csv", "blocks.csv"):
        (folder / name).unlink()
    return toy.configuration(
        folder,
        **{
            **uploaded,
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


def downloaded(url: str, folder: Path) -> Path:
    """A copy on this disk of all that lies below an address, as any tool makes one."""
    for name in names(url):
        target = folder / name.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(place_of(f"{url}{name}").read_bytes())
    return folder


def test_every_command_takes_the_addresses_of_a_run_in_two_buckets(
    tmp_path: Path, bucket: str, closed: str, das: Das, here: None
) -> None:
    config = in_bucket(tmp_path, bucket, output__confidential=f"{closed}/closed")
    assert "rho" in done(das, "validate", config)
    assert names(bucket) == ["/data/blocks.csv", "/data/records.csv"], "nothing is left of a probe"
    assert names(closed) == []
    out = f"{bucket}/out"
    printed = done(das, "run", config)
    secret = [line.split()[0] for line in printed.splitlines() if line.endswith("CONFIDENTIAL")]
    assert secret == [f"{closed}/closed/products/persons/report.html"]
    assert {"/closed/OWNER.json", "/closed/products/persons/evaluation.json"} <= set(names(closed))
    assert not [name for name in names(bucket) if "confidential" in name or "histogram" in name]

    verified = json.loads(done(das, "verify", config).splitlines()[-1])
    assert "complete" in done(das, "run", out)
    assert "finalized: True" in done(das, "inspect", out)
    assert "protected_total" in done(das, "inspect", out, "--geounit", "99")
    store, key = store_of(place_of(f"{bucket}/area.txt"))
    store.replace(key, "\n".join(toy.blocks()[:2]).encode())
    assert "total" in done(das, "estimate", config, "--area", f"{bucket}/area.txt")
    assert f"{closed}/closed/products/persons/report.html" in done(das, "inspect", "--reports", out)
    assert "toy" in done(das, "account", config)
    done(das, "run", "--only", "solve", config, "--solution", "again")
    assert "again" in done(das, "inspect", out)
    assert [path.name for path in tmp_path.iterdir()] == ["run.yaml"], "nothing lies beside it"

    # The release is the same wherever it is copied to.
    copy = downloaded(out, tmp_path / "copy")
    again = json.loads(done(das, "verify", copy).splitlines()[-1])
    assert again == verified
    assert "finalized: True" in done(das, "inspect", copy)
    account = downloaded(f"{bucket}/data", tmp_path / "data") / "records.csv.das-account.jsonl"
    assert [spent.grant for spent in read_account(account)] == ["1"]


def test_a_survey_lies_in_two_buckets(
    tmp_path: Path, bucket: str, closed: str, das: Das, here: None
) -> None:
    config = write_survey(tmp_path)
    data = tmp_path / "persons.csv"
    store, key = store_of(place_of(f"{bucket}/data/persons.csv"))
    store.replace(key, data.read_bytes())
    data.unlink()
    document = yaml.safe_load(config.read_text())
    document["data"]["path"] = f"{bucket}/data/persons.csv"
    document["output"] = {"directory": f"{bucket}/out", "confidential": f"{closed}/closed"}
    config.write_text(yaml.safe_dump(document))
    before = {path.name for path in tmp_path.iterdir()}
    done(das, "validate", config)
    done(das, "run", config)
    done(das, "run", config)
    assert f"{closed}/closed/report.html" in done(das, "inspect", "--reports", f"{bucket}/out")
    done(das, "run", f"{bucket}/out")
    verified = done(das, "verify", config)
    assert "finalized: True" in done(das, "inspect", f"{bucket}/out")
    assert {path.name for path in tmp_path.iterdir()} == before
    copy = downloaded(f"{bucket}/out", tmp_path / "copy")
    assert done(das, "verify", copy) == verified


def test_out_may_be_an_address_where_the_run_file_names_a_folder(
    tmp_path: Path, bucket: str, das: Das, here: None
) -> None:
    config = in_bucket(tmp_path, bucket, output__directory=str(tmp_path / "out"))
    assert f"{bucket}/other/release" in done(
        das, "run", "--only", "measure", config, "--out", f"{bucket}/other"
    )
    assert not (tmp_path / "out").exists()
    assert "give the output.directory of a run" in refused(das, "inspect", f"{bucket}/nothing")


def test_a_store_that_refuses_is_told_in_words(
    config: Path, bucket: str, das: Das, here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobs.pipeline.storage.stores.objects import ObjectStoreFiles

    def refuse(self: ObjectStoreFiles, folder: str) -> Iterator[tuple[str, bool]]:
        raise PermissionError(13, "it does not let this process list", self._root)

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStoreFiles, "entries", refuse)
        text = refused(das, "run", config)
    assert "it does not let this process list" in text
    assert "das run" in text
    assert "Traceback" not in text
    done(das, "validate", config)


# --- stores that cannot be worked in --------------------------------------------------------------


def wrong_store(server: StoreServer, monkeypatch: pytest.MonkeyPatch, **changes: str) -> None:
    for name, value in {**server.environment, **changes}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("command", ["validate", "run"])
@pytest.mark.parametrize("lie", [Lie.IGNORES, Lie.INVERTED, Lie.REFUSES])
def test_a_store_that_ignores_conditions_is_refused(
    tmp_path: Path, das: Das, here: None, monkeypatch: pytest.MonkeyPatch, lie: Lie, command: str
) -> None:
    monkeypatch.setattr("jobs.pipeline.storage.stores.objects._WAITS", (0.0,) * 6)
    with s3_server(lie) as server:
        wrong_store(server, monkeypatch)
        toy.write_records(tmp_path)
        config = toy.configuration(tmp_path, output__directory=f"{server.url}/out")
        text = refused(das, command, config)
        assert f"{server.url}/out: lies in a store that is not safe for runs" in text
        assert "docs/storage.md" in text
        assert names(server.url) == []
    done(das, "validate", toy.configuration(tmp_path))


def root_keys(place: str) -> dict[str, dict[str, Any]]:
    """Every key that may name a place in a store, with a place there."""
    return {
        "output.directory": {"output__directory": place},
        "output.confidential": {"output__confidential": place},
        "privacy.account": {
            "privacy__account": f"{place}/account.jsonl",
            "privacy__randomness": {"source": "operating_system"},
        },
        "data.path": {"data__path": f"{place}/records.csv"},
        "geography.geounits": {"geography__geounits": {"path": f"{place}/blocks.csv"}},
    }


@pytest.mark.parametrize("key", root_keys(""))
@pytest.mark.parametrize("command", ["validate", "run"])
def test_a_bucket_that_is_not_there_is_named(
    tmp_path: Path, bucket: str, das: Das, here: None, key: str, command: str
) -> None:
    toy.write_records(tmp_path)
    config = toy.configuration(tmp_path, **root_keys("s3://absent-bucket/x")[key])
    text = refused(das, command, config)
    assert "there is no bucket or container s3://absent-bucket" in text
    assert not (tmp_path / "out" / "run.json").exists()


@pytest.mark.parametrize("key", root_keys(""))
@pytest.mark.parametrize("command", ["validate", "run"])
def test_missing_credentials_are_told(
    tmp_path: Path,
    bucket: str,
    das: Das,
    here: None,
    monkeypatch: pytest.MonkeyPatch,
    key: str,
    command: str,
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setattr("jobs.pipeline.storage.stores.kinds._CLIENTS", {})
    toy.write_records(tmp_path)
    config = toy.configuration(tmp_path, **root_keys(f"{bucket}/x")[key])
    text = refused(das, command, config)
    assert "this process has no credentials" in text
    assert not (tmp_path / "out" / "run.json").exists()


@pytest.mark.parametrize("key", ["output.directory", "output.confidential", "privacy.account"])
@pytest.mark.parametrize("command", ["validate", "run"])
def test_a_bucket_that_may_only_be_read_is_told(
    tmp_path: Path,
    server: StoreServer,
    bucket: str,
    das: Das,
    here: None,
    monkeypatch: pytest.MonkeyPatch,
    key: str,
    command: str,
) -> None:
    toy.write_records(tmp_path)
    config = toy.configuration(tmp_path, **root_keys(f"{bucket}/x")[key])
    with fault_proxy(server) as (proxy, seen):
        wrong_store(seen, monkeypatch)
        monkeypatch.setattr("jobs.pipeline.storage.stores.kinds._CLIENTS", {})
        proxy.rule(FORBIDDEN, "PUT", "")
        text = refused(das, command, config)
        assert names(bucket) == []
    assert "does not let this process do that: its credentials are wrong or lack the right" in text
    assert f"{bucket}/x" in text
    assert not (tmp_path / "out" / "run.json").exists()


@pytest.mark.parametrize("command", ["validate", "run"])
def test_a_client_that_is_not_installed_is_named(
    tmp_path: Path,
    bucket: str,
    das: Das,
    here: None,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    toy.write_records(tmp_path)
    config = toy.configuration(tmp_path, output__directory=f"{bucket}/x")
    monkeypatch.setattr("jobs.pipeline.storage.stores.kinds._CLIENTS", {})
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    text = refused(das, command, config)
    assert "needs the package obstore, which is not installed here" in text
    assert "pip install '.[objects]'" in text
