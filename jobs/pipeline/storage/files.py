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
_GO_ON = "; then go on with `das run OUT`, or where it is no run, with the same command"


@contextmanager
def writing(path: Place, part: Place | None = None, *, remedy: str | None = None) -> Iterator[None]:
    """Make a file system's refusal an error that names the file.

    Args:
      path: What is written.
      part: A file nobody can read yet, removed to give back what it took.
      remedy: What to do; default: what the reason asks for.

    Raises:
      OutputError: The disk is full, or the file cannot be written for another reason.
    """
    try:
        yield
    except OSError as error:
        if part is not None:
            with suppress(OSError):
                part.unlink(missing_ok=True)
        raise OutputError(
            str(path),
            "cannot be written",
            got=_reason(path, error),
            remedy=_remedy_of(path, error) if remedy is None else remedy,
        ) from None


@contextmanager
def drafted(folder: Path) -> Iterator[Path]:
    """A folder beside another, which takes its name if the block ends well."""
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


def _remedy_of(path: Place, error: OSError) -> str:
    """What to do where something cannot be written."""
    if isinstance(path, StoredPlace):
        return "see to the store" + _GO_ON
    if error.errno in _FULL:
        return "give the disk room" + _GO_ON
    if error.errno in _FORBIDDEN:
        return "give this user the right to write there, or name another place" + _GO_ON
    if error.errno in _IN_THE_WAY:
        return "move away what lies there, or name another place" + _GO_ON
    return "see to the disk" + _GO_ON


def _reason(path: Place, error: OSError) -> str:
    """What the system says of an error number, or a store said in words."""
    if isinstance(path, StoredPlace) and error.strerror:
        return error.strerror
    return os.strerror(error.errno) if error.errno else type(error).__name__


@contextmanager
def understanding(
    path: Place, remedy: str | None = None, *, absent: bool = False
) -> Iterator[None]:
    """Make what a damaged record of a run leads to an error that names the file.

    Args:
      path: The record: JSON that this program wrote and somebody, or a disk, changed.
      remedy: What to do.
      absent: Whether that it is absent is for the caller to understand.

    Raises:
      FileNotFoundError: It is absent, if the caller wants that.
      OutputError: It cannot be read, or does not hold what it held.
    """
    try:
        yield
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        if absent:
            raise FileNotFoundError(*error.args) from None
        raise OutputError(str(path), "cannot be read", got=error.strerror, remedy=remedy) from None
    except OSError as error:
        raise OutputError(str(path), "cannot be read", got=error.strerror, remedy=remedy) from None
    except _NOT_UNDERSTOOD as error:
        got = f"{type(error).__name__} {error}"
        raise OutputError(str(path), "is damaged", got=got, remedy=remedy) from None


def replace_file(
    path: Place, text: str | bytes, *, mode: int = OWNER_ONLY, remedy: str | None = None
) -> None:
    """Write a file, and its folder if absent, so that it is either the old one or the new one.

    It survives a crash of the machine.

    Args:
      path: The file.
      text: Its text, or bytes.
      mode: Permissions, of which the process's mask takes some away; default: its owner's alone.
      remedy: As in `writing`.

    Raises:
      OutputError: It cannot be written.
    """
    store, name = store_of(path)
    with writing(path, remedy=remedy):
        store.replace(name, _encoded(text), mode=mode)


def create_file(path: Place, text: str | bytes, *, mode: int = OWNER_ONLY) -> bool:
    """Write a file unless there is one; of all who do so at once, one succeeds.

    Args:
      path: The file.
      text: Its text, or bytes.
      mode: Permissions, of which the process's mask takes some away; default: its owner's alone.

    Returns:
      Whether the file holds this text now: it was written here, or by another with the same text.

    Raises:
      OutputError: It cannot be written.
    """
    store, name = store_of(path)
    with writing(path):
        return store.create(name, _encoded(text), mode=mode)


def _encoded(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def write_json(path: Place, document: Mapping[str, Any], *, mode: int = OWNER_ONLY) -> None:
    """`replace_file` with a document as JSON.

    Raises:
      OutputError: It cannot be written.
    """
    replace_file(path, json_text(document), mode=mode)


def json_text(document: Mapping[str, Any]) -> str:
    """A document as the JSON files of a run have it."""
    return json.dumps(document, indent=1) + "\n"


def read_bytes(path: Place, remedy: str) -> bytes:
    """Read a small file.

    Raises:
      OutputError: It is missing or cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise OutputError(str(path), "is missing", remedy=remedy) from None
    except OSError as error:
        raise OutputError(str(path), "cannot be read", got=error.strerror) from None


def read_json(path: Place, remedy: str) -> dict[str, Any]:
    """Read a JSON map.

    Raises:
      OutputError: It is missing or damaged.
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
      path: Where a file is about to be written, on the word of a command line.
      start: How files of the kind start.
      kind: What a file there must be.

    Raises:
      OutputError: There is something else.
    """
    try:
        if not path.exists():
            return
        found = _first_bytes(path, len(start)) if path.is_file() else None
    except OSError as error:
        raise OutputError(str(path), "cannot be written", got=error.strerror) from None
    if found is None or (found and found != start):
        raise OutputError(
            str(path),
            "is another file and is not written over",
            want=kind,
            remedy="name a new file, or remove this one",
        )


def _first_bytes(path: Place, n: int) -> bytes:
    with path.open("rb") as handle:
        return handle.read(n)


# --- who may read what ----------------------------------------------------------------------------


READABLE = 0o644
_OWNER_ONLY_FOLDER = 0o700
_READABLE_FOLDER = 0o755
_OTHERS = 0o077


def make_closed_file(path: Path) -> None:
    """Create an empty file for its owner only, to be written by name.

    Raises:
      OSError: It exists, or cannot be created.
    """
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY))


def make_closed_folder(folder: Place) -> None:
    """Create a folder, and those above it that are absent, for their owner only.

    Raises:
      OSError: One cannot be created.
    """
    if isinstance(folder, StoredPlace):
        return
    absent = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(absent):
        one.mkdir(mode=_OWNER_ONLY_FOLDER, exist_ok=True)
    if not absent and not folder.is_dir():
        raise NotADirectoryError(20, os.strerror(20), str(folder))


def close_folder(folder: Place) -> None:
    """Let nobody but its owner enter a folder, whoever could before.

    Raises:
      OutputError: Others can enter it still: it belongs to another user, or lies on a file system
        without permissions.
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
    """Let others read a folder and all that is in it, as far as the process's mask allows.

    Raises:
      OSError: Something in it belongs to another user.
    """
    if isinstance(folder, StoredPlace):
        return
    mask = os.umask(_OTHERS)  # there is no way to read it without setting it
    os.umask(mask)
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod((_READABLE_FOLDER if path.is_dir() else READABLE) & ~mask)
