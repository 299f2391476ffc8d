"""`das compare`: a release beside its exports, official files, and tables of others."""

from __future__ import annotations

import csv
import json
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.design.synthetic.generate import GenerateSpec
from tests.builders import toy
from tests.builders.exports import write_state
from tests.builders.in_process import execute
from tests.checkout import ROOT
from tests.pipeline.local.test_spines import BOTH, ON_BOTH, configured

Das = Callable[..., tuple[int, str]]
_OFFICIAL = ROOT / "tests" / "data" / "ri_2018_e2e.pl.zip"


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of persons of the redistricting schema, and units."""
    folder = tmp_path_factory.mktemp("compare")
    spec = GenerateSpec(blocks=40, seed=15, format="records")
    return execute(write_state(folder, spec)) / "release"


def compared(das: Das, *arguments: object) -> dict[tuple[str, str], dict[str, Any]]:
    """Run the command; return the measures by geolevel and table."""
    code, printed = das("compare", *arguments, "--json", "--quiet")
    assert code == 0, printed
    rows = json.loads(printed.splitlines()[-1])["tables"]
    return {(row["geolevel"], row["table"]): row for row in rows}


@pytest.mark.parametrize(
    ("layout", "options"), [("pl94", []), ("pl94", ["--zip"]), ("ppmf", []), ("wide", [])]
)
def test_a_release_equals_its_exports(
    state: Path, das: Das, tmp_path: Path, layout: str, options: list[str]
) -> None:
    to = tmp_path / layout
    assert das("export", state, "--as", layout, "--to", to, *options)[0] == 0
    tables = ("P001", "P002", "H001")
    wanted = [text for name in tables for text in ("--table", name)]
    rows = compared(das, state, to, *wanted)
    geolevels = dict.fromkeys(geolevel for geolevel, _ in rows)
    assert [*geolevels][-5:] == ["state", "county", "tract", "block_group", "block"]
    places = {"state": 1, "block": 40}
    for (geolevel, table), row in rows.items():
        assert row["largest"] == row["mean_absolute"] == row["mean"] == 0, (geolevel, table)
        assert row["inside"] > 60  # the shipped budget is large; released counts are near estimates
        if layout != "ppmf":  # files of records have no line for an empty block
            assert row["only_ours"] == row["only_theirs"] == 0
            assert row["geounits"] == places.get(geolevel, row["geounits"])


def test_differences_are_measured_and_named(state: Path, das: Das, tmp_path: Path) -> None:
    assert das("export", state, "--as", "wide", "--to", tmp_path / "wide")[0] == 0
    with (tmp_path / "wide" / "wide_block.csv").open(newline="") as file:
        rows = [{name: row[name] for name in ("GEOID", "P0010001")} for row in csv.DictReader(file)]
    # Theirs are our blocks but one, another place, and counts of which two differ.
    rows, gone = rows[:-1], rows[-1]
    before = [int(row["P0010001"]) for row in rows]
    rows[0]["P0010001"], rows[1]["P0010001"] = str(before[0] + 7), str(before[1] - 3)
    rows.append({"GEOID": "999999999999999", "P0010001": "5"})
    theirs = tmp_path / "theirs.csv"
    with theirs.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["GEOID", "P0010001"])
        writer.writeheader()
        writer.writerows(rows)
    layout = tmp_path / "own.yaml"
    layout.write_text(json.dumps(TOTAL))
    out, page = tmp_path / "rows.csv", tmp_path / "page.html"
    options = ("--as", layout, "--output", out, "--page", page)
    code, printed = das("compare", state, theirs, *options)
    assert code == 0, printed
    assert "block" in printed
    row = compared(das, state, theirs, "--as", layout)["block", "P001"]
    n = len(before)
    assert (row["geounits"], row["only_ours"], row["only_theirs"]) == (n, 1, 1)
    assert row["mean"] == pytest.approx(-4 / n)
    assert row["mean_absolute"] == pytest.approx(10 / n)
    assert row["root_mean_square"] == pytest.approx((58 / n) ** 0.5)
    assert (row["largest"], row["quantile_90"]) == (7, 0)
    assert sum(each["answers"] for each in row["by_size"].values()) == n
    with out.open(newline="") as file:
        joined = {each["geocode"]: each for each in csv.DictReader(file)}
    assert len(joined) == n
    assert gone["GEOID"] not in joined
    changed = joined[rows[0]["GEOID"]]
    assert (changed["difference"], changed["theirs"]) == ("-7", str(before[0] + 7))
    assert float(changed["lower"]) <= float(changed["estimate"]) <= float(changed["upper"])
    text = page.read_text()
    assert rows[0]["GEOID"] in text
    assert rows[5]["GEOID"] not in text  # only places that differ are named


def test_official_files_have_rows_of_other_geolevels(das: Das, tmp_path: Path) -> None:
    """A district whose code is as long as that of a county, even equal to it, is left out."""
    levels = Counter[str]()
    with zipfile.ZipFile(_OFFICIAL) as archive:
        for name in sorted(archive.namelist(), reverse=True):  # the header first
            lines = archive.read(name).decode("latin-1").splitlines()
            rows = [line.split("|") for line in lines]
            if "geo" in name:
                levels.update(row[2] for row in rows)
                county = next(place for place, row in enumerate(rows) if row[2] == "050")
                number = rows[county][7]
            place = next(at for at, row in enumerate(rows) if number in (row[4], row[7]))
            district = lines[place].replace(number, "9999999").replace("|050|", "|500|")
            text = "\n".join([*lines, district]) + "\n"
            (tmp_path / Path(name).name).write_text(text, encoding="latin-1")
    rows = compared(das, tmp_path, _OFFICIAL, "--table", "P001")
    assert [geolevel for geolevel, _ in rows] == [f"{n} digits" for n in (2, 5, 11, 12, 15)]
    wanted = [levels[code] for code in ("040", "050", "140", "150", "750")]
    assert [row["geounits"] for row in rows.values()] == wanted
    assert all(row["largest"] == 0 and row["inside"] is None for row in rows.values())


def test_blocks_that_the_measurements_do_not_have_are_read_as_others(
    das: Das, tmp_path: Path
) -> None:
    """A person on water, in the published block and in the block of the measurements."""
    header = "TABBLKST,TABBLKCOU,TABTRACTCE,TABBLKGRPCE,TABBLK,RTYPE,GQTYPE_PL,VOTING_AGE,CENHISP,CENRACE"
    for name, block in (("theirs", "970800,3,3004"), ("ours", "990100,0,0001")):
        (tmp_path / f"{name}.csv").write_text(f"{header}\n45,029,{block},3,0,2,1,01\n")
    rows = compared(das, tmp_path / "ours.csv", tmp_path / "theirs.csv", "--table", "P001")
    assert {row["only_ours"] for row in rows.values()} == {0}
    assert rows["15 digits", "P001"]["geounits"] == 1


TOTAL: dict[str, Any] = {
    "name": "own",
    "source": "tests",
    "endings": [".csv"],
    "split": {"name": "geolevel", "text": "{geolevel}"},
    "zip": "own.zip",
    "tables": {"P001": {"variables": 1, "queries": [["total"]]}},
    "files": [
        {
            "name": "own_{geolevel}",
            "columns": [{"name": "GEOID", "text": "{geocode}"}],
            "tables": ["P001"],
        }
    ],
}
"""A layout of one variable, which any release can fill."""


def test_records_that_lie_with_tables_are_not_read_as_tables(das: Das, tmp_path: Path) -> None:
    """Both have a column of geocodes."""
    people = {
        "name": "people",
        "columns": [*TOTAL["files"][0]["columns"], {"name": "SEX", "axis": ["sex"]}],
    }
    layout, folder = tmp_path / "own.yaml", tmp_path / "files"
    layout.write_text(json.dumps({**TOTAL, "files": [*TOTAL["files"], people]}))
    folder.mkdir()
    (folder / "places.csv").write_text("GEOID,P0010001\n01,5\n02,3\n")
    (folder / "people.csv").write_text("GEOID,SEX\n01,female\n")
    rows = compared(das, folder, folder / "places.csv", "--as", layout)
    assert rows["2 digits", "P001"]["geounits"] == 2


def test_releases_on_different_spines_are_compared_by_census_geocodes(
    state: Path, das: Das, here: None, tmp_path: Path
) -> None:
    """One on a designed spine, one without intervals; a third is of other places."""
    layout = tmp_path / "ages.yaml"
    ages = {"A": {"variables": 3, "queries": ["age"]}}
    layout.write_text(json.dumps({**TOTAL, "tables": ages, "files": []}))
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    ours = execute(configured(tmp_path / "ours", BOTH, ON_BOTH)) / "release"
    toy.write_records(tmp_path / "theirs")
    lazy = {"privacy__on_demand_queries": ["detailed"], "solve": {"fit_to": "level"}}
    theirs = execute(toy.configuration(tmp_path / "theirs", **lazy)) / "release"
    for sides in ((ours, theirs), (theirs, ours)):
        rows = compared(das, *sides, "--as", layout, "--page", tmp_path / "page.html")
        assert [geolevel for geolevel, _ in rows] == [*toy.LEVELS]
        assert all(row["only_ours"] == row["only_theirs"] == 0 for row in rows.values())
        without = {level for (level, _), row in rows.items() if row["inside"] is None}
        assert without == ({*toy.LEVELS} if sides[0] == theirs else set())
    layout.write_text(json.dumps(TOTAL))
    code, printed = das("compare", ours, state, "--as", layout)
    assert code == 2
    assert "has no geocode that is in both sides" in printed


# --- refusals -------------------------------------------------------------------------------------


def test_microdata_of_another_vintage_are_refused(state: Path, das: Das, tmp_path: Path) -> None:
    """Older files name the tract TABTRACT; nothing is guessed."""
    assert das("export", state, "--as", "ppmf", "--to", tmp_path)[0] == 0
    path = tmp_path / "ppmf_person_01.csv"
    old = tmp_path / "old.csv"
    old.write_text(path.read_text().replace("TABTRACTCE", "TABTRACT", 1))
    code, printed = das("compare", state, old)
    assert code == 2
    assert "old.csv: holds no files of a known layout" in printed
    assert "'TABTRACT'" in printed
    assert "'TABTRACTCE'" in printed
    wrong = tmp_path / "wrong.csv"
    lines = path.read_text().splitlines()
    wrong.write_text("\n".join([*lines, lines[1][: lines[1].rindex(",")] + ",99"]))
    code, printed = das("compare", state, wrong, "--table", "P001")
    assert code == 2
    assert "CENRACE: has an unknown code; got 99" in printed
    newer = path.read_text().replace("demo-units", "another run")
    for text in (newer, newer.replace("another run,", "demo-units,", 1)):
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        (folder / "one.csv").write_text(path.read_text())
        (folder / "two.csv").write_text(text)
        code, printed = das("compare", state, folder, "--table", "P001")
        assert code == 2
        assert "has records of two editions; got ['another run', 'demo-units']" in printed
    rows = compared(das, path, path, "--table", "P002")
    assert [geolevel for geolevel, _ in rows] == [f"{n} digits" for n in (2, 5, 11, 12, 15)]
    assert all(row["largest"] == 0 for row in rows.values())


def test_too_many_rows_are_refused_and_chosen_ones_written(
    das: Das, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.analysis.compare.compare._MOST_ROWS", 700)
    words = ("compare", _OFFICIAL, _OFFICIAL, "--output", tmp_path / "rows.parquet")
    code, printed = das(*words)
    assert code == 2
    assert "choose with --table and --geolevel" in printed
    assert das(*words, "--table", "H001", "--geolevel", "11 digits")[0] == 0


def test_unknown_places_tables_and_files_are_refused(state: Path, das: Das, tmp_path: Path) -> None:
    for arguments, message in (
        ((state, _OFFICIAL), "has no geocode that is in both sides; got {'ours': ['01']"),
        ((state, tmp_path / "none.csv"), "none.csv: does not exist"),
        ((_OFFICIAL, _OFFICIAL, "--table", "P9"), "--table: is not in both sides; got P9"),
        (
            (_OFFICIAL, _OFFICIAL, "--geolevel", "tract"),
            "--geolevel: is not in both sides; got tract",
        ),
    ):
        code, printed = das("compare", *arguments)
        assert code == 2
        assert message in printed
    for text, message in (
        ("GEOID,P0010001\n01,5\n", "has no table that both sides have"),
        ("GEOID,H0010001,H0010002,H0010003\n01,5,,1\n", "row 2, H0010002: has no value"),
        ("GEOID,H0010001,H0010002,H0010003\n01,5,4,1\n01,5,4,1\n", "has a geocode twice"),
        (
            "GEOID,H0010001,H0010001,H0010002,H0010003\n01,5,5,4,1\n",
            "has a column twice; got ['H0010001']",
        ),
        (
            "GEOID,H0010001,H0010002,H0010003\n01,5,4\n",
            "row 2: has the wrong number of fields; got 3",
        ),
        ("GEOID,H0010001,H0010002,H0010003\n\n", "is empty"),
        ("GEOID,H0010001,H0010002,H0010003\n01,many,4,1\n", "row 2, H0010001: is not a number"),
    ):
        theirs = tmp_path / "theirs.csv"
        theirs.write_text(text)
        code, printed = das("compare", state, theirs)
        assert code == 2
        assert message in printed, text


def test_damaged_and_endless_zips_are_refused(das: Das, tmp_path: Path) -> None:
    """The start of an official zip, a zip with a damaged file, and 64 MB in one line."""
    whole, path = _OFFICIAL.read_bytes(), tmp_path / "a.zip"
    path.write_bytes(whole[: len(whole) // 2])
    code, printed = das("compare", _OFFICIAL, path)
    assert code == 2
    assert "a.zip: is not a readable zip file; got BadZipFile" in printed
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + bytes(300) + whole[middle + 300 :])
    code, printed = das("compare", _OFFICIAL, path)
    assert code == 2
    assert ".pl: cannot be read" in printed
    for head in ("", "GEOID,H0010001,H0010002,H0010003\n"):
        with (
            zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
            archive.open("theirs.csv", "w") as file,
        ):
            file.write(head.encode())
            for _ in range(64):
                file.write(b"1" * (1 << 20))
        code, printed = das("compare", path, path, "--as", "wide")
        assert code == 2
        row = 2 if head else 1
        assert f"theirs.csv, row {row}: has a line that does not end" in printed
