"""Who may read what of a run folder: its owner alone, until a release is sealed.

Files and folders are made for their owner only, whatever the process's mask allows. What is sealed
is then opened to readers, as far as the mask allows, so that copies of it can be served. In stores
it is their own policies that say who reads what; nothing here changes them.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from das.errors import OutputError
from jobs.pipeline.storage.place import Place, StoredPlace
from jobs.pipeline.storage.stores.store import OWNER_ONLY

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
