"""Every planner in every setting runs to finalized counts, or is refused before anything is claimed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.planner_grid import (
    METHODS,
    REFUSED,
    SOLVED,
    TABLES,
    Case,
    every_case,
    quick_cases,
    rmse_ratios,
    run_case,
    write_case,
)
from das.errors import ConfigError, SchemaError
from jobs.pipeline.confidential.inputs import check_geounits
from jobs.pipeline.config.load import load_run
from tests.builders.run_files import load_runnable
from tests.checkout import ROOT

ORDINARY = [case for case in quick_cases() if case.schema == "pl94_tables"]


@pytest.mark.parametrize("case", ORDINARY, ids=str)
def test_a_planner_solves(case: Case, tmp_path: Path) -> None:
    assert run_case(case, tmp_path) == (SOLVED, "")


@pytest.mark.long
@pytest.mark.parametrize("schema", TABLES)
@pytest.mark.parametrize("method", METHODS)
def test_the_whole_grid_solves_or_is_refused(schema: str, method: str, tmp_path: Path) -> None:
    failed = []
    for number, case in enumerate(every_case()):
        if (case.schema, case.method) == (schema, method):
            folder = tmp_path / str(number)
            folder.mkdir()
            ended, message = run_case(case, folder)
            failed += [] if ended in (SOLVED, REFUSED) else [f"{case}: {message}"]
    assert failed == []


def test_hdmm_is_its_own_measure() -> None:
    ratios = rmse_ratios()
    assert ratios["hdmm"] == 1.0
    assert all(0.3 < ratio < 3 for ratio in ratios.values())


PLAIN = Case("pl94_tables", "residual_planner", True, "tree", "all", "bounded")
LARGE = Case("census1940", "residual_planner", True, "level", "all", "bounded")
LISTED = Case("pl94", "listed", True, "level", "all", "bounded")
CROSSING = Case("census1940", "listed", True, "level", "all", "bounded")
WIDE = Case("census1940", "orp", True, "tree", "all", "bounded")


@pytest.mark.parametrize(
    ("case", "changes", "message"),
    [
        (PLAIN, {"solve": {"method": "maxfit"}}, "maxfit takes partition queries alone"),
        (LISTED, {"solve": {"method": "maxfit"}}, "families that are too large for maxfit"),
        (
            LARGE,
            {"solve": {"fit_to": "level", "method": "reweighted"}},
            "reweighted forms a matrix over the cells",
        ),
        (
            CROSSING,
            {"solve": {"fit_to": "level", "method": "sequential"}},
            "passes whose queries cross form matrices",
        ),
        (
            LARGE,
            {"solve": {"fit_to": "level", "least_squares": "piqp"}},
            "least_squares piqp forms matrices over cells beside queries that are no partitions",
        ),
    ],
)
def test_what_no_solver_takes_is_refused_before_anything_is_claimed(
    case: Case, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    if "piqp" in message:
        pytest.importorskip("piqp")
    path = write_case(case, tmp_path)
    run = yaml.safe_load(path.read_text())
    run["products"]["persons"] |= changes
    path.write_text(yaml.safe_dump(run))
    with pytest.raises(ConfigError, match=message):
        check_geounits(load_runnable(path))
    assert not list(tmp_path.glob("*account*"))


@pytest.mark.parametrize("fit_to", ["level", "tree"])
def test_too_many_groups_of_levels_are_refused(fit_to: str, tmp_path: Path) -> None:
    """116 ages and 8 kinds of housing, each asked for its prefixes, make 928 combinations."""
    path = write_case(WIDE, tmp_path)
    allocation = tmp_path / "allocation.yaml"
    levels = yaml.safe_load(allocation.read_text())
    for level in levels["levels"].values():
        level["workload"]["bases"] = {"age": ["prefix"], "hhgq": ["prefix"]}
    allocation.write_text(yaml.safe_dump(levels))
    run = yaml.safe_load(path.read_text())
    run["products"]["persons"]["solve"] = {"fit_to": fit_to}
    path.write_text(yaml.safe_dump(run))
    with pytest.raises(Exception, match="group the levels") as refused:
        load_runnable(path)
    assert "928" in str(refused.value)


def test_recodes_of_too_many_groups_are_refused_unless_those_that_cross_are_lazy(
    tmp_path: Path,
) -> None:
    """The queries of the persons' tables of 2020: all of them have estimates, or some are on demand."""
    run = yaml.safe_load((ROOT / "conf" / "run" / "dhc.yaml").read_text())
    path = tmp_path / "run.yaml"
    persons = run["products"]["persons"]
    for owner, key, folder in (
        (persons, "schema", "schema"),
        (persons["privacy"], "allocation", "allocation"),
    ):
        owner[key] = str(ROOT / "conf" / folder / Path(owner[key]).name)
    path.write_text(yaml.safe_dump(run))
    assert load_run(path).plan.on_demand
    del persons["privacy"]["on_demand_queries"]
    path.write_text(yaml.safe_dump(run))
    with pytest.raises(SchemaError, match="got 1075 combinations of groups"):
        load_runnable(path)
