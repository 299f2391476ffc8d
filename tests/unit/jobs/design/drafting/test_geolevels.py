"""Geolevels that a column of geocodes suggests."""

from __future__ import annotations

import itertools

import pytest

from das.errors import ConfigError
from geography.lattice import Lattice, Spine
from jobs.design.drafting.geolevels import (
    Geolevel,
    find_geocode,
    propose_geolevels,
    propose_names,
    read_geolevels,
)
from jobs.pipeline.confidential.look import Column

CODES = ["".join(parts) for parts in itertools.product("012345", "0123", "01234", "01234567")]


def column(name: str, length: int = 6, **about: object) -> Column:
    values = {"codes": None, "longest": length, "shortest": length, "is_code": True, **about}
    return Column(name, **values)  # type: ignore[arg-type]


def test_columns_name_geolevels() -> None:
    made = propose_geolevels(CODES, {"Province": 1, "district": 2}, "Village code")
    assert [(one.name, one.digits) for one in made] == [
        ("country", 0), ("province", 1), ("district", 2), ("village_code", 4),
    ]  # fmt: skip


def test_lengths_are_guessed_and_said_to_be() -> None:
    made = propose_geolevels(CODES, {}, "Village")
    assert [(one.name, one.digits) for one in made] == [
        ("country", 0), ("first_2", 2), ("village", 4),
    ]  # fmt: skip
    assert [one.why.startswith("guessed") for one in made] == [False, True, False]


@pytest.mark.parametrize("leaf", ["country", "1st", "字", ""])
def test_names_are_names_of_geolevels(leaf: str) -> None:
    made = propose_geolevels(CODES, {}, leaf)
    spine = Spine(tuple(one.name for one in made), tuple(one.digits for one in made))
    assert Lattice.from_leaves(spine, CODES).codes[0] == [b"0"]
    assert made[-1].name == "first_4"


def test_the_finest_place_holds_the_geocodes() -> None:
    columns = [column("Province", 2), column("sex", 1), column("Village", 6), column("id", 9)]
    assert find_geocode(columns) == "Village"


def test_without_a_name_no_column_is_taken_for_geocodes() -> None:
    """The identifier of a household has as many codes as that of a village."""
    with pytest.raises(ConfigError, match=r"got \['household', 'no'\]"):
        find_geocode([column("household"), column("no", is_number=True)])
    with pytest.raises(ConfigError, match=r"got \['a', 'b'\]; .*; name it by --geocode"):
        find_geocode([column("a"), column("b")])
    with pytest.raises(ConfigError, match="cannot determine the column"):
        find_geocode([column("text", is_code=False)])


def test_geolevels_are_read() -> None:
    made = read_geolevels([" province 2", "village: 6"])
    assert [(one.name, one.digits, one.why) for one in made] == [
        ("province", 2, ""), ("village", 6, ""),
    ]  # fmt: skip
    assert read_geolevels([]) == []


@pytest.mark.parametrize("text", ["village", "6", "village -6", "1x 6", "village 1000", ""])
def test_other_geolevels_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="holds no geolevels"):
        read_geolevels([text])


def test_names_belong_to_the_coarsest_geolevel_that_has_one_each() -> None:
    levels = [Geolevel("country", 0), Geolevel("province", 1), Geolevel("village", 4)]
    said = {
        "Same name": dict.fromkeys(CODES, "x"),
        "Province name": {code: f"P{code[0]}" for code in CODES},
        "Name": {code: "Newtown" if code[1] == "0" else code for code in CODES},
        "kind": {code: code for code in CODES},
    }
    found = propose_names(said, levels)
    assert found == {"province": "Province name", "village": "Name"}
    assert propose_names({"Name": {code: f"{code}x" for code in CODES}}, levels[:2]) == {}
