"""Groups that a query names itself hold the levels that they say."""

from __future__ import annotations

import numpy as np
import pytest

from das.errors import SchemaError
from das.queries.grouped import grouped
from das.queries.query import names_groups, parse_query, split_queries, terms_of
from das.schema import Attribute, Recode, Schema

AGES = ("under_5", "5-17", "18_to_64", "65 to 74 years", "75 years and over")
RACES = ("white", "black", "white, not hispanic", "other + unknown", "5..6")
SCHEMA = Schema(
    "people",
    (Attribute("sex", ("f", "m")), Attribute("age", AGES), Attribute("race", RACES)),
    (Recode("minor", "age", ("yes", "no"), (0, 0, 1, 1, 1)),),
)


def held(levels: tuple[str, ...], text: str) -> list[tuple[str, list[int]]]:
    factor = grouped(levels, text)
    rows = [np.flatnonzero(row).tolist() for row in factor.matrix]
    return list(zip(factor.labels, rows, strict=True))


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("65+", [("65+", [3, 4])]),
        ("0-17, 18+", [("0-17", [0, 1]), ("18+", [2, 3, 4])]),
        ("0\u201317", [("0\u201317", [0, 1])]),
        ("5-64 , 75+", [("5-64", [1, 2]), ("75+", [4])]),
        ("18_to_64", [("18_to_64", [2])]),
        ("5-17..75 years and over", [("5-17..75 years and over", [1, 2, 3, 4])]),
        ("under_5 + 65+", [("under_5 + 65+", [0, 3, 4])]),
        ("0-17, 0-64", [("0-17", [0, 1]), ("0-64", [0, 1, 2])]),
    ],
)
def test_numbers_and_ranges_of_ages(text: str, groups: list[tuple[str, list[int]]]) -> None:
    assert held(AGES, text) == groups


def test_labels_that_look_like_the_grammar_are_labels() -> None:
    text = "white, not hispanic, other + unknown, 5..6, black + white"
    assert [rows for _, rows in held(RACES, text)] == [[2], [3], [4], [0, 1]]


def test_single_years() -> None:
    years = (*(str(year) for year in range(90)), "90+")
    assert held(years, "65+")[0][1] == list(range(65, 91))
    assert held(years, "17")[0][1] == [17]


@pytest.mark.parametrize("text", ["64+", "0-20", "", "teens", "75..5-17", "white", "5-17 + teens"])
def test_what_is_no_group_is_refused(text: str) -> None:
    with pytest.raises(SchemaError, match="is neither a level nor a range of levels"):
        grouped(AGES, text)


def test_a_number_within_a_level_says_where_levels_begin() -> None:
    with pytest.raises(SchemaError, match="levels begin at 0, 5, 18, 65, 75"):
        parse_query(SCHEMA, "age[60+]")
    with pytest.raises(SchemaError, match=r"A\.\.B, or numbers such as N-M and N\+"):
        parse_query(SCHEMA, "age[65-]")


def test_a_query_of_groups_counts_what_they_hold() -> None:
    query = parse_query(SCHEMA, "age[ 0-17,65+ ] * sex")
    assert query.name == "sex * age[0-17, 65+]"
    assert parse_query(SCHEMA, query.name).name == query.name
    assert query.labels() == ["f / 0-17", "f / 65+", "m / 0-17", "m / 65+"]
    assert terms_of(SCHEMA, query) == ["sex", "age"]
    cells = np.arange(SCHEMA.size)
    sex, age, _ = np.unravel_index(cells, SCHEMA.shape)
    wanted = [(sex == s) & np.isin(age, ages) for s in (0, 1) for ages in ((0, 1), (3, 4))]
    assert np.array_equal(query.columns(cells), np.array(wanted))
    assert names_groups(SCHEMA, query)
    assert not names_groups(SCHEMA, parse_query(SCHEMA, "sex * minor"))
    assert parse_query(SCHEMA, "minor[yes]").labels() == ["yes"]
    some = parse_query(SCHEMA, "age[65+] where sex=f")
    assert terms_of(SCHEMA, some) == ["sex", "age"]


@pytest.mark.parametrize(
    "text", ["sex, age", "sex x age", "sex by age", "sex + age[65+]", "sex;age"]
)
def test_other_ways_to_join_are_understood_and_refused(text: str) -> None:
    with pytest.raises(SchemaError, match=r"; write sex \* age"):
        parse_query(SCHEMA, text)


def test_commas_in_groups_do_not_part_queries() -> None:
    assert split_queries("total, age[0-17, 65+] * sex,race") == [
        "total",
        "age[0-17, 65+] * sex",
        "race",
    ]
