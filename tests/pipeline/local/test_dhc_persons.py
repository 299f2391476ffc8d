"""Persons of the 2020 schema on a few blocks, bound to a redistricting release of the same persons."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from das.arrays import IntArray
from das.errors import InputError
from das.queries.query import parse_query
from jobs.design.synthetic.generate import GenerateSpec, generate
from jobs.pipeline.config.load import load_run
from jobs.pipeline.release.verify import verify_run
from tests.builders.dhc import run_file
from tests.builders.in_process import execute
from tests.builders.places import release_of
from tests.release_checks import sparse, tree_is_consistent

LEVELS = ["state", "county", "block"]


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the persons and their redistricting release."""
    folder = tmp_path_factory.mktemp("persons")
    spec = GenerateSpec(
        blocks=40, seed=5, schema="dhc_persons", format="histograms", with_prims=True
    )
    generate(spec, folder / "dhc-2020-data")
    execute(run_file(folder, "dhc-2020-pl94", LEVELS))
    return folder


def test_every_count_of_the_redistricting_release_is_kept(before: Path) -> None:
    run = run_file(before, "dhc-2020", LEVELS)
    out = execute(run)
    resolved = load_run(run)
    assert verify_run(resolved)["exact_answers"] > 0
    assert tree_is_consistent(out, LEVELS)
    bound = parse_query(resolved.plan.schema, "hhgq * votingage * hispanic * cenrace")
    for level in LEVELS:
        released = sparse(before / f"dhc-2020-pl94/release/products/persons/counts/level={level}")
        persons = sparse(out / f"release/products/persons/counts/level={level}")
        assert {code: added_up(bound.rows_of, cells) for code, cells in persons.items()} == released
    truth = sparse(out / "confidential/products/persons/histograms/level=block")
    assert {code: added_up(bound.rows_of, cells) for code, cells in truth.items()} != released


def test_a_redistricting_release_that_contradicts_the_persons_is_refused_unspent(
    before: Path, tmp_path: Path
) -> None:
    """The state's total is exact in that release, and here one person is missing."""
    for made in ("dhc-2020-data", "dhc-2020-pl94"):
        shutil.copytree(before / made, tmp_path / made)
    part = next((tmp_path / "dhc-2020-data" / "histograms").glob("*.parquet"))
    table = pq.read_table(part)
    cells, counts = (table[name].to_pylist() for name in ("cells", "counts"))
    first = next(row for row, there in enumerate(cells) if there)
    counts[first][0] -= 1
    if not counts[first][0]:
        del cells[first][0], counts[first][0]
    schema = table.schema
    lists = {"cells": cells, "counts": counts}
    columns = [
        pa.array(lists[field.name], field.type) if field.name in lists else table[field.name]
        for field in schema
    ]
    pq.write_table(pa.table(columns, schema=schema), part)
    with pytest.raises(InputError) as caught:
        execute(run_file(tmp_path, "dhc-2020", LEVELS))
    assert caught.value.where.startswith("state ")
    assert caught.value.got == "total, which is exact in the release"
    assert caught.value.remedy == "bind the run to the release of these data"
    assert not (release_of(tmp_path / "dhc-2020").root / "measurements").exists()


def added_up(rows_of: Callable[[IntArray], IntArray], cells: dict[int, int]) -> dict[int, int]:
    """Answers of a query that are not zero, from a sparse histogram."""
    added = Counter[int]()
    for row, count in zip(
        rows_of(np.array([*cells], np.int64)).tolist(), cells.values(), strict=True
    ):
        added[row] += count
    return dict(added)
