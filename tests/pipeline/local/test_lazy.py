"""On-demand queries on the toy state: drawn once, where the parent has persons, and nothing lost by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml

from das.errors import ConfigError, LedgerError, OutputError
from das.mechanisms.entropy import NoiseKey
from das.queries.query import parse_query
from jobs.pipeline.confidential.measure import MeasureStage
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.product import Resolved
from jobs.pipeline.config.runnable import require_runnable
from jobs.pipeline.release.estimate import EstimateStage, LevelEstimator
from jobs.pipeline.release.level import LevelReader
from jobs.pipeline.release.pieces import read_pieces
from jobs.pipeline.release.solve import solve_level
from jobs.pipeline.run import do_stages, open_job
from jobs.pipeline.storage.answers import read_drawn
from jobs.pipeline.storage.dataset import Dataset, dataset_digest, is_published
from jobs.pipeline.storage.geography import read_geography
from jobs.pipeline.storage.histograms import read_counts
from jobs.pipeline.storage.journal import read_journal
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.storage.ledger import record_measured, recorded_draws
from jobs.pipeline.tasks.batches import Batch
from jobs.pipeline.tasks.progress import Reporter
from tests.builders import in_process, toy
from tests.builders.datasets import MEASUREMENTS_OF_FORMAT_1, publish_tables, rows_of
from tests.builders.places import release_of
from tests.checkout import ROOT

LAZY = ["detailed", "sex"]
KEY = NoiseKey.for_testing(5)


def configure(folder: Path, lazy: list[str], **changes: Any) -> Resolved:
    folder.mkdir(exist_ok=True)
    toy.write_records(folder)
    wanted = {"privacy__on_demand_queries": lazy, "solve": {"fit_to": "level"}, **changes}
    return load_run(toy.configuration(folder, **wanted))


def work(resolved: Resolved, levels: int = 4) -> ReleaseLayout:
    """Measure and solve the first geolevels, one after the other."""
    tasks = in_process.tasks_of(resolved.config)
    with open_job(resolved, Reporter(quiet=True), tasks=tasks) as job:
        do_stages(job, ("plan", "read"))
        do_stages(job, ("resolve_constraints",))
        product = resolved.last
        stage = MeasureStage(product.plan, product.release, product.confidential, tasks)
        for level in range(levels):
            stage.measure(level, KEY)
        if fit_to_of(resolved) == "tree":
            estimate = EstimateStage(LevelEstimator(product.plan, product.release, (), 0.9), tasks)
            for level in range(levels - 2, -1, -1):
                estimate.climb(level)
        for level in range(levels):
            stage.measure(level, KEY, is_on_demand=True)
            solve_level(
                product.plan.levels[level], plan=product.plan, release=product.release, tasks=tasks
            )
    return release_of(resolved.config.output.directory)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Resolved, ReleaseLayout, ReleaseLayout]:
    """The same state, lazy and not."""
    folder = tmp_path_factory.mktemp("lazy")
    resolved = configure(folder / "lazy", LAZY)
    return resolved, work(resolved), work(configure(folder / "eager", []))


def fit_to_of(resolved: Resolved) -> str:
    return resolved.plan.solving.fit_to


def rows(release: ReleaseLayout, geolevel: str) -> dict[tuple[str, str], dict[str, Any]]:
    """All noisy answers of a geolevel; `positions` are None where all were drawn."""
    answers = [{**row, "positions": None} for row in rows_of(release.measurements(geolevel))]
    if is_published(release.lazy_measurements(geolevel)):
        answers += rows_of(release.lazy_measurements(geolevel))
    return {(row["geocode"], row["query"]): row for row in answers}


def test_drawn_are_the_answers_about_positive_cells_of_the_parent(both):
    resolved, lazy, _ = both
    plan, dead = resolved.plan, 0
    for level, geolevel in enumerate(plan.spine.levels[1:], 1):
        table = read_geography(lazy, geolevel)
        measured = [row for row in table.to_pylist() if not row["only_child"]]
        found = rows(lazy, geolevel)
        assert len(found) == 3 * len(measured)
        for row in measured:
            above = read_counts(lazy, plan.spine.levels[level - 1], [row["parent"]], 6)
            dead += 6 - len(above.cells)
            for name in LAZY:
                held = found[row["geocode"], name]
                query = parse_query(plan.schema, name)
                assert held["positions"] == sorted({*query.rows_of(above.cells)})
                assert len(held["answers"]) == len(held["positions"])
            assert found[row["geocode"], "total"]["positions"] is None
        complete = Dataset.open(lazy.measurements(geolevel))
        assert [one["query"] for one in complete.facts["queries"]] == ["total"]
        assert complete.facts["lazy_queries"] == []
        drawn = Dataset.open(lazy.lazy_measurements(geolevel))
        assert drawn.facts["lazy_queries"] == sorted(LAZY)
    assert dead > 0


def test_the_root_and_all_live_cells_have_the_noise_they_would_have_had(both):
    _, lazy, eager = both
    assert rows(lazy, "state") == rows(eager, "state")
    same = 0
    theirs = rows(eager, "county")
    for name, row in rows(lazy, "county").items():
        if row["positions"] is None or len(row["positions"]) == len(theirs[name]["answers"]):
            assert row["answers"] == theirs[name]["answers"]
            same += row["positions"] is not None
    assert same > 0


def test_counts_are_those_of_complete_measurements_with_the_same_numbers(
    both, tmp_path, monkeypatch
):
    """Fill the gaps of the on-demand answers with numbers nobody drew: the counts stay the same.

    Lazy families are solved one by one. So are the others here, since the compiled loop for
    families may break a tie between two roundings in another way.
    """
    monkeypatch.setattr("jobs.pipeline.release.solve.pack_families", lambda *_: None)
    resolved, lazy, _ = both
    eager = configure(tmp_path / "filled", []).plan
    release = release_of(tmp_path)
    release.root.mkdir(parents=True)
    (release.root / "invariants").symlink_to(lazy.root / "invariants")
    (release.shared / "geography").symlink_to(lazy.shared / "geography")
    for level, geolevel in enumerate(eager.spine.levels):
        fill(
            lazy, release, geolevel, {q.query.name: q.query.size for q in queries(resolved, level)}
        )
        solve_level(
            eager.levels[level],
            plan=eager,
            release=release,
            tasks=in_process.tasks_of(resolved.config),
        )
        tables = [Dataset.open(one.counts(geolevel)).read() for one in (lazy, release)]
        assert tables[0].equals(tables[1])


def queries(resolved: Resolved, level: int) -> Any:
    return resolved.plan.strategy.levels[level].queries


def fill(lazy: ReleaseLayout, full: ReleaseLayout, geolevel: str, sizes: dict[str, int]) -> None:
    out = []
    for row in rows(lazy, geolevel).values():
        answers = np.full(sizes[row["query"]], 1_000_000)
        positions = row.pop("positions", None)
        answers[slice(None) if positions is None else positions] = row["answers"]
        out.append({**row, "answers": answers.tolist()})
    publish_tables(
        full.measurements(geolevel), [pa.Table.from_pylist(out, schema=MEASUREMENTS_OF_FORMAT_1)]
    )


def test_a_geolevel_waits_for_the_one_above(tmp_path):
    resolved = configure(tmp_path, LAZY)
    tasks = in_process.tasks_of(resolved.config)
    with open_job(resolved, Reporter(quiet=True), tasks=tasks) as job:
        do_stages(job, ("plan", "read"))
        product = resolved.last
        stage = MeasureStage(product.plan, product.release, product.confidential, tasks)
        stage.measure(1, KEY)
        with pytest.raises(OutputError, match="counts/level=state: is not complete"):
            stage.measure(1, KEY, is_on_demand=True)


def test_what_is_published_is_never_drawn_again(both):
    resolved, lazy, _ = both
    levels = resolved.plan.spine.levels
    places = [*map(lazy.measurements, levels), *map(lazy.lazy_measurements, levels[1:])]
    before = {place: dataset_digest(place) for place in places}
    stage = MeasureStage(resolved.plan, lazy, None, None)  # type: ignore[arg-type]
    for level in range(4):
        stage.measure(level, KEY)  # has nothing to read the truth with
        stage.measure(level, KEY, is_on_demand=True)
    assert before == {place: dataset_digest(place) for place in places}
    record_measured(lazy.ledger, "county", before[lazy.measurements("county")])
    drawn = before[lazy.lazy_measurements("county")]
    record_measured(lazy.ledger, "county", drawn, is_on_demand=True)
    for is_on_demand in (False, True):
        with pytest.raises(LedgerError, match="other measurements were recorded before"):
            record_measured(lazy.ledger, "county", "0" * 64, is_on_demand=is_on_demand)
    assert recorded_draws(lazy) == {
        lazy.measurements("county"): before[lazy.measurements("county")],
        lazy.lazy_measurements("county"): drawn,
    }


def test_answers_that_were_not_drawn_are_missed(both):
    resolved, lazy, _ = both
    plan = resolved.plan
    table = read_geography(lazy, "tract").to_pylist()
    codes = np.array([row["geocode"] for row in table if row["parent"] == "99003"], object)
    above = read_counts(lazy, "county", ["99003"], 6)
    missing = np.setdiff1d(np.arange(6), above.cells)
    detailed = parse_query(plan.schema, "detailed")
    found = read_drawn(Dataset.open(lazy.lazy_measurements("tract")), [detailed], codes)[0]
    assert found.of(slice(0, 2), above.cells).shape == (2, len(above.cells))
    with pytest.raises(OutputError, match="solved again"):
        found.of(slice(0, 2), missing[:1])


@pytest.mark.parametrize(
    ("lazy", "solve", "message"),
    [
        (["age"], {"fit_to": "level"}, "is not measured below the root; got age"),
        (["total", "sex", "detailed"], {}, "tree needs estimates, and there are none"),
        (["detailed"], {"empirical_bayes": ["block"]}, "needs all answers to every cell"),
    ],
)
def test_a_configuration_that_cannot_be_lazy_is_refused(tmp_path, lazy, solve, message):
    with pytest.raises(ConfigError, match=message):
        require_runnable(configure(tmp_path, lazy, solve=solve))


def test_full_targets_are_estimates_of_the_complete_queries_beside_own_lazy_answers(tmp_path):
    """Node targets of a county and the root, from their definition; the counts are another."""
    resolved = configure(tmp_path / "full", ["detailed"], solve={})
    plan, release = resolved.plan, work(resolved)
    assert plan.solving.fit_to == "tree"
    detailed = parse_query(plan.schema, "detailed")
    for index in (0, 1):
        level = plan.levels[index]
        codes = [row["geocode"] for row in read_geography(release, level.name).to_pylist()]
        batch = Batch(index, codes[0], codes[-1], len(codes))
        reader = LevelReader(plan, release, index)
        (piece,) = read_pieces(reader, batch)
        subtree, targets = reader.targets(reader.rows(batch)), piece.targets
        assert [query.name for query in targets.queries] == ["total", "sex", "detailed"]
        for position in (0, 1):
            assert np.array_equal(targets.answers[position], subtree.answers[position])
            assert np.array_equal(targets.weights[position], subtree.weights[:, position])
        held = [rows(release, level.name)[code, "detailed"] for code in codes]
        assert targets.weights[2] == pytest.approx([1 / row["variance"] for row in held])
        for at, row in enumerate(held):
            found, positions = targets.answers[2], row["positions"]
            if positions is None:
                assert found[at].tolist() == row["answers"]
            else:
                here = found.of(slice(at, at + 1), np.array(positions, np.int64))
                assert here[0].tolist() == row["answers"]
        if index == 0:
            # What is below says more of sex than the geolevel alone, as in a run without lazies.
            own = 1 / plan.noise(0, 0)[1].mechanism.variance()
            assert (targets.weights[1] > 1.1 * own).all()
    assert detailed.name in [query.name for query in plan.levels[1].on_demand]


@pytest.mark.parametrize("solve", [{}, {"fit_to": "level"}])
def test_a_run_goes_from_input_to_a_verified_release(tmp_path, das, solve):
    resolved = configure(tmp_path / "run", LAZY, solve=solve)
    out = in_process.execute(resolved)
    config = tmp_path / "run" / "run.yaml"
    code, printed = das("verify", config)
    assert code == 0, printed
    assert "measured lazily" in {line["event"] for line in read_journal(release_of(out).ledger)}
    code, printed = das("inspect", out, "--geounit", "9900100", "--json")
    assert code == 0, printed
    assert {"total", "sex", "detailed"} <= {
        row["query"] for row in json.loads(printed)["measurements"]
    }


def test_damaged_lazy_answers_are_lost(tmp_path, das):
    out = in_process.execute(configure(tmp_path / "run", LAZY))
    dataset = release_of(out).lazy_measurements("tract")
    next(dataset.glob("*.parquet")).unlink()
    code, printed = das("run", out)
    assert code == LedgerError.exit_code
    assert "noisy answers are drawn once" in " ".join(printed.split())


@pytest.mark.parametrize("geolevel", ["state", "block"])
def test_a_geolevel_all_of_whose_queries_are_lazy_is_solved(tmp_path, das, geolevel):
    """By estimates from the other geolevels: there is no complete query to fit weights for."""
    allocation = yaml.safe_load((ROOT / "conf/allocation/toy.yaml").read_text())
    allocation["levels"][geolevel]["queries"] = {"detailed": "1"}
    (tmp_path / "allocation.yaml").write_text(yaml.safe_dump(allocation))
    configure(
        tmp_path / "run",
        ["detailed"],
        privacy__allocation=str(tmp_path / "allocation.yaml"),
        solve={},
    )
    config = tmp_path / "run" / "run.yaml"
    code, printed = das("run", config)
    assert code == 0, printed
    assert das("verify", config)[0] == 0


def test_a_budget_that_leaves_no_noise_is_solved(tmp_path, das):
    """Weights of 1e22 of own on-demand answers, beside bounded ones of estimates, stop no solver."""
    queries = {"age": "1/2", "sex": "1/4", "detailed": "1/4"}
    levels = {level: {"share": "1/4", "queries": queries} for level in toy.LEVELS}
    path = tmp_path / "allocation.yaml"
    path.write_text(yaml.safe_dump({"name": "toy", "levels": levels}))
    configure(
        tmp_path / "run",
        ["age"],
        privacy__rho=None,
        privacy__definition="pure",
        privacy__epsilon="1000000000000",
        privacy__allocation=str(path),
        solve={},
    )
    code, printed = das("run", tmp_path / "run" / "run.yaml")
    assert code == 0, printed
