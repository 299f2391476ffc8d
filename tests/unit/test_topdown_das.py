"""The command among other distributions with packages of the same names."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.checkout import ROOT
from topdown_das import PACKAGES

_CLI = "import sys\ndef main():\n    print('ran', *sys.argv[1:])\n    return 0\n"
_OURS = {f"{name}/__init__.py": f'"""Our {name}."""\n' for name in PACKAGES} | {
    "jobs/cli/main.py": _CLI
}


@dataclass(frozen=True)
class Site:
    """A folder into which distributions are installed, one after another, as pip does it.

    Attributes:
      folder: The folder.
    """

    folder: Path

    def install(self, name: str, files: dict[str, str], **metadata: str) -> None:
        """Write files over what is there, and the list of them."""
        info = self.folder / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir(parents=True)
        rows = []
        for path, text in files.items():
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_text(text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode()
            rows.append(f"{path},sha256={digest.rstrip('=')},{len(text)}\n")
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "RECORD").write_text("".join(rows))
        for key, text in metadata.items():
            (info / f"{key}.txt").write_text(text)

    def das(self, *words: str, before: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run the command, as its script does; BEFORE is a folder that Python looks into first."""
        paths = os.pathsep.join(str(path) for path in (before, self.folder) if path)
        script = "import sys; from topdown_das import main; sys.exit(main())"
        return subprocess.run(
            [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {paths!r}.split({os.pathsep!r}); {script}", *words],
            capture_output=True,
            text=True,
            cwd=self.folder,
            timeout=120,
            check=False,
        )  # fmt: skip


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """With this distribution in it, its packages cut down to what the command needs."""
    made = Site(tmp_path / "site")
    entry = (ROOT / "topdown_das.py").read_text(encoding="utf-8")
    made.install("topdown-das", {"topdown_das.py": entry, **_OURS})
    return made


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """What it says where nothing may be run: one line."""
    assert (done.returncode, done.stdout) == (7, ""), done
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith("install topdown-das into an environment of its own\n")
    return done.stderr


def test_alone_it_says_nothing(site: Site) -> None:
    site.install("innocent", {"innocent.py": "", "innocent/das/__init__.py": "", "solver.py": ""})
    done = site.das("run", "a.yaml")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran run a.yaml\n", "")


def test_a_neighbor_that_overwrote_nothing_is_a_warning_where_work_begins(site: Site) -> None:
    site.install("other-das", {"das/sound.py": "", "other.py": ""})
    for command in ("validate", "prepare", "run", "demo"):
        done = site.das(command)
        assert (done.returncode, done.stdout) == (0, f"ran {command}\n")
        assert "other-das 1.0, in the same environment, has packages das too" in done.stderr
        assert done.stderr.endswith("install topdown-das into an environment of its own\n")
    for words in (["--help"], ["inspect"], []):
        assert site.das(*words).stderr == ""


def test_a_neighbor_that_was_installed_before_is_one_too(tmp_path: Path) -> None:
    """What was overwritten is the other's; ours runs until the other is removed."""
    made = Site(tmp_path / "site")
    made.install("jobs", {"jobs/__init__.py": "raise ImportError\n"})
    made.install("topdown-das", {"topdown_das.py": (ROOT / "topdown_das.py").read_text(), **_OURS})
    done = made.das("run")
    assert (done.returncode, done.stdout) == (0, "ran run\n")
    assert "jobs 1.0, in the same environment, has packages jobs too" in done.stderr


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_whose_first_lines_are_not_ours_is_not_run(site: Site, package: str) -> None:
    site.install("other", {f"{package}/__init__.py": "import h5py\n"})
    said = refused(site.das("run"))
    assert f"{site.folder / package / '__init__.py'}: is not the file of topdown-das" in said
    assert "other 1.0 has packages of these names" in said


def test_a_command_that_cannot_be_imported_says_why(site: Site) -> None:
    """Though this command does not look around before."""
    site.install("other", {"jobs/__init__.py": "import no_such_module\n", "jobs/a.py": ""})
    assert "jobs/__init__.py: is not the file of topdown-das" in refused(site.das("inspect"))


def test_a_file_that_was_overwritten_is_found_wherever_it_is(site: Site) -> None:
    site.install("other", {"jobs/cli/main.py": "def main():\n    print('theirs')\n"})
    assert "jobs/cli/main.py: is not the file of topdown-das" in refused(site.das("validate"))


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_that_went_with_another_is_missed(site: Site, package: str) -> None:
    (site.folder / package / "__init__.py").unlink()
    assert f"package {package}: is gone" in refused(site.das("inspect"))


def test_a_package_before_ours_on_the_path_is_not_run(site: Site, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "solvers").mkdir(parents=True)
    (other / "solvers" / "__init__.py").write_text("raise SystemExit('theirs')\n")
    said = refused(site.das("inspect", before=other))
    assert f"package solvers: is {other / 'solvers' / '__init__.py'}" in said
    assert f"expected {site.folder / 'solvers' / '__init__.py'}" in said


def test_a_neighbor_whose_list_names_no_file_is_known_by_its_packages(site: Site) -> None:
    """As those that were installed in place."""
    site.install("in-place", {"in_place.pth": ""}, top_level="geography\nothers\n")
    assert "in-place 1.0, in the same environment, has packages geography" in site.das("run").stderr


def test_an_error_of_ours_is_not_laid_upon_others(site: Site) -> None:
    (site.folder / "jobs" / "cli" / "main.py").write_text("import no_such_module\n")
    done = site.das("inspect")
    assert done.returncode == 1
    assert "ModuleNotFoundError: No module named 'no_such_module'" in done.stderr


def test_a_checkout_is_taken_as_it_is(tmp_path: Path) -> None:
    """Nothing was installed there, and files may be changed."""
    made = Site(tmp_path)
    shutil.copy(ROOT / "topdown_das.py", tmp_path)
    for path, text in _OURS.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text + "# changed\n")
    assert made.das("run").stdout == "ran run\n"
