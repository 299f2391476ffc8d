"""Release and confidential files in two folders that share no parent of the run."""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.pipeline.config.load import load_run
from jobs.pipeline.folder.roots import OWNER
from jobs.pipeline.storage.layout import Roots
from tests.builders import toy
from tests.builders.places import truth_of
from tests.builders.survey import write_survey

Das = Callable[..., tuple[int, str]]


class Died(BaseException):
    """Stands for a process that is killed."""


def done(das: Das, *words: object) -> str:
    code, text = das(*words)
    assert code == 0, text
    return text


def refused(das: Das, *words: object) -> str:
    code, text = das(*words)
    assert code == 2, text
    return text


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def apart(folder: Path, **changes: Any) -> Path:
    toy.write_records(folder)
    return toy.configuration(folder, output__confidential=str(folder / "closed"), **changes)


def test_the_truth_lies_in_a_folder_of_its_own(tmp_path: Path, das: Das, here: None) -> None:
    config = apart(tmp_path)
    before = load_run(toy.configuration(tmp_path)).plan.digest
    config = apart(tmp_path)
    assert load_run(config).plan.digest == before, "where it lies changes no measurement"
    out, closed, own = tmp_path / "out", tmp_path / "closed", "products/persons"
    done(das, "validate", config)
    assert not out.exists()
    assert not closed.exists()
    printed = done(das, "run", config)
    assert f"{closed}/products/persons/report.html" in printed
    secret = {line.split()[0] for line in printed.splitlines() if line.endswith("CONFIDENTIAL")}
    assert secret == {f"{closed}/products/persons/report.html"}
    assert not (out / "confidential").exists()
    assert {f"{own}/evaluation.json", f"{own}/report.html", "input.json", OWNER} <= files(closed)
    assert any(name.startswith(f"{own}/histograms/") for name in files(closed))
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    assert not any(name.split("/")[-1] in ("evaluation.json", OWNER) for name in files(out))

    # What has the run folder alone finds the other.
    assert "complete" in done(das, "run", out)
    (closed / own / "report.html").unlink()
    assert f"{closed}/{own}/report.html" in done(das, "inspect", "--reports", out)
    assert str(closed) in done(das, "inspect", out)
    assert json.loads(done(das, "verify", config).splitlines()[-1])

    # It may move, and is then named.
    elsewhere = ("--confidential", tmp_path / "elsewhere")
    text = refused(das, "run", out, *elsewhere)
    assert "is not where the confidential files of this run lie" in text
    assert str(closed) in text
    shutil.move(closed, tmp_path / "moved")
    moved = ("--confidential", tmp_path / "moved")
    assert "complete" in done(das, "run", out, *moved)
    assert f"{tmp_path}/moved/{own}/report.html" in done(das, "evaluate", config, *moved)
    assert not closed.exists()

    # Another run does not get it.
    text = refused(das, "run", config, "--out", tmp_path / "second", *moved)
    assert "holds the confidential files of another run" in text
    assert not (tmp_path / "second" / "run.json").exists()
    third = ("--confidential", tmp_path / "third")
    done(das, "run", "--only", "measure", config, "--out", tmp_path / "second", *third)

    # A copy of the release needs neither.
    shutil.copytree(out / "release", tmp_path / "copy" / "release")
    done(das, "verify", tmp_path / "copy")


def test_a_folder_that_is_taken_over_gives_up_its_other_root(
    tmp_path: Path, das: Das, here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = apart(tmp_path)
    with monkeypatch.context() as patch:

        def stop(*_: object) -> None:
            raise Died

        patch.setattr("jobs.pipeline.run.refuse_damage", stop)
        with pytest.raises(Died):
            das("run", "--only", "measure", config)
    closed = truth_of(Roots.of(tmp_path / "out", tmp_path / "closed")).root
    (closed / "histograms").mkdir(parents=True)
    (closed / "histograms" / "left").write_text("of the other configuration")
    other = toy.configuration(
        tmp_path, privacy__rho="2", output__confidential=str(tmp_path / "other")
    )
    done(das, "run", "--only", "measure", other)
    assert not closed.exists()
    assert (tmp_path / "other" / "products" / "persons" / "histograms").is_dir()
    assert stat.S_IMODE((tmp_path / "other").stat().st_mode) == 0o700


WRONG = {
    "in the run folder": ("out/closed", "output.confidential", "one lies in the run folder"),
    "in the release": ("out/release/closed", "output.confidential", "one lies in the run folder"),
    "in a solution": ("out/solutions/x", "output.confidential", "one lies in the run folder"),
    "around the run folder": (".", "output.confidential", "lies in what must not be published"),
    "the run folder": ("out", "output.confidential", "one lies in the run folder"),
}


@pytest.mark.parametrize("command", ["validate", "run"])
@pytest.mark.parametrize("case", WRONG)
def test_roots_in_each_other_are_refused(
    tmp_path: Path, das: Das, here: None, case: str, command: str
) -> None:
    where, key, reason = WRONG[case]
    toy.write_records(tmp_path)
    config = toy.configuration(tmp_path, output__confidential=str(tmp_path / where))
    before = files(tmp_path)
    text = refused(das, command, config)
    assert key in text
    assert reason in text
    assert files(tmp_path) == before
    assert not (tmp_path / "out").exists()
    done(das, "validate", toy.configuration(tmp_path))


@pytest.mark.parametrize("command", ["validate", "run"])
@pytest.mark.parametrize("root", ["out", "closed"])
@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("privacy__account", "account.jsonl"),
        ("data__path", "release/records.csv"),
        ("geography__geounits", "blocks.csv"),
    ],
)
def test_what_a_run_file_names_lies_in_neither_root(
    tmp_path: Path, das: Das, here: None, key: str, name: str, root: str, command: str
) -> None:
    place = str(tmp_path / root / name)
    config = apart(tmp_path, **{key: {"path": place} if key.startswith("geo") else place})
    text = refused(das, command, config)
    assert key.replace("__", ".") in text
    assert "lies in the folder of the run" in text
    assert not (tmp_path / "out").exists()


def test_a_folder_with_other_files_is_no_confidential_root(
    tmp_path: Path, das: Das, here: None
) -> None:
    config = apart(tmp_path)
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed" / "thesis.txt").write_text("mine")
    for command in ("validate", "run"):
        text = refused(das, command, config)
        assert "is not empty and is not the folder of a run" in text
        assert "choose another output.confidential" in text
    assert files(tmp_path / "closed") == {"thesis.txt"}
    done(das, "validate", toy.configuration(tmp_path, output__confidential=str(tmp_path / "new")))
    assert not (tmp_path / "out" / "run.json").exists()


def test_a_survey_has_two_roots_as_well(
    tmp_path: Path, das: Das, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_survey(tmp_path)
    config.write_text(f"{config.read_text()}  confidential: {tmp_path / 'closed'}\n")
    done(das, "validate", config)
    done(das, "run", config)
    out, closed = tmp_path / "out", tmp_path / "closed"
    assert {
        "evaluation.json",
        "report.html",
        "input.json",
        OWNER,
    } <= files(closed)
    assert not (out / "confidential").exists()
    assert f"{closed}/report.html" in done(das, "inspect", "--reports", out)
    done(das, "run", out)
    shutil.move(closed, tmp_path / "moved")
    done(das, "run", out, "--confidential", tmp_path / "moved")
