"""Give the noise key to tasks in two shares, which are joined only while a task draws.

Spark may keep data shipped to tasks in memory and serve them on its ports; files leave traces
on disks and in backups. So neither carries the key. One share is shipped with the task; the other
is in a file of the confidential folder, which is removed when the tasks end. Each share alone is 32
uniform bytes, independent of the key.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from das.errors import OutputError
from das.mechanisms.entropy import NoiseKey
from jobs.pipeline.storage.files import create_file, make_closed_folder, writing
from jobs.pipeline.storage.place import Place

_SUFFIX = ".share"


@dataclass(frozen=True)
class LentKey:
    """One share of the noise key and the path of the other. Can be pickled; never prints bytes.

    Attributes:
      share: 32 bytes, one share of the key.
      file: File with the other share.
      is_for_testing: Whether the key comes from a public seed.
    """

    share: bytes = field(repr=False)
    file: Place
    is_for_testing: bool

    def key(self) -> NoiseKey:
        """Join the shares to the key, which the caller drops after drawing.

        Raises:
          OutputError: The other share is gone or cannot be read, so the key no longer exists.
        """
        try:
            other = self.file.read_bytes()
        except FileNotFoundError:
            raise OutputError(
                str(self.file),
                "is gone: its geolevel was measured, or the driver that drew the key ended",
                remedy="none needed if another attempt of this task succeeded; else continue with "
                "`das run OUT`",
            ) from None
        except OSError as error:
            raise OutputError(
                str(self.file),
                "cannot be read",
                got=error.strerror,
                want="the same rights on driver and workers, and one file system or store",
            ) from None
        return NoiseKey.joined(self.share, other, is_for_testing=self.is_for_testing)


@contextmanager
def lent(key: NoiseKey, folder: Place) -> Iterator[LentKey]:
    """Split a key for the tasks of the block. Afterwards the key cannot be rebuilt.

    Args:
      key: The noise key.
      folder: Subfolder of the confidential folder, seen by driver and workers; made if absent.

    Raises:
      OutputError: The share cannot be written.
    """
    share, other = key.split()
    is_for_testing = key.is_for_testing
    del key  # else this frame would keep it during the block
    file = folder / f"{uuid.uuid4().hex}{_SUFFIX}"
    with writing(file, file):
        make_closed_folder(folder)
    if not create_file(file, other):
        raise OutputError(str(file), "cannot be written", got="another file there")
    del other
    try:
        yield LentKey(share, file, is_for_testing)
    finally:
        with writing(file):
            file.unlink(missing_ok=True)


def sweep_shares(folder: Place) -> None:
    """Remove key shares left by killed drivers; the caller must be the only driver."""
    for file in folder.glob(f"*{_SUFFIX}"):
        file.unlink(missing_ok=True)
