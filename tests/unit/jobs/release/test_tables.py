"""Tables hold the answers of the counts; children's rows sum to their parent's."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from das.queries.query import parse_query
from das.schema import Attribute, Schema
from jobs.release.tables import write_h1, write_tables
from jobs.storage.dataset import Dataset
from tests.builders import two_families as two


@pytest.fixture
def release(tmp_path):
    layout = two.release(tmp_path)
    for geolevel in two.SPINE.levels:
        two.write_counts(layout, geolevel)
    return layout


def rows_of(dataset) -> dict[str, dict[str, int]]:
    """Cells of the table by geocode and column, in the order written."""
    opened = Dataset.open(dataset)
    rows = {}
    for part in sorted(opened.parts, key=lambda part: part.low):
        with (dataset / part.file).open(newline="") as handle:
            for row in csv.DictReader(handle):
                code = row.pop("geocode")
                rows[code] = {name: int(value) for name, value in row.items()}
    return rows


def test_every_geolevel_has_the_answers_of_its_counts(release):
    write_tables(two.plan(), release, ["total", "age"], two.TASKS)
    for geolevel in two.SPINE.levels:
        expected = {
            code: {"total": sum(c), "age: minor": c[0] + c[2], "age: adult": c[1] + c[3]}
            for code, c in two.at(geolevel).items()
        }
        assert rows_of(release.tables(geolevel)) == expected


def test_rows_of_children_sum_to_the_row_of_their_parent(release):
    write_tables(two.plan(), release, ["sex * age"], two.TASKS)
    for above, below in (("state", "county"), ("county", "block")):
        parents = rows_of(release.tables(above))
        children = rows_of(release.tables(below))
        for code, row in parents.items():
            own = [child for name, child in children.items() if name.startswith(code)]
            assert len(own) >= 2
            assert row == {name: sum(child[name] for child in own) for name in row}


def test_complete_tables_stay(release):
    write_tables(two.plan(), release, ["total"], two.TASKS)
    before = (release.tables("county") / "_manifest.json").read_bytes()
    write_tables(two.plan(), release, ["age"], two.TASKS)
    assert (release.tables("county") / "_manifest.json").read_bytes() == before


def test_h1_counts_housing_units_alone(tmp_path):
    """Levels beside occupied and vacant, such as group quarters, are no housing units."""
    kinds = Schema("units", (Attribute("status", ("vacant", "quarters", "occupied", "other")),))
    plan = two.plan(queries=("total", "detailed"))
    layout = two.release(tmp_path)
    for geolevel in two.SPINE.levels:
        two.write_counts(layout, geolevel)
    write_h1(plan, layout, parse_query(kinds, "status"), two.TASKS)
    for geolevel in two.SPINE.levels:
        expected = {
            code: {"H0010001": c[0] + c[2], "H0010002": c[2], "H0010003": c[0]}
            for code, c in two.at(geolevel).items()
        }
        assert rows_of(layout.h1(geolevel)) == expected
    assert np.sum([row["H0010001"] for row in rows_of(layout.h1("block")).values()]) == 5
