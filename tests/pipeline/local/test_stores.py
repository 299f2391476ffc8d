"""A whole run whose data, account, release and confidential files lie in a store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.config.load import load_run
from jobs.storage.place import StoredPlace, place_of, store_of
from tests.builders import in_process, toy
from tests.servers.s3 import s3_server


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with s3_server() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server.url


def upload(folder: Path, url: str) -> None:
    for name in ("records.csv", "blocks.csv"):
        store, key = store_of(place_of(f"{url}/data/{name}"))
        store.replace(key, (folder / name).read_bytes())


def test_a_whole_run_in_a_bucket(tmp_path, bucket):
    toy.write_records(tmp_path)
    upload(tmp_path, bucket)
    config = toy.configuration(
        tmp_path,
        data__path=f"{bucket}/data/records.csv",
        geography__geounits={"path": f"{bucket}/data/blocks.csv"},
        output__directory=f"{bucket}/runs/toy",
    )
    before = {path.name for path in tmp_path.iterdir()}
    in_process.execute(config)
    out = load_run(config).config.output.directory
    assert isinstance(out, StoredPlace)
    assert (out / "release" / "manifest.json").is_file()
    assert {path.name for path in tmp_path.iterdir()} == before, "nothing was written beside it"
