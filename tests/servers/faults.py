"""A proxy before an HTTP store that does what networks and busy stores do, where a rule says so.

Rules say at which request: method, pattern of the decoded path, which of those that match. What came
and what was done with it is kept, so that a test can say "the answer of the second PUT of a manifest
was lost, and that happened once". Bodies are passed on whole, unchanged, with the client's Host, so
signed requests stay valid.
"""

from __future__ import annotations

import http.client
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.servers.store import StoreServer


class Reply(Enum):
    """What the client gets of the store's answer."""

    WHOLE = "all of it"
    HALF = "headers and half of the body; then the connection is closed"
    HANG_UP = "none: the connection is closed"
    SILENCE = "none: the connection stays open until the proxy ends"


@dataclass(frozen=True)
class Fault:
    """What is done with a request.

    Attributes:
      name: For tables.
      reaches: Whether the store gets it.
      reply: What the client gets of the store's answer.
      status: Answer this instead, with `code`; the store gets nothing.
      code: Of the error, as S3 names it.
      seconds: Wait so long before it is passed on.
    """

    name: str
    reaches: bool = True
    reply: Reply = Reply.WHOLE
    status: int = 0
    code: str = ""
    seconds: float = 0.0


LOST_ANSWER = Fault("answer lost", reply=Reply.HANG_UP)
LOST_REQUEST = Fault("request lost", reaches=False, reply=Reply.HANG_UP)
HALF_A_BODY = Fault("half a body", reply=Reply.HALF)
SILENCE = Fault("no answer ever", reaches=False, reply=Reply.SILENCE)
DONE_IN_SILENCE = Fault("done, and no answer ever", reply=Reply.SILENCE)
SLOW_DOWN = Fault("503 SlowDown", reaches=False, status=503, code="SlowDown")
INTERNAL_ERROR = Fault("500 InternalError", reaches=False, status=500, code="InternalError")
CONFLICT = Fault(
    "409 ConditionalRequestConflict", reaches=False, status=409, code="ConditionalRequestConflict"
)
FORBIDDEN = Fault("403 AccessDenied", reaches=False, status=403, code="AccessDenied")


def slow(seconds: float) -> Fault:
    """The store gets the request late."""
    return Fault(f"{seconds:g} s late", seconds=seconds)


@dataclass
class Rule:
    """A fault, and the requests that it meets.

    Attributes:
      fault: What is done.
      method: Such as `PUT`; empty for any.
      pattern: A regular expression that is found in the decoded path.
      header: Lower-case name of a header that the request must have, such as `if-none-match`.
      first: The first that it meets of those that match, from 1.
      times: How many it meets.
      matched: How many matched so far.
      met: How many it met.
      arrived: Set when the first one that it meets has come.
      held: Requests that it meets wait until this is set; set unless the rule holds.
    """

    fault: Fault
    method: str = ""
    pattern: str = ""
    header: str = ""
    first: int = 1
    times: int = 10**9
    matched: int = 0
    met: int = 0
    arrived: threading.Event = field(default_factory=threading.Event)
    held: threading.Event = field(default_factory=threading.Event)

    def meets(self, request: Request) -> bool:
        """Whether the fault is done to a request; counts."""
        if self.method not in ("", request.method) or not re.search(self.pattern, request.path):
            return False
        if self.header and self.header not in request.headers:
            return False
        self.matched += 1
        if not self.first <= self.matched < self.first + self.times:
            return False
        self.met += 1
        return True


@dataclass(frozen=True)
class Request:
    """One request.

    Attributes:
      method: Such as `GET`.
      path: Decoded, with the query.
      headers: Values by lower-case name.
      fault: What was done to it; none if it was passed on.
    """

    method: str
    path: str
    headers: dict[str, str]
    fault: Fault | None = None


class FaultProxy:
    """A running proxy.

    Attributes:
      address: Where clients find it.
      requests: All that came, in order of arrival.
    """

    def __init__(self, store: tuple[str, int]) -> None:
        self._store = store
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self.ended = threading.Event()
        self.requests: list[Request] = []
        self._server: _Server | None = None
        self.address = (store[0], 0)
        self.accept()

    def rule(
        self, fault: Fault, method: str = "", pattern: str = "", *, hold: bool = False, **which: Any
    ) -> Rule:
        """Add a rule; of several that meet a request the first one is followed.

        Args:
          fault: What is done.
          method: As `Rule.method`.
          pattern: As `Rule.pattern`.
          hold: Keep what it meets until `rule.held.set()`.
          which: `header`, `first` and `times` of `Rule`.
        """
        rule = Rule(fault, method, pattern, **which)
        if not hold:
            rule.held.set()
        with self._lock:
            self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """Drop all rules, and let go of what they hold."""
        with self._lock:
            rules, self._rules = self._rules, []
        for rule in rules:
            rule.held.set()

    def count(self, method: str = "", pattern: str = "") -> int:
        """How many requests came with a method and a path."""
        with self._lock:
            requests = list(self.requests)
        return sum(
            method in ("", one.method) and bool(re.search(pattern, one.path)) for one in requests
        )

    def refuse(self) -> None:
        """Refuse connections, and close those that are open, as a store that has gone does."""
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()
        self._server = None
        with self._lock:
            opened = list(self._open)
        for connection in opened:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    @property
    def is_refusing(self) -> bool:
        """Whether it refuses connections."""
        return self._server is None

    def accept(self) -> None:
        """Take connections, again at the same address."""
        assert self._server is None
        self._server = _Server(self.address, _handler(self))
        self.address = (self._store[0], self._server.server_port)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """End, and close all connections."""
        self.ended.set()
        self.clear()
        if self._server is not None:
            self.refuse()

    def note(self, request: Request) -> tuple[Fault | None, Rule | None]:
        """Write a request down and decide what is done to it."""
        with self._lock:
            rule = next((one for one in self._rules if one.meets(request)), None)
            fault = rule.fault if rule else None
            self.requests.append(Request(request.method, request.path, request.headers, fault))
        return fault, rule

    def opened(self, connection: socket.socket) -> None:
        """Know a connection, to close it."""
        with self._lock:
            self._open.add(connection)

    def closed(self, connection: socket.socket) -> None:
        """Forget a connection."""
        with self._lock:
            self._open.discard(connection)

    def ask(
        self, method: str, target: str, headers: list[tuple[str, str]], body: bytes
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """The store's whole answer."""
        connection = http.client.HTTPConnection(*self._store, timeout=60)
        try:
            connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            for name, value in headers:
                connection.putheader(name, value)
            connection.endheaders(body or None)
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()


@contextmanager
def fault_proxy(server: StoreServer) -> Iterator[tuple[FaultProxy, StoreServer]]:
    """A proxy without rules before a store, and the store as it is seen through it."""
    proxy = FaultProxy(server.address)
    try:
        yield proxy, server.behind(proxy.address)
    finally:
        proxy.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


def _handler(proxy: FaultProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        pass

    Handler.proxy = proxy
    return Handler


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    proxy: FaultProxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.proxy.opened(self.connection)

    def finish(self) -> None:
        self.proxy.closed(self.connection)
        with suppress(OSError):
            super().finish()

    def handle(self) -> None:
        with suppress(ConnectionError):
            super().handle()

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def parse_request(self) -> bool:
        """Any method is passed on."""
        is_whole = super().parse_request()
        if is_whole and not hasattr(self, f"do_{self.command}"):
            setattr(self, f"do_{self.command}", self._pass)
        return is_whole

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        split = urlsplit(self.path)
        path = unquote(split.path) + (f"?{split.query}" if split.query else "")
        fault, rule = self.proxy.note(Request(self.command, path, headers))
        if rule is not None:
            rule.arrived.set()
            rule.held.wait()
        fault = fault or Fault("none")
        time.sleep(fault.seconds)
        if fault.status:
            self._refuse(fault)
            return
        answer, data = None, b""
        if fault.reaches:
            passed = [
                (name, value)
                for name, value in self.headers.items()
                if name.lower() not in ("connection", "expect")
            ]
            answer, data = self.proxy.ask(self.command, self.path, passed, body)
        if fault.reply is Reply.SILENCE:
            self.proxy.ended.wait()
        if answer is None or fault.reply in (Reply.HANG_UP, Reply.SILENCE):
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._answer(answer, data, is_half=fault.reply is Reply.HALF)

    def _answer(self, answer: http.client.HTTPResponse, data: bytes, *, is_half: bool) -> None:
        self.send_response_only(answer.status, answer.reason)
        has_length = False
        for name, value in answer.getheaders():
            if name.lower() in ("connection", "transfer-encoding", "keep-alive"):
                continue
            has_length |= name.lower() == "content-length"
            self.send_header(name, value)
        if not has_length and answer.status not in (204, 304):
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if is_half else data)
        if is_half:
            self.close_connection = True
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)

    def _refuse(self, fault: Fault) -> None:
        body = f"<Error><Code>{fault.code}</Code><Message>{fault.name}</Message></Error>".encode()
        self.send_response_only(fault.status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
