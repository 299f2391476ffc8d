"""The project on the workers of a server: whether theirs is this one, and the archive to send.

Workers import what tasks are made of. Those of a server of somebody else have no project, or
another version of it, and would then do something else than was asked.
"""

from __future__ import annotations

import importlib
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("das", "geography", "invariants", "solvers", "jobs")
# What tasks import of other projects, by the names that are imported.
_LIBRARIES = (
    *("cryptography", "numba", "numpy", "ortools", "pandas", "psutil", "pyarrow", "pydantic"),
    *("scipy", "yaml"),
)


@dataclass(frozen=True)
class Equipment:
    """What a process can import.

    Attributes:
      digest: Hexadecimal SHA-256 of the sources of the project; None if a package is not there.
      absent: Libraries of other projects that tasks need and that are not there.
    """

    digest: str | None
    absent: tuple[str, ...]


def looker() -> Callable[[], tuple[str | None, tuple[str, ...]]]:
    """Give a function that finds `Equipment` of the process it runs in.

    It is sent to workers that may have nothing of this project: it carries all it needs.
    """
    packages, libraries = PACKAGES, _LIBRARIES

    def look() -> tuple[str | None, tuple[str, ...]]:
        import hashlib
        import importlib.util
        import os
        import zipfile

        def sources(package: str) -> dict[str, bytes] | None:
            """Python files of a package, by their paths in it."""
            spec = importlib.util.find_spec(package)
            if spec is None or spec.origin is None:
                return None
            folder, found = os.path.dirname(spec.origin), {}
            if os.path.isdir(folder):
                for place, _, names in os.walk(folder):
                    for name in names:
                        path = os.path.join(place, name)
                        if name.endswith(".py"):
                            with open(path, "rb") as file:
                                found[os.path.relpath(path, folder)] = file.read()
            else:
                with zipfile.ZipFile(os.path.dirname(folder)) as archive:
                    for name in archive.namelist():
                        if name.startswith(f"{package}/") and name.endswith(".py"):
                            found[name.removeprefix(f"{package}/")] = archive.read(name)
            return found

        digest: str | None = None
        try:
            whole = hashlib.sha256()
            for package in packages:
                files = sources(package)
                if not files:
                    raise FileNotFoundError(package)
                for name, content in sorted(files.items()):
                    own = hashlib.sha256(content).hexdigest()
                    whole.update(f"{package} {name} {own}\n".encode())
            digest = whole.hexdigest()
        except (OSError, zipfile.BadZipFile):
            pass
        absent = [name for name in libraries if importlib.util.find_spec(name) is None]
        return digest, tuple(absent)

    return look


def own_equipment() -> Equipment:
    """What this process can import."""
    return Equipment(*looker()())


def project_archive(folder: Path, digest: str) -> Path:
    """The five packages as a zip, from where they are.

    Args:
      folder: Where to write it.
      digest: Of the sources; part of its name, since a server keeps the archives it is given.
    """
    roots = [Path(str(importlib.import_module(name).__file__)).parent for name in PACKAGES]
    if not roots[0].is_dir():  # this process itself has them from a zip
        return roots[0].parent
    path = folder / f"topdown-das-{digest[:16]}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for root in roots:
            for file in sorted(root.rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    archive.write(file, Path(root.name) / file.relative_to(root))
    return path
