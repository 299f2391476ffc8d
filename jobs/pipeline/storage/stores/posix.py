"""Folders of this machine, or ones that all machines of a cluster have mounted."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from jobs.pipeline.storage.stores.store import OWNER_ONLY, Stat, Store


class PosixStore(Store):
    """Store of local files by path. It needs atomic hard links, as on local disks and NFS."""

    def create(self, name: str, data: bytes, *, mode: int = OWNER_ONLY) -> bool:
        """Implement `Store.create`: a draft is linked to its name."""
        path = Path(name)
        with _draft(path, data, mode) as draft:
            try:
                os.link(draft, path)
            except FileExistsError:
                return path.read_bytes() == data  # NFS may lose the answer to a link it made
            sync_folder(path.parent)
        return True

    def replace(self, name: str, data: bytes, *, mode: int = OWNER_ONLY) -> None:
        """Implement `Store.replace`: a draft takes the name."""
        path = Path(name)
        with _draft(path, data, mode) as draft:
            draft.replace(path)
            sync_folder(path.parent)

    def upload(self, name: str, file: Path, *, mode: int = OWNER_ONLY) -> None:
        """Implement `Store.upload`: a copy takes the name."""
        path = Path(name)
        with _draft(path, b"", mode) as draft:
            shutil.copyfile(file, draft)
            with draft.open("rb") as handle:
                os.fsync(handle.fileno())
            draft.replace(path)
            sync_folder(path.parent)

    def rename(self, name: str, other: str) -> None:
        """Implement `Store.rename`."""
        try:
            Path(name).replace(other)
        except FileNotFoundError:
            if not Path(other).is_file():
                raise
        sync_folder(Path(other).parent)

    def read(self, name: str) -> bytes:
        """Implement `Store.read`."""
        return Path(name).read_bytes()

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        """Implement `Store.read_range`."""
        with Path(name).open("rb") as handle:
            handle.seek(start)
            return handle.read(stop - start)

    def stat(self, name: str) -> Stat:
        """Implement `Store.stat`."""
        found = Path(name).stat()
        return Stat(found.st_size, found.st_mtime_ns)

    def stats(self, folder: str) -> Iterator[tuple[str, Stat]]:
        """Implement `Store.stats`; files that go meanwhile are passed by."""
        for path in Path(folder).rglob("*"):
            with suppress(FileNotFoundError):
                if path.is_file():
                    yield str(path), self.stat(str(path))

    def entries(self, folder: str) -> Iterator[tuple[str, bool]]:
        """Implement `Store.entries`."""
        with suppress(FileNotFoundError), os.scandir(folder) as found:
            for entry in found:
                yield entry.path, entry.is_dir()

    def remove(self, names: Sequence[str]) -> None:
        """Implement `Store.remove`."""
        for name in names:
            Path(name).unlink(missing_ok=True)


@contextmanager
def _draft(path: Path, data: bytes, mode: int) -> Iterator[Path]:
    """Write data to a temporary file of the folder, which is removed after the block."""
    draft = path.parent / f".{path.name}.{uuid.uuid4().hex}"
    draft.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield draft
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that the names of its files survive a crash of the machine."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
