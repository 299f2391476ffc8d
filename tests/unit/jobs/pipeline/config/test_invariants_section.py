"""The section `invariants` of a run file: every kind, and what it may not say."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter

from das.errors import ConfigError, DasError, SchemaError
from das.queries.query import parse_query
from das.schema import Attribute, Recode, Schema
from invariants.facilities import groups_of
from invariants.quarters import without_quarters
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.models.kinds.kind import Setting
from jobs.pipeline.config.models.kinds.registry import KINDS
from jobs.pipeline.config.models.products import ProductConfig
from jobs.pipeline.config.resolve import read_invariants
from jobs.pipeline.plan import exact_query
from tests.builders import toy

HHGQ = Attribute("hhgq", ("household", "nursing", "military"))
INSIDE = Recode.from_groups(
    "inside", HHGQ, {"household": ("household",), "gq": ("nursing", "military")}
)
SCHEMA = Schema("s", (HHGQ, Attribute("age", ("minor", "adult"))), (INSIDE,))
SPINE = ("state", "county", "block")
TABLE = {"path": "f.csv", "columns": {"nursing": "n", "military": "m"}}


def stated(*entries: dict) -> list:
    field = ProductConfig.model_fields["invariants"]
    return TypeAdapter(field.annotation).validate_python(list(entries))


def limits(*entries: dict):
    setting = Setting(SCHEMA, SPINE, partial(exact_query, {}))
    return read_invariants(stated(*entries), setting)[1]


def test_every_kind_has_a_key_that_no_other_has():
    first, *others = KINDS
    for kind in others:
        assert kind.key in kind.model_fields
        assert not any(kind.key in other.model_fields for other in KINDS if other is not kind)
    assert first.key == "query"


def test_facilities():
    facilities = limits(
        {"facilities": "hhgq", "geolevel": "county", "table": TABLE, "at_most": {"nursing": 50}}
    ).facilities
    assert facilities.query.name == "hhgq"
    assert facilities.geolevels == ("state", "county")
    assert facilities.least.tolist() == [1, 1, 1]
    assert facilities.most.tolist() == [99_999, 50, 99_999]
    assert facilities.is_counted.tolist() == [False, True, True]
    boxes = facilities.boxes(np.array([[0, 2, 0]]))
    assert boxes.least.tolist() == [[0, 2, 0]]
    assert boxes.most[0, 0] > 10**10
    assert boxes.most[0, 1:].tolist() == [100, 0]


def test_households_may_be_empty():
    table = {"path": "f.csv", "columns": {"household": "h"}}
    entry = {"facilities": "hhgq", "geolevel": "block", "table": table}
    facilities = limits({**entry, "at_least": {"household": 0}}).facilities
    assert facilities.boxes(np.array([[7, 0, 0]])).least.tolist() == [[0, 0, 0]]


def test_structural_zeros_add_up():
    found = limits(
        {"zero": {"hhgq": ["nursing"], "age": ["minor"]}},
        {"zero": {"inside": ["gq"], "age": ["adult"]}},
    )
    assert np.flatnonzero(found.zeros.holds(np.arange(SCHEMA.size))).tolist() == [2, 3, 5]
    assert len(found.zeros) == 3
    assert found.possible(SCHEMA).tolist() == [0, 1, 4]


def test_structural_zeros_take_ranges_of_levels_and_of_groups():
    found = limits({"zero": {"hhgq": "nursing..military", "age": ["minor"]}})
    assert np.flatnonzero(found.zeros.holds(np.arange(SCHEMA.size))).tolist() == [2, 4]
    found = limits({"zero": {"inside": ["gq..gq"], "age": "minor..adult"}})
    assert np.flatnonzero(found.zeros.holds(np.arange(SCHEMA.size))).tolist() == [2, 3, 4, 5]


def test_rows():
    found = limits(
        {
            "name": "r",
            "geolevel": "county",
            "row": [{"cells": {"age": ["minor"]}, "coefficient": 2}, {"cells": {}}],
            "at_most": 9,
        },
        {"name": "e", "geolevel": "block", "row": [{"cells": {"hhgq": ["military"]}}]},
    )
    bounded, exact = found.rows
    assert bounded.coefficients.tolist() == [3, 1, 3, 1, 3, 1]
    assert (bounded.least, bounded.most, bounded.is_exact) == (None, 9, False)
    assert exact.is_exact
    assert [r.name for r in found.bounded_rows_at("state")] == ["r"]
    assert found.bounded_rows_at("block") == []
    assert [r.name for r in found.exact_rows_at("block")] == ["e"]
    assert [found.binds(level) for level in SPINE] == [True, True, False]


QUARTERS = {"path": "q.csv", "columns": {"homes": "h", "gq": "g"}}


def test_living_quarters():
    entry = {"living_quarters": ["homes"], "geolevel": "county", "table": QUARTERS}
    found = limits(entry)
    assert found.quarters.kinds == ("homes", "gq")
    assert found.quarters.geolevels == ("state", "county")
    counts = np.array([[3, 0], [0, 2], [0, 0]])
    assert found.quarters.housing_units(counts).tolist() == [3, 0, 0]
    assert found.quarters.facilities(counts).tolist() == [0, 2, 0]
    assert without_quarters(counts).tolist() == [False, False, True]
    assert [found.is_implied(level) for level in SPINE] == [True, True, False]
    assert not any(found.binds(level) for level in SPINE)


def test_groups_of_types():
    types, totals = parse_query(SCHEMA, "hhgq"), parse_query(SCHEMA, "inside")
    assert groups_of(types, totals).tolist() == [0, 1, 1]
    assert groups_of(types, parse_query(SCHEMA, "total")).tolist() == [0, 0, 0]


FACILITIES = {"facilities": "hhgq", "geolevel": "block", "table": TABLE}


@pytest.mark.parametrize(
    ("entries", "kind", "message"),
    [
        ([{**FACILITIES, "facilities": "prefix(hhgq)"}], SchemaError, "must count every person"),
        ([{**FACILITIES, "geolevel": "tract"}], SchemaError, "is unknown; got tract"),
        ([FACILITIES, FACILITIES], ConfigError, "are stated twice"),
        ([{**FACILITIES, "at_least": {"x": 1}}], SchemaError, "unknown type"),
        (
            [{**FACILITIES, "table": {"path": "f", "columns": {"x": "y"}}}],
            SchemaError,
            "names an unknown type",
        ),
        (
            [{**FACILITIES, "at_least": {"nursing": 9}, "at_most": {"nursing": 8}}],
            SchemaError,
            "is above at_most",
        ),
        (
            [{"query": "age", "geolevel": "block"}, FACILITIES],
            SchemaError,
            "crosses an invariant; got age",
        ),
        (
            [
                {"query": "inside", "geolevel": "state"},
                {"query": "total", "geolevel": "block"},
                FACILITIES,
            ],
            SchemaError,
            "must be exact as far down as total",
        ),
        (
            [
                {
                    "facilities": "hhgq",
                    "geolevel": "block",
                    "exact": {"product": "units", "query": "hhgq"},
                }
            ],
            ConfigError,
            "product units: does not come before this one",
        ),
        ([{"zero": {"hhgq": ["prison"]}}], SchemaError, "unknown level; got"),
        ([{"zero": {"size": ["1"]}}], SchemaError, "unknown attribute; got size"),
        ([{"zero": {"hhgq": []}}], SchemaError, "no known level"),
        ([{"zero": {"hhgq": "nursing..prison"}}], SchemaError, "its ends must be levels; got"),
        ([{"zero": {"age": "adult..minor"}}], SchemaError, "zero.age: has a range that ends"),
        ([{"zero": {}}], SchemaError, "makes every cell impossible"),
        (
            [
                {
                    "name": "r",
                    "geolevel": "block",
                    "row": [{"cells": {}}, {"cells": {}, "coefficient": -1}],
                }
            ],
            SchemaError,
            "has no cell with a coefficient",
        ),
        (
            [
                {
                    "name": "r",
                    "geolevel": "block",
                    "row": [{"cells": {}}],
                    "at_least": 2,
                    "at_most": 1,
                }
            ],
            SchemaError,
            "has a larger at_least than at_most",
        ),
        (
            [
                {"query": "total", "geolevel": "state"},
                {"name": "total", "geolevel": "block", "row": [{"cells": {}}]},
            ],
            ConfigError,
            "is used twice; got total",
        ),
        (
            [
                {
                    "query": "age",
                    "geolevel": "state",
                    "table": {"path": "x", "columns": {"minor": "m"}},
                }
            ],
            ConfigError,
            "must name every answer of age",
        ),
        (
            [{"living_quarters": ["flats"], "geolevel": "block", "table": QUARTERS}],
            SchemaError,
            "living_quarters: names a kind that is not counted; got ['flats']",
        ),
        (
            [{"living_quarters": [], "geolevel": "block", "table": QUARTERS}] * 2,
            ConfigError,
            "1.living_quarters: are stated twice",
        ),
        (
            [
                {"living_quarters": [], "geolevel": "county", "table": QUARTERS},
                {"facilities": "hhgq", "geolevel": "block", "table": TABLE},
            ],
            ConfigError,
            "living quarters: are counted at a coarser geolevel than facilities; got county",
        ),
        (
            [{"living_quarters": [], "geolevel": "block", "table": {"path": "x", "columns": {}}}],
            SchemaError,
            "counts nothing",
        ),
    ],
)
def test_what_cannot_be_kept_is_refused(entries, kind, message):
    with pytest.raises(DasError) as caught:
        limits(*entries)
    assert type(caught.value) is kind
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"query": "total"}, "invariants.0.geolevel: is required"),
        ({"facilities": "age", "geolevel": "block"}, "give exactly one of `table` and `exact`"),
        ({"living_quarters": [], "geolevel": "block"}, "give exactly one of `table` and `exact`"),
        ({"zero": {}, "geolevel": "block"}, "invariants.0.geolevel: is not a known key"),
        (
            {"facilities": "age", "geolevel": "block", "table": {"path": "x"}},
            "invariants.0.table.columns: is required",
        ),
    ],
)
def test_errors_name_the_key_as_it_is_written(tmp_path: Path, entry, message):
    with pytest.raises(ConfigError) as caught:
        load_run(toy.configuration(tmp_path, invariants=[entry]))
    assert message in str(caught.value)


def test_paths_are_relative_to_the_run_file(tmp_path: Path):
    table = {"path": "facilities.csv", "columns": {"under_18": "n"}}
    entry = {"facilities": "age", "geolevel": "block", "table": table}
    resolved = load_run(toy.configuration(tmp_path, invariants=[entry]))
    assert resolved.last.config.invariants[0].table.path == tmp_path / "facilities.csv"
    assert resolved.plan.limits.facilities is not None
