"""Runs of schemas of millions of cells, and what is refused because it is as large as they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from das.errors import DasError
from das.queries.query import parse_query
from jobs.cli.main import app
from jobs.pipeline.config.load import load_run
from jobs.pipeline.release.verify import verify_run
from tests.builders.in_process import execute
from tests.builders.large import SF2_PERSONS, write_run
from tests.builders.places import release_of
from tests.release_checks import sparse, totals_are_exact, tree_is_consistent

ANSWERS = 2 * 6 + 2 * 4 * 2 + 2 * 511 * (1 + 2 * 23 * (1 + 6)) + 9_958_368  # of every query
LEVELS = ["state", "county", "tract", "block"]


def changed(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """A run file of ten million cells and two blocks, with a change of its product."""
    path = write_run(SF2_PERSONS, folder, 2)
    document = yaml.safe_load(path.read_text())
    change(document["products"]["persons"])
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def refused(path: Path) -> str:
    """What `das validate` says of a run file that it refuses."""
    result = CliRunner().invoke(app, ["validate", str(path)])
    assert isinstance(result.exception, DasError), (result.output, result.exception)
    return str(result.exception)


def test_ten_million_cells_from_input_to_verification(tmp_path: Path) -> None:
    path = write_run(SF2_PERSONS, tmp_path, 82)  # three tracts
    resolved = load_run(path)
    out = execute(resolved)
    assert tree_is_consistent(out, LEVELS)
    assert totals_are_exact(out, "state")
    plan = resolved.plan
    assert plan.schema.size == SF2_PERSONS.cells == 9_958_368

    released = sparse(release_of(out).counts("state"))["01"]
    cells, counts = (np.array([*part]) for part in (released.keys(), released.values()))
    assert plan.limits.zeros is not None
    assert not plan.limits.zeros.holds(cells).any()
    support = sparse(release_of(out).support("state"))["01"]
    rows = plan.support[-1].rows_of(cells)
    assert {row: int(counts[rows == row].sum()) for row in set(rows.tolist())} == support
    drawn = release_of(out).lazy_measurements("state") / "_manifest.json"
    assert json.loads(drawn.read_text())["facts"]["lazy_queries"] == ["detailed"]
    assert verify_run(resolved)["families"] == 5

    asked = CliRunner().invoke(app, ["tables", str(out / "release"), "--table", "detailed"])
    assert "9958368" in str(asked.exception)
    assert "at most 4000000" in str(asked.exception)
    assert "ask fewer attributes or groups of levels" in str(asked.exception)

    def areas(*words: str) -> str:
        named = ["areas", str(out / "release"), *words]
        return str(CliRunner().invoke(app, named).exception)

    said = areas("--geounit", "01", "--table", "detailed", "--output", str(tmp_path / "a.csv"))
    assert "9958369, 1 areas" in said
    assert "request fewer attributes, groups of levels or areas" in said
    most_printed = "at most 4000000 by --output, 200000 printed"
    assert most_printed in areas("--geolevel", "block", "--table", "hispanic * race * age4")
    assert areas("--geounit", "01", "--table", "race") == "None"


def test_what_is_as_large_as_the_schema_is_refused_with_what_to_do(tmp_path: Path) -> None:
    def without_lazy(product: dict[str, Any]) -> None:
        product["privacy"]["on_demand_queries"] = []
        product["privacy"]["root_support_passes"] = []

    def without_support(product: dict[str, Any]) -> None:
        product["privacy"]["root_support_passes"] = []

    def with_row(product: dict[str, Any]) -> None:
        row = [{"coefficient": 1, "cells": {"sex": ["0"]}}]
        product["invariants"].append(
            {"row": row, "name": "women", "geolevel": "county", "at_least": 0}
        )

    def with_table(product: dict[str, Any]) -> None:
        product["output"]["tables"].append("detailed")

    def with_columns(product: dict[str, Any]) -> None:
        (tmp_path / "wide.csv").write_text("geocode\n")
        pattern = "r{relgq}s{sex}a{age}h{hispanic}c{race}"
        product["data"] = {
            "input_format": "block_table",
            "path": str(tmp_path / "wide.csv"),
            "pattern": pattern,
        }

    said = refused(changed(tmp_path / "complete", without_lazy))
    assert "geolevel state" in said
    assert f"{ANSWERS} answers, 9958368 of them of detailed" in said
    assert "name the query in privacy.on_demand_queries, and for the root" in said
    assert "geolevel state" in refused(changed(tmp_path / "root", without_support))
    assert "remove the row from the run file; structural zeros" in refused(
        changed(tmp_path / "row", with_row)
    )
    assert "ask fewer attributes" in refused(changed(tmp_path / "table", with_table))
    wide = changed(tmp_path / "columns", with_columns)
    assert "has a column for every cell" in (said := refused(wide))
    assert "got 9958368 cells" in said
    assert "give the data as records or histograms" in said
    document = yaml.safe_load(wide.read_text())
    document["products"]["persons"]["data"] = {"input_format": "histograms", "path": "histograms"}
    others = deepcopy(document["products"]["persons"])
    others["privacy"]["product"] = "others"
    document["products"]["others"] = others
    women = [{"cells": {"sex": ["0"]}}]
    sides = {
        side: {"product": name, "row": women}
        for side, name in zip(("left", "right"), ("persons", "others"), strict=True)
    }
    entry = {"name": "as many women", "geolevel": "block", "relation": "equals", **sides}
    wide.write_text(
        yaml.safe_dump({**document, "cross_product_constraints": [entry]}, sort_keys=False)
    )
    assert "cross_product_constraints.0: row of others" in (said := refused(wide))
    assert "remove the row from the run file; structural zeros" in said
    wide.write_text(yaml.safe_dump(document, sort_keys=False))
    CliRunner().invoke(app, ["validate", str(wide)], catch_exceptions=False)
    CliRunner().invoke(app, ["validate", str(changed(tmp_path / "good", lambda _: None))])


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"root_support_passes": ["hispanic * race", "relgq6 * sex"]}, "does not refine"),
        ({"root_support_passes": ["age"]}, "is no partition query that is measured at the root"),
        (
            {"on_demand_queries": ["sex * age23 * hispanic * race"]},
            "leaves nothing to draw below it",
        ),
    ],
)
def test_a_support_that_says_nothing_is_refused(
    tmp_path: Path, change: dict[str, Any], what: str
) -> None:
    path = changed(tmp_path, lambda product: product["privacy"].update(change))
    assert what in refused(path)


def test_an_invariant_of_the_root_is_a_sum_of_the_first_query(tmp_path: Path) -> None:
    exact = {"query": "sex", "geolevel": "state"}
    path = changed(tmp_path, lambda product: product["invariants"].append(exact))
    assert "invariant sex: is no sum of hispanic * race, which comes first" in refused(path)
    assert parse_query(load_run(write_run(SF2_PERSONS, tmp_path / "as_is", 2)).plan.schema, "sex")
