"""The commit of the source that runs, which is more precise than the version."""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_SOURCES = ("das", "geography", "invariants", "solvers", "jobs", "topdown_das.py")
CHANGED = ", with changes"
_SECONDS = 20  # time limit of a git command; default, not measured


@cache
def revision() -> str | None:
    """Return the commit of the checkout, or else the one recorded in the package.

    Uncommitted changes add the suffix ", with changes". None if no commit is known.
    """
    return _of_checkout() or _recorded() or _fetched()


def _of_checkout() -> str | None:
    if not (_ROOT / ".git").exists():
        return None
    commit = _git("rev-parse", "HEAD")
    if not commit:
        return None
    changes = _git("status", "--porcelain", "--untracked-files=no", "--", *_SOURCES)
    return commit if changes == "" else commit + CHANGED


def _git(*words: str) -> str | None:
    """Run git in the checkout and return its output; None if it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "-C", str(_ROOT), *words],
            env={**environment, "GIT_OPTIONAL_LOCKS": "0"},
            capture_output=True,
            text=True,
            check=True,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _recorded() -> str | None:
    """Return the commit that setup.py or `make zip` wrote into the package."""
    try:
        return (files("jobs") / "REVISION").read_text("utf-8").strip() or None
    except OSError:
        return None


def _fetched() -> str | None:
    """Return the commit that pip fetched, if it installed from a repository."""
    try:
        origin = distribution("topdown-das").read_text("direct_url.json")
        return str(json.loads(origin or "{}")["vcs_info"]["commit_id"])
    except (PackageNotFoundError, KeyError, TypeError, ValueError):
        return None
