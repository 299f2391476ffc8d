"""What follows from measurements may be made again: in place until it is finalized, then beside it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import solvers.objectives.in_node
from das.errors import ConfigError, DamageError, LedgerError, OutputError, SolverError
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.product import account_of
from jobs.pipeline.release.verify import verify_run
from jobs.pipeline.storage.dataset import MANIFEST, Dataset, dataset_digest
from jobs.pipeline.storage.journal import read_journal
from tests.builders import in_process, toy
from tests.builders.places import product_in, release_of, truth_of
from tests.builders.units import section, write_units
from tests.release_checks import sparse, totals_are_exact, tree_is_consistent

pytestmark = pytest.mark.usefixtures("here")

SYSTEM = {"source": "operating_system"}


@pytest.fixture
def folder(tmp_path) -> Path:
    toy.write_records(tmp_path)
    return tmp_path


def real(folder: Path, **changes: Any) -> Path:
    return toy.configuration(folder, privacy__randomness=SYSTEM, **changes)


def measured(release: Path) -> dict[str, str]:
    """Digests of what was made before solving."""
    return {
        str(path.parent.relative_to(release)): dataset_digest(path.parent)
        for path in release.rglob(MANIFEST)
        if path.parent.parent.name in ("measurements", "invariants", "geography")
    }


def manifest_of(release: Path, product: str = "persons") -> dict[str, Any]:
    return dict(json.loads(product_in(release, product).manifest.read_text()))


def files_of(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


# --- remedies of a solve that failed -------------------------------------------------------------


def test_a_tolerance_that_is_not_reached_is_raised_in_the_same_folder(folder, das):
    config = real(folder, solve={"tolerance": 1e-300})
    code, printed = das("run", config)
    assert code == SolverError.exit_code
    assert "solve.tolerance" in printed
    before = measured(folder / "out" / "release")
    assert das("run", real(folder, solve={"tolerance": 1e-7}))[0] == 0
    assert measured(folder / "out" / "release") == before
    solution = manifest_of(folder / "out" / "release")["solution"]
    assert [line["settings"]["solve"]["tolerance"] for line in solution["history"]] == [
        1e-300,
        1e-7,
    ]
    assert solution["settings"] == solution["history"][-1]["settings"]
    assert tree_is_consistent(folder / "out", toy.LEVELS)
    assert totals_are_exact(folder / "out", "state")
    lines = read_journal(account_of(load_run(config).config))
    assert sum(line.get("event") == "measured" for line in lines) == 4


def test_a_method_that_does_not_fit_is_changed_by_solve_and_by_resume(folder, das, monkeypatch):
    """Each on a copy of the folder, whose first geolevels were solved before another one failed."""
    monkeypatch.setattr(solvers.objectives.in_node, "MOST_UNKNOWNS", 12, raising=True)
    code, printed = das("run", real(folder, solve={"method": "maxfit"}))
    assert code == SolverError.exit_code, printed
    assert "12" in printed
    out = folder / "out"
    assert list((release_of(out).root / "counts").rglob(MANIFEST))
    before = measured(out / "release")
    copy = Path(shutil.copytree(out, folder / "copy"))
    changed = real(folder, solve={"method": "nnls"})
    assert das("run", "--only", "solve", changed)[0] == 0
    assert das("run", copy, "--config", changed)[0] == 0
    for one in (out, copy):
        assert measured(one / "release") == before
        manifest = manifest_of(one / "release")
        assert len({row["solve_digest"] for row in manifest["solve"]}) == 1
        assert [s["settings"]["solve"]["method"] for s in manifest["solution"]["history"]] == [
            "maxfit",
            "nnls",
        ]
        verify_run(load_run(changed, output=one))
    for level in toy.LEVELS:
        counts = f"release/products/persons/counts/level={level}"
        assert sparse(out / counts) == sparse(copy / counts)


def test_targets_rounding_tables_and_formats_may_change_before_finalizing(folder, das, monkeypatch):
    config = real(folder, output__microdata=["parquet", "csv"])
    with monkeypatch.context() as patch:
        patch.setattr("jobs.pipeline.release.stages.is_census_finalized", interrupted)
        assert das("run", config)[0] == 130
    release = folder / "out" / "release"
    out = product_in(release).root
    before, counts = measured(release), dataset_digest(out / "counts" / "level=block")
    estimates = dataset_digest(out / "estimates" / "whole" / "level=tract")
    changed = real(folder, output__microdata=["csv"], output__tables=["total", "age"])
    with monkeypatch.context() as patch:
        patch.setattr("jobs.pipeline.release.stages.is_census_finalized", interrupted)
        assert das("run", "--only", "solve", changed)[0] == 130
    assert dataset_digest(out / "counts" / "level=block") == counts
    assert not (out / "microdata" / "parquet").exists()
    tables = Dataset.open(out / "tables" / "level=block").facts["queries"]
    assert [query["query"] for query in tables] == ["total", "age"]
    described = Dataset.open(out / "estimates" / "tables" / "level=block").facts["queries"]
    assert [query["query"] for query in described] == ["total", "age"]
    solve = {"fit_to": "level", "rounding_passes": [["total", "sex", "detailed"]]}
    last = real(folder, output__microdata=["csv"], output__tables=["total", "age"], solve=solve)
    assert das("run", "--only", "solve", last)[0] == 0
    assert dataset_digest(out / "counts" / "level=block") != counts
    assert dataset_digest(out / "estimates" / "whole" / "level=tract") == estimates
    assert measured(release) == before
    assert len(manifest_of(release)["solution"]["history"]) == 3


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_what_fixes_the_measurements_may_not_change(folder, das):
    assert das("run", "--only", "measure", real(folder))[0] == 0
    for changes in (
        {"invariants": []},
        {"privacy__rho": "2"},
        {"privacy__delta": "1/1000"},
        {"geography__geounits": None},
    ):
        code, printed = das("run", "--only", "solve", real(folder, **changes))
        assert code == OutputError.exit_code
        assert "belongs to a different configuration" in printed


def test_nothing_is_made_again_without_a_change(folder, das, monkeypatch):
    """A run that died after solving keeps its counts, and one that is finalized its manifest."""
    with monkeypatch.context() as patch:
        patch.setattr("jobs.pipeline.release.stages.write_tables", interrupted)
        assert das("run", real(folder))[0] == 130
    out = folder / "out" / "release"
    counts = files_of(product_in(out).root / "counts")
    assert das("run", real(folder))[0] == 0
    assert files_of(product_in(out).root / "counts") == counts
    finalized = files_of(out)
    assert das("run", real(folder, name="another title"))[0] == 0
    assert das("run", "--only", "solve", real(folder))[0] == 0
    assert files_of(out) == finalized


# --- solutions beside a finalized release -----------------------------------------------------------


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Path:
    """A folder, and beside it what it is at the beginning of a test: a finished run."""
    folder = tmp_path_factory.mktemp("kept") / "folder"
    folder.mkdir()
    toy.write_records(folder)
    in_process.execute(real(folder))
    shutil.copytree(folder, folder.with_name("first"))
    return folder


@pytest.fixture
def finalized(kept) -> Path:
    shutil.rmtree(kept)
    return Path(shutil.copytree(kept.with_name("first"), kept))


def test_a_finalized_release_is_not_made_again(finalized, das):
    out = finalized / "out"
    before = files_of(out / "release")
    changed = real(finalized, solve={"fit_to": "level"}, output__h1=None)
    for words in ((changed,), (changed, "--only", "solve"), (out, "--config", changed)):
        code, printed = das("run", *words)
        assert code == OutputError.exit_code
        assert 'was made with other settings; got solve.fit_to "tree", now' in printed
        assert "is finalized" in printed
        assert f"`das run {changed} --only solve --solution NAME` keeps another" in printed
    assert files_of(out / "release") == before
    assert not (out / "solutions").exists()


def test_a_named_solution_is_a_whole_release_of_the_same_measurements(finalized, das):
    out = finalized / "out"
    before = files_of(out / "release")
    changed = real(finalized, solve={"fit_to": "level"}, output__tables=["total", "sex * age"])
    code, printed = das("run", "--only", "solve", changed, "--solution", "own")
    assert code == 0, printed
    assert f"{release_of(out, solution='own').report}" in printed
    assert files_of(out / "release") == before
    own, release = out / "solutions" / "own", out / "release"
    assert measured(own) == measured(release)
    part = next((product_in(release).root / "measurements").rglob("part-*"))
    assert part.samefile(own / part.relative_to(release))
    first, second = manifest_of(release), manifest_of(own)
    assert (first["solution"]["name"], second["solution"]["name"]) == (None, "own")
    assert second["solution"]["settings"]["solve"]["fit_to"] == "level"
    assert first["configuration_digest"] == second["configuration_digest"]
    assert first["budget"] == second["budget"]
    counts = [product_in(folder).counts("block") for folder in (own, release)]
    assert sparse(counts[0]) != sparse(counts[1])
    for folder, shown in ((own, True), (release, False)):
        page = product_in(folder).report.read_text()
        assert (re.search(r"Solution\W.{0,40}own", page, re.DOTALL) is not None) == shown

    assert das("verify", changed, "--solution", "own")[0] == 0
    assert das("verify", changed)[0] == 0
    code, printed = das("inspect", out)
    assert "solutions: own" in printed
    code, printed = das("inspect", out, "--solution", "own", "--geounit", "99", "--json")
    assert json.loads(printed)["protected_total"] > 0
    words = ("estimate", changed, "--geounit", "99", "--query", "sex * age", "--json")
    assert das(*words, "--solution", "own") == das(*words)
    assert das("evaluate", changed, "--solution", "own")[0] == 0
    assert truth_of(out, solution="own").report.exists()
    assert das("inspect", "--reports", out, "--solution", "own")[0] == 0
    assert das("run", out, "--config", changed, "--solution", "own")[0] == 0
    assert das("run", real(finalized))[0] == 0  # the release itself goes on as it was
    assert files_of(out / "release") == before


def test_a_release_goes_on_with_its_own_run_file_after_a_solution_of_another_one(finalized, das):
    """The folder remembers the run file of the release, and that of each solution beside it."""
    out = finalized / "out"
    other = real(finalized, solve={"fit_to": "level"}).rename(finalized / "other.yaml")
    real(finalized)
    before = release_of(out).manifest.read_bytes()
    assert das("run", "--only", "solve", other)[0] == OutputError.exit_code
    assert das("evaluate", other)[0] == 0
    assert das("run", "--only", "solve", other, "--solution", "own")[0] == 0
    for words in (
        ("run", out),
        ("run", out, "--solution", "own"),
        ("replicate", out, "--count", 1),
        ("replicate", out, "--count", 1, "--solution", "own"),
    ):
        code, printed = das(*words)
        assert code == 0, printed
    assert (release_of(out).manifest).read_bytes() == before


def test_a_named_solution_is_not_made_again_and_damage_is_mended(finalized, das):
    out = finalized / "out"
    changed = real(finalized, solve={"fit_to": "level"})
    assert das("run", "--only", "solve", changed, "--solution", "own")[0] == 0
    tracts = release_of(out, solution="own").counts("tract")
    before = sparse(tracts)
    code, printed = das(
        "run",
        "--only",
        "solve",
        real(finalized, solve={"method": "reweighted"}),
        "--solution",
        "own",
    )
    assert code == OutputError.exit_code
    assert "--solution another name" in printed
    next(tracts.glob("part-*")).unlink()
    changed = real(finalized, solve={"fit_to": "level"})
    code, printed = das("run", "--only", "solve", changed, "--solution", "own")
    assert code == DamageError.exit_code
    assert "is missing" in printed
    assert das("run", out, "--solution", "own")[0] == 0
    assert sparse(tracts) == before
    assert das("verify", changed, "--solution", "own")[0] == 0


def test_a_named_solution_that_fails_is_tried_again(finalized, das):
    bad = real(finalized, solve={"tolerance": 1e-300})
    assert das("run", "--only", "solve", bad, "--solution", "tight")[0] == SolverError.exit_code
    good = real(finalized, solve={"tolerance": 1e-6})
    assert das("run", "--only", "solve", good, "--solution", "tight")[0] == 0
    tight = manifest_of(finalized / "out" / "solutions" / "tight")["solution"]
    assert [s["settings"]["solve"]["tolerance"] for s in tight["history"]] == [1e-300, 1e-6]


def test_a_solution_needs_measurements_and_a_name(folder, das):
    config = real(folder)
    code, printed = das("run", "--only", "solve", config, "--solution", "early")
    assert code == OutputError.exit_code
    assert "is not measured; use `das run RUN --only measure`" in printed
    assert not (folder / "out" / "solutions").exists()
    for name in ("../up", "", "a b", ".hidden"):
        code, printed = das("run", "--only", "solve", config, "--solution", name)
        assert code == ConfigError.exit_code
        assert "is no name" in printed


def test_a_solution_of_persons_and_units(folder, das):
    write_units(folder)
    assert das("run", real(folder, units=section(folder)))[0] == 0
    before = files_of(folder / "out" / "release")
    changed = real(folder, units=section(folder, solve={"fit_to": "level"}))
    code, printed = das("run", changed)
    assert code == OutputError.exit_code
    assert "units.solve.fit_to" in printed
    assert das("run", "--only", "solve", changed, "--solution", "own")[0] == 0
    assert das("verify", changed, "--solution", "own")[0] == 0
    own = folder / "out" / "solutions" / "own"
    assert manifest_of(own, "units")["solution"]["name"] == "own"
    assert files_of(folder / "out" / "release") == before


def test_lazy_geolevels_go_on_with_other_settings_and_have_one_solution(folder, das, monkeypatch):
    """Noise below was drawn for the counts above, which therefore stay."""
    lazy = {"privacy__on_demand_queries": ["detailed"]}
    config = real(folder, **lazy, solve={"fit_to": "level"})
    with monkeypatch.context() as patch:
        patch.setattr("jobs.pipeline.release.stages.write_microdata", interrupted)
        assert das("run", config)[0] == 130
    release = folder / "out" / "release"
    out = product_in(release).root
    (out / "counts" / "level=block" / MANIFEST).unlink()
    kept = dataset_digest(out / "counts" / "level=county")
    changed = real(folder, **lazy, solve={"fit_to": "level", "tolerance": 1e-6})
    assert das("run", folder / "out", "--config", changed)[0] == 0
    assert dataset_digest(out / "counts" / "level=county") == kept
    assert len({row["solve_digest"] for row in manifest_of(release)["solve"]}) == 2
    code, printed = das("run", "--only", "solve", changed, "--solution", "other")
    assert code == ConfigError.exit_code
    assert "drawn for the counts of the release" in printed
    assert LedgerError.exit_code == 3
