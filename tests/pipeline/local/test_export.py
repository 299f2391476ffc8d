"""`das export`: releases in the layouts of others, read back by the readers of those layouts."""

from __future__ import annotations

import csv
import json
import shutil
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from jobs.design.synthetic.generate import GenerateSpec
from tests.builders import toy
from tests.builders.exports import (
    read_microdata,
    read_redistricting,
    redistricting_counts,
    released,
    write_state,
)
from tests.builders.in_process import execute
from tests.builders.places import product_in
from tests.checkout import ROOT
from tests.pipeline.local.test_spines import BOTH, ON_BOTH, configured
from topdown_das import open_release

Das = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of two small states: persons of the redistricting schema, and units."""
    spec = GenerateSpec(blocks=50, states=2, seed=15, format="records")
    return execute(write_state(tmp_path_factory.mktemp("export"), spec)) / "release"


@pytest.fixture(scope="module")
def villages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of the toy state, whose geocodes have ten digits and whose spine is designed."""
    return execute(configured(tmp_path_factory.mktemp("toy"), BOTH, ON_BOTH)) / "release"


@pytest.mark.parametrize("zipped", [False, True])
def test_redistricting_files_give_the_same_histograms(
    state: Path, das: Das, tmp_path: Path, zipped: bool
) -> None:
    """The project's reader of the official files reads back what was released, state by state."""
    code, printed = das(
        "export", state, "--as", "pl94", "--to", tmp_path / "pl", *["--zip"] * zipped
    )
    assert code == 0, printed
    names = sorted(path.name for path in (tmp_path / "pl").iterdir())
    kinds = ["000012020.pl", "000022020.pl", "000032020.pl", "geo2020.pl"]
    files = [f"{name}{kind}" for name in ("ak", "al") for kind in kinds]
    assert names == (["ak2020.pl.zip", "al2020.pl.zip"] if zipped else files)

    want = redistricting_counts(state)
    assert read_redistricting(tmp_path / "pl") == want
    assert all(sum(counts["n"].to_pylist()) for counts in want.values())
    assert {block[:2] for block in want["persons"]["geocode"].to_pylist()} == {"01", "02"}
    assert {*want["group_quarters"]["cell"].to_pylist()} == {0, 3, 7}


def test_geographic_header_names_every_geounit(state: Path, das: Das, tmp_path: Path) -> None:
    assert das("export", state, "--as", "pl94", "--to", tmp_path)[0] == 0
    documented = json.loads((ROOT / "tests" / "data" / "layouts_2020.json").read_text())
    lines = (tmp_path / "algeo2020.pl").read_text(encoding="latin-1").splitlines()
    names = documented["{state}geo2020"]
    rows = [dict(zip(names, line.split("|"), strict=True)) for line in lines]
    assert [row["LOGRECNO"] for row in rows] == [f"{n:07d}" for n in range(1, len(rows) + 1)]
    levels = [row["SUMLEV"] for row in rows]
    assert [*dict.fromkeys(levels)] == ["040", "050", "140", "150", "750"] == sorted({*levels})
    block = rows[-1]
    assert block["GEOID"] == f"7500000US{block['GEOCODE']}"
    parts = [block[name] for name in ("STATE", "COUNTY", "TRACT", "BLOCK")]
    assert "".join(parts) == block["GEOCODE"]
    assert (block["BLKGRP"], block["STUSAB"]) == (block["BLOCK"][0], "AL")
    counts = released(state).to_pylist()
    in_state = [row["n"] for row in counts if row["geocode"].startswith("01")]
    assert int(rows[0]["POP100"]) == sum(in_state)
    assert rows[0]["COUNTY"] == rows[1]["BLOCK"] == ""
    for segment in ("1", "2", "3"):
        width = len(documented[f"{{state}}0000{segment}2020"])
        for line in (tmp_path / f"al0000{segment}2020.pl").read_text().splitlines():
            assert line.count("|") == width - 1


def test_microdata_files_give_the_same_histograms(state: Path, das: Das, tmp_path: Path) -> None:
    """A reader of records reads back persons and units by the codes of the layout."""
    assert das("export", state, "--as", "ppmf", "--to", tmp_path)[0] == 0
    assert read_microdata(tmp_path) == released(state)
    units = Counter[str]()
    for path in tmp_path.glob("ppmf_unit_*.csv"):
        with path.open(newline="") as file:
            units.update(row["RTYPE"] + row["HH_STATUS"] for row in csv.DictReader(file))
    by_level = Counter[int]()
    for row in released(state, "units").to_pylist():
        by_level[row["cell"]] += row["n"]
    others = sum(n for cell, n in by_level.items() if cell > 1)
    assert units == Counter({"21": by_level[0], "22": by_level[1], "40": others})
    header = next(tmp_path.glob("ppmf_person_*.csv")).read_text().splitlines()[0]
    assert header.startswith("VINTAGE,TABBLKST,")  # without quotation marks, as published


def test_wide_table_has_the_estimates_and_intervals_of_the_release(
    state: Path, das: Das, tmp_path: Path
) -> None:
    assert das("export", state, "--as", "wide", "--to", tmp_path, "--leave-out", "P003")[0] == 0
    release = open_release(state)
    hispanic = "total where hispanic=hispanic"
    for geolevel in ("county", "block"):
        table = pq.read_table(tmp_path / f"wide_{geolevel}.parquet").to_pandas()
        table = table.set_index("GEOID").sort_index()
        want = release.estimates(hispanic, geolevel).to_pandas().set_index("area").sort_index()
        assert [*table.index] == [*want.index]
        for name in ("estimate", "lower", "upper"):
            np.testing.assert_allclose(table[f"P0020002_{name}"], want[name], atol=6e-4)
        counts = release.table(hispanic, geolevel).to_pandas().set_index("geocode").sort_index()
        np.testing.assert_array_equal(table["P0020002"], counts["count"])
        assert "P0030001" not in table
        assert "P0040001" in table
        with (tmp_path / f"wide_{geolevel}.csv").open(newline="") as file:
            rows = {row["GEOID"]: row for row in csv.DictReader(file)}
        for code, row in rows.items():
            assert float(row["H0010002_upper"]) == table["H0010002_upper"][code]
    units = open_release(state, product="units").table("occupancy", "county").to_pandas()
    occupied = units[units["occupancy"] == "occupied"].set_index("geocode")["count"]
    table = pq.read_table(tmp_path / "wide_county.parquet").to_pandas().set_index("GEOID")
    assert table["H0010002"].to_dict() == occupied.to_dict()


OWN = {
    "name": "own",
    "source": "tests",
    "endings": [".txt"],
    "delimiter": " ",
    "quoted": False,
    "split": {"name": "geolevel", "text": "{geolevel}"},
    "zip": "own.zip",
    "tables": {
        "S": {"variables": 2, "queries": ["sex"]},
        "T": {"variables": 1, "queries": ["total"]},
    },
    "files": [
        {
            "name": "own_{geolevel}",
            "columns": [{"name": "ID", "text": "{geocode}"}, {"name": "PLACE", "text": "{place}"}],
            "tables": ["S", "T"],
            "intervals": True,
        }
    ],
}


def own(folder: Path, **changes: Any) -> Path:
    path = folder / "own.yaml"
    path.write_text(yaml.safe_dump({**OWN, **changes}))
    return path


def test_an_own_layout_needs_no_code(villages: Path, das: Das, tmp_path: Path) -> None:
    """Census geocodes and names of a release on another spine, with estimates off the spine."""
    code, printed = das(
        "export", villages, "--as", own(tmp_path), "--to", tmp_path / "own", "--zip"
    )
    assert code == 0, printed
    release = open_release(villages)
    with zipfile.ZipFile(tmp_path / "own" / "own.zip") as archive:
        assert archive.namelist() == [f"own_{level}.txt" for level in toy.LEVELS]
        for level in toy.LEVELS:
            text = archive.read(f"own_{level}.txt").decode()
            rows = {row["ID"]: row for row in csv.DictReader(text.splitlines(), delimiter=" ")}
            sexes = release.table("sex", level).to_pandas()
            women = sexes[sexes["sex"] == "female"].set_index("geocode")
            assert {code: int(row["S0001"]) for code, row in rows.items()} == dict(women["count"])
            for name in ("estimate", "lower", "upper"):
                column = "estimate" if name == "estimate" else f"estimate_{name}"
                found = {code: float(row[f"S0001_{name}"]) for code, row in rows.items()}
                assert found == pytest.approx(dict(women[column]), abs=2e-3)
            if level == "county":  # without the delimiter, which text without marks cannot hold
                assert {row["PLACE"] for row in rows.values()} == {
                    "County001",
                    "County003",
                    "County005",
                }


# --- refusals, by the command line ----------------------------------------------------------------


def test_an_unknown_layout_is_refused(villages: Path, das: Das, tmp_path: Path) -> None:
    code, printed = das("export", villages, "--as", "mdf", "--to", tmp_path / "x")
    assert code == 2
    assert "is no known layout; got mdf" in printed
    assert "pl94" in printed
    assert "ppmf" in printed
    assert "wide" in printed
    assert not (tmp_path / "x").exists()


def test_geocodes_of_another_shape_are_refused(villages: Path, das: Das, tmp_path: Path) -> None:
    code, printed = das("export", villages, "--as", "pl94", "--to", tmp_path / "x")
    assert code == 2
    assert "cannot hold the geocodes of the leaves; got geolevel block, 10 digits" in printed


def test_a_schema_without_the_columns_is_refused(villages: Path, das: Das, tmp_path: Path) -> None:
    code, printed = das("export", villages, "--as", "wide", "--to", tmp_path / "x")
    assert code == 2
    assert "no product of the release can fill: P001, P002, P003, P004, P005, H001" in printed
    assert "'sex', 'age'" in printed
    assert "--leave-out P001" in printed


def test_an_unknown_table_to_leave_out_is_refused(state: Path, das: Das, tmp_path: Path) -> None:
    code, printed = das(
        "export", state, "--as", "pl94", "--leave-out", "P6", "--to", tmp_path / "x"
    )
    assert code == 2
    assert "is no table; got P6" in printed


def test_columns_of_tables_left_out_stay_empty(state: Path, das: Das, tmp_path: Path) -> None:
    assert das("export", state, "--as", "pl94", "--leave-out", "H001", "--to", tmp_path)[0] == 0
    for line in (tmp_path / "al000022020.pl").read_text().splitlines():
        fields = line.split("|")
        assert len(fields) == 152
        assert fields[-3:] == ["", "", ""]
        assert all(fields[:-3])


def test_an_existing_file_is_kept(state: Path, das: Das, tmp_path: Path) -> None:
    kept = tmp_path / "zzgeo2020.pl"
    kept.write_text("mine")
    code, printed = das("export", state, "--as", "pl94", "--to", tmp_path)
    assert code == 2
    assert f"{kept}: exists already" in printed
    assert [*tmp_path.iterdir()] == [kept]
    assert das("export", state, "--as", "pl94", "--to", tmp_path, "--zip")[0] == 0
    assert kept.read_text() == "mine"


def test_a_state_without_a_code_leaves_nothing(state: Path, das: Das, tmp_path: Path) -> None:
    document = yaml.safe_load((ROOT / "conf" / "export" / "pl94.yaml").read_text())
    del document["codes"]["states"]["02"]
    path = tmp_path / "few.yaml"
    path.write_text(yaml.safe_dump(document))
    code, printed = das("export", state, "--as", path, "--to", tmp_path / "x")
    assert code == 2
    assert "column state: has no code for a value of the release; got 02" in printed
    assert not [*(tmp_path / "x").iterdir()]


def test_tables_in_a_file_of_records_are_refused(villages: Path, das: Das, tmp_path: Path) -> None:
    columns = [{"name": "SEX", "axis": ["sex"]}]
    path = own(tmp_path, files=[{"name": "people", "columns": columns, "tables": ["S"]}])
    code, printed = das("export", villages, "--as", path, "--to", tmp_path / "x")
    assert code == 2
    assert "file people: has records, and tables are of geounits; got S" in printed
    path = own(tmp_path, files=[{"name": "people", "columns": columns}])
    assert das("export", villages, "--as", path, "--to", tmp_path / "x")[0] == 0
    people = tmp_path / "x" / "people.txt"
    assert {*people.read_text().split()} == {"SEX", "female", "male"}
    people.unlink()  # a code that holds the delimiter is written without it
    codes = {"c": {"female": 'a "w"', "male": "b"}}
    columns = [{"name": "SEX", "axis": ["sex"], "codes": "c"}]
    path = own(tmp_path, codes=codes, files=[{"name": "people", "columns": columns}])
    assert das("export", villages, "--as", path, "--to", tmp_path / "x")[0] == 0
    assert {*people.read_text().splitlines()} == {"SEX", "aw", "b"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": [{"name": "A"}, {"name": "A"}]}, "has a column twice; got ['A']"),
        ({"columns": [{"name": "A", "text": "{b}"}]}, "column A: has an unknown field; got b"),
        ({"columns": [{"name": "A", "codes": "x"}]}, "has an unknown list of codes; got x"),
        ({"tables": ["X"]}, "has an unknown table; got X"),
    ],
)
def test_contradictions_of_an_own_layout_are_refused(
    villages: Path, das: Das, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = own(tmp_path, files=[{**OWN["files"][0], **changes}])
    code, printed = das("export", villages, "--as", path, "--to", tmp_path / "x")
    assert code == 2
    assert message in printed
    path = own(tmp_path, split={"name": "n", "text": "{number}"})
    code, printed = das("export", villages, "--as", path, "--to", tmp_path / "x")
    assert "is split by an unknown field; got number" in printed


def test_an_optional_file_is_left_out_and_another_refused(
    villages: Path, das: Das, tmp_path: Path
) -> None:
    """A release without units has no file of units."""
    people = {"name": "people", "columns": [{"name": "SEX", "axis": ["sex"]}]}
    units = {"name": "units", "columns": [{"name": "UNIT", "axis": ["unit", "h1"]}]}
    path = own(tmp_path, files=[people, {**units, "optional": True}])
    assert das("export", villages, "--as", path, "--to", tmp_path / "x")[0] == 0
    assert [file.name for file in (tmp_path / "x").iterdir()] == ["people.txt"]
    path = own(tmp_path, files=[people, units])
    code, printed = das("export", villages, "--as", path, "--to", tmp_path / "y")
    assert code == 2
    assert "has the file units, and no product of the release has its attributes" in printed
    assert "expected ['unit or h1']" in printed


def test_letters_in_geocodes_are_refused(das: Das, tmp_path: Path) -> None:
    """Files of the 2020 layouts have digits only."""
    people = toy.write_records(tmp_path)
    with (tmp_path / "records.csv").open("w", newline="") as file:
        rows = [("block", "sex", "age"), *((f"{code[:-1]}A", *rest) for code, *rest in people)]
        csv.writer(file).writerows(rows)
    config = toy.configuration(tmp_path, geography__geounits=None)
    release = execute(config) / "release"
    path = own(tmp_path, leaf_digits=10)
    code, printed = das("export", release, "--as", path, "--to", tmp_path / "x")
    assert code == 2
    assert "cannot hold a geocode of a leaf; got 990010000A" in printed


def test_a_release_without_intervals_is_refused(das: Das, here: None, tmp_path: Path) -> None:
    """No estimates follow from queries that are drawn on demand."""
    toy.write_records(tmp_path)
    lazy = {"privacy__on_demand_queries": ["detailed"], "solve": {"fit_to": "level"}}
    release = execute(toy.configuration(tmp_path, **lazy)) / "release"
    tables = {"A": {"variables": 3, "queries": ["age"]}}
    file = {**OWN["files"][0], "tables": ["A"]}
    path = own(tmp_path, tables=tables, files=[file])
    code, printed = das("export", release, "--as", path, "--to", tmp_path / "x")
    assert code == 2
    assert "needs intervals, which the release does not have; got table A at geolevel" in printed
    path = own(tmp_path, tables=tables, files=[{**file, "intervals": False}])
    assert das("export", release, "--as", path, "--to", tmp_path / "x")[0] == 0


def test_a_changed_release_is_refused(state: Path, das: Das, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(state, tmp_path / "copy"))
    part = next(product_in(copy).counts("block").glob("*.parquet"))
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    code, printed = das("export", copy, "--as", "pl94", "--to", tmp_path / "x")
    assert code != 0
    assert part.name in printed or "digest" in printed
