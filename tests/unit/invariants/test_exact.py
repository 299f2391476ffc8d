"""Invariants hold upward and must be nested wherever they meet."""

from __future__ import annotations

import pytest

from das.errors import SchemaError
from das.schema import Attribute, Recode, Schema
from invariants.exact import Invariant, check_invariants, invariants_at

SEX = Attribute("sex", ("f", "m"))
AGE = Attribute("age", ("0-17", "18-64", "65+"))
VOTING = Recode.from_groups("voting", AGE, {"minor": ("0-17",), "adult": ("18-64", "65+")})
SCHEMA = Schema("s", (SEX, AGE), (VOTING,))
SPINE = ("nation", "state", "county", "block")


def build(query: str, geolevel: str) -> Invariant:
    return Invariant.build(SCHEMA, SPINE, query, geolevel)


@pytest.mark.parametrize("position", range(len(SPINE)))
def test_an_invariant_also_holds_at_all_coarser_geolevels(position):
    invariant = build("total", SPINE[position])
    assert invariant.geolevels == SPINE[: position + 1]
    assert invariant.query.name == "total"


def test_unknown_geolevel_lists_the_known_ones():
    with pytest.raises(SchemaError) as caught:
        build("total", "tract")
    assert str(caught.value) == (
        "invariant total: names an unknown geolevel; got tract; "
        "expected ['nation', 'state', 'county', 'block']"
    )


def test_unknown_query_is_refused():
    with pytest.raises(SchemaError, match="has no such attribute or recode; got race"):
        build("race", "state")


def test_invariants_of_a_geolevel_come_coarse_before_fine():
    stated = [build("age", "state"), build("total", "block"), build("voting", "county")]
    assert [i.query.name for i in invariants_at(stated, "nation")] == ["total", "voting", "age"]
    assert [i.query.name for i in invariants_at(stated, "state")] == ["total", "voting", "age"]
    assert [i.query.name for i in invariants_at(stated, "county")] == ["total", "voting"]
    assert [i.query.name for i in invariants_at(stated, "block")] == ["total"]
    assert invariants_at([build("total", "state")], "block") == []


@pytest.mark.parametrize(
    "queries", [(), ("total",), ("detailed", "total"), ("age", "total", "voting", "detailed")]
)
def test_nested_invariants_are_accepted_in_any_order(queries):
    check_invariants([build(query, "block") for query in queries])


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        (("sex", "state"), ("age", "block"), "sex and age"),
        (("age", "block"), ("sex", "state"), "sex and age"),
        (("sex", "nation"), ("voting", "nation"), "sex and voting"),
        (("sex * voting", "state"), ("age", "county"), "age and sex * voting"),
    ],
)
def test_crossing_invariants_are_refused(first, second, named):
    """They always meet, at the root if nowhere else."""
    with pytest.raises(SchemaError) as caught:
        check_invariants([build(*first), build("total", "block"), build(*second)])
    assert str(caught.value) == (
        f"invariants: two invariants of one geolevel must be nested; got {named}"
    )


def test_a_query_stated_twice_is_refused():
    with pytest.raises(SchemaError, match=r"^invariants: a query is listed twice; got sex$"):
        check_invariants([build("sex", "state"), build("total", "state"), build(" sex", "block")])
