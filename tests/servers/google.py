"""Google Cloud Storage's XML interface, in this process: moto behind a translation of headers.

The interface is that of S3 but for its conditions and its signs of who asks. Honours
`x-goog-if-generation-match: 0` of PUT (412), and copies. Takes anybody. Not Google's own work: it shows that
addresses, variables and answers fit together, not what Google's servers do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication

from tests.servers.s3 import moto_server
from tests.servers.store import StoreServer

# moto answers 403 to readers who sign nothing, and checks no signature.
_SIGNED = (
    "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=0"
)


@contextmanager
def google_server() -> Iterator[StoreServer]:
    """Start the server with an empty bucket."""
    with moto_server(_Translated) as (bucket, (host, port)):
        variables = {
            "GOOGLE_BASE_URL": f"http://{host}:{port}",
            "GOOGLE_BEARER_TOKEN": "testing",
            "GOOGLE_ALLOW_HTTP": "true",
        }
        yield StoreServer(f"gs://{bucket}", variables, "GOOGLE_BASE_URL")


class _Translated:
    def __init__(self, application: WSGIApplication) -> None:
        self._application = application

    def __call__(self, environ: dict[str, Any], respond: StartResponse) -> Iterable[bytes]:
        environ["HTTP_AUTHORIZATION"] = _SIGNED
        if environ.pop("HTTP_X_GOOG_IF_GENERATION_MATCH", None) == "0":
            environ["HTTP_IF_NONE_MATCH"] = "*"
        if "HTTP_X_GOOG_COPY_SOURCE" in environ:
            environ["HTTP_X_AMZ_COPY_SOURCE"] = environ.pop("HTTP_X_GOOG_COPY_SOURCE")

        def answer(status: str, headers: list[tuple[str, str]], *more: Any) -> Callable[..., Any]:
            return respond(status, [*headers, ("x-goog-generation", "1")], *more)

        return self._application(environ, answer)
