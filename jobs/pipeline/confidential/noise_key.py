"""How tasks are lent the noise key: in two shares, which meet only while a task draws.

Spark keeps what it ships to tasks for as long as it likes, in memory and on ports of its own; files
leave traces on disks and in backups. So a key goes neither way. One share travels inside the task,
the other lies in a file of the confidential folder, which is removed when the tasks are done. Each
share alone is 32 uniform bytes and says nothing about the key.
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
    """What a task holds of the noise key. Pickles; never prints its bytes.

    Attributes:
      share: 32 bytes, one share of the key.
      file: Where the other share lies.
      is_for_testing: Whether the key can be guessed.
    """

    share: bytes = field(repr=False)
    file: Place
    is_for_testing: bool

    def key(self) -> NoiseKey:
        """Put the key together; its holder drops it when it is done.

        Raises:
          OutputError: The other share is gone or cannot be read: the key exists no more.
        """
        try:
            other = self.file.read_bytes()
        except FileNotFoundError:
            raise OutputError(
                str(self.file),
                "is gone: its geolevel was measured, or the driver that drew the key ended",
                remedy="nothing, if another attempt of this task was done; else go on with "
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
    """Lend a key to tasks of the block. After it nobody can put it together again.

    Args:
      key: The key.
      folder: Inside the confidential folder, seen by driver and workers; made if absent.

    Raises:
      OutputError: The share cannot be written.
    """
    share, other = key.split()
    is_for_testing = key.is_for_testing
    del key  # this frame lives as long as the block
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
    """Remove the shares that drivers left which were killed; the caller is the only driver."""
    for file in folder.glob(f"*{_SUFFIX}"):
        file.unlink(missing_ok=True)
