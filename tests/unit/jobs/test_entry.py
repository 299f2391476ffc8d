"""The entry point, started in every way a person may start it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jobs.cli.main import app
from tests.checkout import ROOT, checkout, project_files
from tests.pipeline.spark.cluster import build_zip

ENTRY = "jobs/__main__.py"
_RAISES = "raise ImportError('a module of the project in place of the standard one')\n"
_IMPORTS_ALL = """
import importlib, sys

def main():
    for name in {names!r}:
        importlib.import_module(name)
    print(*sys.argv[1:], __file__)
    return 3
"""
# The command with its tasks in its own process, which says where it comes from.
_HERE = """
import contextlib, sys
import jobs.cli.main, jobs.pipeline.run
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.executor import LocalTasks

@contextlib.contextmanager
def open_here(*_):
    yield LocalTasks(Sizing(1), slots=1)

jobs.pipeline.run.open_tasks = open_here
print(jobs.cli.main.__file__)
sys.exit(jobs.cli.main.main())
"""
# Started by Python before any script, or not importable here; or they act when imported.
_APART = {"antigravity", "idlelib", "lib2to3", "this", "turtle", "turtledemo"}


def standard_modules() -> list[str]:
    """Standard modules that this Python can import."""
    code = (
        "import importlib, sys\n"
        f"for name in sorted(sys.stdlib_module_names - {_APART!r}):\n"
        "    try:\n"
        "        importlib.import_module(name)\n"
        "    except Exception:\n"
        "        continue\n"
        "    sys.__stdout__.write(name + '\\n')\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def run(words: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "COLUMNS"}}
    return subprocess.run(
        [sys.executable, "-W", "ignore", *words],
        cwd=folder,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def shadowed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The entry point in a package with a module of the name of every standard one."""
    names = standard_modules()
    assert {"inspect", "json", "typing"} <= {*names}
    project = tmp_path_factory.mktemp("shadowed")
    package = project / "jobs"
    package.mkdir()
    for name in names:
        (package / f"{name}.py").write_text(_RAISES)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text((ROOT / ENTRY).read_text())
    (package / "cli").mkdir()
    (package / "cli" / "__init__.py").touch()
    (package / "cli" / "main.py").write_text(_IMPORTS_ALL.format(names=names))
    return project


@pytest.mark.parametrize("words", [[ENTRY], ["-m", "jobs"], ["jobs"]], ids=" ".join)
def test_no_module_of_the_package_takes_the_place_of_a_standard_one(shadowed, words):
    done = run([*words, "run", "a b.yaml"], shadowed)
    assert done.returncode == 3, done.stderr
    assert done.stdout == f"run a b.yaml {shadowed / 'jobs' / 'cli' / 'main.py'}\n"


def test_the_entry_point_can_be_started_from_any_folder(shadowed, tmp_path):
    done = run([str(shadowed / ENTRY), "run"], tmp_path)
    assert done.stdout == f"run {shadowed / 'jobs' / 'cli' / 'main.py'}\n", done.stderr
    (tmp_path / "link").symlink_to(shadowed)
    done = run([str(tmp_path / "link" / ENTRY), "run"], tmp_path)
    assert done.returncode == 3, done.stderr


def test_packages_of_py_files_go_before_those_beside_the_script(shadowed, tmp_path):
    """As spark-submit gives them: workers have no others, and all must run the same code."""
    other = tmp_path / "other" / "jobs"
    (other / "cli").mkdir(parents=True)
    (other / "__init__.py").touch()
    (other / "cli" / "__init__.py").touch()
    (other / "cli" / "main.py").write_text("def main():\n    print('other')\n    return 0\n")
    done = run([ENTRY], shadowed, PYTHONPATH=str(other.parent))
    assert (done.returncode, done.stdout) == (0, "other\n"), done.stderr


def test_the_real_entry_point_says_the_same_however_it_is_started(tmp_path):
    config = ROOT / "conf" / "run" / "toy.yaml"
    said = {
        (done.returncode, done.stdout, done.stderr)
        for done in (
            run([str(ROOT / ENTRY), "validate", str(config)], tmp_path),
            run(["-m", "jobs", "validate", str(config)], ROOT),
        )
    }
    (only,) = said
    assert only[0] == 0
    assert "rho" in only[1]


def test_a_run_from_the_zip_alone_makes_a_whole_release(tmp_path):
    """What spark-submit ships holds schemas, run files and templates; no checkout is near."""
    archive = tmp_path / "das.zip"
    build_zip(tmp_path).rename(archive)
    shutil.rmtree(tmp_path / "topdown-das")
    words = ["demo", "made here", "--blocks", "20", "--quiet"]
    done = run(["-c", _HERE, *words], tmp_path, PYTHONPATH=str(archive))
    assert done.returncode == 0, done.stderr
    assert f"{archive}/jobs/cli/main.py" in done.stdout
    out = tmp_path / "made here" / "build" / "demo"
    for report in (
        "confidential/products/persons/report.html",
        "release/products/persons/report.html",
    ):
        assert (out / report).read_text().startswith("<!DOCTYPE html>")
    verified = CliRunner().invoke(app, ["verify", str(out.parents[1] / "conf/run/demo.yaml")])
    assert verified.exit_code == 0, verified.output
    assert {"das/py.typed", "jobs/py.typed"} <= set(zipfile.ZipFile(archive).namelist())


def test_an_installed_wheel_has_all_that_the_packages_need(tmp_path):
    """Built as `pip install .` does; the files of the packages are in it, and it starts."""
    project = checkout(tmp_path)
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"),
            *("--no-build-isolation", "--no-index", "--wheel-dir", str(tmp_path), str(project)),
        ],
        check=True,
        capture_output=True,
        cwd=tmp_path,
    )
    (wheel,) = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as file:
        file.extractall(installed)
    packages = {"das", "geography", "invariants", "solvers", "jobs"}
    wanted = {
        name for name in project_files() if name.parts[0] in packages and name.suffix != ".md"
    }
    wanted |= {Path("jobs") / name for name in project_files() if name.parts[0] == "conf"}
    assert {name for name in wanted if not (installed / name).exists()} == set()
    words = ["generate", str(tmp_path / "data"), "--schema", "toy", "--blocks", "20"]
    done = run(["-m", "jobs", *words], tmp_path, PYTHONPATH=str(installed))
    assert done.returncode == 0, done.stderr  # its schemas are in the wheel
    (entry,) = installed.glob("*.dist-info/entry_points.txt")
    assert "das = topdown_das:main" in entry.read_text()
