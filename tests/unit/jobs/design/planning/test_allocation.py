"""Predictions and optimized allocations through files and the command line."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
import yaml
from typer.testing import CliRunner

from das.errors import BudgetError, ConfigError, DasError, OutputError, SchemaError
from das.tree.information import Information
from geography.lattice import Lattice
from jobs.cli.main import app
from jobs.design.planning.allocation import (
    Goal,
    optimize_allocation,
    optimize_targets,
    optimize_weights,
    read_goal,
    read_numbers,
    write_allocation,
)
from jobs.design.planning.errors import parse_tables, predict, subtree_classes
from jobs.design.requests import PlanRequest
from jobs.pipeline.config.allocation import load_allocation
from jobs.pipeline.config.load import load_run
from tests.builders.planned import LEAVES, LEVELS, write_run

SCHEMA = """
name: s
attributes:
  - {name: sex, levels: [f, m]}
  - {name: age, levels: ["0", "1", "2"]}
recodes:
  - {name: adult, attribute: age, groups: {"no": ["0"], "yes": ["1", "2"]}}
"""


@pytest.fixture
def run_file(tmp_path):
    return write_run(tmp_path, SCHEMA, "adult", ["total", "sex * adult", "prefix(age)"])


@pytest.fixture
def plan(run_file):
    return load_run(run_file).plan


@pytest.fixture
def tree(plan):
    return subtree_classes(Lattice.from_leaves(plan.spine, LEAVES))


def invoke(*words: object):
    return CliRunner().invoke(app, ["plan", "--quiet", *map(str, words)])


def numbers(plan, tmp_path, document, missing=0.0):
    path = tmp_path / "numbers.yaml"
    path.write_text(
        document if isinstance(document, str) else yaml.safe_dump(document, sort_keys=False)
    )
    return read_numbers(plan, path, missing)


# --- predictions ---------------------------------------------------------------------------------


def test_plan_prints_errors_per_table_and_geolevel(run_file):
    result = invoke(run_file, "--json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["predicted"]
    assert [(row["table"], row["geolevel"]) for row in rows] == [
        (table, level) for table in ("total", "sex * adult", "prefix(age)") for level in LEVELS
    ]
    held = {(row["table"], row["geolevel"]): row for row in rows}
    assert held["total", "nation"]["own"] == {"rmse": 0, "half_width_90": 0, "worst_rmse": 0}
    for row in rows:
        assert row["full"]["rmse"] <= row["own"]["rmse"] <= row["own"]["worst_rmse"]
        assert row["own"]["half_width_90"] == pytest.approx(1.645 * row["own"]["rmse"], rel=1e-3)
    assert "sex * adult" in invoke(run_file).output


def test_own_error_of_a_total_is_the_harmonic_sum(plan, tree):
    """Block: rho 2/4 split 1/2, 1/4, 1/4; sigma^2 = 1 / rho_q; one, two and six answers add up."""
    found = predict(plan, plan.strategy, tree, parse_tables(plan, ["total"]))
    rho = Fraction(2, 4)
    variance = [1 / (rho * share) for share in (Fraction(1, 2), Fraction(1, 4), Fraction(1, 4))]
    worst = found.errors[Information.GEOUNIT].worst[0, 2]
    # The recode has groups of 2 and 4 cells: each group's estimate combines its own answer with
    # the sum of its cells, and their sum is combined with the total.
    groups = [1 / (1 / variance[1] + 1 / (size * variance[2])) for size in (2, 4)]
    assert worst == pytest.approx(float(1 / (1 / variance[0] + 1 / sum(groups))), rel=1e-4)


def test_tables_of_the_command_line_replace_those_of_the_run_file(run_file):
    rows = json.loads(invoke(run_file, "--json", "--tables", "sex, adult * sex").stdout)[
        "predicted"
    ]
    assert {row["table"] for row in rows} == {"sex", "sex * adult"}
    assert isinstance(invoke(run_file, "--tables", "sox").exception, SchemaError)


# --- optimization --------------------------------------------------------------------------------


@pytest.mark.parametrize("information", ["own", "full"])
def test_the_allocation_is_one_that_runs_take_and_is_better(run_file, tmp_path, information):
    out = tmp_path / "new" / "best.yaml"
    page = tmp_path / "plan.html"
    result = invoke(
        run_file, "--json", "--optimize", out, "--information", information, "--report", page
    )
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["optimized"]
    ratios = [
        (row[information]["rmse"] / row["before"][information]["rmse"]) ** 2
        for row in found["predicted"]
        if row["before"][information]["rmse"]
    ]
    assert len(ratios) == 8
    assert sum(ratios) / 8 == pytest.approx(found["value"], rel=1e-3)
    assert found["bound"] <= found["value"] < 0.9
    plan = load_run(run_file).plan
    strategy = load_allocation(out, plan.schema, plan.spine)
    assert [
        (level.geolevel, str(level.share), entry.query.name, str(entry.share))
        for level in strategy.levels
        for entry in level.queries
    ] == [
        (row["geolevel"], row["level_share"], row["query"], row["share"]) for row in found["shares"]
    ]
    assert all("detailed" in [e.query.name for e in level.queries] for level in strategy.levels)
    source = yaml.safe_load(out.read_text())["source"]
    assert "equal weights" in source
    assert information in source
    text = page.read_text()
    assert "Predicted errors" in text
    assert "Optimized allocation" in text
    run_file.write_text(run_file.read_text().replace("old.yaml", str(out)))
    again = json.loads(invoke(run_file, "--json").stdout)["predicted"]
    assert [row["own"] for row in again] == [row["own"] for row in found["predicted"]]


OF_TWELVE = """
name: s
attributes:
  - {name: sex, levels: [f, m]}
  - {name: age, levels: 0..11}
recodes:
  - {name: adult, attribute: age, groups: {"no": 0..4, "yes": 5..11}}
"""


@pytest.mark.parametrize("tables", ["total,sex,age,detailed", "total,sex * prefix(age),detailed"])
@pytest.mark.parametrize("information", ["own", "full"])
def test_a_planned_strategy_is_one_that_runs_take_at_the_cost_of_each_geolevel(
    tmp_path, information, tables
):
    run_file, out = write_run(tmp_path, OF_TWELVE, "adult", ["total"]), tmp_path / "planned.yaml"
    words = ("--json", "--tables", tables, "--information", information)
    listed, planned = (
        json.loads(invoke(run_file, *words, "--optimize", *of).stdout)["optimized"]
        for of in ((tmp_path / "listed.yaml",), (out, "--planned"))
    )
    ratios = [
        (row[information]["rmse"] / row["before"][information]["rmse"]) ** 2
        for row in planned["predicted"]
        if row["before"][information]["rmse"]
    ]
    assert sum(ratios) / len(ratios) == pytest.approx(planned["value"], rel=2e-3)
    assert planned["bound"] <= planned["value"] <= 1.2 * planned["bound"]
    if "prefix" in tables:
        assert planned["value"] < 0.95 * listed["value"]  # sums that no listed query counts
    else:  # every listed allocation of attributes is one of residual sets too
        assert planned["bound"] <= planned["value"] <= listed["value"] * 1.003
    plan = load_run(run_file).plan
    strategy = load_allocation(out, plan.schema, plan.spine)
    for level in strategy.levels:
        level.check_joint_cost(plan.budget.neighbors)
        assert float(level.joint.of(plan.budget.neighbors)) > 1 - 1e-6
    run_file.write_text(run_file.read_text().replace("old.yaml", str(out)))
    again = json.loads(invoke(run_file, "--json", "--tables", tables).stdout)["predicted"]
    for one, other in zip(again, planned["predicted"], strict=True):
        assert one[information]["rmse"] == pytest.approx(other[information]["rmse"], rel=1e-9)


def test_what_cannot_be_planned_is_refused(run_file, tmp_path):
    out = tmp_path / "planned.yaml"
    for tables, match in (
        ("total where sex=f", "may name only attributes; got .*total where sex=f"),
        ("prefix(adult)", "base of adult|unknown attribute; got .*adult"),
    ):
        result = invoke(run_file, "--optimize", out, "--planned", "--tables", tables)
        with pytest.raises(DasError, match=match):
            raise result.exception
    assert not out.exists()


def test_weight_moves_accuracy_to_what_has_it(plan, tree, tmp_path):
    heavy = numbers(plan, tmp_path, {"total": {"county": 100}, "sex * adult": 1})
    even = numbers(plan, tmp_path, {"total": {"county": 1}, "sex * adult": 1})
    first, second = (
        optimize_weights(plan, tree, [], Information.GEOUNIT, Goal(one)) for one in (heavy, even)
    )
    assert [q.name for q in heavy.tables] == ["total", "sex * adult"]
    assert heavy.numbers.tolist() == [[0, 100, 0], [1, 1, 1]]
    a, b = (one.after.errors[Information.GEOUNIT].mean for one in (first, second))
    assert a[0, 1] < b[0, 1] / 1.5
    assert (a[1] > b[1]).all()


def test_targets_are_met_or_the_least_rho_is_named(plan, tree, tmp_path):
    targets = {"total": {"nation": 0.001, "county": 3}, "sex * adult": {"block": 4}}
    found = optimize_targets(
        plan, tree, Information.GEOUNIT, numbers(plan, tmp_path, targets, float("inf"))
    )
    rmse = found.after.errors[Information.GEOUNIT].mean ** 0.5
    assert rmse[0, 1] <= 3  # the budget is more than the targets need
    assert rmse[1, 2] <= 4
    assert found.bound <= found.value < 2
    hard = {"total": {"county": 0.3}, "sex * adult": {"block": 0.4}}
    with pytest.raises(
        BudgetError, match=r"need more than the budget; got rho 2; expected rho"
    ) as e:
        optimize_targets(
            plan, tree, Information.GEOUNIT, numbers(plan, tmp_path, hard, float("inf"))
        )
    least = float(e.value.want.split()[1])
    assert least == pytest.approx(100 * found.value, rel=0.02)  # all noise tenfold less
    far = numbers(plan, tmp_path, {"total": {"county": 1e-100}}, float("inf"))
    with pytest.raises(BudgetError, match="need more than the budget"):
        optimize_targets(plan, tree, Information.TREE, far)


# --- floors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("information", Information)
def test_floors_hold_for_the_shares_that_are_written(plan, tree, tmp_path, information):
    """What a search without floors gives up stays as good as they say, and costs the least."""
    tables = ["sex * adult"]
    free = optimize_weights(plan, tree, tables, information)
    lost = predict(plan, free.strategy, tree, parse_tables(plan, ["total"]))
    without = lost.errors[information].mean[0, 1] ** 0.5
    limit = round(0.8 * float(without), 3)
    limits = numbers(plan, tmp_path, {"total": {"county": limit}}, float("inf"))
    found = optimize_weights(plan, tree, tables, information, Goal(limits=limits))
    assert [query.name for query in found.before.model.tables] == ["sex * adult", "total"]
    rmse = found.after.errors[information].mean ** 0.5
    assert 0.99 * limit <= rmse[1, 1] <= limit < without
    assert free.value < found.value
    assert found.bound <= found.value <= 1.2 * found.bound  # which lets chains spend as they like
    assert "within limits" in found.source
    for far in (0.01, 1e-100):
        hard = numbers(plan, tmp_path, {"total": {"county": far}}, float("inf"))
        with pytest.raises(BudgetError, match="cannot be met together"):
            optimize_weights(plan, tree, tables, information, Goal(limits=hard))
    exact = numbers(plan, tmp_path, {"total": {"county": 0.0}}, float("inf"))
    with pytest.raises(BudgetError, match="must be positive"):
        optimize_weights(plan, tree, tables, information, Goal(limits=exact))


def test_no_table_gets_worse_by_more_than_the_factor_of_others(plan, tree, tmp_path):
    information = Information.GEOUNIT
    tables = ["total", "sex * adult", "prefix(age)"]
    heavy = numbers(plan, tmp_path, {"prefix(age)": {"block": 1}})
    found = {}
    for others in (1.05, float("inf")):
        goal = Goal(heavy, others=others)
        one = optimize_weights(plan, tree, tables, information, goal)
        noisy = one.before.errors[information].mean > 0
        ratio = (
            one.after.errors[information].mean[noisy] / one.before.errors[information].mean[noisy]
        )
        found[others] = ratio.max() ** 0.5
    assert found[1.05] <= 1.05
    assert found[float("inf")] > 1.2


def test_what_is_given_up_is_said(run_file, tmp_path):
    weights, floors = tmp_path / "weights.yaml", tmp_path / "floors.yaml"
    weights.write_text("sex * adult: 1\n")
    words = (run_file, "--weights", weights, "--optimize")
    text = invoke(*words, tmp_path / "a.yaml").output
    assert "makes no table less accurate" in text
    floors.write_text("total: {block: 50}\n")
    more = ("--max-rmse", floors, "--information", "full")
    result = invoke(*words, tmp_path / "b.yaml", *more, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["optimized"]
    assert found["information"] == "full"
    assert found["compared_with"] == "the allocation it replaces"
    lost = {(row["table"], row["geolevel"]): row["given_up"] for row in found["predicted"]}
    assert set(lost) == {(t, level) for t in ("sex * adult", "total") for level in LEVELS}
    for row in found["predicted"]:
        old, new = row["before"]["full"]["rmse"], row["full"]["rmse"]
        grown = new / old - 1 if old else 0
        assert row["given_up"] == pytest.approx(max(0, grown), abs=1e-9)
    assert lost["total", "county"] > 0.05
    shown = " ".join(invoke(*words, tmp_path / "c.yaml", *more).output.split())
    assert "increases root mean squared errors" in shown
    assert "total at county" in shown


# --- no allocation to begin with -----------------------------------------------------------------


def test_tables_and_rho_are_enough(run_file, tmp_path):
    text = run_file.read_text()
    run_file.write_text(text.replace("  allocation: old.yaml\n", ""))
    assert "privacy.allocation: is required" in str(invoke(run_file).exception)
    out = tmp_path / "first.yaml"
    result = invoke(run_file, "--json", "--tables", "adult, sex", "--optimize", out)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["optimized"]
    assert found["compared_with"] == "even shares of geolevels and tables"
    assert {row["table"] for row in found["predicted"]} == {"adult", "sex"}
    assert found["bound"] <= found["value"] < 1
    run_file.write_text(text.replace("old.yaml", str(out)))
    again = json.loads(invoke(run_file, "--json", "--tables", "adult, sex").stdout)["predicted"]
    assert [row["own"] for row in again] == [row["own"] for row in found["predicted"]]


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "error", "match"),
    [
        ({"sox": 1}, SchemaError, "sox"),
        ({"total": {"county": 1, "tract": 1}}, ConfigError, r"unknown geolevel; got tract"),
        ({"total": -1}, ConfigError, "negative"),
        ({"total": {"county": float("nan")}}, ConfigError, "negative or infinite"),
        ({"total": "much"}, ConfigError, "must be a number"),
        ({"total": True}, ConfigError, "must be a number"),
        ({"sex * age": 1, "detailed": 1}, ConfigError, "names a table twice"),
        ([1], ConfigError, "must be a map of keys"),
        ("a: [", ConfigError, "is not valid YAML"),
        ("{}", ConfigError, "must map tables"),
        ("total: 1\ntotal: 2", ConfigError, "appears twice"),
    ],
)
def test_a_wrong_file_of_numbers_is_refused(plan, tmp_path, document, error, match):
    with pytest.raises(error, match=match):
        numbers(plan, tmp_path, document)


def test_weights_of_nothing_noisy_are_refused(plan, tree, tmp_path):
    exact = numbers(plan, tmp_path, {"total": {"nation": 1}})
    with pytest.raises(BudgetError, match="no table with noise"):
        optimize_weights(plan, tree, [], Information.GEOUNIT, Goal(exact))


def test_a_pure_budget_is_refused(run_file, tree):
    run = yaml.safe_load(run_file.read_text())
    run["privacy"] = {"definition": "pure"}
    run["products"]["persons"]["privacy"] = {"epsilon": "2", "allocation": "old.yaml"}
    run_file.write_text(yaml.safe_dump(run))
    pure = load_run(run_file).plan
    with pytest.raises(BudgetError, match="squared sensitivities"):
        optimize_allocation(pure, tree, ["total"], Information.GEOUNIT)
    assert predict(pure, pure.strategy, tree, parse_tables(pure, ["total"])).errors


def test_options_that_contradict_are_refused(plan, run_file, tmp_path):
    given = tmp_path / "given.yaml"
    given.write_text("total: 1\n")
    new = tmp_path / "new.yaml"
    with pytest.raises(ConfigError, match="not both"):
        read_goal(plan, PlanRequest(optimize=new, weights=given, targets=given))
    with pytest.raises(ConfigError, match="not both"):
        read_goal(plan, PlanRequest(optimize=new, targets=given, max_rmse=given))
    for words in ({"weights": given}, {"max_rmse": given}, {"max_worsening": 1.0}):
        with pytest.raises(ConfigError, match="needs --optimize"):
            read_goal(plan, PlanRequest(**words))
    for factor in (0.0, -1.0, float("nan")):
        with pytest.raises(ConfigError, match="--max-worsening: must be a positive factor"):
            read_goal(plan, PlanRequest(optimize=new, max_worsening=factor))
    with pytest.raises(OutputError, match="exists"):
        read_goal(plan, PlanRequest(optimize=given))
    assert isinstance(invoke(run_file, "--optimize", given).exception, DasError)


def test_an_existing_file_is_not_replaced(plan, tree, tmp_path):
    found = optimize_weights(plan, tree, ["total"], Information.GEOUNIT)
    path = tmp_path / "kept.yaml"
    path.write_text("kept")
    with pytest.raises(OutputError, match="exists"):
        write_allocation(found, path)
    assert path.read_text() == "kept"
