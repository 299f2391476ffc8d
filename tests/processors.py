"""The numerical tests as other processors would run them.

    python -m tests.processors [--list] [ARGUMENTS OF PYTEST]

OpenBLAS, NumPy and the compiled solvers each choose their code by the processor, and add floats in
another order on another one. Each pass below takes the choice of one kind of processor; a pass that
this machine cannot run is named and left out. `make test-processors` runs all passes.

Which tests: those whose outcome rests on floats, at most a few seconds each; `PATHS` lists them. A
pass takes about two core minutes, in a fresh clone one more to compile. That small runs come to the
same on all processors is a test of the normal suite (`tests/pipeline/local/test_digests.py`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from numpy._core._multiarray_umath import (  # type: ignore[attr-defined]
    __cpu_dispatch__,
    __cpu_features__,
)

PATHS = (
    "tests/unit/solvers",
    "tests/unit/das/tree",
    "tests/unit/das/privacy/test_loss_distribution.py",
    "tests/unit/das/queries/test_query_contract.py",
    "tests/unit/das/workload/residual/test_integer_plan.py::test_the_basis_in_which_eigenvectors_are_found_changes_no_row",
    "tests/unit/das/synthesis/test_portable.py",
    "tests/unit/das/synthesis/test_synthesis.py",
    "tests/unit/geography/test_offspine_oracle.py",
    "tests/unit/invariants/test_implied_oracle.py",
    "tests/pipeline/local/test_planned.py",
    "tests/pipeline/local/test_solve_choices.py",
)
# Slow for what another processor could show of them: compiling, intervals, long tables.
LEFT_OUT = (
    "tests/unit/das/tree/test_intervals.py",
    "tests/unit/solvers/least_squares/test_machine_code.py",
    "tests/unit/das/privacy/test_loss_distribution.py::test_epsilons_with_chains_in_the_accounting_page",
)


@dataclass(frozen=True)
class Processor:
    """What one kind of processor makes the libraries choose.

    Attributes:
      environment: Variables that make them choose it here.
      needs: Instructions this machine must have for that, as NumPy calls them.
    """

    environment: Mapping[str, str]
    needs: tuple[str, ...] = ()

    @property
    def lacking(self) -> list[str]:
        """What this machine does not have of it."""
        return [one for one in self.needs if not __cpu_features__.get(one, False)]

    def variables(self) -> dict[str, str]:
        """The environment of this process, with the choices of this processor alone."""
        chosen = {name for one in PROCESSORS.values() for name in one.environment}
        kept = {name: value for name, value in os.environ.items() if name not in chosen}
        return kept | dict(self.environment)


def _wide_vectors() -> str:
    """Names of AVX-512 in this NumPy, whose names differ between versions."""
    return " ".join(one for one in __cpu_dispatch__ if one.startswith(("AVX512", "X86_V4")))


PROCESSORS: dict[str, Processor] = {
    "Haswell": Processor(
        {
            "OPENBLAS_CORETYPE": "Haswell",
            "NUMBA_CPU_NAME": "haswell",
            "NUMBA_CPU_FEATURES": "+avx2,+fma,+bmi,+bmi2",
        },
        ("AVX2", "FMA3"),
    ),
    "SkylakeX": Processor({"OPENBLAS_CORETYPE": "SkylakeX"}, ("AVX512F", "AVX512DQ", "AVX512VL")),
    "without AVX-512": Processor(
        {"OPENBLAS_CORETYPE": "Zen", "NPY_DISABLE_CPU_FEATURES": _wide_vectors()},
        ("AVX2", "FMA3"),
    ),
}


def main() -> int:
    """Run the tests under every processor; the exit code is the worst of the passes."""
    arguments = sys.argv[1:]
    worst = 0
    for name, one in PROCESSORS.items():
        if one.lacking:
            print(f"== {name}: not here, this machine lacks {', '.join(one.lacking)}", flush=True)
            continue
        told = " ".join(f"{key}={value!r}" for key, value in one.environment.items() if value)
        print(f"== {name}: {told}", flush=True)
        if arguments == ["--list"]:
            continue
        left_out = [f"--deselect={test}" for test in LEFT_OUT]
        command = [sys.executable, "-m", "pytest", "-q", "-m", "not long and not spark"]
        done = subprocess.run([*command, *left_out, *PATHS, *arguments], env=one.variables())
        worst = max(worst, done.returncode)
    return worst


if __name__ == "__main__":
    raise SystemExit(main())
