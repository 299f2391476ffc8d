"""An S3 server of another make: versitygw, built from source, over a folder.

Honours If-None-Match of PUT (412). Checks signatures, so wrong credentials are refused (403), unlike
moto. Answers 404 NoSuchBucket for a bucket that is absent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.pipeline.spark.cluster import free_port, wait_for
from tests.servers.downloads import go_program
from tests.servers.processes import running
from tests.servers.s3 import credentials
from tests.servers.store import StoreServer

_MODULE = "github.com/versity/versitygw"
_VERSION = "v1.8.0"  # conditions are kept since the versions of January 2026
_DIGEST = "h1:au+wI+aybno/STsQiSm35Uu6Q6iK5MWReQxgO6SEMFc="
BUCKET = "das"


@contextmanager
def versity_server(folder: Path) -> Iterator[StoreServer]:
    """Start the server with an empty bucket.

    Args:
      folder: An empty folder for data and log.
    """
    program = go_program(_MODULE, _VERSION, _DIGEST, "cmd/versitygw")
    (folder / "buckets" / BUCKET).mkdir(parents=True)
    port = free_port()
    variables = credentials(("127.0.0.1", port), "tester", "a-secret-of-tests")
    signing = ("--access", "tester", "--secret", "a-secret-of-tests", "--keep-alive", "--quiet")
    command = [str(program), "--port", f"127.0.0.1:{port}", *signing, "posix"]
    with running([*command, str(folder / "buckets")], folder / "versity.log"):
        wait_for(("127.0.0.1", port))
        yield StoreServer(f"s3://{BUCKET}", variables, "AWS_ENDPOINT_URL")
