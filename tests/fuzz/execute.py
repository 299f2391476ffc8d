"""Run a case through the command line, in this process, and judge what became of it."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType

import pytest
import typer.main

import jobs.cli.main
from jobs.pipeline.documents.summary import SUMMARY
from jobs.pipeline.storage.account import read_account
from jobs.pipeline.storage.dataset import MANIFEST, Dataset
from tests.builders.in_process import patch_spark
from tests.builders.places import truth_of
from tests.checkout import ROOT
from tests.fuzz.case import Case

_get_command = cache(typer.main.get_command)
CPU_SECONDS, WALL_SECONDS = 30, 240  # then a case counts as hanging; the slowest legal takes 5
LONGEST_ERROR = 12_000  # characters
_ROOT = str(ROOT)


@dataclass(frozen=True)
class Outcome:
    """What became of a case.

    Attributes:
      kind: named_error, accepted, traceback, hang, half_written, lost_grant or lost_records.
      signature: What the failures of one cause have in common; the error otherwise.
      detail: What was said.
    """

    kind: str
    signature: str
    detail: str = ""


class Hang(BaseException):
    """The time of a case is up."""


def _ring(_signal: int, _frame: FrameType | None) -> None:
    raise Hang


@contextlib.contextmanager
def time_limit() -> Iterator[None]:
    """Raise Hang when time is up; code that never comes back ends the process, with its frames."""
    before = [signal.signal(one, _ring) for one in (signal.SIGALRM, signal.SIGPROF)]
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, WALL_SECONDS)
    if not faulthandler.is_enabled():
        faulthandler.enable(sys.__stderr__)
    faulthandler.dump_traceback_later(WALL_SECONDS + 60, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        for one, handler in zip((signal.SIGALRM, signal.SIGPROF), before, strict=True):
            signal.signal(one, handler)


@contextlib.contextmanager
def without_spark() -> Iterator[None]:
    """All commands work in this process, whatever session they open, and wait for no disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch_spark(patch)
        patch.setattr("os.fsync", lambda _: None)
        patch.setattr("typer.main.get_command", _get_command)
        patch.setattr("jobs.pipeline.run.write_internal_reports", lambda *_: [])
        yield


def command(arguments: list[str]) -> tuple[int, str]:
    """Exit code of `das`, and all that it printed."""
    said = io.StringIO()
    before = sys.argv
    sys.argv = ["das", *arguments]
    try:
        with (
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(said),
            warnings.catch_warnings(action="ignore"),  # as the program does, unlike the tests
        ):
            code = jobs.cli.main.main()
    finally:
        sys.argv = before
    return code, said.getvalue()


def execute(case: Case, folder: Path) -> Outcome:
    """Run a case made in a folder; the session is that of `without_spark`."""
    before = set(_files(folder))
    outcome, code, said = attempt(case.arguments, folder)
    if outcome.kind not in ("accepted", "named_error"):
        return outcome
    wrongs = {
        "lost_grant": _lost_grant(case, code),
        "lost_records": _lost_records(case, code),
        "half_written": _left_behind(case, code, set(_files(folder)) - before),
    }
    found = (Outcome(kind, wrong, said[-2000:]) for kind, wrong in wrongs.items() if wrong)
    return next(found, outcome)


def attempt(arguments: list[str], folder: Path) -> tuple[Outcome, int, str]:
    """Run a command in a folder: what became of it, its exit code, and all that it printed."""
    where = os.getcwd()
    os.chdir(folder)  # a path that is taken for a relative one shows up here
    try:
        with time_limit():
            code, said = command(arguments)
    except Hang:
        return Outcome("hang", _place(sys.exc_info()[1])), 1, ""
    except BaseException as error:  # noqa: BLE001 - that is what is looked for
        frames = "".join(traceback.format_exception(error))[-6000:]
        return Outcome("traceback", _place(error), frames), 1, ""
    finally:
        os.chdir(where)
    return _judged(arguments, code, said), code, said


def _judged(arguments: list[str], code: int, said: str) -> Outcome:
    if code not in (0, 2, 3, 4, 5, 6, 7):
        return Outcome("traceback", f"exit code {code}", said[-2000:])
    if "Traceback (most recent call last)" in said:
        return Outcome("traceback", "printed", said[-6000:])
    if code == 0:
        return Outcome("accepted", arguments[0])
    found = re.search(r"das: (\w+) (.*)", said, re.DOTALL)
    is_usage = "Usage:" in said
    if found is None and not is_usage:
        return Outcome("traceback", "no named error", said[-2000:])
    if len(said) > LONGEST_ERROR:
        return Outcome("traceback", "an error of very many characters", said[:2000])
    return Outcome("named_error", found[1] if found else "usage", said[-4000:])


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if not path.is_dir() or path.is_symlink()]


def _lost_grant(case: Case, code: int) -> str:
    """What a command that failed spent; nothing in most cases."""
    if code == 0 or case.account is None or not case.account.exists():
        return ""
    try:
        spent = read_account(case.account)
    except Exception as error:  # noqa: BLE001
        return f"the account cannot be read: {type(error).__name__}"
    return "a grant was claimed, and the command failed" if spent else ""


def _lost_records(case: Case, code: int) -> str:
    """How the records that a run counted differ from those of its input; nothing in most cases."""
    if code != 0 or case.out is None:
        return ""
    if case.fault:
        return f"read a file that no reader should take: {case.fault}"
    if case.records is None:
        return ""
    evaluation = case.out / "confidential" / "evaluation.json"  # of a survey
    if evaluation.exists():
        read = json.loads(evaluation.read_text())["records"]
    else:
        truth = Dataset.open(truth_of(case.out).histograms("state")).read()
        read = sum(truth.column("counts").combine_chunks().flatten().to_pylist())
    return "" if read == case.records else f"counted {read} records of {case.records}"


def _left_behind(case: Case, code: int, new: set[Path]) -> str:
    """What must not be there; nothing in most cases."""
    if case.out is None:
        allowed = case.outputs if code == 0 else []
        strange = sorted(path for path in new if path not in allowed and not _is_whole(case, path))
        return f"wrote {strange[0].name}" if strange else ""
    release = case.out / "release"
    for folder in {path.parent for path in new if release in path.parents}:
        if folder.name.startswith("level=") and not (folder / MANIFEST).exists():
            return f"{folder.relative_to(release)} has parts and no manifest"
    strange = sorted(path for path in new if case.out not in path.parents and path != case.account)
    if [path for path in strange if not path.name.startswith(f"{(case.account or path).name}.")]:
        return f"wrote {strange[0].name}"
    if code == 0:
        return ""
    if list(release.rglob("measurements/*")):
        return "measurements without a claim"
    if case.out.exists():
        shown, _ = command(["inspect", str(case.out)])
        return "" if shown in (0, 2) else "the folder cannot be inspected"
    return ""


def _is_whole(case: Case, path: Path) -> bool:
    """Whether a file is whole, also if the command failed.

    It belongs to a dataset that the command may have made again, or lists what the stages cost that
    were done.
    """
    if case.remakes is None or case.remakes not in path.parents:
        return False
    return path == case.remakes / SUMMARY or (path.parent / MANIFEST).exists()


def _place(error: BaseException | None) -> str:
    """Kind of an error and the innermost place of this project in it."""
    if error is None:
        return "?"
    text = str(error)
    withheld = re.search(r"(\w+)(?: \([^)]*\))? at (\S+):\d+ in (\w+)", text)
    if withheld and "withheld" in text:
        inner = re.findall(r"(\S+):\d+ in (\w+)", text)
        ours = next((one for one in inner if _ROOT in one[0]), inner[0])
        return f"{withheld[1]} in {Path(ours[0]).name}:{ours[1]} (withheld)"
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if f.filename.startswith(_ROOT) and "/tests/" not in f.filename]
    ours = [f for f in ours if "/.venv/" not in f.filename] or list(frames)
    return f"{type(error).__name__} in {Path(ours[-1].filename).name}:{ours[-1].name}"
