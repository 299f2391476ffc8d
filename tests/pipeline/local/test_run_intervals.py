"""Intervals of released counts that every run makes: from its release alone, calibrated by class."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from bench.accuracy import DATA
from bench.replicate_coverage import LEAST, one_run, shares
from das.errors import InfeasibleError, OutputError, VerificationError
from jobs.analysis.opened import open_release
from jobs.pipeline import repeat
from jobs.pipeline.config.load import load_run
from jobs.pipeline.folder.progress import is_finalized
from jobs.pipeline.release.covariate import is_sampled
from jobs.pipeline.run import run_measuring, run_solving
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.executor import LocalTasks
from jobs.pipeline.tasks.progress import Reporter
from tests.builders import toy
from tests.builders.datasets import rows_of, rows_of_csv
from tests.builders.in_process import leave_out_figures
from tests.builders.places import release_of

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture(scope="module", autouse=True)
def figures() -> Iterator[None]:
    """Reports have no drawings here."""
    with pytest.MonkeyPatch.context() as patch:
        leave_out_figures(patch)
        yield


def solved(folder: Path) -> Path:
    """The run folder of a toy state, solved after its true histograms were removed."""
    toy.write_records(folder)
    output = {"directory": str(folder / "out"), "intervals": True}
    resolved = load_run(toy.configuration(folder, output=output))
    tasks, quiet = LocalTasks(Sizing(1)), Reporter(quiet=True)
    run_measuring(resolved, quiet, tasks)
    shutil.rmtree(folder / "out/confidential/products/persons/histograms")
    run_solving(resolved, quiet, tasks)
    return folder / "out"


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """Such a folder, which nobody changes."""
    return solved(tmp_path_factory.mktemp("solved"))


def document_of(out: Path) -> dict[str, Any]:
    return dict(json.loads(release_of(out).intervals.read_text()))


def bin_of(value: int, edges: tuple[int, ...]) -> str:
    least = max(edge for edge in edges if edge <= value)
    last = next((edge - 1 for edge in edges if edge > value), least)
    return str(least) if least == last else f"{least:,} to {last:,}"


def test_tables_have_intervals_that_need_no_truth(finished, das):
    """Each row has the interval of its own geolevel, table and class; the release is whole."""
    ends = {
        (row["geolevel"], row["query"], row["geounit"], row["count"]): (row["low"], row["high"])
        for row in document_of(finished)["intervals"]
    }
    differ = set()
    for geolevel in ("county", "tract", "block"):
        tables = release_of(finished).tables(geolevel)
        totals = {row["geocode"]: int(row["count"]) for row in rows_of_csv(tables / "total.csv")}
        for row in rows_of_csv(tables / "total.csv"):
            count, lower, upper = (int(row[f"count{end}"]) for end in ("", "_lower", "_upper"))
            size = bin_of(totals[row["geocode"]], (0, 1, 10, 100, 1000))
            key = size, bin_of(count, (0, 1, 2, 5, 10, 50, 200, 1000))
            own = ends.get((geolevel, "total", *key))
            if own is not None:
                assert (lower, upper) == (max(0, count + own[0]), max(0, count + own[1]))
                differ.add((geolevel, own))
            assert "count_coverage" not in row  # nothing was replicated twice
    assert len({own for _, own in differ}) > 1
    assert not (finished / "replicating").exists()
    assert is_finalized(release_of(finished))
    code, printed = das("verify", finished / "release")
    assert code == 0, printed


def test_the_release_alone_gives_the_intervals_again(finished, tmp_path, das):
    moved = shutil.copytree(finished / "release", tmp_path / "moved")
    code, printed = das("tables", moved, "--to", tmp_path / "tables")
    assert code == 0, printed
    for own in (tmp_path / "tables").rglob("*.csv"):
        published = release_of(finished).tables(own.parent.name.removeprefix("level="))
        assert own.read_bytes() == (published / own.name).read_bytes()
    assert das("explore", moved, "-o", tmp_path / "page.html")[0] == 0


def test_intervals_are_public_results_of_the_counts(finished, tmp_path):
    """Another run of the same measurements and settings gives the same: no secret enters."""
    again = solved(tmp_path)
    differ = {"manifest"}  # of the counts, with the seconds that solving took
    one, other = (
        {key: value for key, value in document_of(out).items() if key not in differ}
        for out in (again, finished)
    )
    assert one == other


def test_intervals_of_other_counts_are_not_used(finished, tmp_path, das):
    out = shutil.copytree(finished, tmp_path / "out")
    path = release_of(out).intervals
    path.write_text(json.dumps({**document_of(out), "manifest": "0" * 64}))
    table = open_release(out / "release").table("total", "tract")
    assert "count_lower" not in table.column_names
    code, printed = das("verify", out / "release")
    assert code == VerificationError.exit_code, printed
    path.write_text(json.dumps({**document_of(out), "more": 2}))
    code, printed = das("tables", out / "release", "--to", tmp_path / "tables")
    assert code == OutputError.exit_code
    assert "das replicate" in printed


def test_large_releases_solve_and_compare_a_share_of_their_leaves(tmp_path, monkeypatch):
    monkeypatch.setattr(repeat, "_LEAVES", 12)
    out = solved(tmp_path)
    children = rows_of(release_of(out).geography("block"))
    wanted = sum(is_sampled(row["parent"], 12 / len(children)) for row in children)
    assert 0 < wanted < len(children)
    rows = [row for row in document_of(out)["errors"] if row["query"] == "total"]
    answers = {
        level: sum(row["answers"] for row in rows if row["geolevel"] == level)
        for level in ("tract", "block")
    }
    assert answers == {"tract": len(rows_of(release_of(out).geography("tract"))), "block": wanted}
    # Leaves that were not solved would have errors of their whole counts, on one side.
    assert max(row["max"] for row in rows if row["geolevel"] == "block") < 40


def test_a_replicate_that_cannot_be_solved_costs_no_release(tmp_path, monkeypatch):
    """Without a failsafe, children of a replicate may contradict their parent."""

    def contradict(*_: object) -> None:
        raise InfeasibleError("node 99001", "cannot be rounded")

    monkeypatch.setattr(repeat, "make_replicate", contradict)
    out = solved(tmp_path)
    assert is_finalized(release_of(out))
    assert not release_of(out).intervals.exists()
    assert "count_lower" not in rows_of_csv(release_of(out).tables("tract") / "total.csv")[0]


def test_ninety_percent_intervals_cover_ninety_percent_by_class():
    """On real blocks with a fixed seed. Of zeros and ones no shorter interval covers enough."""
    found = shares([one_run("ri", 1, None, DATA)], lambda cell: cell[:2])
    large = {key: row["coverage"] for key, row in found.items() if row["answers"] >= LEAST}
    assert len(large) >= 6
    for (geolevel, count), coverage in large.items():
        assert coverage > Fraction(88, 100), (geolevel, count)
        assert coverage < Fraction(96 if count in {"0", "1"} else 93, 100), (geolevel, count)
