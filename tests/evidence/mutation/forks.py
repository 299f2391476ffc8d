"""Runs tests of a copy of the project, each time in a fork: `python forks.py FOLDER`.

One process imports what the project is built on, half of what a short test takes, and none of the
project. For every line of tests, separated by tabs, it forks; the fork imports the project and runs
them. It answers each line with a JSON list: how pytest ended, and what it printed.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from pathlib import Path

import pytest

PLUGINS = ("-p", "no:cacheprovider", "-p", "pytest_timeout")
UNDERNEATH = (
    *("cryptography.hazmat.primitives.ciphers", "numba", "numpy.testing", "pandas", "psutil"),
    *("pyarrow.parquet", "pydantic", "scipy.linalg", "scipy.optimize", "scipy.sparse.linalg"),
    *("hypothesis.strategies", "jinja2", "scipy.special", "scipy.stats", "typer", "yaml"),
)


def main() -> None:
    """Fork for every line that comes in."""
    folder = Path(sys.argv[1])
    os.chdir(folder)
    for name in UNDERNEATH:
        importlib.import_module(name)
    for line in sys.stdin:
        print(json.dumps(in_a_fork(folder, line.rstrip("\n").split("\t"))), flush=True)


def in_a_fork(folder: Path, tests: list[str]) -> tuple[int, str]:
    """How pytest ends, and what it prints; what it imports is gone with the fork."""
    own = {path.name for path in folder.iterdir()}
    imported = own & {name.partition(".")[0] for name in sys.modules}
    assert not imported, f"forks would not see faults in {imported}"
    with tempfile.TemporaryFile() as printed:
        child = os.fork()
        if not child:
            os.dup2(printed.fileno(), 1)
            os.dup2(printed.fileno(), 2)
            code = 70  # of no pytest: it could not even begin
            try:
                code = int(pytest.main(["-x", "-q", *PLUGINS, *tests]))
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        printed.seek(0)
        return os.waitstatus_to_exitcode(status), printed.read().decode(errors="replace")


if __name__ == "__main__":
    main()
