"""Counts that regressions correct, learned from public blocks of other places: real blocks of Hawaii."""

from __future__ import annotations

import json
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from das.errors import ConfigError, OutputError
from das.mechanisms.entropy import NoiseKey
from jobs.cli.main import app
from jobs.design.learning import simulate
from jobs.design.requests import GenerateSpec
from jobs.design.synthetic.generate import generate
from jobs.pipeline.confidential.inputs import check_inputs
from jobs.pipeline.config.learned import forest_document, write_learned
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.released import load_release
from jobs.pipeline.repeat import Repeat
from jobs.pipeline.run import run_measuring
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.storage.layout import ReplicateLayout
from jobs.pipeline.storage.ledger import read_ledger
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.executor import LocalTasks
from jobs.pipeline.tasks.progress import Reporter
from solvers.learned.forest import fit_forest
from tests.builders.in_process import execute
from tests.builders.places import release_of
from tests.builders.run_files import load_runnable
from tests.checkout import ROOT
from tests.release_checks import sparse, tree_is_consistent

RUN = ROOT / "conf" / "run" / "hi-2010.yaml"
COOK = ROOT / "conf" / "run" / "cook-2010.yaml"
FILES = sorted((ROOT / "conf" / "learned").glob("*.yaml"))
WITH_UNITS = ROOT / "conf" / "learned" / "block16-units-cook-2010.yaml"
LEVELS = ["state", "county", "tract", "block_group", "block"]


class Place:
    """Some blocks of Hawaii, and run files for them."""

    def __init__(self, folder: Path, number: int = 2_500) -> None:
        self.folder, self.blocks = folder, folder / "blocks.parquet"
        table = pq.read_table(ROOT / "tests" / "data" / "hi_2010_block.parquet").slice(0, number)
        pq.write_table(table, self.blocks)
        names = [name for name in table.column_names if name[:2] in ("m_", "a_")]
        truth = np.array([table[name].to_numpy() for name in names]).T
        self.truth = dict(zip(table["geoid"].to_pylist(), truth, strict=True))

    def run_file(self, name: str, learned: object, **changes: Any) -> Path:
        """A run file with its output folder `name`; None for no regressions."""
        document = yaml.safe_load(RUN.read_text())
        persons = document["products"]["persons"]
        for section, key in ((persons, "schema"), (persons["privacy"], "allocation")):
            section[key] = str((RUN.parent / section[key]).resolve())
        persons["data"]["path"] = str(self.blocks)
        persons["output"] = {"microdata": []}
        stated = persons["solve"].pop("learned")
        if learned is not None:
            ready = RUN.parent / stated["file"]
            file = ready if learned == "ready" else learned
            persons["solve"]["learned"] = {**stated, "file": str(file)}
        persons["solve"] |= changes.pop("solve", {})
        persons["privacy"] |= changes
        document["privacy"] = {"randomness": {"source": "seeded_not_for_release", "seed": 3}}
        document["output"] = {"directory": str(self.folder / name)}
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    def errors(self, out: Path) -> np.ndarray:
        """Mean squared error of totals, persons of voting age and cells of blocks."""
        counts = sparse(release_of(out).counts("block"))
        off = []
        for code, truth in self.truth.items():
            released = np.zeros(16)
            for cell, count in counts.get(code, {}).items():
                released[cell] = count
            off.append(released - truth)
        errors = np.array(off)
        kinds = errors.sum(1, keepdims=True), errors[:, 8:].sum(1, keepdims=True), errors
        return np.array([(kind**2).mean() for kind in kinds])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The blocks."""
    return Place(tmp_path_factory.mktemp("learned"))


@pytest.fixture(scope="module")
def plain(place: Place) -> Path:
    """The run without regressions."""
    return execute(load_run(place.run_file("plain", None)))


@pytest.fixture(scope="module")
def corrected(place: Place) -> Path:
    """The run with the ready regressions."""
    return execute(load_run(place.run_file("corrected", "ready")))


def solved(out: Path) -> dict[str, Any]:
    """How the manifest describes the blocks."""
    found: dict[str, Any] = json.loads(release_of(out).manifest.read_text())["solve"][-1]
    return found


def test_errors_of_blocks_fall_and_counts_add_up(
    place: Place, plain: Path, corrected: Path
) -> None:
    assert tree_is_consistent(corrected, LEVELS)
    ratios = place.errors(corrected) / place.errors(plain)
    assert (ratios < [0.75, 0.85, 0.9]).all(), ratios
    for geolevel in LEVELS[:-1]:
        counts = [release_of(out).counts(geolevel) for out in (plain, corrected)]
        assert sparse(counts[0]) == sparse(counts[1])


def test_the_estimated_errors_are_near_the_true_ones(
    place: Place, plain: Path, corrected: Path
) -> None:
    """The standard error of either is about a tenth with so few blocks."""
    stated = solved(corrected)["learned"]
    assert stated["corrected"] == ["detailed", "ethnicity_race", "total", "votingage"]
    errors = {(e["query"], e["way"]): e["error"] for e in stated["errors"]}
    for out, way in ((plain, "plain"), (corrected, "learned")):
        total, _, cells = place.errors(out)
        assert errors["total", way] == pytest.approx(total, rel=0.25)
        assert errors["detailed", way] == pytest.approx(cells, rel=0.25)


def test_the_release_says_what_it_was_learned_from(corrected: Path) -> None:
    ready = yaml.safe_load((RUN.parent / "../learned/block16-de-ri-2010.yaml").read_text())
    learned = solved(corrected)["learned"]
    assert learned["digest"] == ready["digest"]
    manifest = json.loads(release_of(corrected).manifest.read_text())
    assert manifest["solution"]["settings"]["solve"]["learned"]["file"] == ready["digest"]
    assert learned["source"].startswith("public de_2010_block.parquet, ri_2010_block.parquet: das")
    report = release_of(corrected).report.read_text()
    assert "de_2010_block.parquet" in report


def test_unbiased_estimates_stay(plain: Path, corrected: Path) -> None:
    tables = [
        Dataset.open(out / "release/products/persons/estimates/tables/level=block").read()
        for out in (plain, corrected)
    ]
    assert tables[0].num_rows
    assert tables[0].equals(tables[1])


def test_the_release_alone_is_verified(corrected: Path, tmp_path: Path) -> None:
    page = tmp_path / "certificate.html"
    words = ["verify", str(corrected / "release"), "--certificate", str(page)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    tables = "public de_2010_block.parquet, ri_2010_block.parquet."
    assert f"Counts were corrected by regressions on {tables}" in page.read_text()


def test_replicates_are_corrected_too(corrected: Path, tmp_path: Path) -> None:
    resolved = load_run(corrected.parent / "corrected.yaml")
    release = release_of(corrected)
    made = ReplicateLayout(tmp_path, exact=release, made={"persons": tmp_path})

    def key(level: int, *, is_on_demand: bool = False) -> NoiseKey:
        return NoiseKey.for_testing(5, (level, int(is_on_demand)))

    repeat = Repeat(resolved.plan, release, made, key, LocalTasks(Sizing(1)))
    repeat.measure()
    repeat.solve()
    facts = Dataset.open(made.counts("block")).facts
    assert facts["learned"]["corrected"]


def test_training_compares_every_block_with_itself(tmp_path: Path) -> None:
    """Only children are left out; those after them keep their own truth."""
    place = Place(tmp_path, 600)
    table = pq.read_table(place.blocks)
    groups = [code[:12] for code in table["geoid"].to_pylist()]
    kept = [at for at, group in enumerate(groups) if at == 0 or group != groups[0]]
    pq.write_table(table.take(kept), place.blocks)
    codes = pq.read_table(place.blocks)["geoid"].to_pylist()
    wanted = [int(place.truth[code].sum()) for code in codes if code[:12] != groups[0]]
    assert len(wanted) == 600 - 372
    for name, (columns, missing) in simulate(RUN, place.blocks, 1)[2]:
        if name == "total":
            assert (columns[0] // 64 + missing).tolist() == wanted


def test_housing_units_are_those_of_the_public_table(tmp_path: Path) -> None:
    """The run file names those of its own blocks, which no simulation on another place may use."""
    table = pq.read_table(ROOT / "tests" / "data" / "cook_2010_block.parquet").slice(0, 400)
    codes, units = table["geoid"].to_pylist(), table["hu"].to_pylist()
    moved = dict(zip(codes, (2 * one for one in units), strict=True))
    blocks = tmp_path / "blocks.parquet"
    at = table.column_names.index("hu")
    pq.write_table(table.set_column(at, "hu", [[*moved.values()]]), blocks)
    product, _, found = simulate(COOK, blocks, 1)
    assert product.plan.limits.quarters is not None
    (columns,) = (columns for name, (columns, _) in found if name == "total")
    seen = [one // 64 for one in columns[7].tolist()]
    assert any(seen)
    assert {*seen} <= {*moved.values()}
    assert sum(seen) <= sum(moved.values())
    assert sum(seen) > sum(units)


@pytest.fixture(scope="module")
def by_itself(place: Place) -> Path:
    """The run that learns from its own noisy answers, on blocks that it solved once."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("jobs.pipeline.learning.DRAWS", 2)
        return execute(load_run(place.run_file("itself", "self")))


def test_a_run_can_learn_from_its_own_noisy_answers(
    place: Place, plain: Path, by_itself: Path
) -> None:
    """Nobody needs public counts of other places, and no budget is spent."""
    releases = [release_of(out) for out in (plain, by_itself)]
    spent = [read_ledger(release.ledger).planned.entries for release in releases]
    assert spent[0] == spent[1]
    document = yaml.safe_load(releases[1].learned.read_text())
    assert (document["tables"], document["sketch"]) == ([], [])
    manifest = json.loads(releases[1].manifest.read_text())
    assert manifest["solution"]["settings"]["solve"]["learned"]["file"] == "self"
    assert solved(by_itself)["learned"]["digest"] == document["digest"]
    assert solved(by_itself)["learned"]["source"].startswith("released counts")
    assert sparse(releases[0].counts("tract")) == sparse(releases[1].counts("tract"))
    ratios = place.errors(by_itself) / place.errors(plain)
    assert (ratios < [0.85, 0.92, 0.95]).all(), ratios
    assert not (by_itself / "learning").exists()
    verified = CliRunner().invoke(app, ["verify", str(by_itself / "release")])
    assert verified.exit_code == 0, verified.output


def test_regressions_of_a_run_are_learned_again_for_other_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a stopped run with other settings has learned is not used."""
    monkeypatch.setattr("jobs.pipeline.learning.DRAWS", 1)
    resolved = load_run(Place(tmp_path, 400).run_file("itself", "self"))
    release = resolved.last.release
    run_measuring(resolved, Reporter(quiet=True), LocalTasks(Sizing(1)))
    shutil.copy(FILES[1], release.learned)
    out = execute(resolved)
    own = yaml.safe_load(release.learned.read_text())
    assert own["source"].startswith("das run, with settings")
    assert solved(out)["learned"]["digest"] == own["digest"]
    received = load_release(out / "release").plan.solving.learned
    assert received is not None
    assert received.is_own


def test_training_needs_public_tables(place: Place, tmp_path: Path) -> None:
    run_file = place.run_file("alone", None)
    result = CliRunner().invoke(app, ["plan", str(run_file), "--learn", str(tmp_path / "file")])
    assert "needs --public" in str(result.exception)


# --- who is refused ------------------------------------------------------------------------------


def without(run_file: Path) -> None:
    """Remove `solve.learned` from a run file, as messages advise."""
    document = yaml.safe_load(run_file.read_text())
    del document["products"]["persons"]["solve"]["learned"]
    run_file.write_text(yaml.safe_dump(document))


def learned_from(place: Place, name: str, **changes: Any) -> Path:
    """The ready regressions as a file of their own, some keys changed."""
    document = yaml.safe_load(FILES[1].read_text())
    document.pop("digest")
    file = place.folder / f"{name}.learned.yaml"
    write_learned(file, document | changes)
    return file


def test_regressions_of_shuffled_truth_correct_nothing(
    place: Place, plain: Path, tmp_path: Path
) -> None:
    """Trained on counts of other blocks than those that were measured."""
    rng, rows = np.random.default_rng(2), dict[str, Any]()
    few = Place(tmp_path, 500)
    for name, (columns, missing) in simulate(RUN, few.blocks, 1)[2]:
        released = columns[0] // 64
        rows[name] = columns, (rng.permutation(missing + released) - released).astype(float)
    forests = {name: forest_document(fit_forest(*of_query)) for name, of_query in rows.items()}
    file = learned_from(place, "shuffled", forests=forests)
    out = execute(load_run(place.run_file("shuffled", file)))
    assert solved(out)["learned"]["corrected"] == []
    blocks = [sparse(release_of(one).counts("block")) for one in (plain, out)]
    assert blocks[0] == blocks[1]


def test_training_on_the_input_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the digest of the file, and where the truth is read by its histograms."""
    monkeypatch.setattr("jobs.design.learning.DRAWS", 1)
    place = Place(tmp_path, 500)
    file = place.folder / "own.learned.yaml"
    words = ["plan", str(RUN), "--learn", str(file), "--public", str(place.blocks)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    run_file = place.run_file("own", file)
    with pytest.raises(ConfigError, match="was trained on the input of this run"):
        check_inputs(load_runnable(run_file))  # as `das validate` and `das run` do first
    table = pq.read_table(place.blocks)
    pq.write_table(table.take(np.arange(len(table))[::-1]), place.blocks)  # as another file
    check_inputs(load_runnable(run_file))
    with pytest.raises(ConfigError, match="was trained on the input of this run"):
        execute(load_run(run_file))
    assert not release_of(place.folder / "own").measurements("block").exists()
    without(run_file)
    execute(load_run(run_file))
    with pytest.raises(OutputError, match="exists"):
        write_learned(file, {})


@pytest.mark.parametrize("key", ["schema", "allocation", "rho", "living_quarters"])
def test_other_plans_are_refused(place: Place, key: str) -> None:
    """Trees were learned for the noise of one plan."""
    run_file = place.run_file(key, "ready")
    document = yaml.safe_load(run_file.read_text())
    persons = document["products"]["persons"]
    if key == "living_quarters":
        persons["solve"]["learned"]["file"] = str(WITH_UNITS)
    elif key == "rho":
        persons["privacy"]["rho"] = "2"
    else:
        section = persons if key == "schema" else persons["privacy"]
        changed = yaml.safe_load(Path(section[key]).read_text())
        if key == "schema":
            groups = {"minor": ["under_18"], "adult": ["18_and_over"]}
            changed["recodes"] = [{"name": "age", "attribute": "votingage", "groups": groups}]
        else:
            shares = changed["levels"]["block"]["queries"]
            shares["total"], shares["votingage"] = shares["votingage"], shares["total"]
        section[key] = str(place.folder / f"{key}.{key}.yaml")
        Path(section[key]).write_text(yaml.safe_dump(changed))
    run_file.write_text(yaml.safe_dump(document))
    name = {"rho": "budget"}.get(key, key)
    with pytest.raises(ConfigError, match=f"was learned for another {name}"):
        load_run(run_file)
    without(run_file)
    load_runnable(run_file)


def test_another_mistake_is_reported_first(place: Place) -> None:
    """Without a budget, nobody can say whether regressions fit it."""
    run_file = place.run_file("pure", "ready")
    document = yaml.safe_load(run_file.read_text())
    document["privacy"]["definition"] = "pure"
    run_file.write_text(yaml.safe_dump(document))
    with pytest.raises(ConfigError, match="rho"):
        load_run(run_file)


def test_files_that_were_cut_off_are_refused(place: Place) -> None:
    lines = FILES[1].read_text().splitlines(keepends=True)
    file = place.folder / "cut.learned.yaml"
    for kept, message in ((len(lines) - 1, "digest"), (len(lines) // 2, "is required")):
        file.write_text("".join(lines[:kept]))
        with pytest.raises(ConfigError, match=message):
            load_run(place.run_file("cut", file))
    file.write_text("".join(lines).replace("bytes: 3", "bytes: 4", 1))
    with pytest.raises(ConfigError, match="was cut off or changed"):
        load_run(place.run_file("cut", file))


@pytest.mark.parametrize(
    ("solve", "message"),
    [
        ({"empirical_bayes": ["block"]}, "cannot be combined with learned"),
        ({"learned": {"geolevels": ["tract"], "file": str(FILES[1])}}, "another geolevel"),
        ({"learned": {"geolevels": [], "file": str(FILES[1])}}, "at least 1 item"),
    ],
)
def test_other_settings_are_refused(place: Place, solve: dict[str, Any], message: str) -> None:
    run_file = place.run_file("settings", "ready", solve=solve)
    with pytest.raises(ConfigError, match=message):
        load_runnable(run_file)


def test_a_run_with_on_demand_queries_cannot_learn_from_itself(place: Place) -> None:
    """Their noise is drawn once, for counts that are final."""
    run_file = place.run_file("lazy", "self", on_demand_queries=["votingage"])
    document = yaml.safe_load(run_file.read_text())
    privacy = document["products"]["persons"]["privacy"]
    allocation = yaml.safe_load(Path(privacy["allocation"]).read_text())
    queries = allocation["levels"]["block"]["queries"]
    queries["detailed"] = str(Fraction(queries["detailed"]) + Fraction(queries.pop("votingage")))
    privacy["allocation"] = str(place.folder / "lazy.allocation.yaml")
    Path(privacy["allocation"]).write_text(yaml.safe_dump(allocation))
    run_file.write_text(yaml.safe_dump(document))
    with pytest.raises(ConfigError, match="is not for on-demand queries"):
        load_runnable(run_file)


# --- the ready files -----------------------------------------------------------------------------


def test_regressions_of_generated_persons_correct_other_ones(tmp_path: Path) -> None:
    """In the 2,016 cells of the redistricting data, for which no public blocks exist."""
    generate(GenerateSpec(blocks=300, seed=2, format="histograms"), tmp_path / "data")
    text = (ROOT / "conf/run/state-plan.yaml").read_text().replace("pl94-2020", "pl94-optimised")
    document = yaml.safe_load(text.replace("../", f"{ROOT}/conf/"))
    persons = document["products"]["persons"]
    document["geography"]["geounits"] = {"path": str(tmp_path / "data/geounits.parquet")}
    persons["data"]["path"] = str(tmp_path / "data/histograms")
    file = ROOT / "conf/learned/pl94-generated.yaml"
    persons["solve"]["learned"] = {"geolevels": ["block"], "file": str(file)}
    persons["output"] = {"microdata": [], "intervals": False}
    document["privacy"] = {"randomness": {"source": "seeded_not_for_release", "seed": 1}}
    document["output"] = {"directory": str(tmp_path / "out")}
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(document))
    stated = solved(execute(load_run(path)))["learned"]
    assert stated["source"].startswith("public generated_pl94_block.parquet")
    assert {"total", "detailed"} <= {*stated["corrected"]}
    errors = {(e["query"], e["way"]): e["error"] for e in stated["errors"]}
    for query, most in (("total", 0.8), ("hhgq", 0.8), ("detailed", 0.9)):
        assert errors[query, "learned"] < most * errors[query, "plain"], query


@pytest.mark.parametrize("name", ["hi-2010", "ri-2010", "de-2010"])
def test_the_ready_files_fit_the_ready_runs(name: str) -> None:
    """Another schema, allocation or budget in `conf` needs `make learned`."""
    path = ROOT / "conf" / "run" / f"{name}.yaml"
    learned = load_runnable(path).plan.solving.learned
    assert learned is not None
    assert f"{name[:2]}_2010_block.parquet" not in learned.source


def test_regressions_with_housing_units_fit_a_run_with_them(tmp_path: Path) -> None:
    """Trained on the extract, so that its own run is refused; for other blocks they fit."""
    document = yaml.safe_load(COOK.read_text())
    text = COOK.read_text().replace("../", f"{COOK.parent.parent}/")
    text = text.replace(f"{COOK.parent.parent}/{COOK.parent.parent}/", f"{ROOT}/")
    document = yaml.safe_load(text)
    solve = document["products"]["persons"]["solve"]
    del solve["housing_units"]
    solve["learned"] = {"geolevels": ["block"], "file": str(WITH_UNITS)}
    path = tmp_path / "cook.yaml"
    path.write_text(yaml.safe_dump(document))
    resolved = load_runnable(path)
    assert resolved.plan.solving.learned is not None
    with pytest.raises(ConfigError, match="was trained on the input of this run"):
        check_inputs(resolved)


def test_one_command_makes_the_ready_files() -> None:
    made = (ROOT / "Makefile").read_text()
    for file in FILES:
        assert yaml.safe_load(file.read_text())["source"].removeprefix("das ") in made
