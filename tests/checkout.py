"""A copy of the project as someone gets it who clones it, with the environment of these tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_MADE = {".git", ".venv", "build", "dist", "__pycache__"}


def project_files() -> list[Path]:
    """Files of the project, relative to its root: those of git, or all where there is no git."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode == 0:
        names = [Path(name) for name in listed.stdout.split("\0") if name]
    else:
        names = [path.relative_to(ROOT) for path in ROOT.rglob("*")]
    return sorted(name for name in names if not _MADE & {*name.parts} and _is_copied(ROOT / name))


def _is_copied(path: Path) -> bool:
    """A file, or a link to a folder, which git keeps as a file too."""
    return path.is_file() or path.is_symlink()


def checkout(folder: Path, appended: Mapping[str, str] | None = None) -> Path:
    """Copy the project to FOLDER/topdown-das.

    Its `.venv` is the environment of the running Python under another name, marked as complete, so
    that `make` installs nothing.

    Args:
      folder: An existing folder.
      appended: Text to append to files, by their names.

    Returns:
      The copy.
    """
    project = folder / "topdown-das"
    for name in project_files():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, project / name, follow_symlinks=False)
    for name, text in (appended or {}).items():
        with (project / name).open("a", encoding="utf-8") as file:
            file.write(text)
    environment = project / ".venv"
    environment.mkdir()
    stamps = {".run", ".lint", ".test"}  # of the Makefile
    for path in Path(sys.prefix).iterdir():
        if path.name not in stamps:
            (environment / path.name).symlink_to(path)
    for name in stamps:
        (environment / name).touch()
    return project


def environment(project: Path) -> dict[str, str]:
    """Variables under which the commands of the documents run the code of a copy."""
    names = ("SPARK", "PYSPARK", "PYTHON", "VIRTUAL_ENV")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(names)}
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    return {**kept, "PATH": path, "PYTHONPATH": str(project)}
