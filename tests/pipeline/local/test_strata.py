"""Runs whose strata have queries of their own, from validation to the reports."""

from __future__ import annotations

import csv
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from jobs.cli.main import app
from jobs.pipeline.config.load import load_run
from jobs.pipeline.release.verify import verify_release
from jobs.pipeline.storage.ledger import read_ledger
from tests.builders import toy
from tests.builders.datasets import rows_of
from tests.builders.in_process import execute
from tests.builders.places import release_of, truth_of
from tests.checkout import ROOT
from tests.release_checks import output_equals_input, totals_are_exact, tree_is_consistent

SHIPPED = ROOT / "conf" / "allocation" / "toy-strata.yaml"
TABLES = {"total": 1, "sex": 1, "age": 1, "detailed": 1}


def allocation(folder: Path, **own: Any) -> str:
    """The shipped allocation, with other geolevels of some strata."""
    document = yaml.safe_load(SHIPPED.read_text())
    document["strata"]["levels"].update(own)
    path = folder / "strata.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return str(path)


def checked(config: Path) -> Path:
    out = execute(config, figures=True)
    assert tree_is_consistent(out, toy.LEVELS)
    assert totals_are_exact(out, "state")
    verify_release(load_run(config).plan, release_of(out))
    return out


@pytest.mark.parametrize("fit_to", ["level", "tree"])
def test_a_run_with_strata_keeps_every_promise(tmp_path: Path, fit_to: str) -> None:
    toy.write_records(tmp_path)
    config = toy.configuration(
        tmp_path,
        privacy__allocation=allocation(tmp_path),
        solve={"fit_to": fit_to, "rounding_passes": [["total"], ["sex", "detailed"]]},
    )
    out = checked(config)
    ledger = read_ledger(release_of(out).ledger)
    assert ledger.is_finalized
    assert ledger.planned.strata == ("votingage=minor", "votingage=adult")
    for stratum in ledger.planned.strata:
        assert ledger.spent().path_costs(stratum) == (1, 1)
    assert ledger.spent().path_costs() == (Fraction(1, 2), Fraction(1, 2))
    manifest = json.loads((release_of(out).manifest).read_text())
    assert [row["own"] for row in manifest["strata"]] == ["1/2", "1/2"]
    measured = {row["query"]: row.get("stratum", "") for row in manifest["budget"]}
    assert measured["sex where votingage=minor"] == "votingage=minor"
    assert measured["detailed"] == ""
    rows = rows_of(release_of(out).measurements("county"))
    assert {len(row["answers"]) for row in rows if row["query"] == "sex where votingage=minor"} == {
        2
    }
    report = (release_of(out).report).read_text()
    assert "Groups that are measured separately" in report
    assert "for everybody and votingage=minor" in report
    evaluation = json.loads((truth_of(out).evaluation).read_text())
    errors = {(row["geolevel"], row["query"]): row for row in evaluation["results"]}
    assert errors["county", "total where votingage=minor"]["measured"]


def test_almost_without_noise_the_output_is_the_input(tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    config = toy.configuration(
        tmp_path, privacy__allocation=allocation(tmp_path), privacy__rho="100000"
    )
    out = checked(config)
    for level in toy.LEVELS:
        assert output_equals_input(out, level), level


@pytest.mark.parametrize("kept", [0, 1])
def test_strata_of_no_person_and_of_one_are_ordinary(tmp_path: Path, kept: int) -> None:
    people = toy.write_records(tmp_path)
    minors = [row for row in people if row[2] == "under_18"]
    left = [row for row in people if row[2] != "under_18"] + minors[:kept]
    with (tmp_path / "records.csv").open("w", newline="") as handle:
        csv.writer(handle).writerows([("block", "sex", "age"), *left])
    checked(toy.configuration(tmp_path, privacy__allocation=allocation(tmp_path)))


def test_strata_may_be_planned_and_go_on_with_what_was_planned(tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    workload = {"workload": {"method": "orp", "tables": TABLES}}
    ranged = {"workload": {"method": "orp", "tables": TABLES, "bases": {"age": ["prefix"]}}}
    adults = {level: {"share": "1/8", **workload} for level in toy.LEVELS}
    minors = {"state": {"share": "1/2", **ranged}}
    config = toy.configuration(
        tmp_path, privacy__allocation=allocation(tmp_path, adult=adults, minor=minors)
    )
    out = checked(config)
    planned = json.loads((release_of(out).planned).read_text())
    assert list(planned["levels"]) == [
        "state where votingage=minor",
        *(f"{level} where votingage=adult" for level in toy.LEVELS),
    ]
    frozen = load_run(config).plan.strategy
    assert frozen.strata[0].levels[0].joint is not None
    names = [entry.query.name.partition(" #")[0] for entry in frozen.strata[0].levels[0].queries]
    assert all(name.endswith(" where votingage=minor") for name in names)


def test_a_plan_says_what_each_stratum_costs_and_how_far_off_it_is(tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    config = toy.configuration(tmp_path, privacy__allocation=allocation(tmp_path))

    def printed(*command: str) -> dict[str, Any]:
        result = CliRunner().invoke(app, [*command, str(config), "--json"])
        assert result.exit_code == 0, result.output
        return dict(json.loads(result.output))

    checked = printed("validate", "--losses")
    assert 0 < checked["by_noise"]["epsilon"] < checked["privacy"]["epsilon"]
    plan = printed("plan", "--quiet")
    assert [row["stratum"] for row in plan["strata"]] == ["votingage=minor", "votingage=adult"]
    predicted = {(row["table"], row["geolevel"]): row for row in plan["predicted"]}
    for stratum in ("minor", "adult"):
        assert predicted[f"total where votingage={stratum}", "county"]["own"]["rmse"] > 0


WISHES = {
    "--weights": {"total where votingage=minor": {"county": 9}, "detailed": 1},
    "--targets": {"total where votingage=minor": 60, "age where votingage=adult": {"block": 90}},
    "--groups": {
        "groups": {"votingage": {"county": "absolute", "block": "absolute"}},
        "tables": ["sex"],
    },
}


@pytest.mark.parametrize("wish", WISHES)
def test_a_plan_finds_the_best_allocation_of_every_stratum(tmp_path: Path, wish: str) -> None:
    toy.write_records(tmp_path)
    config = toy.configuration(tmp_path, privacy__allocation=allocation(tmp_path))
    (tmp_path / "wish.yaml").write_text(yaml.safe_dump(WISHES[wish]))
    best = tmp_path / "best.yaml"
    words = ["plan", str(config), "--json", "--quiet", "--optimize", str(best)]
    result = CliRunner().invoke(app, [*words, wish, str(tmp_path / "wish.yaml")])
    assert result.exit_code == 0, (result.output, result.exception)
    optimized = json.loads(result.output)["optimized"]
    assert 0 < optimized["bound"] <= optimized["value"] * (1 + 1e-9)
    found = load_run(toy.configuration(tmp_path, privacy__allocation=str(best))).plan.strategy
    assert [stratum.name for stratum in found.strata] == ["votingage=minor", "votingage=adult"]
    for stratum in found.strata:
        assert found.chain_share(0, 3) + found.chain_share(0, 3, stratum) == 1
        assert len(stratum.levels) == 4


@pytest.mark.parametrize(
    ("solve", "lazy", "message"),
    [
        ({"method": "maxfit"}, [], "maxfit takes partition queries alone"),
        ({"fit_to": "level"}, ["detailed where votingage=adult"], "is not a partition"),
    ],
)
def test_what_no_solver_takes_is_refused_before_a_grant(tmp_path, solve, lazy, message):
    toy.write_records(tmp_path)
    config = toy.configuration(
        tmp_path,
        privacy__allocation=allocation(tmp_path),
        privacy__on_demand_queries=lazy,
        solve=solve,
    )
    result = CliRunner().invoke(app, ["validate", str(config)])
    assert message in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_answers_that_are_drawn_lazily_go_beside_strata(tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    checked(
        toy.configuration(
            tmp_path,
            privacy__allocation=allocation(tmp_path),
            privacy__on_demand_queries=["detailed"],
            solve={"fit_to": "level"},
        )
    )
