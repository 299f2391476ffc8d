"""A run whose geolevels measure what each planner chose."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from das.errors import BudgetError, LedgerError, VerificationError
from das.privacy.accounting import rho_from_epsilon
from das.queries.factor import Factor
from das.queries.query import Query
from jobs.cli.main import app
from jobs.design.planning import summary
from jobs.pipeline.config import workload
from jobs.pipeline.config.load import load_run
from jobs.pipeline.release.verify import verify_release
from jobs.pipeline.storage.ledger import record_measured
from tests.builders import toy
from tests.builders.datasets import rows_of
from tests.builders.in_process import execute
from tests.builders.places import release_of
from tests.release_checks import output_equals_input, totals_are_exact, tree_is_consistent

TABLES = {"total": 1, "sex": 1, "age": 1, "detailed": 1}


def configuration(folder: Path, **changes) -> Path:
    """Every planner at one geolevel, two with convex losses; at the county ranges of age and a row."""
    methods = ("auto", "orp", "hdmm", "residual_planner")
    levels = {
        level: {"share": "1/4", "workload": {"method": method, "tables": TABLES}}
        for level, method in zip(toy.LEVELS, methods, strict=True)
    }
    levels["county"]["workload"]["bases"] = {"age": ["ranges", [1, 0, -1]]}
    levels["county"]["workload"]["loss"] = {"power_mean": "3/2"}
    levels["block"]["workload"]["loss"] = {
        "max_weighted_mean": [{"age": 1}, {"total": 1, "sex": 1, "detailed": 1}]
    }
    path = folder / "allocation.yaml"
    path.write_text(yaml.safe_dump({"name": "planned", "levels": levels}))
    return toy.configuration(folder, privacy__allocation=str(path), **changes)


def test_a_planned_run_keeps_every_promise(tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    config = configuration(tmp_path)
    out = execute(config, figures=True)
    assert tree_is_consistent(out, toy.LEVELS)
    assert totals_are_exact(out, "state")
    verify_release(load_run(config).plan, release_of(out))
    facts = json.loads((release_of(out).measurements("county") / "_manifest.json").read_text())[
        "facts"
    ]
    assert {q["query"].partition(" #")[0] for q in facts["queries"]} == {
        "total",
        "residual of sex",
        "residual of age",
        "residual of sex * age",
    }
    report = (release_of(out).report).read_text()
    assert "residual of sex" in report
    assert "charged together" in report


def test_a_planned_run_under_pure_privacy_keeps_every_promise(tmp_path: Path) -> None:
    """Products, ranges with a row, a total that matters most; each query is charged for itself."""
    toy.write_records(tmp_path)
    one = {"method": "hdmm", "tables": TABLES}
    workloads = {level: dict(one) for level in toy.LEVELS}
    workloads["state"]["method"] = "auto"
    workloads["county"] |= {"bases": {"age": ["ranges", [1, 0, -1]]}}
    workloads["tract"] |= {"tables": {"total": 1000, "sex": 1000, "detailed": "1/1000"}}
    levels = {level: {"share": "1/4", "workload": own} for level, own in workloads.items()}
    path = tmp_path / "allocation.yaml"
    path.write_text(yaml.safe_dump({"name": "planned", "levels": levels}))
    pure = {"privacy__definition": "pure", "privacy__rho": None, "privacy__epsilon": "2"}
    config = toy.configuration(tmp_path, privacy__allocation=str(path), **pure)
    out = execute(config)
    assert tree_is_consistent(out, toy.LEVELS)
    assert totals_are_exact(out, "state")
    resolved = load_run(config)
    verify_release(resolved.plan, release_of(out))
    assert len(resolved.plan.strategy.levels[2].queries) > 1
    manifest = json.loads((release_of(out).manifest).read_text())
    assert {row["mechanism"] for row in manifest["budget"]} == {"discrete_laplace"}
    assert {row["charged"] for row in manifest["budget"]} == {"alone"}
    kept = json.loads((release_of(out).planned).read_text())
    assert list(kept["levels"]) == toy.LEVELS
    execute(
        toy.configuration(
            tmp_path,
            privacy__allocation=str(path),
            output__directory=str(tmp_path / "exact"),
            **{**pure, "privacy__epsilon": "1000000"},
        )
    )
    for level in toy.LEVELS:
        assert output_equals_input(tmp_path / "exact", level), level


def test_the_noise_of_planned_strategies_affords_a_larger_rho(tmp_path: Path) -> None:
    """And the losses of this noise keep the target."""
    toy.write_records(tmp_path)
    target = {"privacy__epsilon": "3", "privacy__delta": "1/1000000", "privacy__rho": None}
    config = configuration(tmp_path, privacy__epsilon_from="noise", **target)
    budget = load_run(config).plan.budget
    assert budget.rho > Fraction(102, 100) * rho_from_epsilon(Fraction(3), budget.delta)
    result = CliRunner().invoke(app, ["validate", "--losses", str(config), "--json"])
    assert result.exit_code == 0, result.output
    assert 2.8 < json.loads(result.output)["by_noise"]["epsilon"] <= 3


def test_a_ledger_of_other_noise_is_not_verified(tmp_path: Path) -> None:
    """Half the noise of one query, with the same costs on paper."""
    toy.write_records(tmp_path)
    config = configuration(tmp_path)
    out = execute(config)
    for factor, error, message in (
        (Fraction(1, 2), BudgetError, "strategy of geolevel county: costs more than its"),
        (Fraction(2), VerificationError, "geolevel county: has other noise or costs"),
    ):
        plan = load_run(config).plan
        entry = plan.strategy.levels[1].queries[1]
        object.__setattr__(entry, "sensitivity_sq", entry.sensitivity_sq * factor)
        with pytest.raises(error, match=message):
            verify_release(plan, release_of(out))


def alike(folder: Path, method: str, base: str, **changes) -> Path:
    """The same planner at every geolevel."""
    workload = {"method": method, "tables": TABLES, "bases": {"age": [base]}}
    levels = {level: {"share": "1/4", "workload": workload} for level in toy.LEVELS}
    path = folder / "allocation.yaml"
    path.write_text(yaml.safe_dump({"name": "planned", "levels": levels}))
    return toy.configuration(folder, privacy__allocation=str(path), **changes)


def test_the_seconds_of_a_large_root_are_predicted(tmp_path: Path, monkeypatch) -> None:
    """Products of plain counts are faster than those of ranges; listed queries are not predicted."""
    monkeypatch.setattr(summary, "MOST_CELLS_IN_MATRICES", 1)
    plain = load_run(alike(tmp_path, "residual_planner", "identity")).plan
    seconds = plain.schema.size * summary.SECONDS_PER_CELL
    assert summary.root_core_seconds(plain) == pytest.approx(seconds)
    ranges = alike(tmp_path, "orp", "ranges")
    assert summary.root_core_seconds(load_run(ranges).plan) > seconds
    result = CliRunner().invoke(app, ["validate", str(ranges)])
    assert "time: about 1 core seconds to fit the root to planned queries" in result.output
    assert summary.root_core_seconds(load_run(toy.configuration(tmp_path)).plan) is None


EXACT = {
    "total at the root": [{"query": "total", "geolevel": "state"}],
    "total of blocks": [{"query": "total", "geolevel": "block"}],
    "all cells of the county": [{"query": "detailed", "geolevel": "county"}],
    "sex of tracts": [{"query": "sex", "geolevel": "tract"}],
}


@pytest.mark.parametrize(
    ("method", "base", "exact"),
    [
        ("residual_planner", "identity", "total at the root"),
        ("orp", "prefix", "total of blocks"),
        ("residual_planner_plus", "ranges", "all cells of the county"),
        ("auto", "identity", "sex of tracts"),
    ],
)
def test_a_planner_at_every_geolevel_solves_beside_exact_answers(
    tmp_path: Path, method: str, base: str, exact: str
) -> None:
    """Residual rows say nothing about sums that are exact: these are equalities, and enough."""
    toy.write_records(tmp_path)
    out = execute(alike(tmp_path, method, base, invariants=EXACT[exact]))
    assert tree_is_consistent(out, toy.LEVELS)
    for invariant in EXACT[exact]:
        if invariant["query"] == "total":
            assert totals_are_exact(out, invariant["geolevel"])


def test_a_large_budget_gives_the_input_back(tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    out = execute(configuration(tmp_path, privacy__rho="1000000000000"))
    for level in toy.LEVELS:
        assert output_equals_input(out, level), level


def test_measurements_are_those_of_the_published_matrices(tmp_path: Path) -> None:
    """With almost no noise, the answers of the state are the Kronecker product of its factors."""
    people = toy.write_records(tmp_path)
    out = execute(configuration(tmp_path, privacy__rho="1000000000000"))
    truth = np.zeros((len(toy.SEX), len(toy.AGE)))
    for _, sex, age in people:
        truth[toy.SEX.index(sex), toy.AGE.index(age)] += 1
    dataset = release_of(out).measurements("county")
    manifest = json.loads((dataset / "_manifest.json").read_text())
    table = rows_of(dataset)
    for query in manifest["facts"]["queries"]:
        answers = sum(np.array(r["answers"]) for r in table if r["query"] == query["query"])
        if "factors" in query:
            first, second = (np.array(factor) for factor in query["factors"])
            exact = np.kron(first, second) @ truth.ravel()
            scale = np.abs(exact).max()
            assert np.abs(answers - exact).max() <= 1e-3 * max(1.0, scale)


@pytest.fixture
def plans_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that rounds otherwise: to matrices with twice the coefficients and deviations."""
    plan = workload._plan

    def otherwise(*arguments: Any) -> Any:
        out = []
        for one in plan(*arguments):
            if one.query.name == "total":
                out.append(one)
                continue
            first, *others = one.query.factors
            factors = (Factor(2 * first.matrix, first.labels), *others)
            name = workload.name_with_matrices(one.query.name.partition(" #")[0], factors)
            query = Query(name, factors)
            out.append(replace(one, query=query, sensitivity_sq=4 * one.sensitivity_sq))
        return tuple(out)

    monkeypatch.setattr(workload, "_plan", otherwise)


def measured_first(folder: Path) -> Path:
    """A run that died when it had measured the first two geolevels."""
    toy.write_records(folder)
    config = configuration(folder, privacy__randomness={"source": "operating_system"})
    calls: list[Path] = []

    def dies(path: Path, *arguments: Any, **named: Any) -> None:
        calls.append(path)
        if len(calls) == 3:
            raise KeyboardInterrupt
        record_measured(path, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jobs.pipeline.confidential.draw.record_measured", dies)
        with pytest.raises(KeyboardInterrupt):
            execute(config)
    return config


def test_a_run_goes_on_where_it_would_be_planned_otherwise(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    config = measured_first(tmp_path)
    before = load_run(config).plan.strategy.levels
    request.getfixturevalue("plans_otherwise")
    out = execute(config)
    resolved = load_run(config)
    verify_release(resolved.plan, release_of(out))
    for level, known in zip(resolved.plan.strategy.levels, before, strict=True):
        assert [q.query.name for q in level.queries] == [q.query.name for q in known.queries]
    kept = json.loads((release_of(out).planned).read_text())
    assert list(kept["levels"]) == toy.LEVELS


def test_other_matrices_are_refused_by_the_ledger(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Before anything more is drawn, if what was planned is lost and is planned otherwise now."""
    config = measured_first(tmp_path)
    release = release_of(load_run(config).config.output.directory)
    kept = release.planned.read_bytes()
    release.planned.unlink()
    request.getfixturevalue("plans_otherwise")
    with pytest.raises(LedgerError, match=r"is of another plan of geolevel .*planned.json from a"):
        execute(config)
    release.planned.write_bytes(kept)
    execute(config)
