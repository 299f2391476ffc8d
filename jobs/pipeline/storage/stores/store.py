"""Protocol of file stores.

All guarantees across drivers, tasks and crashes rest on one operation, `create`: of concurrent
creations of the same name exactly one succeeds, and its file is complete or absent. `probe` finds
stores that violate it.
"""

from __future__ import annotations

import errno
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

OWNER_ONLY = 0o600


@dataclass(frozen=True, slots=True)
class Stat:
    """Size and time of a file, with the names of `os.stat_result`.

    Attributes:
      st_size: Size in bytes.
      st_mtime_ns: Time of writing by the clock of the store, in nanoseconds.
    """

    st_size: int
    st_mtime_ns: int


class Store(Protocol):
    """Files by name, with `/` between folders; a folder exists while it contains a file.

    Every method raises FileNotFoundError, PermissionError or another OSError whose `strerror` is
    the answer of the store in words.
    """

    def create(self, name: str, data: bytes, *, mode: int = OWNER_ONLY) -> bool:
        """Create a whole file atomically; of concurrent writers exactly one succeeds.

        The file survives a crash of the writer. If the answer is lost, the file is read back, so
        `data` should contain a random token to identify the writer.

        Args:
          name: The file.
          data: Its content.
          mode: Permissions, if the store has any.

        Returns:
          Whether the file now holds `data`.
        """

    def replace(self, name: str, data: bytes, *, mode: int = OWNER_ONLY) -> None:
        """Write a file atomically: readers find the old or the new content."""

    def upload(self, name: str, file: Path, *, mode: int = OWNER_ONLY) -> None:
        """Copy a local file to the store, completely or not at all.

        Args:
          name: The new file, which no other writer uses.
          file: The local file.
          mode: Permissions, if the store has any.
        """

    def rename(self, name: str, other: str) -> None:
        """Rename a file within its folder, replacing an existing file.

        Repeating a rename after a lost answer is no error.
        """

    def read(self, name: str) -> bytes:
        """Read the whole file."""

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        """Read bytes start..stop-1 of a file that has as many."""

    def stat(self, name: str) -> Stat:
        """Return size and time of a file."""

    def files(self, folder: str) -> Iterator[str]:
        """List names of all files of a folder, at any depth, in no order; none if it is absent."""
        return (name for name, _ in self.stats(folder))

    def stats(self, folder: str) -> Iterator[tuple[str, Stat]]:
        """List names of all files of a folder with size and time, without a request per file."""

    def entries(self, folder: str) -> Iterator[tuple[str, bool]]:
        """List (name, whether it is a folder) of the direct entries of a folder."""

    def remove(self, names: Sequence[str]) -> None:
        """Remove files; absent files are skipped."""


class UnsafeStoreError(OSError):
    """Raised for a store that creates a name twice, or refuses conditional creation."""


def probe(store: Store, folder: str) -> None:
    """Test with a temporary file whether a store creates atomically.

    Args:
      store: The store.
      folder: The folder to which the run will write.

    Raises:
      UnsafeStoreError: A file was created twice, or an absent file was not created.
      OSError: The store cannot be written, read or listed there.
    """
    probes = "/".join(part for part in (folder, f".probe-{uuid.uuid4().hex}") if part)
    name = f"{probes}/file"
    first, second = (f"{word} {uuid.uuid4().hex}\n".encode() for word in ("first", "second"))
    try:
        created = [store.create(name, first), store.create(name, second)]
        found = store.read(name)
        listed = [*store.files(probes)] == [name]
    finally:
        store.remove([name])
    if created != [True, False] or found != first:
        raise UnsafeStoreError(
            errno.ENOTSUP,
            "it overwrites an existing file despite the condition to create it only if it is absent"
            if created[0]
            else "it refuses to create a file that is absent",
        )
    if not listed:
        raise UnsafeStoreError(errno.ENOTSUP, "it does not list a file that was just written")
