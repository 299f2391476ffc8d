from __future__ import annotations

import http.client
import subprocess
import sys

import pytest

from tests.pipeline.spark.cluster import wait_for
from tests.servers.hosts import Host, network

pytestmark = pytest.mark.long


def serve(host: Host) -> subprocess.Popen[bytes]:
    words = host.command(sys.executable, "-m", "http.server", "--bind", host.address, "8000")
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def status(connection: http.client.HTTPConnection) -> int:
    connection.request("HEAD", "/")
    answer = connection.getresponse()
    answer.read()
    return answer.status


def test_a_host_that_is_cut_off_is_silent_and_goes_on_when_it_is_mended() -> None:
    with network(2) as joined, network(1):
        one, other = joined.hosts
        servers = [serve(one), serve(other)]
        for host in (one, other):
            wait_for((host.address, 8000))
        one.cut()
        cut = http.client.HTTPConnection(one.address, 8000, timeout=1)
        with pytest.raises(TimeoutError):
            status(cut)
        assert status(http.client.HTTPConnection(other.address, 8000, timeout=10)) == 200
        ask = f"import socket; socket.create_connection(({one.address!r}, 8000), 1)"
        between = subprocess.run(
            other.command(sys.executable, "-c", ask), capture_output=True, text=True, check=False
        )
        assert "timed out" in between.stderr or "No route" in between.stderr
        one.mend()
        assert status(http.client.HTTPConnection(one.address, 8000, timeout=10)) == 200
        assert [server.poll() for server in servers] == [None, None]
    for server in servers:
        server.wait(timeout=10)
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    assert one.name not in left.stdout
