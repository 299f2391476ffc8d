"""What older versions wrote counts: their grants, and what they drew of surveys.

The archive of version 419f502 holds the folder of an office: a census and a survey that were run to
the end under one account; a census that was stopped after one geolevel, and a survey after its
means, each with an account beside its data. The product of a census lies in the folder of the
release itself, in files of older formats: such a folder is refused, and nothing is drawn again.
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

from das.errors import LedgerError, OutputError
from tests.checkout import ROOT

pytestmark = pytest.mark.usefixtures("here")

Das = Callable[..., tuple[int, str]]
WRITTEN = ROOT / "tests" / "data" / "releases"


@pytest.fixture
def office(tmp_path: Path) -> Path:
    return unpacked("office-of-419f502", tmp_path)


def unpacked(name: str, folder: Path) -> Path:
    """The folder as if it had been written here: paths, chains of journals and times follow."""
    with tarfile.open(WRITTEN / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    root = folder / name.partition("-")[0]
    old = f"/tmp/{root.name}"
    for path in [*root.rglob("*.json"), *root.rglob("*.jsonl")]:
        text = path.read_text()
        if old in text:
            moved = text.replace(old, str(root))
            path.write_text(chained(moved) if path.suffix == ".jsonl" else moved)
    for draws in root.rglob("draws.jsonl"):
        draws.write_text(chained(seen_again(draws)))
    for inputs in root.rglob("input.json"):
        for name, (_, changed) in json.loads(inputs.read_text()).items():
            os.utime(name, ns=(changed, changed))
    return root


def seen_again(draws: Path) -> str:
    """What a run folder remembers, with the digests that lines of its account have now."""
    account = Path(json.loads(draws.with_name("run.json").read_text())["account"])
    digests = [hashlib.sha256(line).hexdigest() for line in account.read_bytes().splitlines(True)]
    lines = []
    for line in map(json.loads, draws.read_text().splitlines()):
        if "account_sha256" in line:
            line["account_sha256"] = digests[line["account_lines"] - 1]
        lines.append(json.dumps(line) + "\n")
    return "".join(lines)


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
    code, said = das("account", office / "survey" / "run.yaml", "--json")
    assert code == 0, said
    grants = {one["product"]: one["total"] for one in json.loads(said)["grants"]}
    assert grants == {"toy": "1", "survey": "4"}
    spent = [Fraction(one["total"]) for one in json.loads(said)["composed"]]
    assert sum(spent) == 5


@pytest.mark.parametrize("run", ["census", "half"])
def test_a_census_of_another_layout_is_refused_by_its_version(office, das, run):
    before = measured(office, run)
    accounts = {path: path.read_bytes() for path in office.rglob("*.jsonl")}
    for words in (("run", office / run / "out"), ("run", office / run / "run.yaml")):
        code, said = das(*words)
        assert code == OutputError.exit_code, said
        assert "was begun by a version before 0.2.0, in another layout" in said
    assert measured(office, run) == before
    assert {path: path.read_bytes() for path in accounts} == accounts
    assert das("verify", office / run / "out" / "release")[0] == OutputError.exit_code


def test_a_finalized_survey_is_verified_and_draws_nothing_again(office, das, tmp_path):
    survey = office / "survey"
    for finished in (survey / "run.yaml", survey / "out" / "release"):
        code, said = das("verify", finished)
        assert code == 0, said
    before, account = measured(office, "survey"), drawn(office / "office.jsonl")
    for run in (survey / "out", survey / "run.yaml"):
        code, said = das("run", run)
        assert code == 0, said
    code, said = das("run", survey / "run.yaml", "--out", survey / "again")
    assert code == LedgerError.exit_code
    assert "was spent by another run" in said
    assert measured(office, "survey") == before
    assert drawn(office / "office.jsonl") == account


def test_a_survey_that_was_stopped_goes_on_and_draws_only_the_rest(office, das):
    part = office / "part"
    account = part / "persons.csv.das-account.jsonl"
    assert [name for _, name in drawn(account)] == ["income", "age"]
    before = measured(office, "part")
    code, said = das("run", part / "out")
    assert code == 0, said
    assert [name for _, name in drawn(account)] == ["income", "age", "synthesis"]
    after = measured(office, "part")
    assert {name: after[name] for name in before} == before
    code, said = das("verify", part / "run.yaml")
    assert code == 0, said


def test_a_partly_measured_survey_is_verified_as_it_was_finalized(office, das):
    code, said = das("verify", office / "part" / "out" / "release")
    assert code == 0, said
    assert json.loads(said)["parts"] == 2
