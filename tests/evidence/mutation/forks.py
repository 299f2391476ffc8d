"""Runs tests of a copy of the project, each time in a fork: `python forks.py FOLDER`.

One process imports what the project is built on, half of what a short test takes. A line has the
package with the fault, and tests, separated by tabs. For every line the process forks; the fork
imports what it needs of the project and runs the tests. The process answers each line with a JSON
list: how pytest ended, and what it printed. Before the first fault of `solvers`, and of `jobs`, it
imports the packages below, with their machine code: no fault of theirs may follow.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest
from _pytest.config import default_plugins

OPTIONS = ("-x", "-q", "--tb=native", "-p", "no:cacheprovider", "-p", "pytest_timeout")
UNDERNEATH = (
    *("matplotlib.backends.backend_svg", "matplotlib.figure"),
    *("cryptography.hazmat.primitives.ciphers", "cryptography.hazmat.primitives.kdf.kbkdf"),
    *("hypothesis.strategies", "jinja2", "numba", "numpy.testing", "pandas", "psutil"),
    *("pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet"),
    *("pydantic.json_schema", "pydantic.main", "pydantic.type_adapter", "rich.progress"),
    *("scipy.linalg", "scipy.optimize", "scipy.sparse.linalg", "scipy.special", "scipy.stats"),
    *("pdb", "tomllib", "typer.testing", "xml.etree.ElementTree", "yaml"),
    *(f"_pytest.{name}" for name in default_plugins),
)
LOWEST = ("das", "geography", "invariants")  # they import no other package of the project
BELOW = {"solvers": LOWEST, "jobs": (*LOWEST, "solvers")}  # what else each imports of the project


def main() -> None:
    """Fork for every line that comes in."""
    folder = Path(sys.argv[1])
    os.chdir(folder)
    for name in UNDERNEATH:
        importlib.import_module(name)
    gc.freeze()  # pytest collects garbage ten times as it ends: a third of what a short fork took
    for line in sys.stdin:
        package, *tests = line.rstrip("\n").split("\t")
        for below in BELOW.get(package, ()):
            import_whole(below)
        print(json.dumps(in_a_fork(package, tests)), flush=True)


@cache
def import_whole(package: str) -> None:
    """Import a package into this process and its forks to come."""
    for path in sorted(Path(package).rglob("*.py")):
        name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        importlib.import_module(name)
    if package == "solvers":
        importlib.import_module("solvers.least_squares.machine_code").load_kernels()
    gc.freeze()


def in_a_fork(package: str, tests: list[str]) -> tuple[int, str]:
    """How pytest ends, and what it prints; what it imports is gone with the fork."""
    own = {path.name for path in Path().iterdir()}
    imported = own & {name.partition(".")[0] for name in sys.modules}
    assert imported <= {*BELOW.get(package, ())}, f"no fault of {imported} is seen"
    with tempfile.TemporaryFile() as printed:
        child = os.fork()
        if not child:
            os.dup2(printed.fileno(), 1)
            os.dup2(printed.fileno(), 2)
            code = 70  # of no pytest: it could not even begin
            try:
                code = int(pytest.main([*OPTIONS, *tests]))
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        printed.seek(0)
        return os.waitstatus_to_exitcode(status), printed.read().decode(errors="replace")


if __name__ == "__main__":
    main()
