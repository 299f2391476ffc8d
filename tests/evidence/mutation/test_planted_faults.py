"""Each fault is planted in a copy of the project; tests that are named beforehand must turn red."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.checkout import ROOT
from tests.evidence.mutation.faults import FAULTS, Fault
from tests.evidence.mutation.forks import BELOW

pytestmark = pytest.mark.slow

COPIED = ("das", "geography", "invariants", "solvers", "jobs", "bench", "tests", "conf")
TESTS_FAILED = 1  # how pytest exits then; other faults, such as an unknown test, have other numbers


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project, with its byte code, which counts for files of the same time and size."""
    folder = tmp_path_factory.mktemp("project")
    for name in COPIED:
        ignored = shutil.ignore_patterns("mutation", "golden", "*.pyc.*")  # being written
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for file in ("pyproject.toml", "topdown_das.py"):
        shutil.copy(ROOT / file, folder)
    return folder


@dataclass(frozen=True)
class Forks:
    """The process of `forks.py`.

    Attributes:
      process: It.
    """

    process: subprocess.Popen[str]

    def run(self, package: str, tests: Sequence[str]) -> tuple[int, str]:
        """How pytest ended, and what it printed, with a fault in a package at most."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write("\t".join((package, *tests)) + "\n")
        stdin.flush()
        code, printed = json.loads(stdout.readline())
        return code, printed


@pytest.fixture(scope="module")
def forks(copy: Path) -> Iterator[Forks]:
    """Forks that run tests of the copy. No byte code is kept of a fault."""
    with subprocess.Popen(
        [sys.executable, "-P", str(Path(__file__).with_name("forks.py")), str(copy)],
        env={
            **os.environ,
            "HYPOTHESIS_PROFILE": "unshrunk",
            "PYTHONPATH": str(copy),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # half a second less each
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Forks(process)
        process.communicate()


@contextmanager
def planted(folder: Path, fault: Fault) -> Iterator[None]:
    """Apply a fault to the copy, and take it back."""
    path = folder / fault.file
    text = path.read_text(encoding="utf-8")
    found = text.count(fault.old)
    if found != 1:
        pytest.fail(f"{fault.file} has the text of '{fault.name}' {found} times; expected once")
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    os.utime(path, ns=(0, 0))  # no byte code is as old
    try:
        yield
    finally:
        path.write_text(text, encoding="utf-8")
        os.utime(path, ns=times)


def test_without_a_fault_a_test_of_each_file_passes(forks: Forks) -> None:
    """The copy is whole. The named tests themselves are a part of the suite."""
    named = {test.partition("::")[0]: test for fault in FAULTS for test in fault.tests}
    code, printed = forks.run("", sorted(named.values()))
    assert code == 0, printed


def package_of(fault: Fault) -> str:
    return Path(fault.file).parts[0]


@pytest.mark.parametrize(
    "fault",
    sorted(FAULTS, key=lambda fault: len(BELOW.get(package_of(fault), ()))),
    ids=lambda fault: fault.name,
)
def test_a_fault_turns_its_tests_red(copy: Path, forks: Forks, fault: Fault) -> None:
    with planted(copy, fault):
        for test in fault.tests:
            code, printed = forks.run(package_of(fault), [test])
            assert code == TESTS_FAILED, printed


def test_a_fault_whose_text_is_gone_is_noticed(copy: Path) -> None:
    gone = Fault("gone", "das/measure.py", "no such text", "", ())
    with pytest.raises(pytest.fail.Exception, match="0 times; expected once"), planted(copy, gone):
        pass
