"""Places: where a file or folder lies, on this machine or in a store with an address.

A place of this machine is a `pathlib.Path`. One in a store is a `StoredPlace`, which offers what
this program uses of a path, by the same names and with the same meaning, so that readers need not
know which they were given. What is written goes through `jobs.pipeline.storage.files` and
`jobs.pipeline.storage.dataset`, which write the same way to both.
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
from fnmatch import fnmatchcase
from pathlib import Path, PurePath, PurePosixPath
from typing import IO, Any, Literal, TypeVar, overload

from jobs.pipeline.storage.stores.kinds import MEMORY, OBJECTS, POSIX, SCHEMES, store_at
from jobs.pipeline.storage.stores.store import Stat, Store

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(/.*)?", re.DOTALL)
_AT_ONCE = 16  # questions to a store; its clients hold no more connections than they need
READ_AHEAD = 4 << 20  # bytes that a reader of a stored file asks for at least


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
        """The address."""
        return f"{self.root}/{self.key}" if self.key else self.root

    def __truediv__(self, name: str) -> StoredPlace:
        """A place under this one."""
        joined = posixpath.normpath(f"/{self.key}/{name}").lstrip("/")
        return StoredPlace(self.root, joined)

    # --- names ----------------------------------------------------------------------------------

    @property
    def store(self) -> Store:
        """The store it lies in."""
        return store_at(self.root)

    @property
    def name(self) -> str:
        """The last of its names."""
        return posixpath.basename(self.key)

    @property
    def stem(self) -> str:
        """Its name without the suffix."""
        return PurePosixPath(self.key).stem

    @property
    def suffix(self) -> str:
        """The end of its name from the last point on."""
        return PurePosixPath(self.key).suffix

    @property
    def parent(self) -> StoredPlace:
        """The folder it lies in; the root's is the root."""
        return StoredPlace(self.root, posixpath.dirname(self.key))

    @property
    def parents(self) -> tuple[StoredPlace, ...]:
        """All folders it lies in, the nearest first."""
        found = []
        place = self
        while place.key:
            place = place.parent
            found.append(place)
        return tuple(found)

    def with_name(self, name: str) -> StoredPlace:
        """Another file of the same folder."""
        return self.parent / name

    def relative_to(self, other: Place) -> PurePosixPath:
        """The names down from another place.

        Raises:
          ValueError: It does not lie there.
        """
        if not self.is_relative_to(other) or not isinstance(other, StoredPlace):
            raise ValueError(f"{self} does not lie in {other}")
        return PurePosixPath(self.key[len(other.key) :].lstrip("/"))

    def is_relative_to(self, other: Place) -> bool:
        """Whether it is another place, or lies in it."""
        return isinstance(other, StoredPlace) and (self == other or other in self.parents)

    def resolve(self) -> StoredPlace:
        """Itself: stores have no links."""
        return self

    # --- what is there --------------------------------------------------------------------------

    def stat(self) -> Stat:
        """Size and time of a file.

        Raises:
          FileNotFoundError: There is none.
          OSError: The store does not say.
        """
        return self.store.stat(self.key)

    def is_file(self) -> bool:
        """Whether there is a file.

        Raises:
          OSError: The store does not say, as for want of rights.
        """
        if not self.key:
            return False
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        """Whether a file lies in it; stores have no other folders."""
        return next(self.store.entries(self.key), None) is not None

    def exists(self) -> bool:
        """Whether there is a file, or a folder with one in it."""
        return self.is_file() or self.is_dir()

    def iterdir(self) -> Iterator[StoredPlace]:
        """What lies directly in it, in the order of names."""
        return iter(sorted(StoredPlace(self.root, key) for key, _ in self.store.entries(self.key)))

    def glob(self, pattern: str) -> Iterator[StoredPlace]:
        """Files and folders below it whose names match those of the pattern, one by one."""
        wanted = pattern.split("/")
        return (place for place, names in self._below() if _match(names, wanted))

    def rglob(self, pattern: str) -> Iterator[StoredPlace]:
        """The same at any depth."""
        wanted = pattern.split("/")
        return (place for place, names in self._below() if _match(names[-len(wanted) :], wanted))

    def _below(self) -> Iterator[tuple[StoredPlace, tuple[str, ...]]]:
        """All files and folders below, with their names down from here, sorted."""
        depth = len(self.key) + 1 if self.key else 0
        found: set[tuple[str, ...]] = set()
        for key in self.store.files(self.key):
            names = tuple(key[depth:].split("/"))
            found.update(names[:length] for length in range(1, len(names) + 1))
        return ((self / "/".join(names), names) for names in sorted(found))

    # --- reading --------------------------------------------------------------------------------

    def read_bytes(self) -> bytes:
        """The whole file.

        Raises:
          FileNotFoundError: There is none.
          OSError: The store does not give it.
        """
        return self.store.read(self.key)

    def read_text(self, encoding: str = "utf-8") -> str:
        """The whole file as text."""
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
        """The file, to be read by ranges.

        Raises:
          FileNotFoundError: There is none.
          OSError: The store does not give it.
        """
        if mode not in ("r", "rb"):
            raise io.UnsupportedOperation(f"a stored file is not opened with mode {mode!r}")
        opened = io.BufferedReader(Ranges(self, self.stat().st_size), READ_AHEAD)
        return opened if mode == "rb" else io.TextIOWrapper(opened, encoding, newline=newline)

    # --- removing -------------------------------------------------------------------------------

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove a file.

        Raises:
          FileNotFoundError: There is none.
          OSError: The store does not let go of it.
        """
        if not missing_ok:
            self.stat()
        self.store.remove([self.key])

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Nothing: a folder of a store is there with the first file in it."""


Place = Path | StoredPlace


class Ranges(io.RawIOBase):
    """A stored file of known size, read by ranges."""

    def __init__(self, place: StoredPlace, size: int) -> None:
        super().__init__()
        self._place = place
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """The next byte."""
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
    """The place that a text names: an address of a store, or a path.

    Args:
      text: Such as `s3://bucket/folder`, `hdfs://host:8020/folder` or `out/demo`.

    Raises:
      ValueError: It has a scheme that nobody knows, or names no bucket or host; says what to
        write instead.

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
        known = ", ".join(f"{one}://" for one in SCHEMES)
        raise ValueError(f"{scheme}:// is no kind of store that is known; write a path, or {known}")
    if ".." in key.split("/"):
        raise ValueError(f"{text} leads upwards by `..`, which stores do not know")
    if not host and scheme != MEMORY:
        what = "host" if scheme == "hdfs" else "bucket or container"
        raise ValueError(f"{text} names no {what}; write {scheme}://{what.split()[0].upper()}/...")
    if "@" in host and scheme not in ("abfs", "abfss"):
        raise ValueError(f"{scheme}:// holds a name and password; set credentials elsewhere")
    if ":" in host.rpartition("@")[0]:
        raise ValueError(f"{scheme}:// holds a name and password; set credentials elsewhere")
    if scheme in OBJECTS and re.search("[?#]", key):
        where = re.split("[?#]", text)[0]
        raise ValueError(f"{where} has `?` or `#`: an address has no query, and no credentials")
    root = f"{'s3' if scheme == 's3a' else scheme}://{host}"
    return StoredPlace(root, posixpath.normpath(f"/{key}").lstrip("/"))


def store_of(place: Place) -> tuple[Store, str]:
    """The store of a place, and its name there."""
    return (place.store, place.key) if isinstance(place, StoredPlace) else (POSIX, str(place))


def found_under(folder: Place, pattern: str) -> list[Place]:
    """Files and folders at any depth of a folder whose names match a pattern, sorted."""
    return (
        [*sorted(folder.rglob(pattern))] if isinstance(folder, Path) else [*folder.rglob(pattern)]
    )


def lies_in(place: Place, folder: Place) -> bool:
    """Whether a place is a folder, or lies in it."""
    if isinstance(place, Path):
        return isinstance(folder, Path) and place.is_relative_to(folder)
    return place.is_relative_to(folder)


def names_below(place: Place, folder: Place) -> PurePath:
    """The names that lead from a folder to a place in it.

    Raises:
      ValueError: It does not lie there.
    """
    if isinstance(place, Path) and isinstance(folder, Path):
        return place.relative_to(folder)
    if isinstance(place, StoredPlace):
        return place.relative_to(folder)
    raise ValueError(f"{place} does not lie in {folder}")


def is_same(one: Place, other: Place) -> bool:
    """Whether two places that are there are one, however they are spelled or linked."""
    if isinstance(one, Path) and isinstance(other, Path):
        return one.samefile(other)
    return one == other


def open_input(place: Place, size: int | None = None) -> Any:  # noqa: ANN401 - what pyarrow reads
    """What pyarrow reads a file from: the path, or ranges of the stored file.

    Args:
      place: The file.
      size: Its bytes, if they are known; saves a question to the store.

    Raises:
      OSError: The store does not give it.
    """
    if isinstance(place, Path):
        return place
    known = place.stat().st_size if size is None else size
    if known <= READ_AHEAD:  # one request for all of it, where ranges would be three
        data = place.store.read(place.key)
        if len(data) != known:
            raise OSError(errno.EIO, f"gave {len(data)} bytes of {known}", str(place))
        return io.BytesIO(data)
    return Ranges(place, known)


def at_once(store: Place, ask: Callable[[T], R], of: Iterable[T]) -> list[R]:
    """Answers in the order of the questions; a store, with its 10 to 100 ms, is asked many at once.

    Args:
      store: A place in the store that is asked; files of this machine are asked one by one.
      ask: Asks one.
      of: What is asked of.

    Raises:
      Exception: What the first raises that raises anything.
    """
    questions = list(of)
    if isinstance(store, Path) or len(questions) < 2:
        return [ask(one) for one in questions]
    with ThreadPoolExecutor(min(_AT_ONCE, len(questions))) as threads:
        return list(threads.map(ask, questions))


def remove_tree(place: Place) -> None:
    """Remove a folder with all that is in it, as far as that goes."""
    if isinstance(place, Path):
        shutil.rmtree(place, ignore_errors=True)
    else:
        place.store.remove([*place.store.files(place.key)])


def _match(names: tuple[str, ...], wanted: list[str]) -> bool:
    return len(names) == len(wanted) and all(map(fnmatchcase, names, wanted))
