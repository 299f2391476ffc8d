"""Places: locations of files and folders, on this machine or in a store with an address.

A place on this machine is a `pathlib.Path`. A place in a store is a `StoredPlace`, with the methods
of a path that this program uses, so that readers work with both. Writers use
`jobs.pipeline.storage.files` and `jobs.pipeline.storage.dataset`.
"""

from __future__ import annotations

import errno
import io
import posixpath
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import IO, Any, Literal, TypeVar, overload

from jobs.pipeline.storage.stores.kinds import MEMORY, OBJECTS, POSIX, SCHEMES, store_at
from jobs.pipeline.storage.stores.store import Stat, Store

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(/.*)?", re.DOTALL)
_AT_ONCE = 16  # concurrent requests to a store; default, not measured
READ_AHEAD = 4 << 20  # least bytes per request for a stored file; default, not measured


T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, order=True, slots=True)
class StoredPlace:
    """A file or folder in a store. Pickles as its address; never holds credentials.

    Attributes:
      root: Scheme and host, bucket or container, such as `s3://bucket`.
      key: Names down from there, joined by `/`; empty for the root.
    """

    root: str
    key: str = ""

    def __str__(self) -> str:
        """Return the address."""
        return f"{self.root}/{self.key}" if self.key else self.root

    def __truediv__(self, name: str) -> StoredPlace:
        """Return a place under this place."""
        joined = posixpath.normpath(f"/{self.key}/{name}").lstrip("/")
        return StoredPlace(self.root, joined)

    # --- names ----------------------------------------------------------------------------------

    @property
    def store(self) -> Store:
        """Return the store of the place."""
        return store_at(self.root)

    @property
    def name(self) -> str:
        """Return the last component of the path."""
        return posixpath.basename(self.key)

    @property
    def stem(self) -> str:
        """Return the name without its suffix."""
        return PurePosixPath(self.key).stem

    @property
    def suffix(self) -> str:
        """Return the end of the name from the last dot on."""
        return PurePosixPath(self.key).suffix

    @property
    def parent(self) -> StoredPlace:
        """Return the containing folder; the root for the root."""
        return StoredPlace(self.root, posixpath.dirname(self.key))

    @property
    def parents(self) -> tuple[StoredPlace, ...]:
        """Return all containing folders, the nearest first."""
        above = PurePosixPath(f"/{self.key}").parents
        return tuple(StoredPlace(self.root, str(path).lstrip("/")) for path in above)

    def with_name(self, name: str) -> StoredPlace:
        """Return a place with another name in the same folder."""
        return self.parent / name

    def relative_to(self, other: Place) -> PurePosixPath:
        """Return the path relative to another place.

        Raises:
          ValueError: The other place does not contain this one.
        """
        if not self.is_relative_to(other) or not isinstance(other, StoredPlace):
            raise ValueError(f"{self} does not lie in {other}")
        return PurePosixPath(self.key[len(other.key) :].lstrip("/"))

    def is_relative_to(self, other: Place) -> bool:
        """Return whether the place equals another place or lies in it."""
        return isinstance(other, StoredPlace) and (self == other or other in self.parents)

    def resolve(self) -> StoredPlace:
        """Return the place unchanged: stores have no links."""
        return self

    # --- what is there --------------------------------------------------------------------------

    def stat(self) -> Stat:
        """Return size and time of a file.

        Raises:
          FileNotFoundError: The file is absent.
          OSError: The store fails.
        """
        return self.store.stat(self.key)

    def is_file(self) -> bool:
        """Return whether the place is a file.

        Raises:
          OSError: The store fails, for example by missing permissions.
        """
        if not self.key:
            return False
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        """Return whether the place contains a file; stores have no empty folders."""
        return next(self.store.entries(self.key), None) is not None

    def exists(self) -> bool:
        """Return whether the place is a file or contains one."""
        return self.is_file() or self.is_dir()

    def iterdir(self) -> Iterator[StoredPlace]:
        """Yield the places directly in the folder, sorted by name."""
        return iter(sorted(StoredPlace(self.root, key) for key, _ in self.store.entries(self.key)))

    def glob(self, pattern: str) -> Iterator[StoredPlace]:
        """Yield files and folders below whose relative path matches the pattern."""
        return (place for place, below in self._below() if ("/" / below).match(f"/{pattern}"))

    def rglob(self, pattern: str) -> Iterator[StoredPlace]:
        """Yield files and folders at any depth whose last names match the pattern."""
        return (place for place, below in self._below() if below.match(pattern))

    def _below(self) -> Iterator[tuple[StoredPlace, PurePosixPath]]:
        """Yield all files and folders below, sorted, with their relative paths."""
        paths: set[PurePosixPath] = set()
        for key in self.store.files(self.key):
            path = PurePosixPath(key[len(self.key) :].lstrip("/"))
            paths |= {path, *path.parents}
        return ((self / str(path), path) for path in sorted(paths) if path.name)

    # --- reading --------------------------------------------------------------------------------

    def read_bytes(self) -> bytes:
        """Read the whole file.

        Raises:
          FileNotFoundError: The file is absent.
          OSError: The store fails.
        """
        return self.store.read(self.key)

    def read_text(self, encoding: str = "utf-8") -> str:
        """Read the whole file as text."""
        return self.read_bytes().decode(encoding)

    @overload
    def open(self, mode: Literal["rb"]) -> io.BufferedReader: ...

    @overload
    def open(
        self, mode: Literal["r"] = "r", *, encoding: str = "utf-8", newline: str | None = None
    ) -> io.TextIOWrapper: ...

    def open(
        self, mode: str = "r", *, encoding: str = "utf-8", newline: str | None = None
    ) -> IO[Any]:
        """Open the file for reading by ranges; `newline` is used as by the built-in `open`.

        Raises:
          FileNotFoundError: The file is absent.
          OSError: The store fails.
        """
        if mode not in ("r", "rb"):
            raise io.UnsupportedOperation(f"a stored file is not opened with mode {mode!r}")
        opened = io.BufferedReader(Ranges(self, self.stat().st_size), READ_AHEAD)
        return opened if mode == "rb" else io.TextIOWrapper(opened, encoding, newline=newline)

    # --- removing -------------------------------------------------------------------------------

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove a file.

        Raises:
          FileNotFoundError: The file is absent.
          OSError: The store fails.
        """
        if not missing_ok:
            self.stat()
        self.store.remove([self.key])

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: a folder of a store exists once it contains a file."""


Place = Path | StoredPlace


class Ranges(io.RawIOBase):
    """A stored file of known size, read by ranges."""

    def __init__(self, place: StoredPlace, size: int) -> None:
        super().__init__()
        self._place = place
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - a writable buffer
        """Read what fits into a buffer."""
        view = memoryview(buffer).cast("B")
        stop = min(self._size, self._at + len(view))
        if stop <= self._at:
            return 0
        data = self._place.store.read_range(self._place.key, self._at, stop)
        if len(data) != stop - self._at:
            what = f"gave {len(data)} bytes of {stop - self._at}"
            raise OSError(errno.EIO, what, str(self._place))
        view[: len(data)] = data
        self._at = stop
        return len(data)


def place_of(text: str | Path | StoredPlace) -> Place:
    """Parse a place from the address of a store, or a path.

    Args:
      text: Such as `s3://bucket/folder`, `hdfs://host:8020/folder` or `out/demo`.

    Raises:
      ValueError: The scheme is unknown, or bucket or host are missing; says what to write instead.

    >>> place_of("s3a://bucket/a//b/")
    StoredPlace(root='s3://bucket', key='a/b')
    """
    if not isinstance(text, str):
        return text
    match = _ADDRESS.fullmatch(text)
    if match is None:
        return Path(text)
    scheme, host, key = match[1].lower(), match[2], match[3] or ""
    if scheme == "file" and not host:
        return Path(key)
    if scheme not in (*SCHEMES, MEMORY):
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise ValueError(f"{scheme}:// is no kind of store that is known; write a path, or {known}")
    if ".." in key.split("/"):
        raise ValueError(f"{text} leads upwards by `..`, which stores do not know")
    if not host and scheme != MEMORY:
        what = "host" if scheme == "hdfs" else "bucket or container"
        raise ValueError(f"{text} names no {what}; write {scheme}://{what.split()[0].upper()}/...")
    before_host = host.rpartition("@")[0]  # abfs names a container there
    if ":" in before_host or ("@" in host and scheme not in ("abfs", "abfss")):
        raise ValueError(f"{scheme}:// holds a name and password; set credentials elsewhere")
    if scheme in OBJECTS and re.search("[?#]", key):
        where = re.split("[?#]", text)[0]
        raise ValueError(f"{where} has `?` or `#`: an address has no query, and no credentials")
    root = f"{'s3' if scheme == 's3a' else scheme}://{host}"
    return StoredPlace(root, posixpath.normpath(f"/{key}").lstrip("/"))


def store_of(place: Place) -> tuple[Store, str]:
    """Return the store of a place, and the name of the place there."""
    return (place.store, place.key) if isinstance(place, StoredPlace) else (POSIX, str(place))


def found_under(folder: Place, pattern: str) -> list[Place]:
    """List files and folders at any depth of a folder whose names match a pattern, sorted."""
    if isinstance(folder, Path):
        return [*sorted(folder.rglob(pattern))]
    return [*folder.rglob(pattern)]


def lies_in(place: Place, folder: Place) -> bool:
    """Return whether a place equals a folder or lies in it."""
    if isinstance(place, Path):
        return isinstance(folder, Path) and place.is_relative_to(folder)
    return place.is_relative_to(folder)


def names_below(place: Place, folder: Place) -> PurePath:
    """Return the path of a place relative to a folder.

    Raises:
      ValueError: The place does not lie in the folder.
    """
    if isinstance(place, Path) and isinstance(folder, Path):
        return place.relative_to(folder)
    if isinstance(place, StoredPlace):
        return place.relative_to(folder)
    raise ValueError(f"{place} does not lie in {folder}")


def is_same(place: Place, other: Place) -> bool:
    """Return whether two existing places are the same, despite spelling or links."""
    if isinstance(place, Path) and isinstance(other, Path):
        return place.samefile(other)
    return place == other


def open_input(place: Place, size: int | None = None) -> Any:  # noqa: ANN401 - what pyarrow reads
    """Open a file for pyarrow: the path, the bytes, or ranges of the stored file.

    Args:
      place: The file.
      size: Its size in bytes if known, which saves a request to the store.

    Raises:
      OSError: The store fails.
    """
    if isinstance(place, Path):
        return place
    known = place.stat().st_size if size is None else size
    if known <= READ_AHEAD:  # one request instead of three for ranges
        data = place.store.read(place.key)
        if len(data) != known:
            raise OSError(errno.EIO, f"gave {len(data)} bytes of {known}", str(place))
        return io.BytesIO(data)
    return Ranges(place, known)


def at_once(store: Place, ask: Callable[[T], R], of: Iterable[T]) -> list[R]:
    """Map a function over items in order; requests to a store, of 10 to 100 ms each, run at once.

    Args:
      store: A place in the store. Files of this machine are handled one by one.
      ask: The function.
      of: The items.

    Raises:
      Exception: The first exception of the function.
    """
    items = list(of)
    if isinstance(store, Path) or len(items) < 2:
        return [ask(item) for item in items]
    with ThreadPoolExecutor(min(_AT_ONCE, len(items))) as threads:
        return list(threads.map(ask, items))


def remove_tree(place: Place) -> None:
    """Remove a folder with its content, ignoring errors."""
    if isinstance(place, Path):
        shutil.rmtree(place, ignore_errors=True)
    else:
        place.store.remove([*place.store.files(place.key)])
