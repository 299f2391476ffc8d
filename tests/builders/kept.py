"""A folder that tests share: whatever one of them changes in it, the next finds it as it was.

A finished run takes a second or two, and its files hold the path of its folder, so that a copy is
refused as a copy. To put back what a test changed takes some milliseconds.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

_State = tuple[int, int, int]  # mode; of a file also bytes, and time of the last change in ns


@dataclass(frozen=True)
class Kept:
    """A folder and what was in it.

    Attributes:
      folder: The folder.
      states: State of everything in it, folders before what they hold.
      contents: Contents of its files.
    """

    folder: Path
    states: dict[Path, _State]
    contents: dict[Path, bytes]

    @classmethod
    def of(cls, folder: Path) -> Kept:
        """Remember a folder as it is."""
        states = {path: _state(path) for path in sorted(folder.rglob("*"))}
        return cls(folder, states, {path: path.read_bytes() for path in states if path.is_file()})

    def restored(self) -> Path:
        """Return the folder, with everything in it as it was."""
        for path in sorted(self.folder.rglob("*"), reverse=True):
            if path.is_dir() and path not in self.states:
                shutil.rmtree(path)
            elif path.is_file() and path not in self.contents:
                path.unlink()
        for path, state in self.states.items():
            if path not in self.contents:
                path.mkdir(exist_ok=True)
                path.chmod(state[0])
            elif not path.exists() or _state(path) != state:
                path.write_bytes(self.contents[path])
                path.chmod(state[0])
                os.utime(path, ns=(state[2], state[2]))
        return self.folder


def _state(path: Path) -> _State:
    at = path.stat()
    times = (0, 0) if path.is_dir() else (at.st_size, at.st_mtime_ns)
    return at.st_mode & 0o7777, *times
