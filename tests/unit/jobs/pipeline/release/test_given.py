"""Public counts are copied as they were given, in the order of the types, and only of geounits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from das.errors import InputError, OutputError
from das.schema import Attribute, Schema
from invariants.constraints import Constraints
from invariants.exact import Invariant
from invariants.facilities import Facilities
from jobs.pipeline.config.models.kinds.facilities import FacilitiesConfig
from jobs.pipeline.config.models.kinds.query import InvariantConfig
from jobs.pipeline.release.implied import given_counts, publish_given_counts
from jobs.pipeline.storage.answers import ANSWERS, answer_table, read_available
from jobs.pipeline.storage.dataset import Dataset
from tests.builders import two_families as two
from tests.builders.places import release_of

AGES = Facilities(
    two.query("age"),
    ("state", "county", "block"),
    np.array([1, 1]),
    np.array([9, 9]),
    np.array([True, True]),
)
PLAN = two.plan(limits=Constraints((AGES,)))
CODES = np.array(sorted(two.BLOCKS), object)


def stated(folder: Path, *rows: str) -> list[FacilitiesConfig]:
    (folder / "f.csv").write_text("\n".join(["geocode,old,young", *rows]) + "\n")
    columns = {"adult": "old", "minor": "young"}
    table = {"path": str(folder / "f.csv"), "columns": columns}
    return [FacilitiesConfig(facilities="age", geolevel="block", table=table)]


def test_columns_are_put_in_the_order_of_the_types(tmp_path):
    release = two.release(tmp_path)
    publish_given_counts(PLAN, stated(tmp_path, "122,5,1", "111,3,2"), release, {})
    counts = given_counts(release, AGES, CODES, two.whole("block"))
    assert counts.tolist() == [[2, 3], [0, 0], [0, 0], [1, 5]]


def test_a_range_has_the_facilities_of_its_geounits_alone(tmp_path):
    release = two.release(tmp_path)
    publish_given_counts(PLAN, stated(tmp_path, "122,5,1", "111,3,2"), release, {})
    family = replace(two.whole("block"), low="121")
    assert given_counts(release, AGES, CODES[2:], family).tolist() == [[0, 0], [1, 5]]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (("111,1,1", "131,1,1"), "table of facilities age: has geounits that do not exist.*131"),
        (("111,1,1", "111,1,1"), "geocode appears twice.*111"),
    ],
)
def test_a_table_of_other_geounits_is_refused(tmp_path, rows, message):
    release = two.release(tmp_path)
    with pytest.raises(InputError, match=message):
        publish_given_counts(PLAN, stated(tmp_path, *rows), release, {})
    assert not release.given("block").exists()


def test_what_was_given_stays(tmp_path):
    release = two.release(tmp_path)
    publish_given_counts(PLAN, stated(tmp_path, "111,3,2"), release, {})
    publish_given_counts(PLAN, stated(tmp_path, "111,4,4"), release, {})
    assert given_counts(release, AGES, CODES, two.whole("block"))[0].tolist() == [2, 3]


def test_facilities_of_the_units_go_by_their_labels(tmp_path):
    """The units know a kind that is no type, and have the types in another order."""
    release = two.release(tmp_path)
    beside = release_of(tmp_path, "units")
    kinds = Schema("units", (Attribute("kind", ("adult", "empty", "minor")),))
    kind = Invariant.build(kinds, two.SPINE.levels, "detailed", "block")
    units = replace(PLAN, schema=kinds, invariants=(kind,), limits=Constraints())
    table = answer_table(["111", "122"], "detailed", np.array([[1, 7, 2], [3, 7, 4]]))
    two.write(beside.invariants("block"), [table], ANSWERS, {"queries": ["detailed"]})
    exact = {"product": "units", "query": "detailed"}
    entry = FacilitiesConfig(facilities="age", geolevel="block", exact=exact)
    products = {"units": (units, beside)}
    publish_given_counts(PLAN, [entry], release, products)
    counts = given_counts(release, AGES, CODES, two.whole("block"))
    assert counts.tolist() == [[2, 1], [0, 0], [0, 0], [4, 3]]


def test_a_published_table_of_a_query(tmp_path):
    release = two.release(tmp_path)
    plan = two.plan(invariants=(two.exact("sex", "county"),))
    (tmp_path / "sex.csv").write_text("geocode,w,m\n12,3,4\n11,4,2\n")
    table = {"path": str(tmp_path / "sex.csv"), "columns": {"f": "w", "m": "m"}}
    entry = InvariantConfig(query="sex", geolevel="county", table=table)
    publish_given_counts(plan, [entry], release, {})
    given = Dataset.open(release.given("county"))
    codes, counts = read_available(given, "sex", 2)
    assert codes.tolist() == ["11", "12"]
    assert counts.tolist() == [[4, 2], [3, 4]]
    with pytest.raises(OutputError, match="does not hold age"):
        read_available(given, "age", 2)
