"""The section `strata` of allocation files: what it means, and what is refused."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from das.errors import BudgetError, ConfigError, DasError, SchemaError
from das.schema import Attribute, Recode, Schema
from das.strategy import Strategy
from geography.lattice import Spine
from jobs.pipeline.config.allocation import load_allocation

SCHEMA = Schema(
    "s",
    (Attribute("race", ("white", "black", "aian")), Attribute("age", ("0", "1", "2"))),
    (Recode("adult", "age", ("minor", "adult"), (0, 1, 1)),),
)
SPINE = Spine(("state", "county", "block"), (2, 5, 9))
ALLOCATION: dict[str, Any] = {
    "name": "strata",
    "levels": {
        name: {"share": "1/6", "queries": {"total": "1/2", "detailed": "1/2"}}
        for name in SPINE.levels
    },
    "strata": {
        "query": "race",
        "levels": {
            "aian": {"state": {"share": "1/2", "queries": {"age": "1"}}},
            "black": {
                "state": {"share": "1/4", "queries": {"total": "1"}},
                "county": {"share": "1/4", "queries": {"adult": "1/3", "total": "2/3"}},
            },
            "white": {
                "county": {"share": "1/8", "queries": {"age": "1"}},
                "state": {"share": "1/8", "queries": {"age": "1"}},
                "block": {"share": "1/4", "queries": {"age": "1"}},
            },
        },
    },
}


def load(folder: Path, **changes: Any) -> Strategy:
    """The allocation with keys of `strata.levels` or of `strata` replaced; None removes one."""
    document = copy.deepcopy(ALLOCATION)
    for name, value in changes.items():
        section = document["strata"] if name == "query" else document["strata"]["levels"]
        section[name] = value
        if value is None:
            del section[name]
    path = folder / "allocation.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return load_allocation(path, SCHEMA, SPINE)


def test_strata_stand_in_the_order_of_the_answers(tmp_path):
    strata = load(tmp_path).strata
    assert [stratum.name for stratum in strata] == ["race=white", "race=black", "race=aian"]
    assert [[level.geolevel for level in stratum.levels] for stratum in strata] == [
        ["state", "county", "block"],
        ["state", "county"],
        ["state"],
    ]
    county = strata[1].levels[1]
    assert [entry.query.name for entry in county.queries] == [
        "adult where race=black",
        "total where race=black",
    ]


def test_strata_of_two_attributes_are_named_by_both(tmp_path):
    own = {"state": {"share": "1/2", "queries": {"total": "1"}}}
    document = copy.deepcopy(ALLOCATION)
    labels = [
        f"{race} / {age}" for race in ("white", "black", "aian") for age in SCHEMA.recodes[0].groups
    ]
    document["strata"] = {"query": "adult * race", "levels": {label: own for label in labels}}
    path = tmp_path / "allocation.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    names = [stratum.name for stratum in load_allocation(path, SCHEMA, SPINE).strata]
    assert names[:2] == ["race=white and adult=minor", "race=white and adult=adult"]


STATE = {"share": "1/2", "queries": {"total": "1"}}
REFUSED: list[tuple[str, dict[str, Any], type[DasError], str]] = [
    ("groups that overlap", {"query": "prefix(age)"}, SchemaError, "makes no groups"),
    ("an unknown query", {"query": "tribe"}, SchemaError, "no such attribute or recode; got tribe"),
    ("one group in all", {"query": "total"}, ConfigError, "needs at least two answers; got 1"),
    (
        "a missing stratum",
        {"aian": None},
        ConfigError,
        r"has a stratum without an allocation: .* got \['aian'\]",
    ),
    (
        "a stratum without geolevels",
        {"aian": {}},
        ConfigError,
        r"has a stratum without an allocation: .* got \['aian'\]",
    ),
    (
        "an unknown stratum",
        {"asian": {"state": STATE}},
        ConfigError,
        r"names an unknown stratum; got asian, did you mean aian\?; expected \['white', 'black', 'aian'\]",
    ),
    (
        "too little",
        {"aian": {"state": {**STATE, "share": "1/3"}}},
        BudgetError,
        "stratum race=aian: its shares and the population-wide shares do not sum to 1; got 5/6",
    ),
    (
        "too much",
        {"aian": {"state": {**STATE, "share": "2/3"}}},
        BudgetError,
        "stratum race=aian: its shares and the population-wide shares do not sum to 1; got 7/6",
    ),
    (
        "shares of queries",
        {"aian": {"state": {"share": "1/2", "queries": {"total": "1/2"}}}},
        BudgetError,
        "stratum aian: allocation, geolevel state: the shares of its queries do not sum to 1; got 1/2",
    ),
    (
        "a share of nothing",
        {"aian": {"state": {"share": "0", "queries": {"total": "1"}}}},
        BudgetError,
        "stratum aian: allocation, geolevel state: must have a positive share",
    ),
    (
        "a gap",
        {"aian": {"county": STATE}},
        BudgetError,
        "stratum race=aian: must be measured from the root down without a gap",
    ),
    (
        "an unknown geolevel",
        {"aian": {"tract": STATE}},
        BudgetError,
        r"stratum race=aian: names a geolevel the spine lacks; got \['tract'\]",
    ),
    (
        "a query that is no partition",
        {"aian": {"state": {"share": "1/2", "queries": {"prefix(age)": "1"}}}},
        SchemaError,
        "cannot be measured",
    ),
    (
        "a query twice",
        {"aian": {"state": {"share": "1/2", "queries": {"race * age": "1/2", "detailed": "1/2"}}}},
        BudgetError,
        "geolevel state: lists a query twice",
    ),
]


@pytest.mark.parametrize(
    ("changes", "error", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_what_is_refused(tmp_path, changes, error, message):
    with pytest.raises(error, match=message):
        load(tmp_path, **changes)
