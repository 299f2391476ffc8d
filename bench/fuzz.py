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

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

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
FAILURES = ("traceback", "hang", "half_written", "lost_grant", "lost_records")
QUICK = 300
_AGAIN_EVERY = 100
_MOST_MEMORY = 6 << 30  # of a worker: what reads without end stops here


@dataclass(frozen=True)
class Tried:
    """One case and what became of it."""

    index: int
    case: str
    note: str
    arguments: list[str]
    outcome: str
    signature: str
    detail: str
    seconds: float


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


def work(seed: int, indices: range, scratch: Path) -> None:
    """Run cases one after the other; one line of JSON each, the number before it starts."""
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    for index in indices:
        sys.__stdout__.write(f"{index}\n")
        sys.__stdout__.flush()
        tried = try_case(seed, index, scratch)
        sys.__stdout__.write(json.dumps(asdict(tried)) + "\n")
        sys.__stdout__.flush()


def supervise(seed: int, indices: range, progress: Any, program: str = "bench.fuzz") -> list[Tried]:
    """Run cases in a process that is started again after a case that ends it.

    Args:
      seed: Of the cases.
      indices: Their numbers.
      progress: Called with every case that was tried.
      program: The module whose `--work` runs cases as `work` does.
    """
    found: list[Tried] = []
    todo = list(indices)
    while todo:
        with tempfile.TemporaryDirectory(prefix="das-fuzz-") as scratch:
            command = [sys.executable, "-m", program, "--seed", str(seed)]
            first, step = todo[0], indices.step
            command += ["--work", str(first), str(indices.stop), str(step), scratch]
            errors = Path(scratch) / "errors.txt"
            current = None
            with (
                errors.open("w") as sink,
                subprocess.Popen(
                    command, cwd=ROOT, stdout=subprocess.PIPE, stderr=sink, text=True
                ) as worker,
            ):
                for line in worker.stdout or ():
                    if not line.startswith("{"):
                        current = int(line)
                        continue
                    found.append(Tried(**json.loads(line)))
                    progress(found[-1])
                    current = None
            done = {one.index for one in found}
            if current is not None:  # it ended the process, or had to be ended
                said = errors.read_text(errors="replace")[-6000:]
                kind = "hang" if "Timeout" in said else "traceback"
                found.append(Tried(current, "?", "", [], kind, "the process ended", said, 0.0))
                progress(found[-1])
                done.add(current)
            elif worker.returncode:
                raise RuntimeError(errors.read_text(errors="replace")[-3000:])
            todo = [index for index in todo if index not in done]
    return found


def report(seed: int, tried: list[Tried]) -> dict[str, Any]:
    """Print the table and the causes; returns the summary."""
    names = [*MAKERS, *sorted({one.case for one in tried} - set(MAKERS))]
    print(f"| cases | number | {' | '.join(KINDS.values())} |")
    print("|---" * (len(KINDS) + 2) + "|")
    for name in names:
        of_kind = Counter(one.outcome for one in tried if one.case == name)
        if of_kind:
            cells = " | ".join(str(of_kind[kind]) for kind in KINDS)
            print(f"| {name} | {of_kind.total()} | {cells} |")
    failed = [one for one in tried if one.outcome in FAILURES]
    for (kind, signature), count in Counter((o.outcome, o.signature) for o in failed).most_common():
        first = next(o for o in failed if (o.outcome, o.signature) == (kind, signature))
        print(f"{kind} x {count}: {signature}; case {first.index}: {first.note!r:.150}")
        print(f"    das {' '.join(first.arguments)!r:.200}")
    outcomes = Counter(one.outcome for one in tried)
    return {
        "seed": seed,
        "cases": len(tried),
        **{name: outcomes[kind] for kind, name in KINDS.items()},
        "slowest_seconds": round(max(one.seconds for one in tried), 1),
    }


def main() -> None:
    """Print a table and JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1700)
    parser.add_argument("--from", dest="first", type=int, default=0, help="first case")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} cases")
    parser.add_argument("--only", type=int, help="run this case and keep its folder")
    parser.add_argument("--failures", type=Path, help="write all about failures to this file")
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ.setdefault("COLUMNS", "100")
    if options.work:
        first, stop, step, scratch = options.work
        work(options.seed, range(int(first), int(stop), int(step)), Path(scratch))
        return
    if options.only is not None:
        scratch = Path(tempfile.mkdtemp(prefix="das-fuzz-"))
        tried = try_case(options.seed, options.only, scratch, keep=True)
        print(tried.detail)
        print(scratch, tried.outcome, tried.signature, tried.note, *tried.arguments)
        return

    def tell(one: Tried) -> None:
        if one.outcome in FAILURES:
            print(f"{one.index} {one.outcome} {one.signature} {one.note!r:.99}", file=sys.stderr)

    count = QUICK if options.quick else options.count
    tried = supervise(options.seed, range(options.first, options.first + count), tell)
    summary = report(options.seed, tried)
    if options.failures:
        failed = [asdict(one) for one in tried if one.outcome in FAILURES]
        options.failures.write_text(json.dumps(failed, indent=1))
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
