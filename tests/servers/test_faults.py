from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator

import pytest

from tests.servers import faults
from tests.servers.faults import Fault, FaultProxy, Reply, Rule, fault_proxy
from tests.servers.s3 import s3_server
from tests.servers.store import StoreServer

DATA = b"0123456789" * 1000
# moto answers 403 to readers who sign nothing, and checks no signature.
SIGNED = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=0"
}


class Client:
    """Asks once, without trying again."""

    def __init__(self, server: StoreServer, seconds: float = 10) -> None:
        self._server = server
        self._seconds = seconds
        self._bucket = server.url.removeprefix("s3:/")

    def ask(self, method: str, name: str, body: bytes | None = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(*self._server.address, timeout=self._seconds)
        try:
            connection.request(method, f"{self._bucket}/{name}", body, SIGNED)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@pytest.fixture
def honest() -> Iterator[StoreServer]:
    with s3_server() as server:
        yield server


@pytest.fixture
def proxied(honest: StoreServer) -> Iterator[tuple[FaultProxy, Client]]:
    with fault_proxy(honest) as (proxy, seen):
        yield proxy, Client(seen)


def test_without_rules_all_passes_unchanged(
    honest: StoreServer, proxied: tuple[FaultProxy, Client]
) -> None:
    proxy, client = proxied
    assert client.ask("PUT", "a%20b", DATA) == (200, b"")
    assert client.ask("GET", "a%20b") == Client(honest).ask("GET", "a%20b") == (200, DATA)
    assert client.ask("HEAD", "a%20b") == (200, b"")
    assert client.ask("DELETE", "a%20b") == (204, b"")
    assert client.ask("GET", "a%20b")[0] == 404
    assert (proxy.count("GET"), proxy.count(pattern="/a b$"), proxy.count()) == (2, 5, 5)


@pytest.mark.parametrize(
    ("fault", "is_written"),
    [
        (faults.LOST_ANSWER, True),
        (faults.LOST_REQUEST, False),
        (faults.SILENCE, False),
        (faults.DONE_IN_SILENCE, True),
    ],
    ids=lambda value: value.name if isinstance(value, Fault) else "",
)
def test_an_answer_that_does_not_come(
    honest: StoreServer, proxied: tuple[FaultProxy, Client], fault: Fault, is_written: bool
) -> None:
    proxy, _ = proxied
    rule = proxy.rule(fault, "PUT", "manifest", times=1)
    client = Client(honest.behind(proxy.address), seconds=0.5)
    failure = TimeoutError if fault.reply is Reply.SILENCE else http.client.RemoteDisconnected
    with pytest.raises(failure):
        client.ask("PUT", "manifest", DATA)
    assert (Client(honest).ask("GET", "manifest")[0] == 200) is is_written
    assert client.ask("PUT", "manifest", DATA) == (200, b"")
    assert (rule.matched, rule.met) == (2, 1)
    assert [request.fault for request in proxy.requests] == [fault, None]


@pytest.mark.parametrize(
    "fault",
    [faults.SLOW_DOWN, faults.INTERNAL_ERROR, faults.CONFLICT, faults.FORBIDDEN],
    ids=lambda fault: fault.name,
)
def test_an_error_instead_of_an_answer(
    honest: StoreServer, proxied: tuple[FaultProxy, Client], fault: Fault
) -> None:
    proxy, client = proxied
    rule = proxy.rule(fault, "PUT", first=2, times=2)
    answers = [client.ask("PUT", f"part-{at}", DATA) for at in range(4)]
    assert [status for status, _ in answers] == [200, fault.status, fault.status, 200]
    assert f"<Code>{fault.code}</Code>".encode() in answers[1][1]
    there = [Client(honest).ask("GET", f"part-{at}")[0] for at in range(4)]
    assert there == [200, 404, 404, 200]
    assert rule.met == 2


def test_half_a_body(proxied: tuple[FaultProxy, Client]) -> None:
    proxy, client = proxied
    client.ask("PUT", "part", DATA)
    proxy.rule(faults.HALF_A_BODY, "GET", times=1)
    with pytest.raises(http.client.IncompleteRead) as cut:
        client.ask("GET", "part")
    assert cut.value.partial == DATA[: len(DATA) // 2]
    assert client.ask("GET", "part") == (200, DATA)


def test_a_store_that_refuses_connections_and_comes_back(
    proxied: tuple[FaultProxy, Client],
) -> None:
    proxy, client = proxied
    client.ask("PUT", "part", DATA)
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        client.ask("GET", "part")
    proxy.accept()
    assert client.ask("GET", "part") == (200, DATA)


def test_a_request_that_is_held_comes_after_a_later_one(
    honest: StoreServer, proxied: tuple[FaultProxy, Client]
) -> None:
    proxy, client = proxied
    rule = proxy.rule(faults.slow(0), "PUT", times=1, hold=True)
    straggler = threading.Thread(target=client.ask, args=("PUT", "part", b"late"))
    straggler.start()
    assert rule.arrived.wait(10)
    assert client.ask("PUT", "part", b"early") == (200, b"")
    assert Client(honest).ask("GET", "part") == (200, b"early")
    rule.held.set()
    straggler.join()
    assert Client(honest).ask("GET", "part") == (200, b"late")


def test_the_first_rule_that_meets_a_request_is_followed(
    proxied: tuple[FaultProxy, Client],
) -> None:
    proxy, client = proxied
    rules: list[Rule] = [
        proxy.rule(faults.FORBIDDEN, "PUT", "secret"),
        proxy.rule(faults.SLOW_DOWN, header="content-length"),
    ]
    assert [client.ask("PUT", name, b"1")[0] for name in ("secret", "open")] == [403, 503]
    assert client.ask("GET", "open")[0] == 404
    assert [rule.met for rule in rules] == [1, 1]
    proxy.clear()
    assert client.ask("PUT", "secret", b"1")[0] == 200
