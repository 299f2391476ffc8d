"""Which state of the source a program is: told by git, by what was packed, or by pip."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from jobs.pipeline import revision as told
from tests.checkout import ROOT


def git(folder: Path, *words: str) -> str:
    """Run git as somebody."""
    who = {
        f"GIT_{role}_{key}": "x@y" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")
    }
    done = subprocess.run(
        ["git", "-C", str(folder), *words],
        env={**os.environ, **who},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout that holds the module alone."""
    package = tmp_path / "jobs" / "pipeline"
    package.mkdir(parents=True)
    shutil.copy(ROOT / "jobs" / "pipeline" / "revision.py", package)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def said(folder: Path, **variables: str) -> str:
    code = "from jobs.pipeline.revision import revision; print(revision())"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), **variables},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def test_a_checkout_has_its_commit(project: Path) -> None:
    commit = git(project, "rev-parse", "HEAD")
    assert said(project) == commit
    assert said(project, GIT_DIR="/nowhere") == commit  # that of a hook, such as of another project
    (project / "notes.txt").write_text("not of the source")
    assert said(project) == commit
    with (project / "jobs" / "pipeline" / "revision.py").open("a") as file:
        file.write("# changed\n")
    assert said(project) == commit + told.CHANGED


def test_without_git_what_was_packed_counts(project: Path) -> None:
    shutil.rmtree(project / ".git")
    assert said(project) == "None"
    (project / "jobs" / "REVISION").write_text("abc, with changes\n")
    assert said(project) == "abc, with changes"


def test_what_pip_fetched_counts_last(monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps({"url": "x", "vcs_info": {"vcs": "git", "commit_id": "abc"}})
    for name, wanted in ((text, "abc"), ("{}", None), (None, None), ("[", None)):
        read = SimpleNamespace(read_text=lambda _, name=name: name)
        monkeypatch.setattr(told, "distribution", lambda _, read=read: read)
        assert told._fetched() == wanted
