"""Errors of groups through files and the command line."""

from __future__ import annotations

import json

import pytest
import yaml
from typer.testing import CliRunner

from das.errors import BudgetError, ConfigError, DasError, InputError, SchemaError
from das.queries.query import parse_query
from das.tree.information import Information
from geography.lattice import Lattice
from jobs.cli.main import app
from jobs.design.planning.errors import subtree_classes
from jobs.design.planning.group_errors import optimize_for_groups, predict_groups
from jobs.design.planning.groups import read_groups
from jobs.pipeline.config.allocation import load_allocation
from jobs.pipeline.config.load import load_run
from tests.builders.planned import LEAVES, write_run

SIZES = "query,group,persons\nrace,a,9000\nrace,b,600\nrace,c,120\n"
SCHEMA = """
name: s
attributes:
  - {name: sex, levels: [f, m]}
  - {name: race, levels: [a, b, c]}
recodes:
  - {name: most, attribute: race, groups: {"a": ["a"], "other": ["b", "c"]}}
"""


@pytest.fixture
def run_file(tmp_path):
    (tmp_path / "sizes.csv").write_text(SIZES)
    return write_run(tmp_path, SCHEMA, "most", ["total", "sex * most"])


@pytest.fixture
def plan(run_file):
    return load_run(run_file).plan


@pytest.fixture
def tree(plan):
    return subtree_classes(Lattice.from_leaves(plan.spine, LEAVES))


@pytest.fixture
def asked(tmp_path, plan):
    def read(**document):
        path = tmp_path / "groups.yaml"
        path.write_text(yaml.safe_dump(document))
        return read_groups(plan, path)

    return read


def invoke(*words: object):
    return CliRunner().invoke(app, ["plan", "--quiet", *map(str, words)])


def found_by(run_file, *words: object) -> dict:
    result = invoke(run_file, "--json", *words)
    assert result.exit_code == 0, result.exception
    return json.loads(result.stdout)


def rows_of(found, geolevel, query="race"):
    return [row for row in found if row["geolevel"] == geolevel and row["query"] == query]


# --- errors of groups ----------------------------------------------------------------------------


def test_plan_prints_errors_of_groups(run_file, tmp_path):
    path = tmp_path / "groups.yaml"
    path.write_text("groups: {race: {county: relative, block: absolute}}\nsizes: sizes.csv\n")
    found = found_by(run_file, "--groups", path)["groups"]
    assert len(found) == 9
    county = rows_of(found, "county")
    counties = len({leaf[:2] for leaf in LEAVES})
    assert [row["persons"] for row in county] == [9000 / counties, 600 / counties, 120 / counties]
    for row in county:
        assert row["own"]["relative"] == pytest.approx(row["own"]["rmse"] / row["persons"])
        assert row["full"]["rmse"] <= row["own"]["rmse"]
    assert [row["own"]["is_worst"] for row in county] == [False, False, True]
    # In persons b and c are alike, and the recode makes a better.
    block = rows_of(found, "block")
    assert block[0]["own"]["rmse"] < block[1]["own"]["rmse"] * 0.99
    assert [row["own"]["is_worst"] for row in block] == [False, True, True]
    assert not any(row["own"]["is_worst"] for row in rows_of(found, "nation"))
    text = invoke(run_file, "--groups", path).output
    assert "Predicted error of groups" in text
    assert "race = c" in text
    assert "overlap" not in text
    path.write_text("groups: {race: absolute, sex: absolute}\n")
    assert "overlap" in invoke(run_file, "--groups", path).output


def test_a_table_of_a_group_is_predicted_as_its_answers_are(plan, tree, asked):
    """By symmetry the answers of a group in a table that names it are rows of that table."""
    group_goal = asked(groups={"race": "absolute"}, tables=["sex", "total"])
    rows = predict_groups(plan, tree, group_goal)
    assert [row.name for row in rows[:4:3]] == ["sex of race = a", "sex of race = b"]
    whole = asked(groups={"detailed": "absolute"})
    cells = {row.name: row for row in predict_groups(plan, tree, whole) if row.geolevel == "block"}
    of_b = next(row for row in rows if row.name == "sex of race = b" and row.geolevel == "block")
    assert of_b.own.rmse == pytest.approx(cells["detailed = f / b"].own.rmse)


@pytest.mark.parametrize("information", ["own", "full"])
def test_the_worst_group_gets_better_and_others_pay_no_more_than_is_said(
    run_file, tmp_path, information
):
    path, out, page = (tmp_path / name for name in ("groups.yaml", "best.yaml", "plan.html"))
    document = {"groups": {"race": {"county": "relative", "block": "relative"}}}
    path.write_text(yaml.safe_dump({**document, "sizes": "sizes.csv", "others": 1.3}))
    words = ("--groups", path, "--optimize", out, "--information", information, "--report", page)
    best = found_by(run_file, *words)["optimized"]
    ratios = []
    for level in ("county", "block"):
        worst = [
            max(row[information]["relative"] for row in rows)
            for rows in (
                rows_of(best["groups"], level),
                [row["before"] for row in rows_of(best["groups"], level)],
            )
        ]
        ratios.append((worst[0] / worst[1]) ** 2)
    assert max(ratios) == pytest.approx(best["value"], rel=2e-3)  # shares are rounded
    assert best["bound"] <= best["value"] <= 1.01 * best["bound"]
    assert best["value"] < 0.9
    grown = [
        row[information]["rmse"] / row["before"][information]["rmse"]
        for row in best["predicted"]
        if row["before"][information]["rmse"]
    ]
    assert len(grown) == 5  # the total of the nation is exact
    assert max(grown) <= 1.3 * 1.002
    free = tmp_path / "free.yaml"
    path.write_text(yaml.safe_dump({**document, "sizes": "sizes.csv"}))
    unbound = found_by(
        run_file, "--groups", path, "--optimize", free, "--information", information
    )["optimized"]
    assert unbound["value"] < best["value"]
    source = yaml.safe_load(out.read_text())["source"]
    assert "--groups" in source
    assert information in source
    plan = load_run(run_file).plan
    assert load_allocation(out, plan.schema, plan.spine).levels
    text = page.read_text()
    assert "Predicted error of groups with the optimized allocation" in text


def test_limits_in_persons_are_kept(plan, tree, asked):
    group_goal = asked(groups={"race": {"block": "absolute"}}, limits={"total": {"county": 1.5}})
    found = optimize_for_groups(plan, tree, ["total"], Information.GEOUNIT, group_goal)
    names = [table.name for table in found.after.model.tables]
    rmse = found.after.errors[Information.GEOUNIT].mean ** 0.5
    assert rmse[names.index("total"), 1] <= 1.5 * 1.001
    hard = asked(groups={"race": {"block": "absolute"}}, limits={"total": {"county": 0.5}})
    with pytest.raises(BudgetError, match="limits of errors: cannot be met together"):
        optimize_for_groups(plan, tree, ["total"], Information.GEOUNIT, hard)


def test_targets_are_met_or_each_is_named_with_the_rho_it_needs(plan, tree, asked):
    groups = {"race": {"county": "relative", "block": "absolute"}}
    size = 120 / len({leaf[:2] for leaf in LEAVES})
    targets = {"race": {"c": {"county": 3 / size}, "a": {"block": 5}}}
    group_goal = asked(groups=groups, sizes="sizes.csv", targets=targets)
    found = optimize_for_groups(plan, tree, ["total"], Information.GEOUNIT, group_goal)
    assert found.bound <= found.value < 2
    rmse = found.after.errors[Information.GEOUNIT].mean ** 0.5
    assert rmse[2, 1] <= 3
    assert rmse[0, 2] <= 5
    hard = {"race": {"c": {"county": 0.3 / size}, "a": {"block": 0.5}}}
    with pytest.raises(BudgetError, match="race = c at county alone needs rho") as error:
        optimize_for_groups(
            plan,
            tree,
            ["total"],
            Information.GEOUNIT,
            asked(groups=groups, sizes="sizes.csv", targets=hard),
        )
    assert "race = a at block alone needs rho" in error.value.what
    # One target alone: all of rho for the groups of one geolevel, noise of variance 1 / rho.
    alone = float(error.value.what.split("c at county alone needs rho ")[1].split(";")[0])
    assert alone == pytest.approx(1 / 0.3**2, rel=5e-3)
    least = float(error.value.want.split()[1])
    assert least == pytest.approx(100 * found.value, rel=0.01)


def test_the_rho_that_the_allocation_needs_for_a_target_is_shown(run_file, tmp_path):
    path = tmp_path / "groups.yaml"
    document = {"groups": {"race": "absolute"}, "targets": {"race": {"b": {"block": 2}}}}
    path.write_text(yaml.safe_dump(document))
    rows = found_by(run_file, "--groups", path)["groups"]
    (row,) = [row for row in rows if row["target"] is not None]
    assert (row["group"], row["geolevel"], row["target"]) == ("b", "block", 2)
    assert row["own"]["rho_needed"] == pytest.approx(2 * (row["own"]["rmse"] / 2) ** 2)
    assert "needed" in invoke(run_file, "--groups", path).output


def test_typical_sizes_of_a_geolevel_come_before_averages(tmp_path, plan, asked):
    (tmp_path / "sizes.csv").write_text(
        "query,group,geolevel,persons\nrace,a,,9000\nrace,b,,600\nrace,c,,120\n"
        "race,c,block,40\nsex,f,,10\n"
    )
    group_goal = asked(groups={"race": "relative"}, sizes="sizes.csv")
    persons = group_goal.persons(plan.spine.levels, subtree_classes_of(plan).level_sizes())
    assert persons[:, 2].tolist() == [9000 / 12, 600 / 12, 40]
    assert persons[:, 0].tolist() == [9000, 600, 120]


def subtree_classes_of(plan):
    return subtree_classes(Lattice.from_leaves(plan.spine, LEAVES))


def test_small_groups_count_from_the_floor(plan, tree, asked):
    group_goal = asked(groups={"race": "relative"}, sizes="sizes.csv", floor=40)
    rows = [row for row in predict_groups(plan, tree, group_goal) if row.geolevel == "block"]
    assert [row.own.is_worst for row in rows] == [False, True, False]  # c has 10 a block
    none = asked(groups={"race": {"block": "relative"}}, sizes="sizes.csv", floor=1e6)
    with pytest.raises(BudgetError, match="floor"):
        optimize_for_groups(plan, tree, ["total"], Information.GEOUNIT, none)


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "error", "match"),
    [
        ({}, ConfigError, "groups: is required"),
        ({"groups": {}}, ConfigError, "at least 1 item"),
        ({"groups": {"rice": "absolute"}}, SchemaError, "rice"),
        ({"groups": {"race": "equal"}}, ConfigError, "'relative' or 'absolute'"),
        ({"groups": {"race": {"tract": "absolute"}}}, ConfigError, "unknown geolevel"),
        ({"groups": {"prefix(race)": "absolute"}}, ConfigError, "exactly one answer"),
        ({"groups": {"race": "absolute"}, "tables": ["ranges(race)"]}, ConfigError, "exactly one"),
        ({"groups": {"sex * race": "absolute", "detailed": "absolute"}}, ConfigError, "twice"),
        ({"groups": {"race": "relative"}}, ConfigError, "needs public sizes"),
        ({"groups": {"sex": "relative"}, "sizes": "sizes.csv"}, ConfigError, "sex = f"),
        (
            {"groups": {"race": "absolute"}, "others": 0.9},
            ConfigError,
            "greater than or equal to 1",
        ),
        ({"groups": {"race": "absolute"}, "others": True}, ConfigError, "valid number"),
        ({"groups": {"race": "absolute"}, "limits": {"total": -1}}, ConfigError, "greater than 0"),
        ({"groups": {"race": "absolute"}, "limits": {"tot": 1}}, SchemaError, "tot"),
        ({"groups": {"race": "absolute"}, "weights": 1}, ConfigError, "not a known key"),
        (
            {"groups": {"race": "absolute"}, "targets": {"sex": {"f": 1}}},
            ConfigError,
            "is not among the groups",
        ),
        (
            {"groups": {"race": "absolute"}, "targets": {"race": {"d": 1}}},
            ConfigError,
            "unknown group",
        ),
        (
            {"groups": {"race": {"block": "absolute"}}, "targets": {"race": {"a": 1}}},
            ConfigError,
            "relative or absolute",
        ),
        (
            {"groups": {"race": "absolute"}, "others": 2, "targets": {"race": {"a": 1}}},
            ConfigError,
            "not both",
        ),
    ],
)
def test_a_wrong_file_is_refused(asked, document, error, match):
    with pytest.raises(error, match=match):
        asked(**document)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("query,group\nrace,a\n", "lacks columns"),
        (SIZES + "race,d,3\n", "names no group of race"),
        (SIZES + "race,a,3\n", "names a group twice"),
        (SIZES.replace("120", "0"), "positive number"),
        (SIZES.replace("120", "-4"), "positive number"),
        (SIZES.replace("120", "many"), "positive number"),
        (SIZES.replace("120", "inf"), "positive number"),
        ("query,group,geolevel,persons\nrace,a,tract,3\n", "unknown geolevel"),
    ],
)
def test_wrong_sizes_are_refused(asked, tmp_path, text, match):
    (tmp_path / "sizes.csv").write_text(text)
    with pytest.raises(InputError, match=match):
        asked(groups={"race": "relative"}, sizes="sizes.csv")


def test_options_that_contradict_are_refused(run_file, tmp_path):
    given, group_goal = tmp_path / "given.yaml", tmp_path / "groups.yaml"
    given.write_text("total: 1\n")
    group_goal.write_text("groups: {race: absolute}\n")
    out = tmp_path / "new.yaml"
    result = invoke(run_file, "--groups", group_goal, "--weights", given, "--optimize", out)
    assert isinstance(result.exception, ConfigError)
    assert isinstance(invoke(run_file, "--groups", tmp_path / "no").exception, DasError)
    assert not out.exists()


def test_candidates_are_queries_that_runs_can_measure(plan, tree, asked, tmp_path):
    """A group that is everybody is a table by itself, and none that a file could name."""
    group_goal = asked(groups={"total": "absolute", "race": "absolute"})
    found = optimize_for_groups(plan, tree, ["total"], Information.GEOUNIT, group_goal)
    for level in found.strategy.levels:
        for entry in level.queries:
            assert parse_query(plan.schema, entry.query.name).name == entry.query.name
