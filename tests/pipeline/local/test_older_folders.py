"""What older versions wrote counts: their grants, their draws, their half-measured and finalized runs.

The archive of version 419f502 holds the folder of an office: a census and a survey that were run to
the end under one account; a census that was stopped after one geolevel, and a survey after its
means, each with an account beside its data. That of version 41504c1 holds two runs of persons and
units, `whole` and `half`. In both the last product lies in the folder of the release itself.
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
WRITTEN = ROOT / "tests" / "data" / "releases"


@pytest.fixture
def office(tmp_path: Path) -> Path:
    return unpacked("office-of-419f502", tmp_path)


@pytest.fixture
def twins(tmp_path: Path) -> Path:
    return unpacked("twins-of-41504c1", tmp_path)


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
    for run in ("census", "survey"):
        code, said = das("account", office / run / "run.yaml", "--json")
        assert code == 0, said
        grants = {one["product"]: one["total"] for one in json.loads(said)["grants"]}
        assert grants == {"toy": "1", "survey": "4"}
        spent = [Fraction(one["total"]) for one in json.loads(said)["composed"]]
        assert sum(spent) == 5


@pytest.mark.parametrize("run", ["census", "survey"])
def test_a_finalized_release_is_verified_and_read(office, das, run, tmp_path):
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


def test_a_partly_measured_survey_is_verified_as_it_was_finalized(office, das):
    code, said = das("verify", office / "part" / "out" / "release")
    assert code == 0, said
    assert json.loads(said)["parts"] == 2


def files_of(release: Path) -> dict[str, bytes]:
    """What lies in a release, but for reports."""
    found = (path for path in release.rglob("*") if path.is_file() and path.name != "report.html")
    return {str(path.relative_to(release)): path.read_bytes() for path in found}


def test_two_products_stay_where_they_are_and_are_used_by_all_commands(twins, das, tmp_path):
    folder, page = twins / "whole", tmp_path / "page.html"
    config, out, release = folder / "run.yaml", folder / "out", folder / "out" / "release"
    before, account = files_of(release), folder / "records.csv.das-account.jsonl"
    drawn_before = drawn(account)
    for words in (
        *(("verify", config), ("verify", release), ("run", out), ("run", config)),
        *(("evaluate", config), ("inspect", "--reports", out), ("inspect", "--reports", release)),
        ("inspect", release),
        ("inspect", out, "--geounit", "99", "--product", "units"),
        ("verify", release, "--product", "units", "--certificate", page),
        ("tables", release, "--product", "units", "--to", tmp_path / "tables"),
        ("estimate", release, "--query", "sex", "--geounit", "99"),
        ("areas", release, "--geolevel", "county"),
        ("explore", release, "--product", "units", "-o", page),
    ):
        code, said = das(*words)
        assert code == 0, (words, said)
    assert files_of(release) == before
    assert (release / "units" / "report.html").exists()
    assert open_release(release, product="units").verify()["families"] > 0
    code, said = das("replicate", out, "--count", 1)
    assert code == 0, said
    assert das("verify", release)[0] == 0
    (release / "units" / "notes.txt").write_text("of somebody")
    assert "units/notes.txt: lies in the release" in das("verify", release)[1]
    assert drawn(account) == drawn_before


def test_another_solution_of_two_products_has_a_folder_for_each(twins, das):
    folder = twins / "whole"
    other = folder / "other.yaml"
    text = (folder / "run.yaml").read_text()
    other.write_text(text.replace("microdata:\n      - csv", "microdata: []"))
    assert other.read_text() != text
    for words in (("run", "--only", "solve", other), ("verify", other), ("evaluate", other)):
        code, said = das(*words, "--solution", "own")
        assert code == 0, said
    own = folder / "out" / "solutions" / "own"
    assert {path.name for path in (own / "products").iterdir()} == {"units", "persons"}
    assert das("verify", own)[0] == 0
    assert das("inspect", "--reports", folder / "out", "--solution", "own")[0] == 0


def test_two_products_of_which_one_is_half_measured_go_on(twins, das):
    folder = twins / "half"
    account = folder / "records.csv.das-account.jsonl"
    done = [("units", level) for level in ("state", "county", "tract", "block")]
    done += [("toy", "state"), ("toy", "county")]
    assert drawn(account) == done
    before = measured(twins, "half")
    code, said = das("run", folder / "out")
    assert code == 0, said
    assert drawn(account) == [*done, ("toy", "tract"), ("toy", "block")]
    assert before.items() <= measured(twins, "half").items()
    for finished in (folder / "run.yaml", folder / "out" / "release"):
        code, said = das("verify", finished)
        assert code == 0, said
