"""The folder of a release that others may have made: what lies in it must be plain files.

A release is copied from hand to hand, so it is read as hostile input. A link in it could lead a
command to any file of the reader, to be read into a table or written over; a pipe or a device could
keep it waiting for ever. Both are refused before anything in the folder is opened. Names that
documents of the release give are checked where documents are read
(`jobs.pipeline.documents.document`, `jobs.pipeline.config.released`), so together nothing outside
of the folder is named or reached.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from das.errors import OutputError
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.storage.place import Place

_COPY = "copy the release with `cp -rL`, if you trust whoever made it"


def received_release(root: Place) -> ReleaseLayout:
    """Return the layout of a release folder after checking that only plain files lie in it.

    The folder itself may be reached by a link: whoever types the command chose it. Nothing is
    opened. The check is no protection from a process that changes the folder while it is read.

    Args:
      root: The folder, a path or an address; a store has neither links nor devices. What has no
        manifest is no release, which is for the caller to refuse.

    Raises:
      OutputError: A link, pipe, socket or device lies in it at any depth, or it cannot be listed.
    """
    release = ReleaseLayout(root)
    if isinstance(root, Path) and release.manifest.is_file():
        for path in _strange(root):
            raise OutputError(
                path, "is a link, pipe or device", want="plain files and folders", remedy=_COPY
            )
    return release


def _strange(root: Path) -> Iterator[str]:
    """All below a folder that is neither a file nor a folder; links are not followed."""
    waiting = [str(root)]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    kind = entry.stat(follow_symlinks=False).st_mode
                    if stat.S_ISDIR(kind):
                        waiting.append(entry.path)
                    elif not stat.S_ISREG(kind):
                        yield entry.path
        except OSError as error:
            raise OutputError(folder, "cannot be read", got=error.strerror) from None
