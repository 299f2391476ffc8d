"""Hostile configurations, inputs and files: counts tracebacks, and what a command may not lose.

    python -m bench.fuzz [--seed N] [--count M] [--quick] [--only INDEX]

Each case is a folder of files that were valid before something was done to them, and a command of
`das` that is run on it as people run it: through the command line, here in one process with the
tasks of Spark one after the other. A case is a function of seed and number. `--only` runs one case
and leaves its folder for a look. Prints a table, one line per cause of failure, one line of JSON.

named_errors  ended with one line that names the error, and an exit code
accepted      ended well; whatever it wrote is complete
tracebacks    anything that is not said by the project: a Python traceback, another exit code
hangs         30 s of processor time or 4 minutes
half_written  files that nobody asked for, datasets without a manifest, a run folder that cannot be
              inspected
lost_grants   grants claimed by a command that failed
lost_records  runs that count other records of a dirty CSV file than Python's csv reads, or that
              accept one that no reader should take

Every 100th case of `das validate` and `das plan` with a list of geounits is run a second time as a
program of its own, which must end with the same exit code.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.fuzzing import Fuzzer, Tried, TryCase
from tests.checkout import ROOT
from tests.fuzz.case import Case, Maker
from tests.fuzz.configurations import make_configuration, make_strategy
from tests.fuzz.dirty import make_dirty
from tests.fuzz.execute import Outcome, execute, without_spark
from tests.fuzz.folders import make_folder
from tests.fuzz.inputs import make_input
from tests.fuzz.surveys import make_survey

MAKERS: dict[str, tuple[Maker, int]] = {
    "configuration": (make_configuration, 45),
    "strategy": (make_strategy, 10),
    "input": (make_input, 30),
    "folder": (make_folder, 15),
    "survey": (make_survey, 25),
    "dirty": (make_dirty, 25),
}
KINDS = {
    "named_error": "named_errors",
    "accepted": "accepted",
    "traceback": "tracebacks",
    "hang": "hangs",
    "half_written": "half_written",
    "lost_grant": "lost_grants",
    "lost_records": "lost_records",
}
_AGAIN_EVERY = 100


def make_case(seed: int, index: int, scratch: Path) -> tuple[Case, Path]:
    """Write the files of a case; the same seed and number give the same case."""
    rng = random.Random(f"{seed}:{index}")
    folder = scratch / f"case-{index}"
    folder.mkdir(parents=True)
    (folder / "loop").symlink_to("loop")
    names = list(MAKERS)
    name = rng.choices(names, [MAKERS[one][1] for one in names])[0]
    return MAKERS[name][0](rng, folder), folder


def try_case(seed: int, index: int, scratch: Path, *, keep: bool = False) -> Tried:
    """Make a case, run it in this process and judge it."""
    began = time.process_time()
    case, folder = make_case(seed, index, scratch)
    with without_spark():
        outcome = execute(case, folder)
    if index % _AGAIN_EVERY == 0 and case.kind in ("configuration", "strategy"):
        outcome = _again(case, outcome)
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
    arguments = [one.replace(str(folder), "CASE") for one in case.arguments]
    seconds = time.process_time() - began
    return Tried(index, case.kind, case.note, arguments, **_fields(outcome), seconds=seconds)


def _fields(outcome: Outcome) -> dict[str, Any]:
    return {
        "outcome": outcome.kind,
        "signature": outcome.signature,
        "detail": outcome.detail.encode("utf-8", "backslashreplace").decode(),
    }


def _again(case: Case, outcome: Outcome) -> Outcome:
    """Run a case as a program of its own, if it needs no Spark."""
    if case.arguments[0] != "validate" or outcome.kind not in ("accepted", "named_error"):
        return outcome
    done = subprocess.run(
        [sys.executable, "-m", "jobs", *case.arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if "Traceback" in done.stderr or (done.returncode == 0) != (outcome.kind == "accepted"):
        return Outcome("traceback", f"as a program: exit code {done.returncode}", done.stderr)
    return outcome


def _begin(seed: int, scratch: Path) -> TryCase:
    return lambda index, keep=False: try_case(seed, index, scratch, keep=keep)


FUZZER = Fuzzer(
    "bench.fuzz", __doc__, _begin, KINDS, counted="cases", count=1700, quick=300, rows=[*MAKERS]
)


if __name__ == "__main__":
    FUZZER.main()
