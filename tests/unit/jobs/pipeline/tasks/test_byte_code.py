"""Byte code of a checkout is kept, whatever the environment says, and is that of the sources."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from jobs.pipeline.tasks.shipping import PACKAGES
from tests.checkout import ROOT

_CODE = "from jobs.pipeline.tasks.shipping import compile_packages; print(compile_packages())"


def checkout(folder: Path) -> Path:
    """Packages without modules, but for the one that is tried."""
    for name in PACKAGES:
        (folder / name).mkdir()
        (folder / name / "__init__.py").touch()
    tasks = folder / "jobs" / "pipeline" / "tasks"
    tasks.mkdir(parents=True)
    for package in (tasks.parent, tasks):
        (package / "__init__.py").touch()
    source = (ROOT / "jobs" / "pipeline" / "tasks" / "shipping.py").read_text()
    (tasks / "shipping.py").write_text(source)
    return folder


def compiled(folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-S", "-c", _CODE],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_byte_code_of_every_module_is_kept(tmp_path: Path) -> None:
    folder = checkout(tmp_path)
    assert compiled(folder) == "True"
    kept = {path.name.split(".")[0] for path in folder.rglob("__pycache__/*.pyc")}
    assert kept == {"__init__", "shipping"}
    first = {path: path.stat().st_mtime_ns for path in folder.rglob("*.pyc")}
    assert len(first) == len(PACKAGES) + 3
    assert compiled(folder) == "True"  # nothing is compiled twice
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.pyc")} == first


def test_a_source_that_does_not_compile_is_said(tmp_path: Path) -> None:
    folder = checkout(tmp_path)
    (folder / "das" / "broken.py").write_text("def (:\n")
    assert compiled(folder) == "False"
