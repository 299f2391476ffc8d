"""HDFS by hdfs-native, a client without Java.

Settings come from Hadoop's files under HADOOP_CONF_DIR, Kerberos tickets from the process. The
client does not support encryption zones.
"""

from __future__ import annotations

import errno
import posixpath
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from hdfs_native import Client, FileStatus, WriteOptions

from jobs.pipeline.storage.stores.store import OWNER_ONLY, Stat, Store

_FOLDER_MODE = 0o700
_PIECE = 4 << 20  # bytes written at a time
# With these, a name node that refuses connections fails in a second; with the defaults in 178 s.
_PATIENCE = {
    "dfs.client.failover.max.attempts": "3",
    "dfs.client.failover.sleep.base.millis": "100",
    "dfs.client.failover.sleep.max.millis": "500",
}


class HdfsFiles(Store):
    """Store of the files of one HDFS cluster; names have no leading slash."""

    def __init__(self, root: str) -> None:
        """Create a client of the cluster, which connects at the first access to a file.

        Args:
          root: URL of a name node, such as `hdfs://namenode:8020`, or of a name service from
            Hadoop's configuration, such as `hdfs://nameservice`.

        Raises:
          OSError: The URL is not valid, or the configuration does not have the name service.
        """
        self._root = root
        with _as_os_error(root):
            self._client = Client(root, _PATIENCE)

    def create(self, name: str, data: bytes, *, mode: int = OWNER_ONLY) -> bool:
        """Implement `Store.create`: a draft is renamed, which fails if the file exists."""
        draft = self._draft(name, [data], mode)
        with _as_os_error(self._root):
            try:
                self._client.rename(draft, f"/{name}", overwrite=False)
            except Exception:
                # It exists; or the answer was lost, and the draft has become the file.
                with suppress(Exception):
                    self._client.delete(draft)
                with suppress(FileNotFoundError):
                    return self.read(name) == data
                raise
        return True

    def replace(self, name: str, data: bytes, *, mode: int = OWNER_ONLY) -> None:
        """Implement `Store.replace`: a draft takes the name."""
        self._write(name, [data], mode)

    def upload(self, name: str, file: Path, *, mode: int = OWNER_ONLY) -> None:
        """Implement `Store.upload`: a draft takes the name."""
        with file.open("rb") as handle:
            self._write(name, iter(partial(handle.read, _PIECE), b""), mode)

    def _write(self, name: str, data: Iterable[bytes], mode: int) -> None:
        draft = self._draft(name, data, mode)
        with _as_os_error(self._root):
            self._client.rename(draft, f"/{name}", overwrite=True)

    def rename(self, name: str, other: str) -> None:
        """Implement `Store.rename`."""
        with _as_os_error(self._root):
            try:
                self._client.rename(f"/{name}", f"/{other}", overwrite=True)
            except FileNotFoundError:
                self._client.get_file_info(f"/{other}")

    def _draft(self, name: str, data: Iterable[bytes], mode: int) -> str:
        folder, base = posixpath.split(f"/{name}")
        draft = f"{folder}/.{base}.{uuid.uuid4().hex}"
        with _as_os_error(self._root):
            self._client.mkdirs(folder, _FOLDER_MODE, True)
            options = WriteOptions(overwrite=False, permission=mode)
            try:
                with self._client.create(draft, options) as file:
                    for piece in data:
                        file.write(piece)
                    file.hsync()
            except Exception:
                with suppress(Exception):
                    self._client.delete(draft)
                raise
        return draft

    def read(self, name: str) -> bytes:
        """Implement `Store.read`."""
        with _as_os_error(self._root), self._client.read(f"/{name}") as file:
            return bytes(file.read())

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        """Implement `Store.read_range`."""
        if stop <= start:
            return b""
        with _as_os_error(self._root), self._client.read(f"/{name}") as file:
            if stop > len(file):  # the client would panic, which no handler of errors catches
                raise OSError(errno.EIO, f"it has {len(file)} bytes, not {stop}")
            return bytes(file.read_range(start, stop - start))

    def stat(self, name: str) -> Stat:
        """Implement `Store.stat`."""
        with _as_os_error(self._root):
            found = self._client.get_file_info(f"/{name}")
        if found.isdir:
            raise FileNotFoundError(errno.ENOENT, "it is a folder", name)
        return _stat(found)

    def stats(self, folder: str) -> Iterator[tuple[str, Stat]]:
        """Implement `Store.stats`."""
        for found in self._listed(folder, recursive=True):
            if not found.isdir:
                yield found.path.lstrip("/"), _stat(found)

    def entries(self, folder: str) -> Iterator[tuple[str, bool]]:
        """Implement `Store.entries`."""
        for found in self._listed(folder, recursive=False):
            yield found.path.lstrip("/"), found.isdir

    def _listed(self, folder: str, *, recursive: bool) -> Iterator[FileStatus]:
        with suppress(FileNotFoundError), _as_os_error(self._root):
            for found in self._client.list_status(f"/{folder}", recursive):
                if found.path.lstrip("/") != folder:  # a file is listed as itself
                    yield found

    def remove(self, names: Sequence[str]) -> None:
        """Implement `Store.remove`."""
        for name in names:
            with suppress(FileNotFoundError), _as_os_error(self._root):
                self._client.delete(f"/{name}")


def _stat(found: FileStatus) -> Stat:
    return Stat(found.length, found.modification_time * 10**6)


@contextmanager
def _as_os_error(root: str) -> Iterator[None]:
    """Turn exceptions of hdfs-native into an OSError in words."""
    try:
        yield
    except OSError as error:
        if error.strerror:
            raise
        what = f"{root} answered: {_core(error)}"
        raise type(error)(error.errno or errno.EIO, what, root) from None
    except (RuntimeError, ValueError) as error:
        if "AccessControlException" in str(error):
            what = f"{root} does not let this process do that: {_core(error)}"
            raise PermissionError(errno.EACCES, what, root) from None
        raise OSError(errno.EIO, f"{root} answered: {_core(error)}", root) from None


def _core(error: Exception) -> str:
    return re.split(r"\n|\\n", str(error))[0][:300] if str(error) else type(error).__name__
