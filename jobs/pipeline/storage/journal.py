"""Journal: an append-only file of JSON lines in which every line vouches for all before it.

Each line carries its number and the SHA-256 of the line before it. Appending takes a lock on the
file, checks the whole chain, and syncs before it returns, so that what was appended survives a
crash of the machine. A last line without its newline is what a crash in the middle of an append
leaves; nobody was told that it was written, so it is cut off before the next append.

Stores have no locks, and nothing can be appended to their files. There a journal NAME is a folder
NAME.lines of one file per append, named by the number of its first line and created only if it is
absent: of two who append at once one succeeds, and the other reads what came before and decides
anew. A copy of such a folder on a disk is read too, and goes on in the one file NAME.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import posixpath
import re
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from das.errors import LedgerError, OutputError
from jobs.pipeline.storage.files import make_closed_folder, replace_file
from jobs.pipeline.storage.place import Place, StoredPlace, at_once
from jobs.pipeline.storage.stores.posix import sync_folder
from jobs.pipeline.storage.stores.store import OWNER_ONLY

Line = dict[str, Any]

LINES = ".lines"
"""What the folder of a journal in a store is called, after the journal's own name."""
_NUMBERED = re.compile(r"\d{8,}\.jsonl")
_OWN = ("line", "previous", "token")  # keys that a journal gives its lines
_RACES = 100  # lost races after which something else must be wrong


def read_journal(path: Place) -> list[Line]:
    """Read all lines in order; a file that is not there has none.

    Raises:
      LedgerError: A line was changed, removed or inserted.
      OutputError: The file cannot be read.
    """
    return _parse(path, _whole_lines(path))


def line_digests(path: Place) -> list[str]:
    """Return the SHA-256 of each line in order: the n-th vouches for the first n lines.

    Raises:
      LedgerError: A line was changed, removed or inserted.
      OutputError: The file cannot be read.
    """
    data = _whole_lines(path)
    _parse(path, data)
    return [_digest(line) for line in data.splitlines(keepends=True)]


def _whole_lines(path: Place) -> bytes:
    """All lines of a journal without what a crash left; nothing if it is not there."""
    try:
        data = _stored(path) if isinstance(path, StoredPlace) else _local(path)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise OutputError(str(path), "cannot be read", got=error.strerror) from None
    return data[: data.rfind(b"\n") + 1]


def is_begun(path: Place) -> bool:
    """Whether a journal holds a line, or should: also one that somebody emptied in a store."""
    if isinstance(path, StoredPlace):
        return bool(_files(path)) or (path.is_file() and path.stat().st_size > 0)
    return (path.exists() and path.stat().st_size > 0) or bool(_copied(path))


def journals_under(folder: Place, name: str) -> list[Place]:
    """The journals of a name that lie under a folder and hold a line."""
    if isinstance(folder, Path):
        copied = {path.with_name(name) for path in folder.rglob(name + LINES)}
        return sorted(path for path in {*folder.rglob(name), *copied} if is_begun(path))
    places = [StoredPlace(folder.root, key) for key in folder.store.files(folder.key)]
    whole = {place for place in places if place.name == name}
    parted = {p.parent.with_name(name) for p in places if p.parent.name == name + LINES}
    return sorted(place for place in whole | parted if is_begun(place))


def remove_journal(path: Place) -> None:
    """Remove a journal; one that is not there is passed by.

    Raises:
      OSError: It cannot be removed.
    """
    if isinstance(path, StoredPlace):
        path.store.remove([*_files(path), path.key])
    else:
        for file in _copied(path):
            file.unlink()
        path.unlink(missing_ok=True)


def journal_of(path: Place) -> Place | None:
    """Return the journal of which a file has lines, in a store or a copy of one; None of others.

    Whoever reads the journal checks that such files continue one another.
    """
    if _NUMBERED.fullmatch(path.name) and path.parent.name.endswith(LINES):
        return path.parent.with_name(path.parent.name.removesuffix(LINES))
    return None


def write_whole(path: Place) -> None:
    """Give a journal in a store the one file that it is on a disk, for who copies the folder.

    Raises:
      LedgerError: It was tampered with.
      OutputError: It cannot be read or written.
    """
    if isinstance(path, StoredPlace) and read_journal(path):
        try:
            data = _stored(path)
        except OSError as error:
            raise OutputError(str(path), "cannot be read", got=error.strerror) from None
        replace_file(path, data)


def append_to_journal(
    path: Place, decide: Callable[[Sequence[Line]], Sequence[Line]]
) -> list[Line]:
    """Append lines that are decided while nobody else can append.

    Args:
      path: The file; it and its folder are made if absent, readable by their owner only.
      decide: Gets all lines there are and returns those to append; if it raises, nothing changes.

    Returns:
      All lines, the new ones included.

    Raises:
      LedgerError: The file was tampered with.
      OutputError: The file cannot be written.
    """
    if isinstance(path, StoredPlace):
        return _append_to_stored(path, decide)
    try:
        make_closed_folder(path.parent)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, OWNER_ONLY)
    except OSError as error:
        raise OutputError(str(path), "cannot be written", got=error.strerror) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        data = _read_all(handle)
        own = data[: data.rfind(b"\n") + 1]
        whole = _longer(path, own, _copied(path))
        lines = _parse(path, whole)
        added = [dict(line) for line in decide(lines)]
        if added:
            _write(handle, own, whole[len(own) :] + _chained(whole, added))
        if added and not own:
            sync_folder(path.parent)  # or the name of a new file might not survive a crash
    except OSError as error:
        raise OutputError(str(path), "cannot be written", got=error.strerror) from None
    finally:
        os.close(handle)
    return [*lines, *added]


def begin_journal(path: Place, first: Sequence[Line]) -> None:
    """Write the first lines of a journal; one that has them stays as it is.

    Raises:
      LedgerError: It begins otherwise, or was tampered with.
      OutputError: The file cannot be written.
    """

    def decide(lines: Sequence[Line]) -> Sequence[Line]:
        if not lines:
            return first
        if list(lines[: len(first)]) != list(first):
            raise LedgerError(str(path), "is of another plan", remedy="remove the run folder")
        return []

    append_to_journal(path, decide)


def _append_to_stored(
    path: StoredPlace, decide: Callable[[Sequence[Line]], Sequence[Line]]
) -> list[Line]:
    for _ in range(_RACES):
        try:
            whole = _stored(path)
        except FileNotFoundError:
            whole = b""
        except OSError as error:
            raise OutputError(str(path), "cannot be read", got=error.strerror) from None
        lines = _parse(path, whole)
        added = [dict(line) for line in decide(lines)]
        if not added:
            return lines
        try:
            if whole and not _files(path):  # copied here from a disk: everybody copies the same
                path.store.create(_file(path, 0), whole)
            # Two may append the same words; the token tells whose the file is.
            text = _chained(whole, added, token=uuid.uuid4().hex)
            if path.store.create(_file(path, len(lines)), text):
                return [*lines, *added]
        except OSError as error:
            raise OutputError(str(path), "cannot be written", got=error.strerror) from None
    raise OutputError(str(path), "cannot be written", got=f"{_RACES} others who append to it")


def _file(path: StoredPlace, first_line: int) -> str:
    return f"{path.key}{LINES}/{first_line:08d}.jsonl"


def _files(path: StoredPlace) -> list[str]:
    """The files of a journal in a store, in order; drafts of other writers left out."""
    names = path.store.files(f"{path.key}{LINES}")
    return sorted(name for name in names if _NUMBERED.fullmatch(posixpath.basename(name)))


def _stored(path: StoredPlace) -> bytes:
    """All lines of a journal in a store.

    Raises:
      FileNotFoundError: There is none.
      OSError: The store does not give them, or one that it lists is not there.
    """
    files = _files(path)
    if not files:
        return path.read_bytes()
    try:
        return b"".join(at_once(path, path.store.read, files))
    except FileNotFoundError:  # or the journal would count as not begun
        raise OSError(errno.EIO, "a file of it is listed and not there") from None


def _local(path: Path) -> bytes:
    """All lines of a journal on a disk, also of one that was copied from a store.

    Raises:
      FileNotFoundError: There is none.
      OSError: They cannot be read.
    """
    copied = _copied(path)
    if copied and not path.exists():
        return _longer(path, b"", copied)
    return _longer(path, path.read_bytes(), copied)


def _copied(path: Path) -> list[Path]:
    """The files of a journal that was copied from a store, in order."""
    folder = path.with_name(path.name + LINES)
    return sorted(file for file in folder.glob("*.jsonl") if _NUMBERED.fullmatch(file.name))


def _longer(path: Path, own: bytes, copied: Sequence[Path]) -> bytes:
    """What one file holds, or the files of a copy from a store, whichever goes on with the other.

    Raises:
      LedgerError: They go on differently.
    """
    if not copied:
        return own
    joined = b"".join(file.read_bytes() for file in copied)
    short, long = sorted((own, joined), key=len)
    if not long.startswith(short):
        raise LedgerError(
            str(path),
            f"and {path.name}{LINES} beside it go on differently",
            remedy="restore both from one copy",
        )
    return long


def _write(handle: int, own: bytes, added: bytes) -> None:
    os.ftruncate(handle, len(own))
    try:
        _write_all(handle, added)
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, len(own))
        raise


def _chained(whole: bytes, added: Sequence[Line], **token: str) -> bytes:
    """Lines as they follow those that are there; a token stands in the first."""
    previous = _digest(whole.splitlines(keepends=True)[-1]) if whole else ""
    number = whole.count(b"\n")
    text = b""
    for offset, line in enumerate(added):
        chained = {"line": number + offset, "previous": previous, **token, **line}
        token = {}
        encoded = json.dumps(chained, ensure_ascii=True).encode() + b"\n"
        previous = _digest(encoded)
        text += encoded
    return text


def _write_all(handle: int, text: bytes) -> None:
    while text:
        text = text[os.write(handle, text) :]


def _read_all(handle: int) -> bytes:
    os.lseek(handle, 0, os.SEEK_SET)
    data = b""
    while piece := os.read(handle, 1 << 20):
        data += piece
    return data


def _parse(path: Place, data: bytes) -> list[Line]:
    lines: list[Line] = []
    previous = ""
    for number, encoded in enumerate(data.splitlines(keepends=True)):
        try:
            line = json.loads(encoded)
        except ValueError:
            line = None
        if (
            not isinstance(line, dict)
            or line.get("line") != number
            or line.get("previous") != previous
        ):
            raise LedgerError(
                f"{path}, line {number + 1}",
                "does not continue the lines before it: the file was edited or damaged",
                remedy="restore it from a backup; never edit or shorten it",
            )
        previous = _digest(encoded)
        lines.append({k: v for k, v in line.items() if k not in _OWN})
    return lines


def _digest(encoded: bytes) -> str:
    return hashlib.sha256(encoded).hexdigest()
