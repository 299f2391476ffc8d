"""Journal: an append-only file of JSON lines in which every line vouches for all before it.

Each line carries its number and the SHA-256 of the line before it. Appending takes a lock on the
file, checks the whole chain, and syncs before it returns, so that what was appended survives a
crash of the machine. A last line without its newline is what a crash in the middle of an append
leaves; nobody was told that it was written, so it is cut off before the next append.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from das.errors import LedgerError, OutputError
from jobs.storage.files import sync_folder
from jobs.storage.modes import OWNER_ONLY, make_closed_folder

Line = dict[str, Any]


def read_journal(path: Path) -> list[Line]:
    """Read all lines in order; a file that is not there has none.

    Raises:
      LedgerError: A line was changed, removed or inserted.
      OutputError: The file cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise OutputError(str(path), "cannot be read", got=error.strerror) from None
    return _parse(path, data[: data.rfind(b"\n") + 1])


def append_to_journal(path: Path, decide: Callable[[Sequence[Line]], Sequence[Line]]) -> list[Line]:
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
    try:
        make_closed_folder(path.parent)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, OWNER_ONLY)
    except OSError as error:
        raise OutputError(str(path), "cannot be written", got=error.strerror) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        data = _read_all(handle)
        whole = data[: data.rfind(b"\n") + 1]
        lines = _parse(path, whole)
        added = [dict(line) for line in decide(lines)]
        if added:
            _write(handle, whole, added)
        if added and not whole:
            sync_folder(path.parent)  # or the name of a new file might not survive a crash
    except OSError as error:
        raise OutputError(str(path), "cannot be written", got=error.strerror) from None
    finally:
        os.close(handle)
    return [*lines, *added]


def begin_journal(path: Path, first: Sequence[Line]) -> None:
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


def _write(handle: int, whole: bytes, added: Sequence[Line]) -> None:
    os.ftruncate(handle, len(whole))
    previous = _digest(whole.splitlines(keepends=True)[-1]) if whole else ""
    number = whole.count(b"\n")
    text = b""
    for offset, line in enumerate(added):
        sealed = {"line": number + offset, "previous": previous, **line}
        encoded = json.dumps(sealed, ensure_ascii=True).encode() + b"\n"
        previous = _digest(encoded)
        text += encoded
    try:
        _write_all(handle, text)
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, len(whole))
        raise


def _write_all(handle: int, text: bytes) -> None:
    while text:
        text = text[os.write(handle, text) :]


def _read_all(handle: int) -> bytes:
    os.lseek(handle, 0, os.SEEK_SET)
    data = b""
    while piece := os.read(handle, 1 << 20):
        data += piece
    return data


def _parse(path: Path, data: bytes) -> list[Line]:
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
        lines.append({k: v for k, v in line.items() if k not in ("line", "previous")})
    return lines


def _digest(encoded: bytes) -> str:
    return hashlib.sha256(encoded).hexdigest()
