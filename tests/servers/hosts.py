"""Hosts with a network of their own, whose cables can be cut: network namespaces of this machine.

Every host has an address, a bridge joins them, and this process takes part at an address too. A host that is cut off hears nothing and is not heard; its connections stay open and silent, as in a
partition, and go on when it is mended. Needs root and `ip` of iproute2.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

# The block for tests of networks (RFC 2544): nothing else has addresses there.
_BLOCK = "198.18"


@dataclass(frozen=True)
class Host:
    """One host.

    Attributes:
      name: Of its namespace.
      address: That all other hosts reach it at.
    """

    name: str
    address: str

    def command(self, *words: str) -> list[str]:
        """The command line that runs a command there, with the files of this machine."""
        return ["ip", "netns", "exec", self.name, *words]

    def cut(self) -> None:
        """Drop all that it sends and all that is sent to it."""
        _bridge(self, "disabled")

    def mend(self) -> None:
        """Let everything pass again."""
        _bridge(self, "forwarding")


@dataclass(frozen=True)
class Network:
    """Hosts that reach each other and this process.

    Attributes:
      here: Address of this process.
      hosts: The hosts.
    """

    here: str
    hosts: Sequence[Host]


_STATES = {"disabled": "0", "forwarding": "3"}


def _bridge(host: Host, state: str) -> None:
    _run("bridge", "link", "set", "dev", _cable(host.name), "state", _STATES[state])


def _cable(name: str) -> str:
    return f"v{name}"


@contextmanager
def network(count: int) -> Iterator[Network]:
    """Make hosts, and take them away with all that still runs there.

    Args:
      count: How many hosts, beside this process.
    """
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root, and ip of iproute2")
    mark = uuid.uuid4().hex[:6]
    bridge = f"das{mark}"
    found = subprocess.run(
        ["ip", "-4", "-o", "address"], capture_output=True, text=True, check=True
    )
    prefixes = [f"{_BLOCK}.{number}." for number in range(int(mark, 16) % 128, 256)]
    prefix = next(one for one in prefixes if f" {one}" not in found.stdout)
    made = [Host(f"das{mark}{at}", f"{prefix}{at + 2}") for at in range(count)]
    with ExitStack() as stack:
        _run("ip", "link", "add", bridge, "type", "bridge", "stp_state", "0")
        stack.callback(_run, "ip", "link", "delete", bridge)
        _run("ip", "address", "add", f"{prefix}1/24", "dev", bridge)
        _run("ip", "link", "set", bridge, "up")
        for host in made:
            _run("ip", "netns", "add", host.name)
            stack.callback(_remove, host)
            cable = _cable(host.name)
            end = ("peer", "name", "eth0", "netns", host.name)
            _run("ip", "link", "add", cable, "type", "veth", *end)
            _run("ip", "link", "set", cable, "master", bridge, "up")
            inside = ("ip", "-n", host.name)
            _run(*inside, "address", "add", f"{host.address}/24", "dev", "eth0")
            _run(*inside, "link", "set", "lo", "up")
            _run(*inside, "link", "set", "eth0", "up")
        yield Network(f"{prefix}1", made)


def _remove(host: Host) -> None:
    done = subprocess.run(["ip", "netns", "pids", host.name], capture_output=True, check=False)
    for process in done.stdout.split():
        subprocess.run(["kill", "-KILL", process.decode()], check=False)
    _run("ip", "netns", "delete", host.name)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
