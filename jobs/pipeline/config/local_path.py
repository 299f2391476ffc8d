"""Which paths a run file or the command line may name.

Files of configuration are files of this machine. Data, run folder and account may lie in a store,
named by an address. Where only a path is meant, an address would otherwise be taken for a relative
one: `s3://bucket/x` names the folder `s3:` beside the run file.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from jobs.pipeline.storage.place import Place, StoredPlace, place_of
from jobs.pipeline.storage.stores.kinds import MEMORY

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_MEMORY_DEVICES, _NULL = 1, 3  # Linux: mem, null, zero, full, random ...
_LONGEST_PATH, _LONGEST_NAME = 4000, 255  # bytes; what Linux takes


def is_endless(path: Path) -> bool:
    """Return whether a path is an endless device, such as /dev/zero.

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
      ValueError: The path is empty or too long, holds a control character or a lone surrogate, is a
        URL, or begins with `~`; the text says what to write instead.

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
            f"is an address ({scheme[1]}): this must be a file of this machine; data, run folder "
            "and account may lie in a store"
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


def without_secrets(address: str) -> str:
    """Return an address without user name, password and query, for errors.

    >>> without_secrets("s3://name:password@bucket/x?signature=y")
    's3://...@bucket/x'
    """
    return re.sub(r"(://)[^/@]*:[^/]*@", r"\1...@", re.split("[?#]", address)[0])


def read_place(value: object) -> Place:
    """Read a path, or the address of a place in a store.

    Args:
      value: Text, a path or a place.

    Raises:
      ValueError: As `local_path`; or the kind of store is unknown; or the address names no bucket
        or host, or holds a password.

    >>> str(read_place("s3://bucket/persons.csv"))
    's3://bucket/persons.csv'
    """
    if isinstance(value, StoredPlace):
        return value
    if isinstance(value, str) and "://" in value and not value.lower().startswith("file:"):
        if any(ord(c) < 32 or ord(c) == 127 or "\ud800" <= c <= "\udfff" for c in value):
            raise ValueError("holds a control character or half of a character")
        if value.lower().startswith(f"{MEMORY}://"):
            raise ValueError("is of a store that this process alone sees, which is for tests")
        return place_of(value)
    return local_path(value)
