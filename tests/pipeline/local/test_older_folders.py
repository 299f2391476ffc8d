"""What an older version spent counts, and its folders are refused by the format of their run files.

The archive of version 419f502 holds the folder of an office: a census and a survey that were run to
the end under one account; a census that was stopped after one geolevel, and a survey after its
means, each with an account beside its data.
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

from das.errors import ConfigError
from tests.builders import toy
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


def test_all_grants_count(office, das, tmp_path):
    config = toy.configuration(tmp_path, privacy__account=str(office / "office.jsonl"))
    code, said = das("account", config, "--json")
    assert code == 0, said
    grants = {one["product"]: one["total"] for one in json.loads(said)["grants"]}
    assert grants == {"toy": "1", "survey": "4"}
    spent = [Fraction(one["total"]) for one in json.loads(said)["composed"]]
    assert sum(spent) == 5


@pytest.mark.parametrize("run", ["census", "half", "survey", "part"])
def test_a_folder_of_an_older_format_is_refused_and_draws_nothing(office, das, run):
    """A census of format 1 or 2, a survey of format 1."""
    before = {path: path.read_bytes() for path in office.rglob("*") if path.is_file()}
    folder = office / run
    for words in (("run", folder / "out"), ("run", folder / "run.yaml")):
        code, said = das(*words)
        assert code == ConfigError.exit_code, said
        assert "format: Input should be 3" in said
    for path in (folder / "out" / "release", folder / "run.yaml"):
        code, said = das("verify", path)
        assert code == 2, said
    assert {path: path.read_bytes() for path in before} == before
