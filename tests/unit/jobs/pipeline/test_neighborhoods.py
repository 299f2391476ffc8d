"""What validate and plan say of statements that invariants make empty or smaller."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from das.queries.query import parse_query
from das.queries.sensitivity import Neighbors
from das.schema import Attribute, Schema
from invariants.constraints import Constraints
from invariants.zeros import StructuralZeros
from jobs.cli.main import app
from jobs.pipeline.config.load import load_run
from jobs.pipeline.neighborhoods import invariance
from tests.builders import toy


def said(folder: Path, *arguments: str, **changes: Any) -> str:
    """What `das validate` prints of a toy run."""
    toy.write_records(folder)
    config = toy.configuration(folder, **changes)
    result = CliRunner().invoke(app, ["validate", str(config), *arguments])
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())


def stated(folder: Path, **changes: Any) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The neighborhood of the run, and its statements by name."""
    document = json.loads(said(folder, "--json", **changes))
    rows = {row["name"]: row for row in document["statements"]}
    return document["privacy"]["neighborhood"], rows


def test_an_exact_total_leaves_no_unbounded_neighbors(tmp_path: Path) -> None:
    found, rows = stated(tmp_path, privacy__neighbors="unbounded")
    assert found["comparable"] == "none"
    assert found["limited_by"] == ["total in every state"]
    assert rows[""]["comparable"] == "all"  # a record that changes keeps the total
    assert rows[""]["epsilon"] > 0
    text = said(tmp_path, privacy__neighbors="unbounded")
    assert "No two neighboring data sets agree on what is exact (total in every state)" in text


def test_what_exact_values_mean_for_one_record_is_said(tmp_path: Path) -> None:
    assert "and the guarantee still applies to one record" in said(tmp_path)
    text = said(tmp_path, privacy__neighbors="unbounded")
    assert "so only a weaker guarantee for k records together applies" in text


def test_without_invariants_nothing_is_said(tmp_path: Path) -> None:
    found, rows = stated(tmp_path, privacy__neighbors="unbounded", invariants=[])
    assert found == {"comparable": "all", "limited_by": [], "stays_in": "", "in_words": ""}
    assert {row["comparable"] for row in rows.values()} == {"all"}
    assert "limited by" not in said(tmp_path, invariants=[])


def test_exact_block_totals_take_the_place_out_of_the_promise(tmp_path: Path) -> None:
    exact = [{"query": "total", "geolevel": "block"}]
    _, rows = stated(tmp_path, invariants=exact)
    for level in ("state", "county", "tract"):
        assert rows[level]["comparable"] == "none"
        assert rows[level]["epsilon"] is rows[level]["total"] is None
    assert rows["sex"]["comparable"] == "all"
    text = said(tmp_path, invariants=exact)
    assert (
        "only the place, within one tract \N{EN DASH} \N{EN DASH} \N{EN DASH} not protected" in text
    )


def test_exact_tract_totals_leave_moves_within_tracts(tmp_path: Path) -> None:
    _, rows = stated(tmp_path, invariants=[{"query": "total", "geolevel": "tract"}])
    assert rows["tract"]["comparable"] == "all"
    assert rows["state"]["comparable"] == "some"
    assert rows["state"]["stays_in"] == "tract"


@pytest.mark.parametrize(
    ("invariants", "name", "comparable"),
    [
        ([{"query": "sex", "geolevel": "state"}], "sex", "none"),
        ([{"query": "votingage", "geolevel": "state"}], "age", "some"),
        ([{"zero": {"sex": ["male"]}}], "sex", "none"),
        ([{"zero": {"sex": ["male"], "age": ["under_18"]}}], "sex", "some"),
    ],
)
def test_attributes(
    tmp_path: Path, invariants: list[dict[str, Any]], name: str, comparable: str
) -> None:
    _, rows = stated(tmp_path, invariants=invariants)
    assert rows[name]["comparable"] == comparable


@pytest.mark.parametrize(
    ("limits", "comparable"),
    [({}, "none"), ({"at_least": 3, "at_most": 3}, "none"), ({"at_most": 9}, "some")],
)
def test_rows(tmp_path: Path, limits: dict[str, int], comparable: str) -> None:
    row = {"name": "men", "row": [{"cells": {"sex": ["male"]}}], "geolevel": "county"}
    _, rows = stated(tmp_path, invariants=[{**row, **limits}])
    assert rows["sex"]["comparable"] == comparable
    assert rows["sex"]["limited_by"] == ["row men in every county"]
    assert rows["age"]["comparable"] == "all"
    assert rows["county"]["comparable"] == "all"
    assert rows["state"]["comparable"] == "some"  # women move as they like


def test_facilities(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("block,n\n9900100000,1\n")
    table = {"path": str(tmp_path / "f.csv"), "geocode": "block", "columns": {"male": "n"}}
    facilities = {"facilities": "sex", "geolevel": "block", "table": table}
    _, rows = stated(tmp_path, invariants=[facilities])
    assert rows["sex"]["comparable"] == "some"
    fixed = {**facilities, "at_least": {"male": 2}, "at_most": {"male": 2}}
    _, rows = stated(tmp_path, invariants=[fixed])
    assert rows["sex"]["comparable"] == "none"
    assert rows["age"]["comparable"] == "all"


def test_a_list_of_geounits_from_the_data_is_said_before_the_run(tmp_path: Path) -> None:
    line = "which block exists comes from the data and is published; give geography.geounits"
    assert line in said(tmp_path, geography__geounits=None)
    assert line not in said(tmp_path)
    found, rows = stated(tmp_path, geography__geounits=None)
    assert found["limited_by"] == rows["tract"]["limited_by"] == ["the list of geounits"]


def test_how_far_apart_the_nearest_data_sets_are(tmp_path: Path) -> None:
    def nearest(**changes: Any) -> dict[str, Any]:
        return json.loads(said(tmp_path, "--json", **changes))["privacy"].get("nearest")

    assert nearest(invariants=[]) is None
    found = nearest(privacy__rho="1/2")
    assert (found["records"], found["is_least"], found["total"]) == (1, True, "1/2")
    found = nearest(privacy__neighbors="unbounded", privacy__rho="1/2")
    assert (found["records"], found["total"]) == (2, "2")  # k^2 rho
    assert "k = 2 records apart (added or removed)" in found["in_words"]
    exact = [{"query": "detailed", "geolevel": "state"}, {"query": "total", "geolevel": "block"}]
    found = nearest(privacy__rho="1/2", invariants=exact)
    assert (found["records"], found["total"]) == (2, "2")  # two records swap their blocks
    pure = {"privacy__definition": "pure", "privacy__rho": None, "privacy__epsilon": "1/2"}
    found = nearest(invariants=exact, **pure)
    assert (found["records"], found["total"]) == (2, "1")  # k epsilon
    found = nearest(invariants=[{"query": "detailed", "geolevel": "block"}])
    assert found["records"] is found["total"] is None
    assert "nothing is left to promise" in found["in_words"]
    text = said(tmp_path, privacy__rho="1/2", invariants=exact)
    assert "k\N{SUPERSCRIPT TWO} rho = 2, by group privacy, so epsilon" in text


@pytest.mark.parametrize(
    "invariants",
    [
        [{"query": "total", "geolevel": "state"}],
        [{"query": "sex", "geolevel": "tract"}, {"zero": {"sex": ["male"], "age": ["under_18"]}}],
        [{"query": "total", "geolevel": "block"}, {"query": "age", "geolevel": "county"}],
        [{"query": "detailed", "geolevel": "block"}],
    ],
)
def test_levels_that_stand_for_others_say_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, invariants: list[dict[str, Any]]
) -> None:
    toy.write_records(tmp_path)
    plan = load_run(toy.configuration(tmp_path, invariants=invariants)).plan
    wide = Schema(
        "wide",
        (Attribute("kind", tuple(map(str, range(9)))), *plan.schema.attributes),
        plan.schema.recodes,
    )
    held = [
        replace(one, query=parse_query(wide, one.query.name))
        for one in plan.invariants
        if one.query.name != "detailed"
    ]
    zeros = plan.limits.zeros
    if zeros is not None:
        boxes = tuple((np.ones(9, np.bool_), *box) for box in zeros.boxes)
        zeros = StructuralZeros(wide.shape, boxes)
    large = replace(
        plan, schema=wide, invariants=tuple(held), limits=Constraints((zeros,) if zeros else ())
    )
    whole = invariance(large, "public list")
    monkeypatch.setattr("jobs.pipeline.neighborhoods._MANY_CELLS", 0)
    few = invariance(large, "public list")
    assert np.prod(few.shape) < np.prod(whole.shape)
    assert few.all() == whole.all()
    for neighbors in Neighbors:
        assert few.distance(neighbors) == whole.distance(neighbors)
