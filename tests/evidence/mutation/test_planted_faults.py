"""Each fault is planted in a copy of the project; tests that are named beforehand must turn red."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.checkout import ROOT
from tests.evidence.mutation.faults import FAULTS, Fault

pytestmark = pytest.mark.slow

PLUGINS = ("-p", "no:cacheprovider", "-p", "pytest_timeout")
COPIED = ("das", "geography", "invariants", "solvers", "jobs", "tests", "conf")
TESTS_FAILED = 1  # how pytest exits then; other faults, such as an unknown test, have other numbers


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    for name in COPIED:
        ignored = shutil.ignore_patterns("__pycache__", "mutation", "golden")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def run_tests(folder: Path, tests: list[str]) -> subprocess.CompletedProcess[str]:
    """Run tests of the copy. No byte code is kept: a change within one second could go unseen."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", *PLUGINS, *tests],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # half a second less each
        },
        capture_output=True,
        text=True,
        check=False,
    )


@contextmanager
def planted(folder: Path, fault: Fault) -> Iterator[None]:
    """Apply a fault to the copy, and take it back."""
    path = folder / fault.file
    text = path.read_text(encoding="utf-8")
    found = text.count(fault.old)
    if found != 1:
        pytest.fail(f"{fault.file} has the text of '{fault.name}' {found} times; expected once")
    path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(text, encoding="utf-8")


def test_without_a_fault_all_named_tests_pass(copy: Path) -> None:
    result = run_tests(copy, sorted({test for fault in FAULTS for test in fault.tests}))
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_turns_its_tests_red(copy: Path, fault: Fault) -> None:
    with planted(copy, fault):
        for test in fault.tests:
            result = run_tests(copy, [test])
            assert result.returncode == TESTS_FAILED, result.stdout + result.stderr


def test_a_fault_whose_text_is_gone_is_noticed(copy: Path) -> None:
    gone = Fault("gone", "das/measure.py", "no such text", "", ())
    with pytest.raises(pytest.fail.Exception, match="0 times; expected once"), planted(copy, gone):
        pass
