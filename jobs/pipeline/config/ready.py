"""The ready files of conf, wherever this package lies: schemas, allocations, runs and clusters.

An installed wheel and the zip of spark-submit hold them inside `jobs`; in a checkout and an image
the folder lies beside the packages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath


def ready_folder() -> Traversable:
    """The folder conf; not always one of a file system."""
    inside = files("jobs") / "conf"
    return inside if inside.is_dir() else Path(__file__).resolve().parents[3] / "conf"


def ready_files() -> Mapping[PurePosixPath, bytes]:
    """All ready files by their paths in conf, such as `run/demo.yaml`."""
    return dict(sorted(_files(ready_folder(), PurePosixPath())))


def _files(folder: Traversable, name: PurePosixPath) -> Iterator[tuple[PurePosixPath, bytes]]:
    for one in folder.iterdir():
        if one.is_dir():
            yield from _files(one, name / one.name)
        elif one.name.endswith(".yaml"):
            yield name / one.name, one.read_bytes()
