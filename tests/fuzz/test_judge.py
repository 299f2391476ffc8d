"""The judge of the fuzzer sees what it counts: planted faults, one of each kind."""

from __future__ import annotations

import os
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from das.errors import ConfigError
from tests.fuzz import execute as judge
from tests.fuzz.case import Case, Rng, write_toy, yaml_text
from tests.fuzz.folders import _WRITING, _options


@pytest.fixture
def case(tmp_path: Path) -> Case:
    run = write_toy(tmp_path, Rng(1))
    (tmp_path / "run.yaml").write_text(yaml_text(run))
    arguments = ["measure", str(tmp_path / "run.yaml"), "--quiet"]
    return Case("input", "", arguments, account=tmp_path / "account.jsonl", out=tmp_path / "out")


def judged(case: Case, folder: Path) -> tuple[str, str]:
    with judge.without_spark():
        outcome = judge.execute(case, folder)
    return outcome.kind, outcome.signature


def broken(error: BaseException):
    def raising(*_: object, **__: object) -> None:
        raise error

    return raising


def test_a_run_that_is_sound_is_accepted(case: Case, tmp_path: Path) -> None:
    assert judged(case, tmp_path) == ("accepted", "measure")


def test_a_refusal_is_a_named_error(case: Case, tmp_path: Path) -> None:
    (tmp_path / "records.csv").write_text("block,sex\n")
    assert judged(case, tmp_path) == ("named_error", "InputError")


def test_another_error_is_a_traceback(case, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("jobs.confidential.stages.read_entries", broken(KeyError("x")))
    assert judged(case, tmp_path)[0] == "traceback"


def test_what_does_not_end_is_a_hang(case, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(judge, "WALL_SECONDS", 2)
    monkeypatch.setattr("jobs.confidential.stages.read_entries", lambda *_, **__: time.sleep(60))
    assert judged(case, tmp_path)[0] == "hang"


def test_a_claim_of_a_command_that_fails_is_half_written(case, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(
        "jobs.confidential.measure.MeasureStage.draw", broken(ConfigError("x", "late"))
    )
    assert judged(case, tmp_path) == (
        "half_written",
        "a grant was claimed, and the command failed",
    )


def test_files_elsewhere_are_half_written(case, tmp_path, monkeypatch) -> None:
    def scribble(*_: object, **__: object) -> None:
        Path("s3a:").mkdir()
        Path("s3a:/x").write_text("x")
        raise ConfigError("x", "refused")

    monkeypatch.setattr("jobs.confidential.stages.read_entries", scribble)
    assert judged(case, tmp_path) == ("half_written", "wrote x")


def test_datasets_without_a_manifest_are_half_written(case, tmp_path, monkeypatch) -> None:
    def part(*_: object, **__: object) -> None:
        folder = tmp_path / "out" / "release" / "counts" / "level=block"
        folder.mkdir(parents=True)
        (folder / "part-1").write_text("x")
        raise ConfigError("x", "refused")

    monkeypatch.setattr("jobs.confidential.stages.read_entries", part)
    assert judged(case, tmp_path)[0] == "half_written"


def test_commands_leave_the_arguments_of_the_process_alone(case, tmp_path) -> None:
    before = list(sys.argv)
    judged(case, tmp_path)
    assert sys.argv == before


def test_no_case_writes_outside_of_its_folder(tmp_path: Path) -> None:
    """Nor does it name a device, a home, or a file of the machine as a place to write to."""
    folder = tmp_path / "case"
    folder.mkdir()
    seen = 0
    for seed in range(600):
        arguments = _options(Rng(seed), folder).arguments
        for option, path in pairwise(arguments):
            if option not in _WRITING or "\x00" in path:
                continue
            seen += 1
            if "://" in path or path.startswith("~"):
                continue  # refused before anything is opened; not followed anywhere
            assert Path(os.path.normpath(folder / path)).is_relative_to(folder), path
    assert seen > 100
