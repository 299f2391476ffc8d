"""Stores of other makes than the one in this process keep conditions, and refuse strangers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import obstore
import pytest
from hdfs_native import Client, WriteOptions
from obstore.exceptions import AlreadyExistsError, PermissionDeniedError
from obstore.store import ObjectStore, from_url

from tests.servers.azure import azure_server
from tests.servers.hdfs import hdfs_server
from tests.servers.store import StoreServer
from tests.servers.versity import versity_server

pytestmark = pytest.mark.long
Start = Callable[[Path], AbstractContextManager[StoreServer]]


@pytest.fixture(
    scope="module",
    params=[
        (versity_server, {"AWS_SECRET_ACCESS_KEY": "wrong"}),
        (azure_server, {"AZURE_STORAGE_ACCOUNT_KEY": "d3Jvbmc="}),
    ],
    ids=["versitygw", "Azurite"],
)
def objects(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[StoreServer, StoreServer]]:
    """A server, and the same with a wrong secret."""
    start, wrong = request.param
    with start(tmp_path_factory.mktemp("objects")) as server:
        yield server, replace(server, environment={**server.environment, **wrong})


def client(server: StoreServer) -> ObjectStore:
    with server.in_environment():
        return from_url(server.url)


def is_created(store: ObjectStore, name: str, data: bytes) -> bool:
    try:
        obstore.put(store, name, data, mode="create")
    except AlreadyExistsError:
        return False
    return True


def test_of_creates_at_one_time_one_wins(objects: tuple[StoreServer, StoreServer]) -> None:
    store = client(objects[0])
    for turn in range(10):
        name = f"folder/race {turn}"
        datas = [f"writer {at}".encode() * 1000 for at in range(16)]
        with ThreadPoolExecutor(len(datas)) as pool:
            won = [*pool.map(lambda data, name=name: is_created(store, name, data), datas)]
        assert won.count(True) == 1
        assert bytes(obstore.get(store, name).bytes()) == datas[won.index(True)]
        assert not is_created(store, name, b"later")


def test_a_wrong_secret_is_refused(objects: tuple[StoreServer, StoreServer]) -> None:
    server, stranger = objects
    obstore.put(client(server), "there", b"data")
    with pytest.raises(PermissionDeniedError):
        obstore.get(client(stranger), "there")
    with pytest.raises(PermissionDeniedError):
        obstore.put(client(stranger), "other", b"data")


def test_hdfs_keeps_conditions_and_permissions(tmp_path: Path) -> None:
    with hdfs_server(tmp_path) as server, server.in_environment():
        root, home = server.url.rsplit("/user/", 1)
        folder = f"/user/{home}"
        ours = Client(root)

        def moved(at: int) -> bool:
            with ours.create(f"{folder}/draft-{at}", WriteOptions(overwrite=False)) as file:
                file.write(b"%d" % at)
                file.hsync()
            try:
                ours.rename(f"{folder}/draft-{at}", f"{folder}/name", overwrite=False)
            except FileExistsError:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            won = [*pool.map(moved, range(8))]
        assert won.count(True) == 1
        assert ours.read(f"{folder}/name").read() == b"%d" % won.index(True)
        with pytest.raises(RuntimeError, match="AccessControlException"):
            ours.mkdirs("/elsewhere", 0o700, True)
        stranger = replace(server, environment={"HADOOP_USER_NAME": "stranger"})
        with stranger.in_environment():  # asked for when the client connects
            theirs = Client(root)
            with pytest.raises(RuntimeError, match="AccessControlException"):
                theirs.read(f"{folder}/name")
