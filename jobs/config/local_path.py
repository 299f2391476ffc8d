"""Which paths a run file or the command line may name: files and folders of this machine.

A URL would otherwise be taken for a relative path: `s3a://bucket/x` names the folder `s3a:` beside
the run file. Elsewhere it would be a folder of every worker's own, with confidential files in it.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_MEMORY_DEVICES, _NULL = 1, 3  # Linux: mem, null, zero, full, random ...
_LONGEST_PATH, _LONGEST_NAME = 4000, 255  # bytes; what Linux takes


def is_endless(path: Path) -> bool:
    """Whether a path is a device that can be read without end, such as /dev/zero.

    Devices that end, such as /dev/null, pipes and terminals are files like others.
    """
    try:
        found = path.stat()
    except (OSError, ValueError):
        return False
    ends = os.major(found.st_rdev) != _MEMORY_DEVICES or os.minor(found.st_rdev) == _NULL
    return stat.S_ISBLK(found.st_mode) or (stat.S_ISCHR(found.st_mode) and not ends)


def local_path(value: object) -> Path:
    """Read a path.

    Args:
      value: Text or a path, absolute or relative.

    Raises:
      ValueError: It is empty or too long, holds a control character or half of one, is a URL, or
        begins with `~`; the text says what to write instead.

    >>> local_path("data/persons.csv")
    PosixPath('data/persons.csv')
    """
    if not isinstance(value, str | os.PathLike):
        raise ValueError(f"must be a path; got {type(value).__name__}")
    text = os.fspath(value)
    if not isinstance(text, str) or not text:
        raise ValueError("must be a path; got no text")
    scheme = _SCHEME.match(text)
    if scheme is not None and scheme[1].lower() == "file":
        raise ValueError(
            f"is a URL, where a plain path is expected; write {'/' + text[5:].lstrip('/')!r}"
        )
    if scheme is not None:
        raise ValueError(
            f"is a URL ({scheme[1]}): object stores are not supported yet; mount one, and give "
            "the path of the mount"
        )
    if text.startswith("~"):
        raise ValueError(
            "begins with ~, which would be another folder for every user; write the folder out, or "
            "./~ if that is its name"
        )
    if any(ord(c) < 32 or ord(c) == 127 or "\ud800" <= c <= "\udfff" for c in text):
        raise ValueError("holds a control character or half of a character")
    encoded = os.fsencode(text)
    longest = max(len(part) for part in encoded.split(b"/"))
    if len(encoded) > _LONGEST_PATH or longest > _LONGEST_NAME:
        raise ValueError(
            f"is too long; expected at most {_LONGEST_NAME} bytes a name, {_LONGEST_PATH} in all"
        )
    return Path(text)
