"""What a command may import: the start of `das` is nearly all imports, and a user waits for them.

Not a timing, which would be that of the machine. Each command runs in a process of its own; the
heavy packages it has loaded at its end must be those listed, no more and no less.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders import toy
from tests.checkout import ROOT

HEAVY = {
    *("cryptography", "grpc", "jinja2", "matplotlib", "numba", "numpy", "ortools", "pandas"),
    *("psutil", "py4j", "pyarrow", "pydantic", "pyspark", "scipy", "yaml"),
}
# Models of run files, exact costs and the laws of noise: whatever reads a run file has these.
RUN_FILE = {"cryptography", "numpy", "pydantic", "yaml"}
_PROBE = """
import sys
from jobs.cli.main import main
code = main()
print(*{name.partition(".")[0] for name in sys.modules}, file=sys.stderr)
sys.exit(code)
"""


def heavy_packages(*command: str, code: int = 0) -> set[str]:
    """Heavy packages that a command has loaded when it is done."""
    probe = [sys.executable, "-c", _PROBE, *command]
    done = subprocess.run(probe, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return HEAVY & set(done.stderr.splitlines()[-1].split())


@pytest.fixture(scope="module")
def run_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The toy state with its data."""
    folder = tmp_path_factory.mktemp("starts")
    toy.write_records(folder)
    return str(toy.configuration(folder))


@pytest.mark.parametrize("options", [["--help"], ["validate", "--help"], ["--version"]])
def test_help_loads_nothing(options: list[str]) -> None:
    assert heavy_packages(*options) <= {"pydantic"}  # typer has its own use of it


def test_a_run_file_without_data_is_validated_without_arrow(tmp_path: Path) -> None:
    assert heavy_packages("validate", str(toy.configuration(tmp_path))) == RUN_FILE


def test_validate_reads_the_list_of_geounits_and_loads_arrow_for_it(run_file: str) -> None:
    assert heavy_packages("validate", run_file) == {*RUN_FILE, "pyarrow"}
    assert heavy_packages("validate", run_file, "--json") == {*RUN_FILE, "pyarrow"}


def test_an_account_is_listed_with_what_reads_a_run_file(run_file: str) -> None:
    assert heavy_packages("account", run_file) == RUN_FILE


def test_predicting_errors_takes_sparse_matrices_and_nothing_that_solves(run_file: str) -> None:
    assert heavy_packages("plan", run_file, "--quiet") == {
        *(*RUN_FILE, "psutil", "pyarrow", "scipy")
    }
