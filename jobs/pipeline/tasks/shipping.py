"""Compile the project's files, compare them with those of workers, and send them.

Workers import the code of tasks. Workers of a remote server have no copy of the project or another
version, which would compute other results.
"""

from __future__ import annotations

import compileall
import importlib.util
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGES = ("das", "geography", "invariants", "solvers", "jobs")
# Libraries that tasks import, by module name.
_LIBRARIES = (
    *("cryptography", "numba", "numpy", "ortools", "pandas", "psutil", "pyarrow", "pydantic"),
    *("scipy", "yaml"),
)


@dataclass(frozen=True)
class Equipment:
    """Project and libraries that a process can import.

    Attributes:
      digest: Hexadecimal SHA-256 of the sources of the project; None if a package is missing.
      absent: Missing libraries that tasks need.
    """

    digest: str | None
    absent: tuple[str, ...]


def looker() -> Callable[[], tuple[str | None, tuple[str, ...]]]:
    """Return a function that finds the `Equipment` of the process that runs it.

    The function is sent to workers without the project, so it is self-contained.
    """
    packages, libraries = PACKAGES, _LIBRARIES

    def look() -> tuple[str | None, tuple[str, ...]]:
        import hashlib
        import importlib.util
        import zipfile

        def sources(folder: Any, prefix: str = "") -> Iterator[tuple[str, bytes]]:  # noqa: ANN401
            """Yield path and content of the Python files of a package, in a folder or a zip."""
            for entry in folder.iterdir():
                if entry.is_dir():
                    yield from sources(entry, f"{prefix}{entry.name}/")
                elif entry.name.endswith(".py"):
                    yield prefix + entry.name, entry.read_bytes()

        digest: str | None = None
        try:
            whole = hashlib.sha256()
            for package in packages:
                spec: Any = importlib.util.find_spec(package)
                if spec is None or spec.origin is None:
                    raise FileNotFoundError(package)
                folder = spec.loader.get_resource_reader(package).files()
                for name, content in sorted(sources(folder)):
                    of_file = hashlib.sha256(content).hexdigest()
                    whole.update(f"{package} {name} {of_file}\n".encode())
            digest = whole.hexdigest()
        except (OSError, zipfile.BadZipFile):
            pass
        absent = [name for name in libraries if importlib.util.find_spec(name) is None]
        return digest, tuple(absent)

    return look


def compile_packages() -> bool:
    """Compile missing byte code; return whether all of it is stored with the sources.

    Installing compiles. In a checkout Python compiles at the first import of each module, unless
    PYTHONDONTWRITEBYTECODE is set, as in many container images. Then every process compiles every
    module it imports, which takes a third of the time of a short command.
    """
    done = True
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        folder = Path(str(spec.origin)).parent if spec else Path(name)
        try:
            done &= folder.is_dir() and bool(compileall.compile_dir(folder, quiet=2, force=False))
        except OSError:  # a folder that this user cannot write
            done = False
    return done


def own_equipment() -> Equipment:
    """Return the digest of the project's sources here, and the libraries this process lacks."""
    return Equipment(*looker()())


def project_archive(folder: Path, digest: str) -> Path:
    """Write the five packages as a zip.

    Args:
      folder: Folder of the zip.
      digest: Digest of the sources, part of the file name, since a server keeps archives.
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
