"""What a run needs of a place to keep files: the protocol that every kind of store fulfils.

Everything that must hold across drivers, tasks and crashes rests on one operation, `create`: of all
who create the same name, one succeeds, and what it wrote is there whole or not at all. Stores that
do not hold to it are found by `probe`.
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
    """What a store says of a file, under the names that `os.stat_result` has for it.

    Attributes:
      st_size: Bytes.
      st_mtime_ns: When it was written, by the store's clock.
    """

    st_size: int
    st_mtime_ns: int


class Store(Protocol):
    """Files by name, `/` between folders; folders are there as long as something is in them.

    Every method raises FileNotFoundError, PermissionError or another OSError whose `strerror` says
    in words what the store answered.
    """

    def create(self, name: str, data: bytes, *, mode: int = OWNER_ONLY) -> bool:
        """Write a whole file unless there is one; of all who do so at once, one succeeds.

        It survives a crash of whoever wrote it. Where an answer was lost, the file is read back:
        contents that nobody else can have written, as by a random number in them, say whose it is.

        Args:
          name: The file.
          data: All of it.
          mode: Permissions, where the store has such.

        Returns:
          Whether the file now holds `data`.
        """

    def replace(self, name: str, data: bytes, *, mode: int = OWNER_ONLY) -> None:
        """Write a file so that readers find the old one or the new one, whole."""

    def upload(self, name: str, file: Path, *, mode: int = OWNER_ONLY) -> None:
        """Write a copy of a file of this machine, piece by piece; whole or not at all.

        Args:
          name: One that nobody else writes.
          file: What is copied.
          mode: Permissions, where the store has such.
        """

    def rename(self, name: str, other: str) -> None:
        """Give a file another name of the same folder, in the place of the file that has it.

        Where it has been done, and the answer was lost, doing it again is no error.
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
        """List the same with size and time of each, from the listing: no request for every file."""

    def entries(self, folder: str) -> Iterator[tuple[str, bool]]:
        """List (name, whether it is a folder) of what lies directly in a folder."""

    def remove(self, names: Sequence[str]) -> None:
        """Remove files; those that are not there are passed by."""


class UnsafeStoreError(OSError):
    """A store that lets a name be created twice, or refuses the condition."""


def probe(store: Store, folder: str) -> None:
    """Try on a file of its own whether a store does what all safety rests on.

    Args:
      store: The store.
      folder: Where a run will write.

    Raises:
      UnsafeStoreError: A file was created twice, or not at all though there was none.
      OSError: The store cannot be written, read or listed there.
    """
    own = "/".join(part for part in (folder, f".probe-{uuid.uuid4().hex}") if part)
    name = f"{own}/file"
    first, second = (f"{one} {uuid.uuid4().hex}\n".encode() for one in ("first", "second"))
    try:
        created = [store.create(name, first), store.create(name, second)]
        found = store.read(name)
        listed = [*store.files(own)] == [name]
    finally:
        store.remove([name])
    if created != [True, False] or found != first:
        raise UnsafeStoreError(
            errno.ENOTSUP,
            "it writes over a file that is there, though told to create it only if it is absent"
            if created[0]
            else "it refuses to create a file that is absent",
        )
    if not listed:
        raise UnsafeStoreError(errno.ENOTSUP, "it does not list a file that was just written")
