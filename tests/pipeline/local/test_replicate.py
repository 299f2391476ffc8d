"""`das replicate`: a run repeated from its release alone, and the intervals it gives."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from das.errors import ConfigError, OutputError
from jobs.analysis.opened import open_release
from jobs.pipeline.folder.progress import is_finalized
from tests.builders import toy
from tests.builders.datasets import rows_of
from tests.builders.in_process import execute, leave_out_figures
from tests.builders.places import release_of
from tests.builders.units import section, write_units
from tests.checkout import ROOT
from tests.pipeline.local.test_spines import ON_AIAN, SPLIT, configured

pytestmark = pytest.mark.usefixtures("here")

COUNT = 2


@pytest.fixture(scope="module", autouse=True)
def figures() -> Iterator[None]:
    """Reports have no drawings here."""
    with pytest.MonkeyPatch.context() as patch:
        leave_out_figures(patch)
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A finished run of the toy state that nobody changes."""
    folder = tmp_path_factory.mktemp("finished")
    toy.write_records(folder)
    execute(toy.configuration(folder))
    return folder


@pytest.fixture(scope="module")
def once(finished, tmp_path_factory) -> dict[str, Any]:
    """A copy of its release alone, to be replicated by the first test that asks for it."""
    folder = tmp_path_factory.mktemp("replicated")
    shutil.copytree(finished / "out/release", folder / "out/release")
    shutil.copy(finished / "out/run.json", folder / "out")
    return {"folder": folder, "before": contents(folder / "out")}


@pytest.fixture
def replicated(once, das) -> Path:
    """That copy, replicated; nobody changes it."""
    if "printed" not in once:
        code, once["printed"] = das(
            "replicate", once["folder"] / "out", "--count", COUNT, "--areas"
        )
        assert code == 0, once["printed"]
    return Path(once["folder"])


@pytest.fixture
def folder(replicated, tmp_path) -> Path:
    """A copy of it that may be changed."""
    shutil.copytree(replicated / "out", tmp_path / "out")
    return tmp_path


def document_of(folder: Path) -> dict[str, Any]:
    return dict(
        json.loads((folder / "out/release/products/persons/intervals/intervals.json").read_text())
    )


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_release_alone_is_enough(replicated, once):
    """Nothing confidential is there, nor an account; nothing of either is made."""
    assert "CONFIDENTIAL" not in once["printed"]
    before, after = once["before"], contents(replicated / "out")
    changed = {name for name in before if after[name] != before[name]}
    assert changed == {"release/products/persons/report.html"}
    assert {name.split("/")[0] for name in set(after) - set(before)} == {"release", "replicates"}
    assert not list(replicated.rglob("work"))
    assert not list(replicated.rglob("*.share"))
    document = document_of(replicated)
    assert (document["replicates"], document["checked"], document["seed"]) == (COUNT, 1, 1)
    assert document["not_for_release"] is True
    assert {row["geolevel"] for row in document["errors"]} == set(toy.LEVELS)


def test_a_replicated_release_is_as_finalized_as_before(replicated):
    """Otherwise a run that is started again would write another manifest, which intervals name."""
    assert is_finalized(release_of(replicated / "out"))


def test_errors_are_those_of_runs_from_the_release(replicated):
    """Some are known: persons of the state are exact, so that errors of blocks cancel."""
    rows = document_of(replicated)["errors"]
    state = [row for row in rows if (row["geolevel"], row["query"]) == ("state", "total")]
    assert [row["rmse"] for row in state] == [0.0]
    blocks = [row for row in rows if (row["geolevel"], row["query"]) == ("block", "total")]
    assert sum(row["answers"] for row in blocks) == COUNT * len(toy.blocks())
    assert any(row["rmse"] for row in blocks)
    assert sum(row["answers"] * row["bias"] for row in blocks) == pytest.approx(0)


def test_intervals_of_tables_are_those_of_the_classes(replicated):
    release = open_release(replicated / "out/release")
    ends = {
        (row["geolevel"], row["query"], row["geounit"], row["count"]): row
        for row in document_of(replicated)["intervals"]
    }
    seen = 0
    for geolevel in ("tract", "block"):
        totals = {
            row["geocode"]: row["count"] for row in release.table("total", geolevel).to_pylist()
        }
        for row in release.table("sex", geolevel).to_pylist():
            count, lower, upper = row["count"], row["count_lower"], row["count_upper"]
            assert 0 <= lower <= upper
            size = label(totals[row["geocode"]], (0, 1, 10, 100))
            own = ends.get((geolevel, "sex", size, label(count, (0, 1, 2, 5, 10, 50))))
            if own is None:
                assert row.get("count_coverage", "unknown") == "unknown"
                continue
            seen += 1
            assert lower == max(0, count + own["low"])
            assert upper == max(0, count + own["high"])
            # A table whose classes are all unknown has no such column.
            assert row.get("count_coverage", "unknown") == own["mark"]
    assert seen


def label(value: int, edges: tuple[int, ...]) -> str:
    least = max(edge for edge in edges if edge <= value)
    after = edges[edges.index(least) + 1] - 1 if least != edges[-1] else 199
    return str(least) if least == after else f"{least} to {after}"


def test_the_release_is_still_verified_and_whole(replicated, finished, das):
    code, printed = das("verify", replicated / "out")
    assert code == 0, printed


def test_more_replicates_go_on_where_the_last_start_stopped(folder, das):
    errors = folder / "out/replicates/release/errors"
    first = contents(errors)
    (errors / "000002.parquet").unlink()
    assert das("replicate", folder / "out", "--count", COUNT + 1)[0] == 0
    second = contents(errors)
    assert len(second) == COUNT + 1
    assert {name: second[name] for name in first} == first  # what was lost is made again, the same
    assert document_of(folder)["replicates"] == COUNT + 1
    assert das("replicate", folder / "out", "--count", 1, "--seed", 7)[0] == 0
    third = contents(errors)
    assert len(third) == 1
    assert third["000001.parquet"] != second["000001.parquet"]


def test_replicates_of_an_unfinished_run_are_refused(tmp_path, das):
    toy.write_records(tmp_path)
    assert das("run", "--only", "measure", toy.configuration(tmp_path))[0] == 0
    code, printed = das("replicate", tmp_path / "out", "--count", 2)
    assert code == OutputError.exit_code
    assert "das run RUN --only solve" in printed
    assert not (tmp_path / "out/replicates").exists()


@pytest.mark.parametrize(("option", "value"), [("--count", 0), ("--confidence", 1.5)])
def test_settings_out_of_range_are_refused(replicated, das, option, value):
    before = contents(replicated / "out")
    code, _ = das("replicate", replicated / "out", option, value)
    assert code == ConfigError.exit_code
    assert contents(replicated / "out") == before


def test_tables_have_intervals_of_counts_with_their_confidence_alone(folder, das, tmp_path):
    wanted = ("--table", "total", "--geolevel", "county")
    columns = {}
    for confidence in (None, "0.9", "0.95"):
        option = () if confidence is None else ("--confidence", confidence)
        to = tmp_path / str(confidence)
        assert das("tables", folder / "out/release", *wanted, "--to", to, *option)[0] == 0
        header = (to / "level=county/total.csv").read_text().splitlines()[0]
        columns[confidence] = "count_lower" in header
    assert columns == {None: True, "0.9": True, "0.95": False}


def test_the_public_report_shows_them(folder, das):
    report = folder / "out/release/products/persons/report.html"
    first = report.read_text()
    assert "Error of released counts" in first
    assert das("inspect", "--reports", folder / "out")[0] == 0
    assert report.read_text() == first


def test_a_damaged_document_is_made_again(folder, das):
    path = folder / "out/release/products/persons/intervals/intervals.json"
    whole = path.read_text()
    path.write_text(whole.replace('"format": 1', '"format": 1, "more": 2', 1))
    code, printed = das("inspect", "--reports", folder / "out")
    assert code == OutputError.exit_code
    assert "das replicate" in printed
    path.unlink()
    assert das("inspect", "--reports", folder / "out")[0] == 0
    assert das("replicate", folder / "out", "--count", COUNT)[0] == 0
    assert json.loads(path.read_text()) == json.loads(whole)


def test_damaged_errors_are_named(folder, das):
    file = folder / "out/replicates/release/errors/000002.parquet"
    whole = file.read_bytes()
    file.write_bytes(whole[:100])
    code, printed = das("replicate", folder / "out", "--count", COUNT)
    assert code == OutputError.exit_code
    assert "000002.parquet" in printed
    file.unlink()
    assert das("replicate", folder / "out", "--count", COUNT)[0] == 0
    assert file.read_bytes() == whole


# --- every kind of run ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"solve": {"fit_to": "level"}, "privacy__on_demand_queries": ["detailed", "sex"]},
        {
            "solve": {"fit_to": "tree", "empirical_bayes": ["block"]},
            "privacy__allocation": str(ROOT / "conf" / "allocation" / "toy-strata.yaml"),
        },
    ],
    ids=["lazy", "strata"],
)
def test_runs_of_every_kind_are_repeated(tmp_path, das, changes):
    toy.write_records(tmp_path)
    execute(toy.configuration(tmp_path, **changes))
    code, printed = das("replicate", tmp_path / "out", "--count", 1)
    assert code == 0, printed
    document = document_of(tmp_path)
    assert any(row["rmse"] for row in document["errors"] if row["geolevel"] == "block")


def test_units_and_the_persons_bound_by_them_are_repeated(tmp_path, das):
    toy.write_records(tmp_path)
    write_units(tmp_path)
    execute(toy.configuration(tmp_path, units=section(tmp_path)))
    code, printed = das("replicate", tmp_path / "out", "--count", 1)
    assert code == 0, printed
    units = json.loads(
        (tmp_path / "out/release/products/units/intervals/intervals.json").read_text()
    )
    # Facilities are exact in every block, and so in every replicate.
    assert {row["rmse"] for row in units["errors"] if row["query"] == "hhgq"} == {0.0}
    assert any(row["rmse"] for row in units["errors"] if row["query"] != "hhgq")


def test_geolevels_off_the_spine_have_intervals_of_sums_over_their_blocks(tmp_path, das):
    """Errors of counties are those of sums of the kept leaf counts, by geocodes of the census."""
    execute(configured(tmp_path, SPLIT, ON_AIAN))
    out = tmp_path / "out"
    code, printed = das("replicate", out, "--count", COUNT, "--areas")
    assert code == 0, printed
    release = release_of(out)
    county = {
        row["geocode"]: row["census_geocode"][:5] for row in rows_of(release.geography("block"))
    }
    kept = sorted((out / "replicates/release/leaves/persons").iterdir())
    released, *replicates = (
        {name: sum(sum(row["counts"]) for row in rows if county[row["geocode"]] == name)
         for name in sorted(set(county.values()))}
        for rows in map(rows_of, (release.counts("block"), *kept))
    )  # fmt: skip
    off = [one[name] - count for one in replicates for name, count in released.items()]
    rows = [row for row in document_of(tmp_path)["errors"] if row["query"] == "total"]
    assert {row["geolevel"] for row in rows} == {*ON_AIAN, "county", "tract"}
    own = [row for row in rows if row["geolevel"] == "county"]
    assert sum(row["answers"] for row in own) == len(off)
    assert any(off)
    squares = sum(row["answers"] * row["rmse"] ** 2 for row in own)
    assert squares == pytest.approx(sum(error**2 for error in off))
    assert is_finalized(release)
    assert das("tables", out / "release", "--geolevel", "county", "--to", tmp_path / "t")[0] == 0
    with (tmp_path / "t/level=county/total.csv").open() as file:
        for row in csv.DictReader(file):
            assert int(row["count_lower"]) <= released[row["geocode"]] <= int(row["count_upper"])
    assert das("explore", out / "release", "-o", tmp_path / "page.html")[0] == 0


# --- areas ---------------------------------------------------------------------------------------


def test_counts_of_any_area_have_intervals(replicated, das, finished, tmp_path):
    config, out = finished / "run.yaml", replicated / "out"
    code, printed = das("areas", config, "--geolevel", "county", "--json")
    assert code == 0, printed  # of the run that was not replicated
    without = json.loads(printed)
    assert without["replicates"] == 0
    assert not any("count_lower" in row for row in without["rows"])
    area = tmp_path / "areas.csv"
    blocks = [code for code in toy.blocks() if code.startswith("99001")]
    rows = [("one", code) for code in blocks[:3]] + [("two", code) for code in blocks[2:9]]
    area.write_text("".join(f"{name},{code}\n" for name, code in rows))
    file = tmp_path / "found.parquet"
    words = ("--table", "sex", "--geounit", "99", "--output", file)
    code, printed = das("areas", out, *words, "--assign", area)
    assert code == 0, printed
    found = [row for row in pq.read_table(file).to_pylist() if row["table"] == "sex"]
    assert [row["area"] for row in found] == ["99", "99", "one", "one", "two", "two"]
    kept = sorted((out / "replicates/release/leaves/persons").iterdir())
    assert len(kept) == COUNT
    released, *replicates = (
        {
            row["geocode"]: dict(zip(row["cells"], row["counts"], strict=True))
            for row in rows_of(place)
        }
        for place in (out / "release/products/persons/counts/level=block", *kept)
    )
    for row in found:
        own = [code for name, code in rows if name == row["area"]] or list(toy.blocks())
        cells = [cell for cell in range(6) if (cell // 3 == 1) == (row["label"] == "male")]
        seen, *others = (
            sum(counts.get(code, {}).get(cell, 0) for code in own for cell in cells)
            for counts in (released, *replicates)
        )
        errors = np.array(others) - seen
        assert row["count"] == seen
        assert row["count_bias"] == pytest.approx(errors.mean())
        assert row["count_standard_deviation"] == pytest.approx(errors.std(ddof=1))
        assert 0 <= row["count_lower"] <= row["count_upper"]
    code, printed = das("areas", out, "--geounit", "99", "--json")
    assert json.loads(printed)["replicates"] == COUNT
