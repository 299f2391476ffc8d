"""Object stores by obstore: Amazon S3 and compatible stores, Google Cloud, Azure.

Credentials come from the environment or role of each process, and are never passed on. The threads
of a client do not survive a fork. So clients are kept per process, and a process that forks workers
uses none.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError, PreconditionError
from obstore.store import MemoryStore, from_url

from jobs.pipeline.storage.stores.store import OWNER_ONLY, Stat, Store, UnsafeStoreError

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

# Seconds before a create is tried again after a lost answer or a delay by the store. All limits
# here are defaults, not measured.
_WAITS = (0.1, 0.3, 1.0, 3.0, 10.0, 20.0)
_PATIENCE = 120.0  # seconds after which a create is not tried again; a try can take a minute
_REFUSALS = 4  # refusals to create an absent name; a race for the name is over by then
_REQUEST = timedelta(seconds=120)  # a part of 100 MB at 1 MB/s
_CONNECT = timedelta(seconds=10)
_RETRIES = timedelta(seconds=60)  # of reads, lists and removals, which obstore repeats itself
_ALLOW_HTTP = ("AWS_ALLOW_HTTP", "AZURE_ALLOW_HTTP", "GOOGLE_ALLOW_HTTP")
_AT_ONCE = 500  # names removed by one call
_PIECE = 8 << 20  # bytes of an object read at a time
_COPIED_AT_ONCE = 5_000_000_000  # bytes; Amazon S3 copies 5 GiB, and larger ones in parts


class ObjectStoreFiles(Store):
    """Store of the objects of one bucket or container."""

    def __init__(self, root: str) -> None:
        """Make a client, without a request to the store.

        Args:
          root: Scheme and bucket, such as `s3://bucket`; `memory://NAME` is a store of this process
            for tests.

        Raises:
          OSError: Address or environment are not valid.
        """
        self._root = root
        with _as_os_error(root):
            self._store = _client(root)

    def create(self, name: str, data: bytes, *, mode: int = OWNER_ONLY) -> bool:
        """Implement `Store.create`: a conditional PUT, whose answer is checked by reading."""
        refused, deadline = 0, time.monotonic() + _PATIENCE
        for wait in (*_WAITS, 0.0):
            try:
                obstore.put(self._store, name, data, mode="create", use_multipart=False)
                return True
            except (AlreadyExistsError, PreconditionError) as error:
                failure: Exception = error
                refused += 1
            except (BaseError, OSError, ValueError) as error:
                # A general error does not say whether the object was written.
                if not isinstance(error, GenericError) or _is_final(error):
                    raise _in_words(error, self._root) from None
                failure = error
            with suppress(FileNotFoundError):
                return self.read(name) == data
            if refused == _REFUSALS:
                what = "it refuses to create a file that is absent"
                raise UnsafeStoreError(errno.ENOTSUP, what, self._root)
            if time.monotonic() > deadline:
                break
            time.sleep(wait)
        raise _in_words(failure, self._root)

    def replace(self, name: str, data: bytes, *, mode: int = OWNER_ONLY) -> None:
        """Implement `Store.replace`: a PUT, which is one step for readers."""
        with _as_os_error(self._root):
            obstore.put(self._store, name, data, use_multipart=False)

    def upload(self, name: str, file: Path, *, mode: int = OWNER_ONLY) -> None:
        """Implement `Store.upload`: in several parts, which become an object together."""
        with _as_os_error(self._root), file.open("rb") as handle:
            obstore.put(self._store, name, handle)

    def rename(self, name: str, other: str) -> None:
        """Implement `Store.rename`: the store copies; large objects go through the local disk."""
        with _as_os_error(self._root):
            try:
                size = obstore.head(self._store, name)["size"]
            except FileNotFoundError:
                obstore.head(self._store, other)
                return
            if size <= _COPIED_AT_ONCE:
                obstore.copy(self._store, name, other)
        if size > _COPIED_AT_ONCE:
            with tempfile.NamedTemporaryFile(prefix="das-") as file:
                for start in range(0, size, _PIECE):
                    file.write(self.read_range(name, start, min(start + _PIECE, size)))
                file.flush()
                self.upload(other, Path(file.name))
        self.remove([name])

    def read(self, name: str) -> bytes:
        """Implement `Store.read`."""
        with _as_os_error(self._root):
            return bytes(obstore.get(self._store, name).bytes())

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        """Implement `Store.read_range`."""
        if stop <= start:
            return b""
        with _as_os_error(self._root):
            return bytes(obstore.get_range(self._store, name, start=start, end=stop))

    def stat(self, name: str) -> Stat:
        """Implement `Store.stat`."""
        with _as_os_error(self._root):
            found = obstore.head(self._store, name)
        return _stat(found)

    def stats(self, folder: str) -> Iterator[tuple[str, Stat]]:
        """Implement `Store.stats`."""
        with _as_os_error(self._root):
            for page in obstore.list(self._store, folder or None):
                yield from ((found["path"], _stat(found)) for found in page)

    def entries(self, folder: str) -> Iterator[tuple[str, bool]]:
        """Implement `Store.entries`."""
        with _as_os_error(self._root):
            found = obstore.list_with_delimiter(self._store, folder or None)
        yield from ((name, True) for name in found["common_prefixes"])
        yield from ((one["path"], False) for one in found["objects"])

    def remove(self, names: Sequence[str]) -> None:
        """Implement `Store.remove`."""
        for start in range(0, len(names), _AT_ONCE):
            some = list(names[start : start + _AT_ONCE])
            with _as_os_error(self._root):
                try:
                    obstore.delete(self._store, some)
                except FileNotFoundError:
                    for name in some:
                        self._remove_one(name)

    def _remove_one(self, name: str) -> None:
        try:
            obstore.delete(self._store, name)
        except FileNotFoundError as error:
            if re.search(_NO_BUCKET, str(error)):
                raise


def _stat(found: ObjectMeta) -> Stat:
    changed = found["last_modified"]
    nanoseconds = int(changed.timestamp()) * 10**9 + changed.microsecond * 1000
    return Stat(found["size"], nanoseconds)


def _client(root: str) -> ObjectStore:
    if root.startswith("memory:"):
        return MemoryStore()
    # Options given here take the place of all that obstore would find in the environment.
    plain = any(os.environ.get(name, "").lower() in ("true", "1") for name in _ALLOW_HTTP)
    return from_url(
        root,
        client_options={"timeout": _REQUEST, "connect_timeout": _CONNECT, "allow_http": plain},
        retry_config={"retry_timeout": _RETRIES, "max_retries": 8},
    )


@contextmanager
def _as_os_error(root: str) -> Iterator[None]:
    """Turn exceptions of obstore into an OSError in words."""
    try:
        yield
    except (BaseError, FileNotFoundError, PermissionError, ValueError) as error:
        raise _in_words(error, root) from None


def _in_words(error: Exception, root: str) -> OSError:
    """Make an OSError from the answer of a store, without addresses and dumps of obstore."""
    meaning = _meaning(error)
    if meaning is not None:
        number, words = meaning
        return OSError(number, words.format(root=root), root)
    return OSError(errno.EIO, f"{root} answered: {_core(str(error))}", root)


def _meaning(error: Exception) -> tuple[int, str] | None:
    """Return number and words of a known error; None for others."""
    text = f"{type(error).__name__}: {error}"
    known = ((number, words) for sign, number, words in _MEANINGS if re.search(sign, text))
    return next(known, None)


def _core(text: str) -> str:
    """Return the sentence of an obstore error that describes the failure."""
    text = text.split("\n\nDebug source")[0]
    message = re.search(r"<Code>(.*?)</Code>(?:<Message>(.*?)</Message>)?", text, re.DOTALL)
    if message:
        return ": ".join(part.strip() for part in message.groups() if part)
    return re.sub(r"https?://\S+", "...", text.splitlines()[0])[:300]


def _is_final(error: Exception) -> bool:
    """Return whether another try would get the same answer from the store."""
    status = r"status code: (4(?!08|09|12|25|29)\d\d|501)"
    return _meaning(error) is not None or re.search(status, str(error)) is not None


_NO_BUCKET = "NoSuchBucket|ContainerNotFound|specified bucket does not exist"
# Signs in the kind and text of an error, in the order in which they count.
_MEANINGS = (
    (_NO_BUCKET, errno.ENODEV, "there is no bucket or container {root}"),
    ("^FileNotFoundError:", errno.ENOENT, os.strerror(errno.ENOENT)),
    (
        r"169\.254\.|metadata\.google|MissingAccount",
        errno.EACCES,
        "this process has no credentials for {root}: none are set in its environment, and the "
        "machine has no role that gives any",
    ),
    (
        "^(PermissionDeniedError|UnauthenticatedError):|AccessDenied",
        errno.EACCES,
        "{root} does not let this process do that: its credentials are wrong or lack the right",
    ),
    (
        "builder error",
        errno.EINVAL,
        "the address of {root} is plain http, which is refused, or is no address; where the "
        "network is trusted, set AWS_ALLOW_HTTP=true",
    ),
    (
        "status code: 501|NotImplemented",
        errno.ENOTSUP,
        "{root} does not know how to create an object only if it is absent",
    ),
)
