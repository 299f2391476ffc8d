"""What every kind of store promises: one battery, over folders, memory and S3; others are long."""

from __future__ import annotations

import pickle
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from obstore.exceptions import GenericError

from jobs.pipeline.storage.place import (
    Place,
    StoredPlace,
    found_under,
    open_input,
    place_of,
    remove_tree,
    store_of,
)
from jobs.pipeline.storage.stores import objects
from jobs.pipeline.storage.stores.store import UnsafeStoreError, probe
from tests.servers.azure import azure_server
from tests.servers.google import google_server
from tests.servers.hdfs import hdfs_server
from tests.servers.s3 import Lie, s3_server
from tests.servers.store import StoreServer
from tests.servers.versity import versity_server

LONG = ("versitygw", "azurite", "hdfs")
Start = Callable[[Path], AbstractContextManager[StoreServer]]


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with s3_server() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server.url


def started(start: Start, folder: Path) -> Iterator[str]:
    """The address of a server; its client is made here, and stays what it was made with."""
    with start(folder) as server:
        place = place_of(server.url)
        assert isinstance(place, StoredPlace)
        with server.in_environment():
            probe(place.store, place.key)
        yield server.url


@pytest.fixture(scope="module")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from started(lambda _: google_server(), tmp_path_factory.mktemp("google"))


@pytest.fixture(scope="module")
def versitygw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from started(versity_server, tmp_path_factory.mktemp("versitygw"))


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from started(azure_server, tmp_path_factory.mktemp("azurite"))


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from started(hdfs_server, tmp_path_factory.mktemp("hdfs"))


@pytest.fixture(
    params=[
        "posix",
        "memory",
        "s3",
        "google",
        *(pytest.param(one, marks=pytest.mark.long) for one in LONG),
    ]
)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty folder of a store."""
    if request.param == "posix":
        return tmp_path
    if request.param == "memory":
        return StoredPlace(f"memory://{uuid.uuid4().hex}", "folder")
    return place_of(request.getfixturevalue(request.param)) / f"folder/{uuid.uuid4().hex}"


def names(folder: Place) -> list[str]:
    store, name = store_of(folder)
    return sorted(store.files(name))


def test_what_is_created_is_there_whole_and_is_not_created_again(folder):
    store, name = store_of(folder / "level=state" / "a b ä.json")
    assert store.create(name, b"one")
    assert not store.create(name, b"other")
    assert store.create(name, b"one"), "the same, which nobody can tell from ours"
    assert store.read(name) == b"one"
    assert store.stat(name).st_size == 3
    assert names(folder) == [name]


def test_of_many_who_create_at_once_one_succeeds(folder):
    store, name = store_of(folder / "manifest")
    for turn in range(5):
        won: list[int] = []
        start = threading.Barrier(8)

        def race(who: int, target: str, won: list[int] = won, start=start) -> None:
            start.wait()
            if store.create(target, f"of {who}".encode()):
                won.append(who)

        racers = [threading.Thread(target=race, args=(who, f"{name}{turn}")) for who in range(8)]
        for one in racers:
            one.start()
        for one in racers:
            one.join()
        assert len(won) == 1
        assert store.read(f"{name}{turn}") == f"of {won[0]}".encode()
    assert len(names(folder)) == 5, "losers leave nothing"


def test_what_is_replaced_is_the_new_one(folder):
    store, name = store_of(folder / "run.json")
    store.replace(name, b"1")
    store.replace(name, b"two")
    assert store.read(name) == b"two"
    assert names(folder) == [name]


@pytest.mark.parametrize("size", [0, 10, 12 << 20])
def test_a_file_of_this_machine_is_uploaded_whole_and_renamed(
    folder, tmp_path_factory, size, monkeypatch
):
    """Large ones in parts, and copied in parts where a store does not copy them at once."""
    source = tmp_path_factory.mktemp("here") / "source"
    source.write_bytes(bytes(range(256)) * (size // 256) + bytes(size % 256))
    store, name = store_of(folder / "part-1.csv")
    _, other = store_of(folder / "total.csv")
    store.upload(name, source)
    assert store.read(name) == source.read_bytes()
    store.replace(other, b"left by somebody")
    for most in (5_000_000_000, 1 << 20):
        monkeypatch.setattr(objects, "_COPIED_AT_ONCE", most)
        store.rename(name, other)
        assert store.read(other) == source.read_bytes()
        assert names(folder) == [other]
        store.rename(name, other)  # again, as after an answer that was lost
        assert names(folder) == [other]
        store.rename(other, name)
    with pytest.raises(FileNotFoundError):
        store.rename(store_of(folder / "none")[1], store_of(folder / "nobody")[1])


def test_what_is_not_there_is_said_to_be_missing(folder):
    store, name = store_of(folder / "nothing")
    for ask in (store.read, store.stat, lambda one: store.read_range(one, 0, 1)):
        with pytest.raises(FileNotFoundError):
            ask(name)
    store.remove([name, f"{name}/more"])
    assert list(store.files(name)) == list(store.entries(name)) == []


def test_empty_files_and_ranges(folder):
    store, name = store_of(folder / "file")
    assert store.create(name, b"")
    assert store.read(name) == b""
    store.replace(name, bytes(range(200)))
    assert store.read_range(name, 10, 13) == bytes((10, 11, 12))
    assert store.read_range(name, 190, 200) == bytes(range(190, 200))


def test_entries_are_what_lies_directly_in_a_folder(folder):
    for name in ("a", "b/c", "b/d/e", "bb"):
        store, key = store_of(folder / name)
        store.create(key, b"")
    store, key = store_of(folder)
    found = {entry.removeprefix(key).strip("/"): kind for entry, kind in store.entries(key)}
    assert found == {"a": False, "b": True, "bb": False}
    assert len(list(store.files(store_of(folder / "b")[1]))) == 2, "`bb` is another folder"


def test_places_are_used_as_paths_are(folder):
    for name in ("one.json", "level=a/_manifest.json", "level=b/deep/_manifest.json"):
        store, key = store_of(folder / name)
        store.create(key, name.encode())
    assert (folder / "one.json").is_file()
    assert not (folder / "one.json").is_dir()
    assert (folder / "level=a").is_dir()
    assert (folder / "level=a").exists()
    assert not (folder / "level=c").exists()
    assert [path.name for path in sorted(folder.iterdir())] == ["level=a", "level=b", "one.json"]
    manifests = found_under(folder, "_manifest.json")
    assert [path.parent.name for path in manifests] == ["level=a", "deep"]
    assert sorted(path.parent.name for path in folder.glob("*/_manifest.json")) == ["level=a"]
    assert [path.name for path in sorted(folder.glob("level=*"))] == ["level=a", "level=b"]
    assert (folder / "one.json").read_text() == "one.json"
    with (folder / "one.json").open("rb") as handle:
        handle.seek(4)
        assert handle.read() == b"json"
    with (folder / "one.json").open(encoding="utf-8") as lines:
        assert list(lines) == ["one.json"]
    assert pickle.loads(pickle.dumps(folder)) == folder
    (folder / "one.json").unlink()
    (folder / "one.json").unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError):
        (folder / "one.json").unlink()
    remove_tree(folder / "level=b")
    assert [path.name for path in folder.iterdir()] == ["level=a"]


def test_large_files_are_read_by_ranges(folder, monkeypatch):
    monkeypatch.setattr("jobs.pipeline.storage.place.READ_AHEAD", 1 << 16)
    data = bytes(range(256)) * (5 << 6)  # more than is read ahead
    store, key = store_of(folder / "part")
    store.create(key, data)
    opened = open_input(folder / "part")
    if isinstance(opened, Path):
        return
    opened.seek(len(data) - 8)
    assert opened.read(100) == data[-8:]
    assert opened.read(1) == b""
    opened.seek(0)
    assert opened.read() == data


def test_a_safe_store_passes_the_probe_and_keeps_nothing_of_it(folder):
    store, key = store_of(folder)
    probe(store, key)
    assert names(folder) == []


@pytest.mark.parametrize("lie", [Lie.IGNORES, Lie.INVERTED, Lie.REFUSES])
def test_a_store_that_lies_is_found_by_the_probe(lie, monkeypatch):
    with s3_server(lie) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        place = StoredPlace(server.url, "folder")
        words, kind = {
            Lie.IGNORES: ("overwrites an existing file", UnsafeStoreError),
            Lie.INVERTED: ("refuses to create a file that is absent", UnsafeStoreError),
            Lie.REFUSES: ("does not know how to create an object only if it is absent", OSError),
        }[lie]
        with pytest.raises(kind, match=words):
            probe(place.store, place.key)


def test_a_store_that_is_gone_is_given_up_in_time(monkeypatch):
    """Not after all tries: each of them may take a minute."""
    tries = []

    def gone(*_: object, **__: object) -> None:
        tries.append(1)
        time.sleep(0.05)
        raise GenericError("error sending request")

    monkeypatch.setattr("obstore.put", gone)
    monkeypatch.setattr(objects, "_WAITS", (0.0,) * 50)
    monkeypatch.setattr(objects, "_PATIENCE", 0.2)
    store = StoredPlace(f"memory://{uuid.uuid4().hex}").store
    with pytest.raises(OSError, match="answered: error sending request"):
        store.create("name", b"data")
    assert 2 <= len(tries) <= 5


def test_a_pickled_place_holds_no_credentials(s3, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
    place = StoredPlace(s3, "folder")
    assert place.store
    assert b"secret" not in pickle.dumps(place)
    assert "secret" not in repr(place)
