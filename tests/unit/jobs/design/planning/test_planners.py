"""Errors of cells by method: beside the dense rows, and by command."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from das.errors import BudgetError, ConfigError, DasError, SchemaError
from das.queries.query import parse_query
from jobs.cli.main import app
from jobs.design.planning.planners import PlanRequest, compare_planners
from jobs.pipeline.config.load import load_run
from tests.builders.strategies import dense_matrix
from tests.unit.jobs.design.planning.test_allocation import LEVELS, run_file  # noqa: F401 - a fixture

TABLES = ("total", "sex", "age", "sex * age")


def das(*words: object):
    return CliRunner().invoke(app, ["plan", "--compare-planners", *map(str, words)])


def compare(path: Path, **request):
    return compare_planners(load_run(path).last, PlanRequest(**request))


def replan(path: Path, workload: dict) -> None:
    """Plan the blocks for a workload."""
    old = yaml.safe_load((path.parent / "old.yaml").read_text())
    del old["levels"]["block"]["queries"]
    old["levels"]["block"]["workload"] = workload
    (path.parent / "old.yaml").write_text(yaml.safe_dump(old))


@pytest.mark.parametrize("geolevel", ["nation", "county", "block"])
def test_own_queries_have_the_errors_of_dense_least_squares(run_file, geolevel):  # noqa: F811
    plan = load_run(run_file).plan
    level = LEVELS.index(geolevel)
    found = compare(run_file, geolevel=geolevel).methods[0]
    assert (found.method, found.objective) == ("run", "its queries")
    information = sum(
        dense_matrix(one.query).T @ dense_matrix(one.query) / float(one.mechanism.variance())
        for one in plan.noise(level, level)
    )
    covariance = np.linalg.inv(information)
    if geolevel == "nation":  # its total is exact
        ones = np.ones(6)
        gain = covariance @ ones / (ones @ covariance @ ones)
        covariance = covariance - np.outer(gain, ones @ covariance)
    every = []
    for table, row in zip(TABLES, found.by_table, strict=True):
        matrix = dense_matrix(parse_query(plan.schema, table))
        errors = np.sqrt(np.maximum((matrix @ covariance * matrix).sum(axis=1), 0))
        every += errors.tolist()
        assert (row.table, row.answers) == (table, len(errors))
        assert row.largest == pytest.approx(errors.max(), abs=1e-6)
        assert row.least == pytest.approx(errors.min(), abs=1e-6)
        assert row.rmse == pytest.approx(np.sqrt((errors**2).mean()), abs=1e-6)
    assert found.rmse == pytest.approx(np.sqrt(np.mean(np.square(every))))
    ranked = sorted(every)
    assert found.answers.median == pytest.approx(ranked[(len(ranked) - 1) // 2])
    assert found.answers.largest == pytest.approx(ranked[-1])
    assert (
        found.ratio is None
        if geolevel == "nation"
        else found.ratio == pytest.approx(ranked[-1] / ranked[0])
    )


def test_objectives_are_fair_as_the_theory_says(run_file):  # noqa: F811
    methods = {(one.method, one.objective): one for one in compare(run_file).methods}
    plain = {objective: one for (method, objective), one in methods.items()
             if method == "residual_planner"}  # fmt: skip
    assert plain["largest variance"].ratio == pytest.approx(1.0, rel=1e-2)
    sums = [
        plain[f"sum, {words}"] for words in ("equal weight per table", "equal weight per answer")
    ]
    assert plain["largest variance"].ratio < sums[0].ratio < sums[1].ratio
    # Each is best at what it minimizes.
    assert sums[1].rmse == min(one.rmse for one in plain.values())
    assert plain["largest variance"].answers.largest == pytest.approx(
        min(one.answers.largest for one in plain.values()), rel=1e-3
    )
    means = [np.mean([row.rmse**2 for row in one.by_table]) for one in plain.values()]
    assert np.mean([row.rmse**2 for row in sums[0].by_table]) == pytest.approx(min(means))
    assert ("hdmm", "sum, equal weight per table") in methods


def test_twice_the_budget_halves_every_variance(run_file):  # noqa: F811
    once = compare(run_file, geolevel="county")
    twice = compare(run_file, geolevel="nation")
    assert Fraction(twice.rho) == 2 * Fraction(once.rho)
    for one, other in zip(once.methods[1:], twice.methods[1:], strict=True):
        assert one.rmse == pytest.approx(np.sqrt(2) * other.rmse)


def test_a_workload_of_the_allocation_is_what_is_compared(run_file):  # noqa: F811
    tables = {"total": 1, "sex * age": "1/2", "detailed": "1/9"}
    del tables["sex * age"]
    bases = {"age": ["prefix", [1, 0, -1]]}
    replan(run_file, {"tables": tables, "bases": bases, "loss": {"power_mean": 3}})
    found = compare(run_file)
    assert found.workload == "the workload of the allocation"
    assert {row.table: row.answers for row in found.methods[0].by_table} == {
        "total": 1, "sex * age": 8}  # fmt: skip
    objectives = [(one.method, one.objective) for one in found.methods]
    assert ("orp", "the loss of the allocation") in objectives
    assert ("residual_planner_plus", "sum, equal weight per table") in objectives
    # What the run measures is that plan, in integers.
    own = next(one for one in found.methods if one.method == "run")
    loss = next(one for one in found.methods if one.objective == "the loss of the allocation")
    for row, other in zip(own.by_table, loss.by_table, strict=True):
        assert row.rmse == pytest.approx(other.rmse, rel=1e-2)
    assert compare(run_file, geolevel="county").workload.startswith("all tables of up to 3")
    assert [row.table for row in compare(run_file, tables=["age", "sex"]).methods[0].by_table] == [
        "sex", "age"]  # fmt: skip


def test_by_command_as_table_and_json(run_file):  # noqa: F811
    result = das(run_file, "--order", 1)
    assert result.exit_code == 0, result.output
    assert "ResidualPlanner" in result.output
    assert "largest variance" in result.output
    drawn = json.loads(das(run_file, "--json", "--order", 1).stdout)
    assert [row["table"] for row in drawn["methods"][0]["by_table"]] == ["total", "sex", "age"]
    assert das(run_file, "--geolevel", "nation").exit_code == 0


@pytest.mark.parametrize(
    ("request_", "error", "match"),
    [
        ({"geolevel": "tract"}, ConfigError, "--geolevel: is unknown; got tract"),
        ({"order": -1}, ConfigError, "--order: must not be negative"),
        ({"tables": ["adult"]}, SchemaError, "may name only attributes"),
        ({"tables": ["income"]}, DasError, "no such attribute"),
        ({"tables": ["sex * age", "age * sex"]}, DasError, "twice"),
    ],
)
def test_what_cannot_be_compared(run_file, request_, error, match):  # noqa: F811
    with pytest.raises(error, match=match):
        compare(run_file, **request_)


def test_too_many_tables_and_other_noise_are_refused(run_file, monkeypatch):  # noqa: F811
    monkeypatch.setattr("jobs.design.planning.planners.MOST_MARGINALS", 3)
    with pytest.raises(ConfigError, match="selects too many tables; got 4"):
        compare(run_file)
    run = yaml.safe_load(run_file.read_text())
    run["privacy"] = {"definition": "pure"}
    run["products"]["persons"]["privacy"] = {"epsilon": "1", "allocation": "old.yaml"}
    run_file.write_text(yaml.safe_dump(run))
    with pytest.raises(BudgetError, match="comparison of planners: supports only noise"):
        compare(run_file)
