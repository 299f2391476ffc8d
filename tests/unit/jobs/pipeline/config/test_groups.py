"""Groups for which a release is compared with the truth: what a run file asks, and by default."""

from __future__ import annotations

import pytest
import yaml

from das.errors import SchemaError
from das.queries.query import parse_query
from das.schema import Attribute, Recode, Schema
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.models.products import EvaluateConfig
from jobs.pipeline.config.product import grouping
from tests.checkout import ROOT

SCHEMA = Schema(
    "toy",
    (Attribute("sex", ("f", "m")), Attribute("age", ("0", "1", "2"))),
    (Recode("adult", "age", ("no", "yes"), (0, 0, 1)),),
)
LEVELS = ("state", "block")
RUNS = [  # those of censuses
    path
    for path in sorted((ROOT / "conf" / "run").glob("*.yaml"))
    if "products" in yaml.safe_load(path.read_text())
]


def pairs(tabulated=("total", "sex", "age", "prefix(age)"), **keys) -> list[tuple[str, str]]:
    queries = [parse_query(SCHEMA, text) for text in tabulated]
    asked = grouping(EvaluateConfig(**keys), SCHEMA, LEVELS, queries)
    return [(pair.groups.name, pair.table.name) for pair in asked.restrictions]


def test_every_shipped_run_says_for_whom_it_is_worse():
    for path in RUNS:
        for product in load_run(path).products.values():
            asked = product.grouping
            assert [query.kept for query in asked.groups] == [
                (axis,) for axis in range(len(product.plan.schema.attributes))
            ]
            assert {pair.groups.name for pair in asked.restrictions} == {
                q.name for q in asked.groups
            }


def test_by_default_every_attribute_and_the_tables_that_count_everybody_once():
    assert pairs() == [("sex", "total"), ("sex", "age"), ("age", "total"), ("age", "sex")]


def test_tables_that_say_no_more_than_the_total_of_a_group_are_left_out():
    assert pairs(groups=["detailed"]) == [("detailed", "total")]
    assert pairs(groups=["age"], tables=["adult"]) == [("age", "total")]
    assert pairs(groups=["adult"], tables=["age"]) == [("adult", "total"), ("adult", "age")]


def test_a_query_that_is_asked_twice_is_one():
    assert pairs(groups=["age * sex", "detailed"], tables=["total", "total"]) == [
        ("detailed", "total")
    ]


@pytest.mark.parametrize("key", ["groups", "tables"])
@pytest.mark.parametrize("text", ["prefix(age)", "ranges(age)", "height"])
def test_what_is_no_group_of_records_is_refused(key, text):
    with pytest.raises(SchemaError, match=key):
        pairs(**{key: [text]})
