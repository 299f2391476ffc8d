"""What a run file and a batch go through: `python -m tests.architecture.walks [--names]`.

Counted are functions of the packages that are entered, each once, and their modules: while the run
file of the demonstration is loaded, and while one batch of families of the toy state is solved.
Comprehensions, lambdas and machine code are not seen.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from jobs.pipeline.config.load import load_run
from jobs.pipeline.release.solve import solve_batch
from tests.builders import toy
from tests.builders.in_process import execute
from tests.checkout import ROOT

_PACKAGES = tuple(
    str(ROOT / name) + "/" for name in ("das", "geography", "invariants", "solvers", "jobs")
)
Walk = set[tuple[str, str]]


@contextmanager
def watched(inside: Callable[..., Any] | None = None) -> Iterator[Walk]:
    """Yield the set of (module, function) that are entered meanwhile.

    Args:
      inside: Watch only what its first call does; default: all.
    """
    seen: Walk = set()
    wanted = None if inside is None else inside.__code__
    outer: list[FrameType] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if wanted is not None:
            if event == "call" and code is wanted and not seen:
                outer.append(frame)
            elif event == "return" and outer == [frame]:
                outer.clear()
            if not outer:
                return
        if event == "call" and code.co_filename.startswith(_PACKAGES) and code.co_name[0] != "<":
            seen.add((str(Path(code.co_filename).relative_to(ROOT)), code.co_qualname))

    sys.setprofile(note)
    try:
        yield seen
    finally:
        sys.setprofile(None)


def loading() -> Walk:
    """Load the run file of the demonstration, once more than the first time."""
    path = ROOT / "conf" / "run" / "demo.yaml"
    load_run(path)
    with watched() as seen:
        load_run(path)
    return seen


def solving(folder: Path) -> Walk:
    """Solve the first batch of the toy state whose run is made in an empty folder."""
    toy.write_records(folder)
    resolved = load_run(toy.configuration(folder))
    with watched(solve_batch) as seen:
        execute(resolved)
    return seen


def main() -> None:
    """Print one JSON line, and the functions if asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--names", action="store_true", help="print the functions, too")
    names = parser.parse_args().names
    with tempfile.TemporaryDirectory() as folder:
        walks = {"loading": loading(), "solving": solving(Path(folder))}
    counts = {
        name: {"functions": len(walk), "modules": len({module for module, _ in walk})}
        for name, walk in walks.items()
    }
    print(json.dumps(counts))
    for name, walk in walks.items() if names else ():
        for module, function in sorted(walk):
            print(f"{name} {module} {function}")


if __name__ == "__main__":
    main()
