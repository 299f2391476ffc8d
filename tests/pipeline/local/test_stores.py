"""A whole run whose data, account, release and confidential files lie in a store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jobs.pipeline.config.load import load_run
from jobs.pipeline.storage.place import StoredPlace
from tests.builders import in_process, toy
from tests.builders.places import release_of
from tests.servers.azure import azure_server
from tests.servers.hdfs import hdfs_server
from tests.servers.s3 import s3_server
from tests.servers.versity import versity_server
from topdown_das import DasError, open_release


@pytest.fixture(
    params=[
        pytest.param(lambda _: s3_server(), id="moto"),
        pytest.param(versity_server, id="versitygw", marks=pytest.mark.long),
        pytest.param(azure_server, id="azurite", marks=pytest.mark.long),
        pytest.param(hdfs_server, id="hdfs", marks=pytest.mark.long),
    ]
)
def bucket(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with request.param(tmp_path_factory.mktemp("server")) as server, server.in_environment():
        yield server.url


def test_a_whole_run_in_a_bucket_and_its_release_read_there(tmp_path, bucket, das):
    toy.write_records(tmp_path)
    config = toy.configuration(
        tmp_path,
        **toy.upload(tmp_path, f"{bucket}/data"),
        output__directory=f"{bucket}/runs/toy",
    )
    before = {path.name for path in tmp_path.iterdir()}
    in_process.execute(config)
    out = load_run(config).config.output.directory
    assert isinstance(out, StoredPlace)
    assert (release_of(out).manifest).is_file()
    assert {path.name for path in tmp_path.iterdir()} == before, "nothing was written beside it"
    release = f"{bucket}/runs/toy/release"
    for command in (
        ("verify", release),
        ("inspect", release, "--geounit", "99001"),
        ("estimate", release, "--query", "sex", "--geolevel", "county", "--json"),
        ("inspect", "--reports", release),
        ("areas", release, "--geolevel", "county", "--table", "sex * age[65+]"),
        ("tables", release, "--table", "sex", "--geolevel", "tract", "--to", tmp_path / "tables"),
    ):
        code, printed = das(*command)
        assert code == 0, printed
    own = tmp_path / "tables" / "level=tract" / "sex.csv"
    assert (
        own.read_bytes()
        == (out / "release/products/persons/tables/level=tract/sex.csv").read_bytes()
    )
    opened = open_release(release)
    assert opened.geounits("block")["geocode"].to_pylist() == toy.blocks()
    assert opened.folder == out / "release"
    with pytest.raises(DasError, match="is not the folder of a finished release"):
        open_release(f"{bucket}/runs")
