"""An S3 server in this process: moto, honest or lying about conditions.

moto honours If-None-Match and If-Match of PUT (412), and answers 404 for a bucket that is absent. It
takes any credentials. It asks and sets without a lock, so two PUTs of one name at the same time could
both win; here PUTs pass one by one, as a store's own arbiter would have it.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication

from moto.moto_server.werkzeug_app import (
    MotoRequestHandler,
    create_backend_app,
)
from moto.s3.models import s3_backends
from werkzeug.serving import make_server

from tests.servers.store import StoreServer

REGION = "us-east-1"
ACCOUNT = "123456789012"
_CONDITION = "HTTP_IF_NONE_MATCH"


class Lie(Enum):
    """What a server makes of PUT with `If-None-Match: *`."""

    NONE = "keeps it"
    IGNORES = "writes over what is there, as versitygw before January 2026"
    INVERTED = "refuses what is absent and writes over what is there, as RGW on POSIX in July 2026"
    REFUSES = "answers 501 NotImplemented, as stores that know no conditions"


@contextmanager
def s3_server(lie: Lie = Lie.NONE, address: str = "127.0.0.1") -> Iterator[StoreServer]:
    """An S3 server with an empty bucket on a free port.

    Args:
      lie: What it makes of conditions.
      address: Where it listens; `here` of `tests.servers.hosts` for hosts with a network of their own.
    """
    with moto_server(lambda moto: _Lying(moto, lie), address) as (bucket, at):
        yield StoreServer(f"s3://{bucket}", credentials(at), "AWS_ENDPOINT_URL")


@contextmanager
def moto_server(
    before: Callable[[WSGIApplication], WSGIApplication], address: str = "127.0.0.1"
) -> Iterator[tuple[str, tuple[str, int]]]:
    """moto in a thread, with an empty bucket: its name, and host and port.

    Args:
      before: What stands before moto.
      address: Where it listens.
    """
    bucket = f"das{uuid.uuid4().hex[:12]}"
    s3_backends[ACCOUNT]["aws"].create_bucket(bucket, REGION)
    application = before(_OneByOne(create_backend_app("s3")))
    server = make_server(
        address, 0, application, threaded=True, request_handler=_Quiet, processes=1
    )
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield bucket, (address, server.server_port)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        s3_backends[ACCOUNT]["aws"].buckets.pop(bucket)


def credentials(
    address: tuple[str, int], name: str = "testing", secret: str = "testing"
) -> dict[str, str]:
    """Variables by which clients of S3 find a server, and sign."""
    return {
        "AWS_ENDPOINT_URL": "http://{}:{}".format(*address),
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": name,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_REGION": REGION,
    }


class _Quiet(MotoRequestHandler):
    """Prints no line for every request."""

    def log_request(self, *_: object) -> None:
        """Print nothing."""


class _OneByOne:
    """Before moto: PUTs one by one, so that what is asked is still so when it is set."""

    def __init__(self, application: WSGIApplication) -> None:
        self._application = application
        self._writing = threading.Lock()

    def __call__(self, environ: dict[str, Any], respond: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "PUT":
            return self._application(environ, respond)
        with self._writing:
            return list(self._application(environ, respond))


class _Lying:
    """Before that: the lie."""

    def __init__(self, application: WSGIApplication, lie: Lie) -> None:
        self._application = application
        self._lie = lie

    def __call__(self, environ: dict[str, Any], respond: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "PUT" and environ.get(_CONDITION) == "*":
            if self._lie is Lie.REFUSES:
                return _refusal(respond, "501 Not Implemented", "NotImplemented")
            if self._lie is not Lie.NONE:
                del environ[_CONDITION]
            if self._lie is Lie.INVERTED and not _exists(environ["PATH_INFO"]):
                return _refusal(respond, "412 Precondition Failed", "PreconditionFailed")
        return self._application(environ, respond)


def _exists(path: str) -> bool:
    bucket, _, key = path.lstrip("/").partition("/")
    return s3_backends[ACCOUNT]["aws"].get_object(bucket, key) is not None


def _refusal(respond: Callable[..., Any], status: str, code: str) -> list[bytes]:
    body = f"<Error><Code>{code}</Code><Message>so it is</Message></Error>".encode()
    respond(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]
