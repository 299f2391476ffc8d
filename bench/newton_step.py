"""Small nodes by the compiled kernels and by their definition in arrays; what a first use costs.

    python -m bench.newton_step [--nodes N] [--compile]

Milliseconds of a processor per node, the least of five repetitions, from the node problem to the
certified estimate; seconds to import numba and to load the kernels from the cache; with --compile
also to compile them, in an empty cache. Prints a table.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

from bench.l2_nodes import TOLERANCE, node  # noqa: E402
from solvers.least_squares.solve import solve_quadratic  # noqa: E402
from tests.unit.solvers.least_squares import in_arrays  # noqa: E402

SIZES = (
    (1, 4),
    (2, 8),
    (3, 8),
    (5, 16),
    (5, 30),
    (10, 20),
    (10, 40),
    (30, 40),
    (4, 188),
    (30, 119),
)
_FIRST_USE = """
import time
import numpy, scipy.linalg
started = time.process_time()
import numba
imported = time.process_time()
from solvers.least_squares.machine_code import kernels
kernels()
print(f"{imported - started:.2f} s to import numba, {time.process_time() - imported:.2f} s to")
"""


def least_milliseconds(solve: Callable[[], object]) -> float:
    """Of five repetitions, after one that loads what is to be loaded."""
    solve()
    times = []
    for _ in range(5):
        started = time.process_time()
        solve()
        times.append(time.process_time() - started)
    return 1e3 * min(times)


def first_use(cache: str | None) -> str:
    """Seconds in a process of its own, with this folder as cache."""
    environment = {**os.environ, **({"XDG_CACHE_HOME": cache} if cache else {})}
    command = [sys.executable, "-c", _FIRST_USE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def main() -> None:
    """Print the table; see the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=40)
    parser.add_argument("--compile", action="store_true", help="also in an empty cache")
    arguments = parser.parse_args()
    print("| Children x cells | Variables | Compiled, ms | In arrays, ms |\n|---|---|---|---|")
    for children, cells in SIZES:
        problems = [
            node("block_group", children, cells, children * cells, 0.783, seed=seed)
            for seed in range(arguments.nodes)
        ]
        row = []
        for context in (nullcontext, in_arrays.use):
            with context():
                each = [
                    least_milliseconds(lambda: [solve_quadratic(p, TOLERANCE) for p in problems])  # noqa: B023
                ]
            row.append(f"{each[0] / len(problems):.2f}")
        size = f"{children} x {cells} | {children * cells}"
        print(f"| {size} | {' | '.join(row)} |", flush=True)
    print(first_use(None), "load the kernels")
    if arguments.compile:
        with tempfile.TemporaryDirectory() as cache:
            print(first_use(cache), "compile them")


if __name__ == "__main__":
    main()
