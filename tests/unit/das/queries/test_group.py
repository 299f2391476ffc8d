"""Groups of cells, and queries that are asked of one group alone."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from das.errors import SchemaError
from das.mechanisms.mechanism import Norm
from das.queries.query import groups_of, parse_group, parse_query, restricted
from das.queries.sensitivity import Neighbors, sensitivity
from das.schema import Attribute, Recode, Schema
from tests.builders.histograms import from_dense

AGE = Attribute("age", ("0", "1", "2", "3"))
SCHEMA = Schema(
    "s",
    (Attribute("sex", ("f", "m")), AGE, Attribute("race", ("a", "b and c", "b"))),
    (Recode("adult", "age", ("minor", "of age"), (0, 0, 1, 1)),),
)
CELLS = np.arange(SCHEMA.size)
TEXTS = ["total", "sex", "adult", "age * race", "detailed", "prefix(age)", "residual(race)"]
CONDITIONS = ["sex=f", "age=2", "adult=minor", "adult=of age and race=b and c", "sex=m and race=b"]


def members(condition: str) -> np.ndarray:
    """bool[n], by reading the condition as a person would."""
    levels = SCHEMA.codes_of(CELLS)
    out = np.ones(SCHEMA.size, np.bool_)
    for part in condition.replace("b and c", "b&c").split(" and "):
        axis, label = part.replace("b&c", "b and c").split("=")
        if axis == "adult":
            out &= (levels["age"] >= 2) == (label == "of age")
        else:
            out &= levels[axis] == SCHEMA.attribute(axis).levels.index(label)
    return out


def test_a_restricted_query_is_the_query_with_zero_columns_outside():
    for condition, text in itertools.product(CONDITIONS, TEXTS):
        whole, asked = parse_query(SCHEMA, text), parse_query(SCHEMA, f"{text} where {condition}")
        wanted = whole.columns(CELLS) * members(condition)
        assert np.array_equal(asked.columns(CELLS), wanted[wanted.any(axis=1)])
        assert len(asked.labels()) == len(set(asked.labels())) == asked.size
        counts = np.arange(1, 2 * SCHEMA.size + 1).reshape(2, -1)
        answers = asked.answer(from_dense(counts))
        assert np.array_equal(answers, counts @ asked.columns(CELLS).T)


def test_the_name_of_a_restricted_query_parses_to_itself():
    for condition, text in itertools.product(CONDITIONS, TEXTS):
        asked = parse_query(SCHEMA, f"{text}  where  {condition}")
        again = parse_query(SCHEMA, asked.name)
        assert again.name == asked.name == f"{parse_query(SCHEMA, text).name} where {condition}"
        assert np.array_equal(again.columns(CELLS), asked.columns(CELLS))


def test_a_restricted_partition_moves_by_one_and_by_two():
    """1 for a record added, left or entered, 2 for one that changes or moves within the group."""
    for condition, text in itertools.product(
        CONDITIONS, ["total", "sex", "adult", "age * race", "detailed"]
    ):
        asked = parse_query(SCHEMA, f"{text} where {condition}")
        assert asked.counts_once
        assert not asked.is_partition
        columns, inside = asked.columns(CELLS), members(condition)
        assert (columns.sum(0) == inside).all()
        for norm in Norm:
            assert sensitivity(asked, Neighbors.UNBOUNDED, norm) == 1
            assert sensitivity(asked, Neighbors.BOUNDED, norm) == 2
        for one, other in itertools.product(CELLS[inside], CELLS[~inside]):
            assert ((columns[:, one] - columns[:, other]) ** 2).sum() == 1


def test_what_counts_a_record_twice_does_not_count_once():
    assert not parse_query(SCHEMA, "prefix(age) where sex=f").counts_once
    assert parse_query(SCHEMA, "detailed").counts_once


@given(st.lists(st.sampled_from(["sex", "adult", "race"]), min_size=1, max_size=3, unique=True))
def test_the_groups_of_a_query_are_its_answers(axes):
    query = parse_query(SCHEMA, " * ".join(axes))
    groups = groups_of(SCHEMA, query)
    assert [group.label for group in groups] == query.labels()
    assert sum(group.size for group in groups) == SCHEMA.size
    for row, group in enumerate(groups):
        total = restricted(parse_query(SCHEMA, "total"), group)
        assert np.array_equal(total.columns(CELLS)[0], query.columns(CELLS)[row])
    for one, other in itertools.combinations(groups, 2):
        assert not one.meets(other)
        assert one.meets(one)


def test_groups_of_recode_and_attribute_meet_where_they_share_a_level():
    adult, two, zero, women = (
        parse_group(SCHEMA, text) for text in ("adult=of age", "age=2", "age=0", "sex=f")
    )
    assert adult.meets(two)
    assert adult.meets(women)
    assert not adult.meets(zero)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age where", "has no such attribute or recode"),
        ("age where sex=x", "has no such group; got sex=x"),
        ("age where sex=f and", "has no such group; got sex=f and"),
        ("age where size=f", "has no such group"),
        ("age where sex=f and sex=m", "uses an attribute twice; got sex"),
        ("total where age=2 and adult=of age", "uses an attribute twice; got age"),
        ("age where sex=f where race=a", "has no such group; got sex=f where race=a"),
        ("ages where sex=f", "has no such attribute or recode; got ages"),
    ],
)
def test_conditions_that_cannot_be_read_are_refused(text, message):
    with pytest.raises(SchemaError, match=message):
        parse_query(SCHEMA, text)


def test_answers_that_overlap_make_no_groups():
    with pytest.raises(SchemaError, match="makes no groups: some cells count in several answers"):
        groups_of(SCHEMA, parse_query(SCHEMA, "prefix(age)"))
    with pytest.raises(SchemaError, match="makes no groups"):
        groups_of(SCHEMA, parse_query(SCHEMA, "age where sex=f"))


def test_a_query_is_restricted_once():
    women = parse_group(SCHEMA, "sex=f")
    with pytest.raises(SchemaError, match="is restricted to a group already; got sex=f"):
        restricted(parse_query(SCHEMA, "age where sex=m"), women)


def test_names_of_a_schema_leave_where_to_queries():
    with pytest.raises(SchemaError, match="would make queries ambiguous"):
        Schema("s", (Attribute("born where", ("a",)), Attribute("place where born", ("a",))))
