"""The judge of the fuzzer sees what it counts: planted faults, one of each kind."""

from __future__ import annotations

import os
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from das.errors import ConfigError
from tests.builders.places import release_of
from tests.builders.run_files import to_products
from tests.fuzz import execute as judge
from tests.fuzz.case import Case, Rng, write_toy, yaml_text
from tests.fuzz.dirty import make_dirty
from tests.fuzz.folders import _WRITING, _damaged, _options


@pytest.fixture
def case(tmp_path: Path) -> Case:
    run = write_toy(tmp_path, Rng(1))
    (tmp_path / "run.yaml").write_text(yaml_text(to_products(run)))
    arguments = ["run", "--only", "measure", str(tmp_path / "run.yaml"), "--quiet"]
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
    assert judged(case, tmp_path) == ("accepted", "run")


def test_a_refusal_is_a_named_error(case: Case, tmp_path: Path) -> None:
    (tmp_path / "records.csv").write_text("block,sex\n")
    assert judged(case, tmp_path) == ("named_error", "InputError")


def test_another_error_is_a_traceback(case, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("jobs.pipeline.confidential.stages.reader_of", broken(KeyError("x")))
    assert judged(case, tmp_path)[0] == "traceback"


def test_what_does_not_end_is_a_hang(case, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(judge, "WALL_SECONDS", 2)
    monkeypatch.setattr(
        "jobs.pipeline.confidential.stages.reader_of", lambda *_, **__: time.sleep(60)
    )
    assert judged(case, tmp_path)[0] == "hang"


def test_a_claim_of_a_command_that_fails_is_a_lost_grant(case, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(
        "jobs.pipeline.confidential.measure.MeasureStage.draw", broken(ConfigError("x", "late"))
    )
    assert judged(case, tmp_path) == (
        "lost_grant",
        "a grant was claimed, and the command failed",
    )


@pytest.mark.parametrize("kind", ["census", "survey"])
@pytest.mark.parametrize("planted", ["a record more", "a fault"])
def test_records_that_are_not_those_of_the_file_are_lost(kind, planted, tmp_path) -> None:
    folders = (tmp_path / str(seed) for seed in range(99))
    tried = (make_dirty(Rng(f"{kind}:{one.name}"), one) for one in folders if not one.mkdir())
    case = next(one for one in tried if one.note.startswith(kind) and one.records == 120)
    if planted == "a fault":
        case.fault, said = "ragged", "read a file that no reader should take: ragged"
    else:
        case.records, said = 121, "counted 120 records of 121"
    assert judged(case, case.out.parent) == ("lost_records", said)


def test_a_file_that_is_gone_may_be_made_again(tmp_path: Path, monkeypatch) -> None:
    manifest = release_of(tmp_path / "out").manifest
    manifest.parent.mkdir(parents=True)
    (manifest.parent / "part-0").touch()
    manifest.write_text("{}")
    monkeypatch.setattr(
        "tests.fuzz.folders.RECORDS", ["out/release/products/persons/manifest.json"]
    )
    for seed in range(99):
        outputs = _damaged(Rng(seed), tmp_path).outputs
        if not manifest.exists():
            break
    assert not manifest.exists()
    assert manifest in outputs


def test_files_elsewhere_are_half_written(case, tmp_path, monkeypatch) -> None:
    def scribble(*_: object, **__: object) -> None:
        Path("s3a:").mkdir()
        Path("s3a:/x").write_text("x")
        raise ConfigError("x", "refused")

    monkeypatch.setattr("jobs.pipeline.confidential.stages.reader_of", scribble)
    assert judged(case, tmp_path) == ("half_written", "wrote x")


def test_datasets_without_a_manifest_are_half_written(case, tmp_path, monkeypatch) -> None:
    def part(*_: object, **__: object) -> None:
        folder = release_of(tmp_path / "out").counts("block")
        folder.mkdir(parents=True)
        (folder / "part-1").write_text("x")
        raise ConfigError("x", "refused")

    monkeypatch.setattr("jobs.pipeline.confidential.stages.reader_of", part)
    assert judged(case, tmp_path)[0] == "half_written"


def test_what_done_stages_cost_is_kept_by_a_command_that_fails(tmp_path: Path) -> None:
    out = tmp_path / "out"
    case = Case("folder", "", [], remakes=out)
    assert judge._left_behind(case, 2, {out / "summary.json"}) == ""
    assert judge._left_behind(case, 2, {out / "run.json"}) == "wrote run.json"


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
