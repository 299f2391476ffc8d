"""New folders, in which commands of this wing make something of their own."""

from __future__ import annotations

from pathlib import Path

from das.errors import OutputError


def refuse_full(folder: Path) -> None:
    """Refuse what is no folder, or holds something.

    Raises:
      OutputError: It is there, and not an empty folder.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OutputError(
            str(folder), "is not an empty folder", remedy="name a new one, or remove it"
        )
