"""Runs in which totals are expected by housing units: where that helps, where it harms, and beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from das.errors import ConfigError
from jobs.cli.main import app
from jobs.pipeline.config.load import load_run
from jobs.pipeline.documents.document import adapter
from jobs.pipeline.documents.evaluation import Evaluation
from jobs.pipeline.report.internal import households_section
from jobs.pipeline.storage.dataset import Dataset
from tests.builders import toy
from tests.builders.in_process import execute
from tests.builders.places import release_of, truth_of
from tests.builders.run_files import load_runnable
from tests.checkout import ROOT
from tests.release_checks import sparse, tree_is_consistent

CELLS = [(sex, age) for sex in toy.SEX for age in toy.AGE]
ASKED = {"geolevels": ["block"]}


class State:
    """Four hundred blocks whose persons are those of their units, give or take a few."""

    def __init__(self, folder: Path, *, is_shuffled: bool = False) -> None:
        rng = np.random.default_rng(8)
        self.folder = folder
        self.codes = [f"99001{tract:02d}{block:03d}" for tract in range(16) for block in range(25)]
        has_units = rng.random(len(self.codes)) > 0.25
        units = np.where(has_units, np.rint(rng.lognormal(2.7, 0.8, len(self.codes))) + 1, 0)
        mean = 2.4 * units
        self.persons = np.rint(np.maximum(0, rng.normal(mean, np.sqrt(mean + 1e-9))))
        self.persons[units == 0] = 0
        if is_shuffled:
            units[has_units] = rng.permutation(units[has_units])
        shares = rng.dirichlet([9, 20, 7, 9, 20, 6], len(self.codes))
        self.counts = np.array(
            [rng.multinomial(int(n), s) for n, s in zip(self.persons, shares, strict=True)]
        )
        columns = {f"c{i}": self.counts[:, i] for i in range(6)}
        columns |= {"hu": units.astype(int), "gq": np.zeros(len(units), int)}
        pq.write_table(pa.table({"geocode": self.codes, **columns}), folder / "blocks.parquet")

    def configuration(self, out: str, solve: dict[str, Any], **changes: Any) -> Path:
        """A run file of its own output folder."""
        path = str(self.folder / "blocks.parquet")
        quarters = {
            "living_quarters": ["homes"],
            "geolevel": "block",
            "table": {"path": path, "columns": {"homes": "hu", "facilities": "gq"}},
        }
        columns = {f"c{i}": {"sex": sex, "age": age} for i, (sex, age) in enumerate(CELLS)}
        changes = {
            "data": {"input_format": "block_table", "path": path, "columns": columns},
            "geography__geounits": {"path": path},
            "invariants": [{"query": "total", "geolevel": "state"}, quarters],
            "privacy__rho": "1/12",
            "solve": solve,
            "output": {"directory": str(self.folder / out), "microdata": []},
            **changes,
        }
        (self.folder / out).mkdir(exist_ok=True)
        written = toy.configuration(self.folder, **changes)
        target = self.folder / f"{out}.yaml"
        written.rename(target)
        return target

    def run(self, out: str, solve: dict[str, Any], **changes: Any) -> Path:
        """Run it; returns the output folder."""
        return execute(load_run(self.configuration(out, solve, **changes)))

    def totals(self, out: Path) -> np.ndarray:
        """Released totals of the blocks."""
        counts = sparse(release_of(out).counts("block"))
        return np.array([sum(counts.get(code, {}).values()) for code in self.codes])

    def error(self, out: Path) -> float:
        """Mean squared error of the totals of blocks."""
        return float(((self.totals(out) - self.persons) ** 2).mean())


def said(out: Path) -> dict[str, Any]:
    """What the manifest says of the blocks."""
    manifest = json.loads((release_of(out).manifest).read_text())
    expected: dict[str, Any] = manifest["solve"][-1]["expected_totals"]
    return expected


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> State:
    """Blocks that follow their units."""
    return State(tmp_path_factory.mktemp("units"))


@pytest.fixture(scope="module")
def plain(state: State) -> Path:
    """The run without."""
    return state.run("plain", {})


@pytest.fixture(scope="module")
def certified(state: State) -> Path:
    """The run with, where the certificate says so."""
    return state.run("certified", {"housing_units": ASKED})


def test_expected_totals_take_off_error(state: State, plain: Path, certified: Path) -> None:
    assert tree_is_consistent(certified, toy.LEVELS)
    found = said(certified)
    assert (found["way"], found["kappa"], found["certified"]) == ("totals", 2.0, True)
    assert state.error(certified) < 0.85 * state.error(plain)
    assert not state.totals(certified)[state.persons == 0].any()


def test_estimates_stay_as_they_are(plain: Path, certified: Path) -> None:
    tables = [
        Dataset.open(out / "release/products/persons/estimates/tables/level=block").read()
        for out in (plain, certified)
    ]
    assert tables[0].num_rows
    assert tables[0].equals(tables[1])


def test_the_estimated_errors_are_near_the_true_ones(
    state: State, plain: Path, certified: Path
) -> None:
    """Of 300 blocks the mean of true squares is known to a sixth of itself, estimates to a fifth."""
    errors = {(e["query"], e["way"]): e["error"] for e in said(certified)["errors"]}
    has_units = state.persons > 0
    for way, out in (("plain", plain), ("totals", certified)):
        true = ((state.totals(out) - state.persons)[has_units] ** 2).mean()
        assert errors["total", way] == pytest.approx(true, rel=0.5)
    assert errors["total", "totals"] < errors["total", "plain"]


def test_how_work_is_cut_changes_nothing(state: State, certified: Path) -> None:
    runtime = {"master": "local[2,3]", "driver_memory": "1g", "batches_per_slot": 7}
    other = state.run("cut", {"housing_units": ASKED}, runtime=runtime)
    assert said(other) == said(certified)
    assert np.array_equal(state.totals(other), state.totals(certified))


def test_families_solved_one_by_one_have_the_same_counts(
    state: State, certified: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.pipeline.release.solve.questions_of", lambda *_: None)
    other = state.run("single", {"housing_units": ASKED})
    same = state.totals(other) == state.totals(certified)
    assert same.mean() > 0.99  # where two roundings cost the same, either may be taken


def test_where_they_harm_the_certificate_turns_them_off(tmp_path: Path) -> None:
    """Units that say nothing of the persons, believed far more than they deserve."""
    shuffled, believed = State(tmp_path, is_shuffled=True), {**ASKED, "variance_factor": 0.1}
    with_them = shuffled.run("with", {"housing_units": believed})
    without = shuffled.run("without", {})
    found = said(with_them)
    assert found["way"] == "plain"
    assert found["errors"]
    assert np.array_equal(shuffled.totals(with_them), shuffled.totals(without))
    forced = shuffled.run("forced", {"housing_units": {**believed, "only_if_better": False}})
    assert said(forced)["way"] == "totals"
    assert shuffled.error(forced) > 1.1 * shuffled.error(without)


def test_cells_may_be_expected_too(state: State, plain: Path) -> None:
    asked = {**ASKED, "expect": "composition", "only_if_better": False}
    out = state.run("composition", {"housing_units": asked})
    found = said(out)
    assert found["way"] == "composition"
    assert {e["way"] for e in found["errors"]} == {"plain", "totals", "composition"}
    assert tree_is_consistent(out, toy.LEVELS)
    assert state.error(out) < 0.85 * state.error(plain)


def test_who_loses_is_reported_beside_the_plain_result(
    state: State, plain: Path, certified: Path
) -> None:
    evaluation = json.loads((truth_of(certified).evaluation).read_text())
    rows = {(row["kind"], row["label"]): row for row in evaluation["households"]}
    everybody = rows["totals", "all"]
    families = [code[:7] for code in state.codes]
    live = np.array([state.persons[np.array(families) == f].sum() > 0 for f in families])
    assert live.all()
    has_units = said(certified)["children"] + said(certified)["flat"]
    assert everybody["answers"] == has_units
    n = len(state.codes)
    assert everybody["mse"] == pytest.approx(state.error(certified) * n / has_units)
    # Solved one by one here, where of two roundings that cost the same the other may be taken.
    assert everybody["mse_plain"] == pytest.approx(state.error(plain) * n / has_units, rel=0.02)
    assert rows["persons per unit", "1.5 and more"]["bias"] < 0
    assert {kind for kind, _ in rows} == {
        "totals",
        "sums",
        "persons per unit",
        "concentrated groups",
    }
    (section,) = households_section(adapter(Evaluation).validate_python(evaluation).households)
    assert section.title == "Housing units as a covariate"
    public = (release_of(certified).report).read_text()
    assert "Totals expected by housing units" in public
    assert "Housing units as a covariate" not in public
    assert "households" not in json.loads(
        (plain / "confidential/products/persons/evaluation.json").read_text()
    )


@pytest.mark.parametrize(
    ("solve", "changes", "message"),
    [
        ({}, {"invariants": []}, "housing_units: are not stated"),
        ({"empirical_bayes": ["block"]}, {}, "which cannot be combined with housing_units"),
        ({"l2_passes": {"block": [["total"]]}}, {}, "which cannot be combined with housing_units"),
        ({"method": "maxfit"}, {}, "method: goes without housing units"),
        ({"housing_units": {"geolevels": ["state"]}}, {}, "are not counted there; got state"),
        ({"housing_units": {"geolevels": ["parish"]}}, {}, "are not counted there; got parish"),
        (
            {"fit_to": "level"},
            {"privacy": {"rho": "1", "on_demand_queries": ["detailed"]}},
            "on_demand_queries: go without housing units",
        ),
    ],
)
def test_what_cannot_be_expected_is_refused(
    tmp_path: Path, solve: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    state = State(tmp_path)
    if "privacy" in changes:
        original = toy.run_file(tmp_path)["privacy"]
        changes = {"privacy": {**original, **changes["privacy"]}}
        changes["privacy__rho"] = changes["privacy"]["rho"]
    config = state.configuration("out", {"housing_units": ASKED, **solve}, **changes)
    with pytest.raises(ConfigError, match=message):
        load_runnable(config)


def test_validate_is_content(state: State) -> None:
    config = state.configuration("said", {"housing_units": ASKED})
    result = CliRunner().invoke(app, ["validate", str(config)])
    assert result.exit_code == 0, result.output


# --- the ready run on real blocks ----------------------------------------------------------------


def test_the_ready_run_expects_totals_of_real_blocks(tmp_path: Path) -> None:
    """conf/run/cook-2010.yaml on some of its tracts: no person where no quarters are."""
    run_file = ROOT / "conf" / "run" / "cook-2010.yaml"
    document = yaml.safe_load(run_file.read_text())
    persons = document["products"]["persons"]
    blocks = pq.read_table((run_file.parent / persons["data"]["path"]).resolve()).slice(1800, 600)
    pq.write_table(blocks, tmp_path / "blocks.parquet")
    assert document["products"]["persons"]["solve"]["housing_units"] == ASKED
    (quarters,) = [one for one in persons["invariants"] if "living_quarters" in one]
    persons["data"]["path"] = quarters["table"]["path"] = str(tmp_path / "blocks.parquet")
    persons["schema"] = str((run_file.parent / persons["schema"]).resolve())
    allocation = (run_file.parent / persons["privacy"]["allocation"]).resolve()
    persons["privacy"]["allocation"] = str(allocation)
    persons["output"] = {"microdata": []}
    document["privacy"] = {"randomness": {"source": "seeded_not_for_release", "seed": 3}}
    document["output"] = {"directory": str(tmp_path / "out")}
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(document))
    out = execute(load_run(path))
    found = said(out)
    assert found["certified"]
    assert {error["way"] for error in found["errors"]} >= {"plain", "totals"}
    counts = sparse(release_of(out).counts("block"))
    released = {code: sum(cells.values()) for code, cells in counts.items()}
    rows = blocks.select(["geoid", "hu", "gq", "pop"]).to_pylist()
    assert sum(released.values()) == sum(row["pop"] for row in rows)
    empty = [row["geoid"] for row in rows if row["hu"] + row["gq"] == 0]
    assert len(empty) == 164
    assert not any(released.get(code) for code in empty)
