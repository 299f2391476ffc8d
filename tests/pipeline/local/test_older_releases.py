"""A release that an older version finalized is read as it was, and one of a later version is refused."""

from __future__ import annotations

import csv
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.checkout import ROOT
from topdown_das import open_release

Das = Callable[..., tuple[int, str]]

FINALIZED = ROOT / "tests" / "data" / "releases" / "wide-tables.tar.xz"


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """A release of invented persons in four places, with tables of a row per geounit."""
    with tarfile.open(FINALIZED) as archive:
        archive.extractall(tmp_path / "older", filter="data")
    return tmp_path / "older"


def wide_tables(older: Path) -> dict[str, dict[str, str]]:
    """The only table that it has of places, by geocode."""
    (path,) = (older / "tables" / "level=place").glob("*.csv")
    with path.open(newline="") as handle:
        return {row["geocode"]: row for row in csv.DictReader(handle)}


def test_every_command_on_releases_reads_it(das: Das, older: Path, tmp_path: Path) -> None:
    assignment, out = tmp_path / "assignment.csv", tmp_path / "out"
    assignment.write_text("area,geocode\nwest,11\nwest,12\n")
    wide = wide_tables(older)
    assert {column for row in wide.values() for column in row} == {
        "geocode", "total", "detailed: female", "detailed: male"
    }  # fmt: skip
    for words in (
        ("verify", older),
        ("inspect", older),
        ("estimate", older, "--query", "sex", "--geolevel", "place"),
        ("areas", older, "--assign", assignment, "--output", tmp_path / "areas.csv"),
        ("tables", older, "--table", "sex", "--geolevel", "place", "--to", out),
        ("inspect", "--reports", older, "--to", out),
        ("verify", older, "--certificate", out / "certificate.html"),
        ("explore", older, "-o", out / "explore.html"),
    ):
        code, said = das(*words)
        assert code == 0, (words, said)
    (path,) = (out / "level=place").glob("*.csv")
    with path.open(newline="") as handle:
        made = {(row["geocode"], row["sex"]): row["count"] for row in csv.DictReader(handle)}
    assert made == {
        (code, sex): row[f"detailed: {sex}"]
        for code, row in wide.items()
        for sex in ("female", "male")
    }
    assert "The protected counts of detailed, by label." in (out / "report.html").read_text()
    totals = open_release(older).table("total", "place").to_pylist()
    assert {row["geocode"]: str(row["count"]) for row in totals} == {
        code: row["total"] for code, row in wide.items()
    }


def test_a_wide_table_that_was_changed_is_found(das: Das, older: Path) -> None:
    (path,) = (older / "tables" / "level=place").glob("*.csv")
    path.write_text(path.read_text().replace('"22",0,', '"22",1,'))
    code, said = das("verify", older)
    assert code != 0
    assert path.name in said


@pytest.mark.parametrize("words", [("verify",), ("estimate", "--query", "sex", "--geounit", "11")])
def test_a_release_of_a_format_that_is_not_known_is_refused_by_name(
    das: Das, older: Path, words: tuple[str, ...]
) -> None:
    manifest = json.loads((older / "manifest.json").read_text())
    (older / "manifest.json").write_text(json.dumps({**manifest, "format": 4}))
    code, said = das(words[0], older, *words[1:])
    assert code == 2, said
    assert "manifest.json" in said
    assert "is of a format that this version does not read; expected 3" in said
