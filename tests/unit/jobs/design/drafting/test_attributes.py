"""Which columns become attributes, and with which levels."""

from __future__ import annotations

import pytest

from das.errors import ConfigError
from jobs.design.drafting.attributes import (
    CODEBOOK,
    MOST_CELLS,
    OLDEST,
    Proposal,
    Wanted,
    attribute_name,
    is_age,
    label_of,
    propose,
)
from jobs.pipeline.confidential.look import Column


def coded(name: str, *codes: str) -> Column:
    there = [code.removesuffix(".0") for code in codes if code]
    numbers = [int(code) for code in there if code.isdigit()]
    is_number = len(numbers) == len(there)
    return Column(
        name,
        frozenset(codes),
        has_missing="" in codes,
        longest=max(map(len, codes)),
        is_number=is_number,
        least=min(numbers, default=0) if is_number else 0,
        most=max(numbers, default=0) if is_number else 0,
    )


def ages(name: str = "age", *codes: str) -> Column:
    return coded(name, *(codes or ("4", "31", "97")))


def proposed(*columns: Column, tables: tuple[str, ...] = ()) -> dict[str, Proposal]:
    made = propose(columns, (), Wanted(tables=tables))
    return {one.name: one for one in made.attributes}


def test_levels_stand_as_people_write_them() -> None:
    made = proposed(coded("Age group", "85+", "10-14", "0-4", "", "5-9"))["age_group"]
    assert made.levels == ("0-4", "5-9", "10-14", "85+", "missing")
    assert made.codes == {"0-4": "0-4", "5-9": "5-9", "10-14": "10-14", "85+": "85+",
                          "": "missing"}  # fmt: skip
    assert proposed(coded("sex", "f", "m"))["sex"].codes == {}


def test_codes_that_differ_in_blanks_are_one_level() -> None:
    made = proposed(coded("sex", "1", "1 ", "2", "2.0"))["sex"]
    assert made.levels == ("1", "2")
    assert made.codes == {"1": "1", "1 ": "1", "2": "2", "2.0": "2"}


def test_ages_do_not_tell_how_old_anybody_is() -> None:
    first, second = (proposed(ages("age", *codes))["age"] for codes in (("3", "50"), ("21", "104")))
    assert first == second
    assert first.levels == (*(str(age) for age in range(100)), "100 and over")
    assert first.codes[str(OLDEST)] == first.codes["100"] == "100 and over"
    groups = first.recodes["age_5"]
    assert groups["20 to 24"] == ("20", "21", "22", "23", "24")
    assert sorted(level for group in groups.values() for level in group) == sorted(first.levels)


def test_ages_are_read_in_the_form_of_the_file() -> None:
    assert proposed(ages("age", "07", "31"))["age"].codes["05"] == "5"
    assert proposed(ages("age", "7.0", "31.0"))["age"].codes["5.0"] == "5"
    missing = proposed(ages("age", "", "31"))["age"]
    assert missing.codes[""] == "missing"
    assert missing.recodes["age_5"]["missing"] == ("missing",)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (ages("Age"), True),
        (ages("AGE_YEARS"), True),
        (ages("agegrp"), False),
        (ages("age group"), False),
        (ages("village"), False),
        (ages("age", "1", "18"), False),
        (ages("age", "1", "999"), False),
        (ages("age", "0-4", "30"), False),
    ],
)
def test_ages_are_known_by_name_and_numbers(column: Column, expected: bool) -> None:
    assert is_age(column) is expected


def test_a_large_schema_gets_ages_in_groups_and_then_fewer_attributes() -> None:
    many = coded("many", *(f"c{number}" for number in range(60)))
    made = proposed(many, ages(), coded("nation", *"abcdefghijkl"))
    assert made["age"].levels[0] == "0 to 4"
    assert len(made["age"].levels) == 21
    other = coded("other", *(f"d{number}" for number in range(50)))
    result = propose((many, ages(), other), (), Wanted())
    assert result.cells <= MOST_CELLS
    assert [one.name for one in result.attributes] == ["age", "other"]
    assert "cells" in result.left_out["many"]
    kept = propose((many, ages(), other), (), Wanted(tables=("many * age",)))
    assert [one.name for one in kept.attributes] == ["many", "age"]
    assert kept.attributes[1].levels[0] == "0"


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (Column("id", None), "more than 200 values"),
        (Column("born", fault="has values of type date32[day]"), "date32"),
        (Column("No", frozenset("abc"), is_unique=True), "a different value in every row"),
        (coded("all", "1"), "a single value"),
        (coded("income", *map(str, range(30))), "more than 20 whole numbers"),
        (coded("text", "a" * 101, "b"), "more than 100 characters"),
    ],
)
def test_why_a_column_is_left_out(column: Column, reason: str) -> None:
    made = propose((column, coded("sex", "f", "m")), (), Wanted())
    assert reason in made.left_out[column.name]
    with pytest.raises(ConfigError, match="finds no column"):
        propose((column,), (), Wanted())


def test_columns_that_are_asked_for_are_kept_and_others_left_out() -> None:
    columns = (coded("income", *map(str, range(30))), coded("sex", "f", "m"), coded("x", "a", "b"))
    made = propose(columns, ("x",), Wanted(("sex",), ("income",)))
    assert [one.name for one in made.attributes] == ["income"]
    assert made.left_out == {
        "sex": "is left out by --leave-out",
        "x": "has one value in every geounit: it belongs to the geography",
    }


def test_names_can_stand_in_queries_and_are_different() -> None:
    made = proposed(*(coded(name, "a", "b") for name in ("Total", "a*b", "a b", "Größe ", "#")))
    assert [*made] == ["total_", "a_b", "a_b_2", "größe", "attribute"]
    assert [attribute_name(text) for text in ("geocode", "A-B")] == ["geocode_", "a_b"]


@pytest.mark.parametrize("code", ["=1+1", "+5", "-1", "@x"])
def test_no_label_is_a_formula(code: str) -> None:
    assert label_of(code) == f"code {code}"


def test_a_code_list_knows_better_than_the_data() -> None:
    """Its levels, in its order, also those that nobody has; numbers and ages are codes then."""
    codebook = {
        "age": {"0": "minor", "1": "adult", "2": "adult"},
        "sex": {"f": "women", "m": "men"},
    }
    columns = (ages("age ", "0", "31"), coded("sex", "f"), Column("id", None))
    made = propose(columns, (), Wanted(codebook=codebook | {"id": {"1": "one"}}))
    assert [(one.name, one.levels, one.source) for one in made.attributes] == [
        ("age", ("minor", "adult"), CODEBOOK),
        ("sex", ("women", "men"), CODEBOOK),
        ("id", ("one",), CODEBOOK),
    ]
    assert made.attributes[0].codes == codebook["age"]
