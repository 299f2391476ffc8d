"""Check of the new folders that commands of this wing write."""

from __future__ import annotations

from pathlib import Path

from das.errors import OutputError


def refuse_full(folder: Path) -> None:
    """Refuse a path that exists and is no empty folder.

    Raises:
      OutputError: The path is a file, or a folder with contents.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OutputError(
            str(folder), "is not an empty folder", remedy="name a new one, or remove it"
        )
