"""What every fuzzer of the project does: cases in processes of their own, a table, one line of JSON."""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.checkout import ROOT

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


TryCase = Callable[..., Tried]  # (index, keep=False)


@dataclass(frozen=True)
class Fuzzer:
    """A program that tries cases.

    Attributes:
      program: Its module.
      describe: What it says of itself.
      begin: Given a seed and a scratch folder, returns what tries the case of a number.
      kinds: Outcome to its name in the summary; the first two are no failures.
      counted: What a case is called.
      count: Cases by default.
      quick: Cases of `--quick`.
      rows: Rows of the table that come first.
    """

    program: str
    describe: str
    begin: Callable[[int, Path], TryCase]
    kinds: Mapping[str, str]
    counted: str
    count: int
    quick: int
    rows: Sequence[str] = ()

    @property
    def failures(self) -> tuple[str, ...]:
        """Outcomes that are failures."""
        return tuple(self.kinds)[2:]

    def work(self, seed: int, indices: range, scratch: Path) -> None:
        """Run cases one after the other; one line of JSON each, the number before it starts."""
        try_case = self.begin(seed, scratch)
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
        for index in indices:
            sys.__stdout__.write(f"{index}\n")
            sys.__stdout__.flush()
            tried = try_case(index)
            sys.__stdout__.write(json.dumps(asdict(tried)) + "\n")
            sys.__stdout__.flush()

    def supervise(
        self, seed: int, indices: range, progress: Callable[[Tried], None] = lambda _: None
    ) -> list[Tried]:
        """Run cases in a process that is started again after a case that ends it.

        Args:
          seed: Of the cases.
          indices: Their numbers.
          progress: Called with every case that was tried.
        """
        found: list[Tried] = []
        todo = list(indices)
        while todo:
            with tempfile.TemporaryDirectory(prefix="das-fuzz-") as scratch:
                command = [sys.executable, "-m", self.program, "--seed", str(seed)]
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

    def report(self, seed: int, tried: Sequence[Tried]) -> dict[str, Any]:
        """Print the table and the causes; returns the summary."""
        names = [*self.rows, *sorted({one.case for one in tried} - {*self.rows})]
        print(f"| case | {self.counted} | {' | '.join(self.kinds.values())} |")
        print("|---" * (len(self.kinds) + 2) + "|")
        for name in names:
            of_kind = Counter(one.outcome for one in tried if one.case == name)
            if of_kind:
                cells = " | ".join(str(of_kind[kind]) for kind in self.kinds)
                print(f"| {name} | {of_kind.total()} | {cells} |")
        failed = [one for one in tried if one.outcome in self.failures]
        causes = Counter((one.outcome, one.signature) for one in failed)
        for (kind, signature), count in causes.most_common():
            first = next(o for o in failed if (o.outcome, o.signature) == (kind, signature))
            print(f"{kind} x {count}: {signature}; case {first.index}: {first.note!r:.200}")
            print(f"    das {' '.join(first.arguments)!r:.200}")
        outcomes = Counter(one.outcome for one in tried)
        return {
            "seed": seed,
            self.counted: len(tried),
            **{name: outcomes[kind] for kind, name in self.kinds.items()},
            "slowest_seconds": round(max(one.seconds for one in tried), 1),
        }

    def main(self) -> None:
        """Print a table and JSON."""
        parser = argparse.ArgumentParser(description=self.describe.splitlines()[0])
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument("--count", type=int, default=self.count)
        parser.add_argument("--from", dest="first", type=int, default=0, help="first case")
        parser.add_argument("--quick", action="store_true", help=f"{self.quick} cases")
        parser.add_argument("--only", type=int, help="run this case and keep its folder")
        parser.add_argument("--failures", type=Path, help="write all about failures to this file")
        parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
        options = parser.parse_args()
        os.environ.setdefault("COLUMNS", "100")
        if options.work:
            first, stop, step, scratch = options.work
            self.work(options.seed, range(int(first), int(stop), int(step)), Path(scratch))
            return
        if options.only is not None:
            kept = Path(tempfile.mkdtemp(prefix="das-fuzz-"))
            one = self.begin(options.seed, kept)(options.only, keep=True)
            print(one.detail)
            print(kept, one.outcome, one.signature, one.note, *one.arguments)
            return

        def tell(one: Tried) -> None:
            if one.outcome in self.failures:
                print(
                    f"{one.index} {one.outcome} {one.signature} {one.note!r:.99}", file=sys.stderr
                )

        count = self.quick if options.quick else options.count
        tried = self.supervise(options.seed, range(options.first, options.first + count), tell)
        summary = self.report(options.seed, tried)
        if options.failures:
            failed = [asdict(one) for one in tried if one.outcome in self.failures]
            options.failures.write_text(json.dumps(failed, indent=1))
        print(json.dumps(summary))
