"""Which kinds of stores there are, and one client of each per process."""

from __future__ import annotations

import importlib.util
import os

from das.errors import ConfigError
from jobs.pipeline.storage.stores.posix import PosixStore
from jobs.pipeline.storage.stores.store import Store

OBJECTS = ("s3", "s3a", "gs", "az", "abfs", "abfss")
SCHEMES = (*OBJECTS, "hdfs")
"""Schemes of the addresses that run files and commands may name."""
MEMORY = "memory"

POSIX = PosixStore()

_CLIENTS: dict[tuple[int, str], Store] = {}


def store_at(root: str) -> Store:
    """Return the store at an address, made at its first use in this process.

    Args:
      root: Scheme and host, bucket or name, such as `s3://bucket` or `hdfs://namenode:8020`.

    Raises:
      ConfigError: The package that speaks to such stores is not installed.
      OSError: The address cannot be understood, or the environment lacks what it needs.
    """
    key = (os.getpid(), root)  # a process that was forked makes its own
    if key in _CLIENTS:
        return _CLIENTS[key]
    is_hdfs = root.startswith("hdfs:")
    package, extra = ("hdfs_native", "hdfs") if is_hdfs else ("obstore", "objects")
    if importlib.util.find_spec(package) is None:
        raise ConfigError(
            root,
            f"needs the package {package.replace('_', '-')}, which is not installed here",
            remedy=f"pip install '.[{extra}]' in a clone, on driver and workers",
        )
    if is_hdfs:
        from jobs.pipeline.storage.stores.hdfs import HdfsFiles

        _CLIENTS[key] = HdfsFiles(root)
    else:
        from jobs.pipeline.storage.stores.objects import ObjectStoreFiles

        _CLIENTS[key] = ObjectStoreFiles(root)
    return _CLIENTS[key]
