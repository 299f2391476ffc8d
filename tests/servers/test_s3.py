from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, GenericError
from obstore.store import ObjectStore, from_url

from tests.servers.s3 import Lie, s3_server
from tests.servers.store import StoreServer


def client(server: StoreServer) -> ObjectStore:
    with server.in_environment():
        return from_url(server.url, retry_config={"max_retries": 0})


def put(store: ObjectStore, name: str, data: bytes) -> str:
    try:
        obstore.put(store, name, data, mode="create")
    except AlreadyExistsError:
        return "refused"
    except GenericError as error:
        return "error 501" if "501 Not Implemented" in str(error) else str(error)
    return "done"


def found(store: ObjectStore, name: str) -> bytes:
    try:
        return bytes(obstore.get(store, name).bytes())
    except FileNotFoundError:
        return b""


@pytest.mark.parametrize(
    ("lie", "answers", "left", "last"),
    [
        (Lie.NONE, ("done", "refused"), b"first", "refused"),
        (Lie.IGNORES, ("done", "done"), b"second", "done"),
        (Lie.INVERTED, ("refused", "refused"), b"", "done"),
        (Lie.REFUSES, ("error 501", "error 501"), b"", "error 501"),
    ],
)
def test_what_a_server_makes_of_the_condition(
    lie: Lie, answers: tuple[str, str], left: bytes, last: str
) -> None:
    with s3_server(lie) as server:
        store = client(server)
        assert (put(store, "a/b", b"first"), put(store, "a/b", b"second")) == answers
        assert found(store, "a/b") == left
        obstore.put(store, "a/b", b"third")  # without a condition all servers write
        assert found(store, "a/b") == b"third"
        assert put(store, "a/b", b"fourth") == last


def test_of_puts_at_one_time_one_is_done() -> None:
    with s3_server() as server, ThreadPoolExecutor(8) as pool:
        store = client(server)
        for name in ("one", "two", "three"):
            answers = [*pool.map(lambda data, name=name: put(store, name, data), [b"x"] * 8)]
            assert sorted(answers) == ["done", *["refused"] * 7]


def test_each_server_has_a_bucket_of_its_own() -> None:
    with s3_server() as one, s3_server() as other:
        assert one.url != other.url
        obstore.put(client(one), "name", b"data")
        assert found(client(other), "name") == b""
    with pytest.raises(GenericError):
        obstore.put(client(one), "name", b"data")
