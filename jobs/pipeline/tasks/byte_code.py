"""Byte code of the packages, kept beside their sources.

Installing does this. In a checkout Python does it at the first import of each module, unless the
environment says PYTHONDONTWRITEBYTECODE, as images of containers often do; then every process
compiles every module that it imports, which is a third of what a short command takes.
"""

from __future__ import annotations

import compileall
import importlib.util
from pathlib import Path

from jobs.pipeline.tasks.shipping import PACKAGES


def compile_packages() -> bool:
    """Compile what is not compiled yet; whether all of it is kept. Python sees what is outdated."""
    done = True
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        folder = Path(str(spec.origin)).parent if spec else Path(name)
        try:
            done &= folder.is_dir() and bool(compileall.compile_dir(folder, quiet=2, force=False))
        except OSError:  # a folder of somebody else's
            done = False
    return done
