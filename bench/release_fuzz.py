"""Hostile releases: counts tracebacks, hangs, and files opened or written outside of the release.

    python -m bench.release_fuzz [--seed N] [--count M] [--quick] [--only INDEX]

Each case is a finished release (of a census with two products, of a survey with microdata, of one
with exact tables) that was changed in one or two places and finalized again, and a command that reads
releases, run on it in one process through the command line. A case is a function of seed and
number. `--only` runs one case and leaves its folder for a look. Prints a table by kind of release,
one line per cause of failure, and one line of JSON.

done            ended well
refused         ended with one line that names the error, and an exit code
tracebacks      anything that is not said by the project, and an error of very many characters
hangs           30 s of processor time or 4 minutes
opens_outside   a file was opened that is neither the release, nor a part of the program or system
writes_outside  a file was written elsewhere than asked for
unescaped       an escape code on the terminal, a script in a page, a formula in a table, or a label
                of the reader's own files in any of them
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bench.fuzzing import Fuzzer, Tried, TryCase
from tests.checkout import ROOT
from tests.fuzz.execute import Outcome, attempt, without_spark
from tests.fuzz.releases import (
    BAIT_LABEL,
    World,
    case_rng,
    change_release,
    copy_release,
    make_worlds,
    write_bait,
)

KINDS = {
    "accepted": "done",
    "named_error": "refused",
    "traceback": "tracebacks",
    "hang": "hangs",
    "opens_outside": "opens_outside",
    "writes_outside": "writes_outside",
    "unescaped": "unescaped",
}
_WEIGHTS = {"census": 6, "survey": 3, "tables": 1}
_PROGRAM = tuple(
    os.path.realpath(path)
    for path in (
        *(
            ROOT,
            Path(pytest.__file__).parents[1],
            sys.prefix,
            sys.base_prefix,
            "/usr",
            "/lib",
            "/sys",
            "/proc/self",
        ),
        *("/proc/meminfo", "/proc/cpuinfo", "/proc/stat", "/dev/null", "/dev/urandom", "/dev/tty"),
        *("/etc/localtime", "/etc/mime.types", "/etc/fonts", "/etc/ld.so.cache"),
        *(Path.home() / ".cache", Path.home() / ".config" / "matplotlib"),
    )
)
_CHANGING = {"os.rename", "os.remove", "os.link", "os.symlink", "os.mkdir", "os.rmdir", "os.chmod"}


class _Watch:
    """What was opened and written while a command ran; one hook for the life of the process."""

    def __init__(self) -> None:
        self.opened: list[tuple[str, bool]] | None = None

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.opened is None:
            return
        if event == "open" and isinstance(arguments[0], str | bytes):
            mode, flags = arguments[1], arguments[2]
            by_mode = isinstance(mode, str) and bool({*mode} & {*"wax+"})
            writes = by_mode or (isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR)))
            self.opened.append((os.path.realpath(os.fsdecode(arguments[0])), writes))
        elif event in _CHANGING:
            path = os.fsdecode(arguments[0])
            parent = os.path.realpath(os.path.dirname(path))
            self.opened.append((os.path.join(parent, os.path.basename(path)), True))


@cache
def _watch() -> _Watch:
    watch = _Watch()
    sys.addaudithook(watch)
    return watch


@contextmanager
def watched() -> Iterator[list[tuple[str, bool]]]:
    """The files that are opened meanwhile, links followed, and whether for writing.

    Libraries that are not Python tell no hook what they open: Parquet files are told here.
    """
    opened: list[tuple[str, bool]] = []
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ParquetFile", "read_schema"):
            patch.setattr(pq, name, _telling(getattr(pq, name)))
        watch = _watch()
        watch.opened = opened
        try:
            yield opened
        finally:
            watch.opened = None


def _telling(opens: Any) -> Any:
    def told(source: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(source, str | Path):
            sys.audit("open", str(source), "rb", 0)
        return opens(source, *arguments, **options)

    return told


def try_case(
    seed: int, index: int, worlds: dict[str, World], scratch: Path, *, keep: bool = False
) -> Tried:
    """Make a case, run its command in this process and judge what became of it."""
    began = time.process_time()
    rng = case_rng(seed, index)
    folder = scratch / f"case-{index}"
    folder.mkdir()
    name = rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
    world = worlds[name]
    release, out = copy_release(world, folder), folder / "out"
    out.mkdir()
    bait = write_bait(folder, release)
    note = change_release(rng, release, bait)
    words = rng.choice(world.commands)
    arguments = [word.replace("RELEASE", str(release)).replace("OUT", str(out)) for word in words]
    with without_spark(), watched() as opened:
        outcome, _, said = attempt(arguments, out)
    into = (release, out) if words == ["inspect", "RELEASE", "--reports"] else (out,)
    outcome = _strayed(opened, release, into) or _unescaped(said, into) or outcome
    if not keep:
        shutil.rmtree(folder)
    return Tried(
        index,
        name,
        note.encode("utf-8", "backslashreplace").decode(),
        words,
        outcome.kind,
        outcome.signature,
        outcome.detail.encode("utf-8", "backslashreplace").decode(),
        time.process_time() - began,
    )


def _strayed(
    opened: list[tuple[str, bool]], release: Path, into: tuple[Path, ...]
) -> Outcome | None:
    """What was opened or written where a release has no business."""
    writable = tuple(os.path.realpath(path) for path in (*into, "/dev/null"))
    readable = (*_PROGRAM, *writable, os.path.realpath(release))
    caches = ("matplotlib", "fontlist", "__pycache__", "numba")
    for path, writes in opened:
        if any(word in path for word in caches):
            continue
        if writes and not _lies_below(path, writable):
            return Outcome("writes_outside", path)
        if not _lies_below(path, readable):
            return Outcome("opens_outside", path)
    return None


def _lies_below(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def _unescaped(said: str, into: tuple[Path, ...]) -> Outcome | None:
    """What reached the terminal, a page or a table as it stood in the release."""
    if re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", said) or BAIT_LABEL in said:
        return Outcome("unescaped", "on the terminal", said[-2000:])
    for folder in into:
        for path in folder.rglob("*"):
            if path.is_symlink() or not path.is_file() or path.suffix not in (".html", ".csv"):
                continue
            if folder is not into[-1] and path.name != "report.html":
                continue  # the hostile release itself
            text = path.read_text(errors="replace")
            is_table = path.suffix == ".csv"
            pattern = r'(^|,)"?[=@]' if is_table else "<script>alert"
            if re.search(pattern, text, re.MULTILINE) or BAIT_LABEL in text:
                return Outcome("unescaped", f"in {path.name}")
    return None


def _begin(seed: int, scratch: Path) -> TryCase:
    worlds = make_worlds(scratch / "worlds")
    return lambda index, keep=False: try_case(seed, index, worlds, scratch, keep=keep)


FUZZER = Fuzzer(
    "bench.release_fuzz", __doc__, _begin, KINDS, counted="commands", count=1000, quick=150
)


if __name__ == "__main__":
    FUZZER.main()
