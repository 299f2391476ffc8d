"""Households of the 2020 schema on a few blocks, bound to a release of units, bound to another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from das.queries.query import Query, parse_query
from jobs.design.synthetic.generate import GenerateSpec, generate
from jobs.pipeline.config.load import load_run
from jobs.pipeline.release.verify import verify_run
from tests.builders.dhc import LEVELS, run_file
from tests.builders.in_process import execute
from tests.release_checks import sparse, tree_is_consistent

FEW = ["nation", "county", "block"]


@pytest.mark.long
@pytest.mark.parametrize("levels", [FEW, LEVELS], ids=["few", "all"])
def test_owners_and_renters_are_in_the_units_that_were_released_as_theirs(
    tmp_path: Path, levels: list[str]
) -> None:
    spec = GenerateSpec(
        seed=8, blocks=12, schema="dhc_households", format="histograms", with_prims=True
    )
    generate(spec, tmp_path / "dhc-households-data")
    before = execute(run_file(tmp_path, "dhc-households-h1", levels))
    beside = execute(run_file(tmp_path, "dhc-households-units", levels))
    run = run_file(tmp_path, "dhc-households", levels)
    out = execute(run)
    resolved = load_run(run)
    assert verify_run(resolved)["families"] > 0
    assert tree_is_consistent(beside, levels)
    assert tree_is_consistent(out, levels)
    tenure = parse_query(resolved.plan.schema, "tenure2")
    released = sparse(before / "release/products/persons/counts/level=block")
    for geolevel in levels:
        digits = resolved.plan.level(geolevel).digits
        wanted: dict[str, Any] = {}
        for code, cells in released.items():
            units = np.array([cells.get(cell, 0) for cell in range(26)])
            wanted[code[:digits] or "0"] = wanted.get(code[:digits] or "0", 0) + units
        households = sparse(out / f"release/products/persons/counts/level={geolevel}")
        units_here = sparse(beside / f"release/products/persons/counts/level={geolevel}")
        assert {*households} <= {*units_here} <= {*wanted}
        for code, answers in wanted.items():
            by_level = [units_here.get(code, {}).get(cell, 0) for cell in range(35)]
            found = [sum(by_level[:4]), sum(by_level[4:11]), *by_level[11:]]
            assert found == answers.tolist()
            assert by_tenure(tenure, households.get(code, {})) == [
                sum(by_level[:2]),
                sum(by_level[2:4]),
            ]
    truth = sparse(out / "confidential/products/persons/histograms/level=block")
    assert {code: by_tenure(tenure, cells) for code, cells in truth.items()} != {
        code: by_tenure(tenure, cells) for code, cells in households.items()
    }
    possible = resolved.plan.limits.possible(resolved.plan.schema)
    assert len(possible) == 1_578_528 - 466_956
    assert {cell for cells in households.values() for cell in cells} <= {*possible.tolist()}


def by_tenure(tenure: Query, cells: dict[int, int]) -> list[int]:
    """Owners and renters of a histogram."""
    rows = tenure.rows_of(np.array([*cells], np.int64))
    counts = np.array([*cells.values()], np.int64)
    return [int(counts[rows == row].sum()) for row in range(2)]
