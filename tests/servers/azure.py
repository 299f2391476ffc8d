"""Azure Blob storage: Azurite of npm, Microsoft's own emulator.

Honours If-None-Match of PUT (409 BlobAlreadyExists). Checks signatures, under the account and key that
its documentation gives to everybody.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path

from tests.pipeline.spark.cluster import free_port, wait_for
from tests.servers.downloads import npm_package
from tests.servers.processes import running
from tests.servers.store import StoreServer

_VERSION = "3.37.0"
_BEFORE = "2026-11-15"  # of the dependencies
_DIGEST = "10aaa5ba6dbbb86a3169cf227f8d0214266da3d5c3ce7229ef5bb1d94258c5b5"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
CONTAINER = "das"


@contextmanager
def azure_server(folder: Path) -> Iterator[StoreServer]:
    """Start the server with an empty container.

    Args:
      folder: An empty folder for data and log.
    """
    package = npm_package("azurite", _VERSION, _BEFORE, _DIGEST)
    port = free_port()
    command = ["node", str(package / "dist" / "src" / "blob" / "main.js"), "--silent"]
    command += ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--disableTelemetry"]
    with running([*command, "--location", str(folder)], folder / "azurite.log"):
        wait_for(("127.0.0.1", port))
        _make_container(port)
        variables = {
            "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{port}/{ACCOUNT}",
            "AZURE_ALLOW_HTTP": "true",
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
        }
        yield StoreServer(f"az://{CONTAINER}", variables, "AZURE_STORAGE_ENDPOINT")


def _make_container(port: int) -> None:
    """What obstore has no call for; signed as the service's documentation of Shared Key says."""
    path = f"/{ACCOUNT}/{CONTAINER}"
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
    lines = ["PUT", *[""] * 11, *(f"{name}:{value}" for name, value in headers.items())]
    signed = "\n".join([*lines, f"/{ACCOUNT}{path}", "restype:container"])
    digest = hmac.digest(base64.b64decode(KEY), signed.encode(), hashlib.sha256)
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("PUT", f"{path}?restype=container", headers=headers)
        answer = connection.getresponse()
        assert answer.status == 201, answer.read()
    finally:
        connection.close()
