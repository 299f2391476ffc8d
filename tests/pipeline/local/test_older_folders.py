"""What version 419f502 wrote counts: its grants, its draws, its half-measured and sealed runs.

The archive holds the folder of an office: a census and a survey that were run to the end under one
account; a census that was stopped after one geolevel, and a survey after its means, each with an
account beside its data.
"""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from das.errors import LedgerError
from tests.checkout import ROOT
from topdown_das import open_release

pytestmark = pytest.mark.usefixtures("here")

Das = Callable[..., tuple[int, str]]
WRITTEN = ROOT / "tests" / "data" / "releases" / "office-of-419f502.tar.xz"
OLD = "/tmp/office"


@pytest.fixture
def office(tmp_path: Path) -> Path:
    """The folder as if it had been written here: paths, chains of journals and times follow."""
    with tarfile.open(WRITTEN) as archive:
        archive.extractall(tmp_path, filter="data")
    office = tmp_path / "office"
    for path in [*office.rglob("*.json"), *office.rglob("*.jsonl")]:
        text = path.read_text()
        if OLD in text:
            moved = text.replace(OLD, str(office))
            path.write_text(chained(moved) if path.suffix == ".jsonl" else moved)
    for inputs in office.rglob("input.json"):
        for name, (_, changed) in json.loads(inputs.read_text()).items():
            os.utime(name, ns=(changed, changed))
    return office


def chained(text: str) -> str:
    lines, previous = [], ""
    for line in text.splitlines():
        own = json.dumps({**json.loads(line), "previous": previous})
        lines.append(own + "\n")
        previous = hashlib.sha256(own.encode() + b"\n").hexdigest()
    return "".join(lines)


def measured(office: Path, run: str) -> dict[str, bytes]:
    """The noisy answers that can be read."""
    root = office / run / "out" / "release" / "measurements"
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def drawn(account: Path) -> list[tuple[str, str]]:
    lines = map(json.loads, account.read_text().splitlines())
    return [(x["product"], x["geolevel"]) for x in lines if x.get("event") == "measured"]


def test_all_grants_count(office, das):
    for run in ("census", "survey"):
        code, said = das("account", office / run / "run.yaml", "--json")
        assert code == 0, said
        grants = {one["product"]: one["total"] for one in json.loads(said)["grants"]}
        assert grants == {"toy": "1", "survey": "4"}
        spent = [Fraction(one["total"]) for one in json.loads(said)["composed"]]
        assert sum(spent) == 5


@pytest.mark.parametrize("run", ["census", "survey"])
def test_a_sealed_release_is_verified_and_read(office, das, run, tmp_path):
    release = office / run / "out" / "release"
    for finished in (office / run / "run.yaml", release):
        code, said = das("verify", finished)
        assert code == 0, said
    assert das("inspect", release)[0] == 0
    assert das("verify", release, "--certificate", tmp_path / "page.html")[0] == 0
    if run == "census":
        assert open_release(release).verify()["families"] > 0


@pytest.mark.parametrize("run", ["census", "survey"])
def test_a_finished_run_draws_nothing_again(office, das, run):
    before, account = measured(office, run), drawn(office / "office.jsonl")
    for words in (("run", office / run / "out"), ("run", office / run / "run.yaml")):
        code, said = das(*words)
        assert code == 0, said
    code, said = das("run", office / run / "run.yaml", "--out", office / run / "again")
    assert code == LedgerError.exit_code
    assert "was spent by another run" in said
    assert measured(office, run) == before
    assert drawn(office / "office.jsonl") == account


@pytest.mark.parametrize(
    ("run", "data", "done", "rest"),
    [
        ("half", "records.csv", ["state"], ["county", "tract", "block"]),
        ("part", "persons.csv", ["income", "age"], ["synthesis"]),
    ],
)
def test_a_run_that_was_stopped_goes_on_and_draws_only_the_rest(office, das, run, data, done, rest):
    account = office / run / f"{data}.das-account.jsonl"
    assert [part for _, part in drawn(account)] == done
    before = measured(office, run)
    code, said = das("run", office / run / "out")
    assert code == 0, said
    assert [part for _, part in drawn(account)] == done + rest
    after = measured(office, run)
    assert {name: after[name] for name in before} == before
    code, said = das("verify", office / run / "run.yaml")
    assert code == 0, said


def test_a_partly_measured_survey_is_verified_as_it_was_sealed(office, das):
    code, said = das("verify", office / "part" / "out" / "release")
    assert code == 0, said
    assert json.loads(said)["parts"] == 2
