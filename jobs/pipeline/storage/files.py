"""Files that are replaced at once, and errors of file systems that name the file.

Who may read what of a run folder: its owner alone, until a release is finalized.

Files and folders are made for their owner only, whatever the process's mask allows. A finalized
release is opened to readers, as far as the mask allows, so that copies of it can be served. In
object stores, policies of the store say who reads what; nothing here changes them.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from das.errors import OutputError
from jobs.pipeline.storage.place import Place, StoredPlace, store_of
from jobs.pipeline.storage.stores.store import OWNER_ONLY

_NOT_UNDERSTOOD = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_IN_THE_WAY = (errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY)
_GO_ON = "; then repeat the command, or continue a run with `das run OUT`"


@contextmanager
def naming_file(path: Place, what: str, remedy: str | None = None) -> Iterator[None]:
    """Turn an OSError into an OutputError that names the file.

    Args:
      path: The file or folder.
      what: What failed, such as "cannot be read".
      remedy: What to do.
    """
    try:
        yield
    except OSError as error:
        raise OutputError(str(path), what, got=error.strerror, remedy=remedy) from None


@contextmanager
def writing(path: Place, part: Place | None = None, *, remedy: str | None = None) -> Iterator[None]:
    """Turn an OSError while writing into an OutputError that names the file.

    Args:
      path: The file to write.
      part: An unpublished file, removed on failure to free its space.
      remedy: What to do; by default it depends on the cause.

    Raises:
      OutputError: The disk is full, or the file cannot be written for another reason.
    """
    try:
        yield
    except OSError as error:
        if part is not None:
            with suppress(OSError):
                part.unlink(missing_ok=True)
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        if isinstance(path, StoredPlace):
            reason = error.strerror or reason
        raise OutputError(
            str(path),
            "cannot be written",
            got=reason,
            remedy=_remedy_of(path, error) if remedy is None else remedy,
        ) from None


def _remedy_of(path: Place, error: OSError) -> str:
    """Say what to do if a file cannot be written."""
    if isinstance(path, StoredPlace):
        return "see to the store" + _GO_ON
    if error.errno in _FULL:
        return "give the disk room" + _GO_ON
    if error.errno in _FORBIDDEN:
        return "give this user the right to write there, or name another place" + _GO_ON
    if error.errno == errno.ENOENT:
        return "name a folder that exists or can be made" + _GO_ON
    if error.errno in _IN_THE_WAY:
        return "move away what lies there, or name another place" + _GO_ON
    return "see to the disk" + _GO_ON


@contextmanager
def drafted(folder: Path) -> Iterator[Path]:
    """Make a temporary sibling of a folder that takes its name if the block succeeds."""
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        with writing(folder):
            yield draft
            if folder.exists():
                folder.rmdir()
            os.rename(draft, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def understanding(
    path: Place, remedy: str | None = None, *, absent: bool = False
) -> Iterator[None]:
    """Turn errors of reading a damaged document into an OutputError that names the file.

    Args:
      path: The document, such as JSON of this program that was changed later.
      remedy: What to do.
      absent: Whether the caller handles an absent file.

    Raises:
      FileNotFoundError: The file is absent and `absent` is set.
      OutputError: The file cannot be read, or is damaged.
    """
    try:
        yield
    except OSError as error:
        if absent and isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError):
            raise FileNotFoundError(*error.args) from None
        raise OutputError(str(path), "cannot be read", got=error.strerror, remedy=remedy) from None
    except _NOT_UNDERSTOOD as error:
        got = f"{type(error).__name__} {error}"
        raise OutputError(str(path), "is damaged", got=got, remedy=remedy) from None


def replace_file(
    path: Place, text: str | bytes, *, mode: int = OWNER_ONLY, remedy: str | None = None
) -> None:
    """Write a file atomically, and its folder if absent. It survives a crash of the machine.

    Args:
      path: The file.
      text: Its text, or bytes.
      mode: Permissions, reduced by the mask of the process; default: the owner only.
      remedy: Passed to `writing`.

    Raises:
      OutputError: The file cannot be written.
    """
    store, name = store_of(path)
    with writing(path, remedy=remedy):
        store.replace(name, _encoded(text), mode=mode)


def create_file(path: Place, text: str | bytes, *, mode: int = OWNER_ONLY) -> bool:
    """Create a file atomically; of concurrent writers exactly one succeeds.

    Args:
      path: The file.
      text: Its text, or bytes.
      mode: Permissions, reduced by the mask of the process; default: the owner only.

    Returns:
      Whether the file has this text, written by this call or by another writer.

    Raises:
      OutputError: The file cannot be written.
    """
    store, name = store_of(path)
    with writing(path):
        return store.create(name, _encoded(text), mode=mode)


def _encoded(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def write_json(path: Place, document: Mapping[str, Any], *, mode: int = OWNER_ONLY) -> None:
    """Write a document as JSON, by `replace_file`.

    Raises:
      OutputError: The file cannot be written.
    """
    replace_file(path, json_text(document), mode=mode)


def json_text(document: Mapping[str, Any]) -> str:
    """Format a document as the JSON files of a run."""
    return json.dumps(document, indent=1) + "\n"


def read_bytes(path: Place, remedy: str) -> bytes:
    """Read a small file.

    Raises:
      OutputError: The file is missing or cannot be read.
    """
    with naming_file(path, "cannot be read"):
        try:
            return path.read_bytes()
        except FileNotFoundError:
            raise OutputError(str(path), "is missing", remedy=remedy) from None


def read_json(path: Place, remedy: str) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
      OutputError: The file is missing or damaged.
    """
    try:
        document = json.loads(read_bytes(path, remedy))
    except (ValueError, RecursionError) as error:
        raise OutputError(str(path), "cannot be read", got=error) from None
    if not isinstance(document, dict):
        raise OutputError(str(path), "is damaged", got=type(document).__name__)
    return document


def refuse_foreign(path: Place, start: bytes, kind: str) -> None:
    """Refuse to replace or extend a file that this program did not write.

    Args:
      path: A file to write, named on the command line.
      start: First bytes of files of this kind.
      kind: Name of the kind, for the error.

    Raises:
      OutputError: The path is a folder or a file of another kind.
    """
    first_bytes: bytes | None = None
    with naming_file(path, "cannot be written"):
        if not path.exists():
            return
        if path.is_file():
            with path.open("rb") as handle:
                first_bytes = handle.read(len(start))
    if first_bytes is None or (first_bytes and first_bytes != start):
        raise OutputError(
            str(path),
            "is another file and is not written over",
            want=kind,
            remedy="name a new file, or remove this one",
        )


# --- who may read what ----------------------------------------------------------------------------


READABLE = 0o644
_OWNER_ONLY_FOLDER = 0o700
_READABLE_FOLDER = 0o755
_OTHERS = 0o077


def make_closed_folder(folder: Place) -> None:
    """Create a folder and its absent parents for their owner only.

    Raises:
      OSError: A folder cannot be created.
    """
    if isinstance(folder, StoredPlace):
        return
    absent = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(absent):
        path.mkdir(mode=_OWNER_ONLY_FOLDER, exist_ok=True)
    if not absent and not folder.is_dir():
        raise NotADirectoryError(20, os.strerror(20), str(folder))


def close_folder(folder: Place) -> None:
    """Restrict a folder to its owner.

    Raises:
      OutputError: Other users can still enter: another user owns the folder, or the file system
        has no permissions.
    """
    if isinstance(folder, StoredPlace) or not _open_to_others(folder):
        return
    with suppress(OSError):
        folder.chmod(_OWNER_ONLY_FOLDER)
    if mode := _open_to_others(folder):
        raise OutputError(
            str(folder),
            "can be entered by other users, and cannot be closed to them",
            got=f"mode {mode:o}",
            want="mode 700",
            remedy="put it on a file system with permissions, in a folder of the user of the run",
        )


def _open_to_others(folder: Path) -> int:
    mode = stat.S_IMODE(folder.stat().st_mode)
    return mode if mode & _OTHERS else 0


def open_to_readers(folder: Place) -> None:
    """Let others read a folder and its content, as far as the mask of the process allows.

    Raises:
      OSError: A file belongs to another user.
    """
    if isinstance(folder, StoredPlace):
        return
    mask = os.umask(_OTHERS)  # the mask can be read only by setting it
    os.umask(mask)
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod((_READABLE_FOLDER if path.is_dir() else READABLE) & ~mask)
