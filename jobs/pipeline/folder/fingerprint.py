"""Which input files a run has read, so that its noise is drawn for one data set only."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from das.errors import InputError
from jobs.pipeline.config.models.run import RunConfig
from jobs.pipeline.config.product import account_of
from jobs.pipeline.storage.files import read_json
from jobs.pipeline.storage.journal import LINES
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.storage.place import Place, found_under, place_of


def input_files(config: RunConfig) -> dict[str, list[int]]:
    """Size and time of change of every input file, by path."""
    products = config.products.values()
    roots = [product.input.path for product in products]
    if config.geography.geounits is not None:
        roots.append(config.geography.geounits.path)
    spine = config.geography.spine
    if spine is not None and spine.entities is not None:
        roots.append(spine.entities.path)
    stated = [entry for product in products for entry in product.invariants]
    roots += [entry.public_table.path for entry in stated if entry.public_table is not None]
    released = [entry.released_before for entry in stated]
    # The manifest of a release fixes every byte of it.
    roots += [ReleaseLayout(one.path).manifest for one in released if one is not None and one.path]
    return files_under(roots, account_of(config))


def input_digest(data: Place, account: Place) -> bytes:
    """Return the SHA-256 of the contents of an input, whatever its files are called.

    It is confidential: write it nowhere but under a key (`jobs.pipeline.storage.account.keyed`).

    Args:
      data: A file or folder.
      account: The account, which is no input where it lies in the folder.
    """
    digests = []
    for file in files_under([data], account):
        with place_of(file).open("rb") as handle:
            digests.append(hashlib.file_digest(handle, "sha256").digest())
    return hashlib.sha256(b"".join(sorted(digests))).digest()


def files_under(roots: Sequence[Place], account: Place) -> dict[str, list[int]]:
    """Size and time of change of files and of all files of folders, but for the account."""
    files = [p for root in roots for p in (found_under(root, "*") if root.is_dir() else [root])]
    return {
        str(p): [p.stat().st_size, p.stat().st_mtime_ns]
        for p in files
        if p.is_file() and p != account and p.parent.name != account.name + LINES
    }


def check_same_input(config: RunConfig, path: Place) -> None:
    """Refuse to go on with other input than was read.

    Raises:
      InputError: An input file is not the one that was read.
    """
    check_same_files(input_files(config), [*config.products.values()][-1].input.path, path)


def check_same_files(seen: Mapping[str, list[int]], data: Place, path: Place) -> None:
    """Refuse to go on with other input than was read: noise is drawn for one data set only.

    Args:
      seen: The input files as they are.
      data: The input, for the error.
      path: What they were.

    Raises:
      InputError: An input file is not the one that was read.
    """
    before = read_json(path, "restore it; or go on from the measurements with `das solve`")
    if before != seen:
        changed = sorted(name for name in {*seen, *before} if seen.get(name) != before.get(name))
        raise InputError(
            str(data),
            "the input changed since it was read",
            got=changed[:3],
            remedy="give another output.directory; noise must not be drawn for other data here",
        )
