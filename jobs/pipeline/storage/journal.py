"""Journal: an append-only file of JSON lines, chained by hashes.

Each line has its number and the SHA-256 of the line before. An append locks the file, checks the
whole chain, and syncs before it returns, so that appended lines survive a crash of the machine. A
last line without newline comes from a crash during an append. That append was never acknowledged,
so the line is cut off before the next append.

Object stores have neither locks nor appends. There a journal NAME is a folder NAME.lines with one
file per append, named by the number of its first line and created only if absent. Of two concurrent
writers one succeeds; the other reads the new lines and decides again. A copy of such a folder on a
disk can be read too, and is continued in the one file NAME.
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
from jobs.pipeline.storage.files import make_closed_folder, naming_file, replace_file
from jobs.pipeline.storage.place import Place, StoredPlace, at_once
from jobs.pipeline.storage.stores.posix import sync_folder
from jobs.pipeline.storage.stores.store import OWNER_ONLY

Line = dict[str, Any]

LINES = ".lines"
"""Suffix of the folder of a journal in a store."""
_NUMBERED = re.compile(r"\d{8,}\.jsonl")
_OWN = ("line", "previous", "token")  # keys that a journal gives its lines
_RACES = 100  # lost races before giving up; default, not measured


def read_journal(path: Place) -> list[Line]:
    """Read all lines, oldest first; empty if the file is absent.

    Raises:
      LedgerError: A line was changed, removed or inserted.
      OutputError: The file cannot be read.
    """
    return _parse(path, _whole_lines(path))


def line_digests(path: Place) -> list[str]:
    """Return the SHA-256 of each line, oldest first; the n-th digest covers the first n lines.

    Raises:
      LedgerError: A line was changed, removed or inserted.
      OutputError: The file cannot be read.
    """
    data = _whole_lines(path)
    _parse(path, data)
    return [_digest(line) for line in data.splitlines(keepends=True)]


def _whole_lines(path: Place) -> bytes:
    """Read all complete lines of a journal; empty if it is absent."""
    data = _content(path)
    return data[: data.rfind(b"\n") + 1]


def _content(path: Place) -> bytes:
    """Read a journal, perhaps with an incomplete last line; empty if it is absent."""
    with naming_file(path, "cannot be read"):
        try:
            return _stored(path) if isinstance(path, StoredPlace) else _local(path)
        except FileNotFoundError:
            return b""


def is_begun(path: Place) -> bool:
    """Return whether a journal has a line, or had one: also if emptied in a store."""
    if isinstance(path, StoredPlace):
        return bool(_files(path)) or (path.is_file() and path.stat().st_size > 0)
    return (path.exists() and path.stat().st_size > 0) or bool(_copied(path))


def journals_under(folder: Place, name: str) -> list[Place]:
    """List the journals of a name under a folder that hold a line."""
    if isinstance(folder, Path):
        copied = {path.with_name(name) for path in folder.rglob(name + LINES)}
        return sorted(path for path in {*folder.rglob(name), *copied} if is_begun(path))
    places = [StoredPlace(folder.root, key) for key in folder.store.files(folder.key)]
    whole = {place for place in places if place.name == name}
    parted = {p.parent.with_name(name) for p in places if p.parent.name == name + LINES}
    return sorted(place for place in whole | parted if is_begun(place))


def remove_journal(path: Place) -> None:
    """Remove a journal if it exists.

    Raises:
      OSError: The journal cannot be removed.
    """
    if isinstance(path, StoredPlace):
        path.store.remove([*_files(path), path.key])
    else:
        for file in _copied(path):
            file.unlink()
        path.unlink(missing_ok=True)


def journal_of(path: Place) -> Place | None:
    """Return the journal to which a file of lines in a store or a copy belongs; None otherwise.

    Reading the journal checks that its files continue one another.
    """
    if _NUMBERED.fullmatch(path.name) and path.parent.name.endswith(LINES):
        return path.parent.with_name(path.parent.name.removesuffix(LINES))
    return None


def write_whole(path: Place) -> None:
    """Write a journal of a store as the single file it is on a disk, for copies of the folder.

    Raises:
      LedgerError: The journal was tampered with.
      OutputError: The journal cannot be read or written.
    """
    if isinstance(path, StoredPlace) and (lines := _whole_lines(path)):
        _parse(path, lines)
        replace_file(path, lines)


def append_to_journal(
    path: Place, decide: Callable[[Sequence[Line]], Sequence[Line]]
) -> list[Line]:
    """Append lines atomically, as a function of the existing lines.

    Args:
      path: The file; it and its folder are created if absent, readable by their owner only.
      decide: Maps existing lines to lines to append; if it raises, nothing changes.

    Returns:
      All lines, including the new ones.

    Raises:
      LedgerError: The file was tampered with.
      OutputError: The file cannot be written.
    """
    if isinstance(path, StoredPlace):
        return _append_to_stored(path, decide)
    with naming_file(path, "cannot be written"):
        make_closed_folder(path.parent)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, OWNER_ONLY)
        with open(handle, "rb") as file:
            fcntl.flock(handle, fcntl.LOCK_EX)
            data = file.read()
            complete = data[: data.rfind(b"\n") + 1]
            whole = _longer(path, complete, _copied(path))
            lines = _parse(path, whole)
            added = [dict(line) for line in decide(lines)]
            if added:
                _write(handle, complete, whole[len(complete) :] + _chained(whole, added))
            if added and not complete:
                sync_folder(path.parent)  # or the name of a new file might not survive a crash
    return [*lines, *added]


def begin_journal(path: Place, first: Sequence[Line]) -> None:
    """Write the first lines of a journal; a journal that has them is kept.

    Raises:
      LedgerError: The journal begins with other lines, or was tampered with.
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
        whole = _content(path)
        lines = _parse(path, whole)
        added = [dict(line) for line in decide(lines)]
        if not added:
            return lines
        with naming_file(path, "cannot be written"):
            if whole and not _files(path):  # copied from a disk: every driver writes the same
                path.store.create(_file(path, 0), whole)
            # Two drivers may append equal lines; the token identifies the writer.
            text = _chained(whole, added, token=uuid.uuid4().hex)
            if path.store.create(_file(path, len(lines)), text):
                return [*lines, *added]
    raise OutputError(str(path), "cannot be written", got=f"{_RACES} concurrent appends")


def _file(path: StoredPlace, first_line: int) -> str:
    return f"{path.key}{LINES}/{first_line:08d}.jsonl"


def _files(path: StoredPlace) -> list[str]:
    """List the files of a journal in a store, oldest first, without drafts of other writers."""
    names = path.store.files(f"{path.key}{LINES}")
    return sorted(name for name in names if _NUMBERED.fullmatch(posixpath.basename(name)))


def _stored(path: StoredPlace) -> bytes:
    """Read all lines of a journal in a store.

    Raises:
      FileNotFoundError: The journal is absent.
      OSError: The store fails, or lacks a listed file.
    """
    files = _files(path)
    if not files:
        return path.read_bytes()
    try:
        return b"".join(at_once(path, path.store.read, files))
    except FileNotFoundError:  # or the journal would count as not begun
        raise OSError(errno.EIO, "a file of it is listed and not there") from None


def _local(path: Path) -> bytes:
    """Read all lines of a journal on a disk, also of a copy from a store.

    Raises:
      FileNotFoundError: The journal is absent.
      OSError: The journal cannot be read.
    """
    copied = _copied(path)
    content = b"" if copied and not path.exists() else path.read_bytes()
    return _longer(path, content, copied)


def _copied(path: Path) -> list[Path]:
    """List the files of a journal that was copied from a store, oldest first."""
    folder = path.with_name(path.name + LINES)
    return sorted(file for file in folder.glob("*.jsonl") if _NUMBERED.fullmatch(file.name))


def _longer(path: Path, content: bytes, copied: Sequence[Path]) -> bytes:
    """Return the longer of a journal's file and its copied files, if one continues the other.

    Raises:
      LedgerError: File and copy continue differently.
    """
    if not copied:
        return content
    joined = b"".join(file.read_bytes() for file in copied)
    short, long = sorted((content, joined), key=len)
    if not long.startswith(short):
        raise LedgerError(
            str(path),
            f"and {path.name}{LINES} in the same folder continue differently",
            remedy="restore both from one copy",
        )
    return long


def _write(handle: int, complete: bytes, added: bytes) -> None:
    os.ftruncate(handle, len(complete))
    try:
        while added:
            added = added[os.write(handle, added) :]
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, len(complete))
        raise


def _chained(whole: bytes, added: Sequence[Line], **token: str) -> bytes:
    """Format lines that continue the chain; the first gets the token."""
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
