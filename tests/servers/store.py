"""What a started store is to a test: an address, and what a process needs to know to use it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from urllib.parse import urlsplit


@dataclass(frozen=True)
class StoreServer:
    """A running store with an empty place in it.

    Attributes:
      url: The empty place, such as `s3://bucket`.
      environment: Variables for every process that uses the store: endpoint and credentials.
      endpoint: Name of the variable that holds the server's HTTP address; none if it speaks other
        than HTTP.
    """

    url: str
    environment: Mapping[str, str]
    endpoint: str = ""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the HTTP server."""
        at = urlsplit(self.environment[self.endpoint])
        assert at.hostname is not None
        assert at.port is not None
        return at.hostname, at.port

    def behind(self, address: tuple[str, int]) -> StoreServer:
        """The same store, asked through a proxy at another address."""
        old, new = ("{}:{}".format(*at) for at in (self.address, address))
        changed = self.environment[self.endpoint].replace(old, new)
        return replace(self, environment={**self.environment, self.endpoint: changed})

    @contextmanager
    def in_environment(self) -> Iterator[StoreServer]:
        """This process and those that it starts use the store, until the end of the context."""
        before = {name: os.environ.get(name) for name in self.environment}
        os.environ.update(self.environment)
        try:
            yield self
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
