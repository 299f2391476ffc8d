"""Household types: which there are, in which order, and that the schema file is made of them."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from das.errors import InputError
from das.schema import Schema
from jobs.design.synthetic.household_schema import ELDERLY, FILE, RECODES, schema_text
from jobs.design.synthetic.household_types import (
    COUPLES,
    OTHERS,
    HouseholdType,
    household_types,
    type_of,
)
from jobs.pipeline.config.files import read_model
from jobs.pipeline.config.models.data import RecordsData
from jobs.pipeline.config.models.kinds.zero import ZeroConfig
from jobs.pipeline.config.models.run import RunConfig
from jobs.pipeline.config.schema import load_schema
from tests.checkout import ROOT
from tests.unit.jobs.pipeline.confidential.read.reading import read

AGES = ("none", "under_6", "6_to_17", "both")


def exists(one: HouseholdType) -> bool:
    """By the number of persons that the facts need at least, without putting households together."""
    parts = {"none": 0, "under_6": 1, "6_to_17": 1, "both": 2}
    other_minors = parts[one.minors] - parts[one.own]
    holds = one.minors in (one.own, "both") or one.own == "none"
    people = 1 + one.has_partner + parts[one.minors]
    related = one.is_married or one.own != "none"
    if one.minor_head and one.minors != "none":
        return False  # not told apart
    if one.generations:
        # A child of the householder, and a parent or a grandchild; minors may be either of them.
        child = 0 if one.own != "none" else 1
        third = 0 if other_minors else 1
        people += child + third
        related = True
        if one.minor_head and not one.has_partner:
            return False  # a minor with grown children
    if one.relatives and not related and one.minors == "none":
        people += 1
    return holds and people <= one.size and (one.relatives or not related)


def test_types_are_those_that_some_household_is_of() -> None:
    facts = product(COUPLES, AGES, AGES, (False, True), (False, True), (False, True), range(1, 8))
    assert set(household_types()) == {
        one for one in (HouseholdType(*each) for each in facts) if exists(one)
    }
    assert len(household_types()) == len({one.label for one in household_types()}) == 522


def test_any_household_has_a_type() -> None:
    rng = np.random.default_rng(5)
    known = set(household_types())
    for _ in range(3000):
        kinds = Counter(rng.choice(OTHERS, rng.integers(0, 9), replace=True).tolist())
        couple = str(rng.choice(COUPLES))
        assert type_of(couple, kinds, minor_head=False) in known


def test_numbers_are_those_of_2020() -> None:
    """Places that the documents of the 2020 system name, from first to last."""
    labels = [one.label for one in household_types()]
    couples_and_child = [0, 17, 86, 103, 172, 189, 282, 299]
    members = [RECODES["members"][0](one) for one in household_types()]
    assert np.flatnonzero(np.array(members) == "couple_and_child").tolist() == couples_and_child
    assert labels.index("no_partner-own_both-size_3") == 436
    assert [labels[i] for i in (392, 393, 521)] == [
        "no_partner-size_1",
        "no_partner-minor_head-size_1",
        "no_partner-no_relatives-minor_head-size_7_or_more",
    ]


def test_the_schema_file_is_what_the_definition_makes() -> None:
    text = (ROOT / "conf" / "schema" / FILE).read_text(encoding="utf-8")
    assert text == schema_text(), "run python -m jobs.design.synthetic.household_schema conf/schema"


def test_groups_that_2020_measured_have_its_sizes() -> None:
    sizes = {
        name: len({group(one) for one in household_types()}) for name, (group, _) in RECODES.items()
    }
    assert (sizes["family"], sizes["partner_children"]) == (183, 12)
    assert 2 * 2 * 3 * 7 * sizes["family"] == 15_372
    members = Counter(RECODES["members"][0](one) for one in household_types())
    assert members["one_and_two_children"] == 1
    assert members["couple_and_two_children"] == 4


@pytest.fixture(scope="module")
def schema() -> Schema:
    return load_schema(ROOT / "conf" / "schema" / FILE)


ONE = {
    "sex": "female",
    "hhage": "35_to_44",
    "hispanic": "hispanic",
    "race": "sor",
    "elderly": "none",
    "tenure": "rented",
    "hhtype": "no_partner-own_under_6-size_2",
}


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("hhtype", "married_opposite_sex-size_1"),  # a couple is two
        ("hhtype", "no_partner-own_both-size_2"),  # who has two children is three
        ("hhtype", "no_partner-three_generations-minor_head-size_3"),  # no minor has grown children
        ("hhtype", "522"),
        ("hhage", "0_to_14"),
    ],
)
def test_a_household_outside_the_definition_is_refused_with_its_row(
    tmp_path: Path, schema: Schema, column: str, value: str
) -> None:
    path = tmp_path / "households.csv"
    rows = [ONE, ONE, {**ONE, column: value}]
    lines = [",".join(["geocode", *ONE]), *(",".join(["0001", *row.values()]) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    data = RecordsData(input_format="records", path=str(path), columns={name: name for name in ONE})
    with pytest.raises(InputError, match=rf"households.csv, row 4, column {column}: unknown code"):
        read(data, schema)
    path.write_text("\n".join(lines[:3]) + "\n")
    assert sum(read(data, schema).values()) == 2


STRUCTURAL = [
    ({"hhtype": "no_partner-size_1", "hhage": "55_to_59"}, ("none",)),
    ({"hhtype": "no_partner-size_1", "hhage": "60_to_64"}, ("60_to_64",)),
    ({"hhtype": "no_partner-size_1", "hhage": "85_and_over"}, ("75_and_over",)),
    ({"hhtype": "no_partner-minor_head-size_1", "hhage": "25_to_34"}, ()),
    ({"hhtype": "no_partner-own_6_to_17-size_2", "hhage": "45_to_54"}, ("none",)),
    ({"hhtype": "no_partner-own_both-size_3", "hhage": "65_to_74", "sex": "male"}, ("65_to_74",)),
    ({"hhtype": "married_opposite_sex-size_2", "hhage": "65_to_74"}, ("65_to_74", "75_and_over")),
    (
        {"hhtype": "married_opposite_sex-size_2", "hhage": "15_to_24"},
        ("none", "60_to_64", "65_to_74"),
    ),
    ({"hhtype": "no_partner-relatives-size_2", "hhage": "15_to_24"}, ELDERLY),
    ({"hhtype": "no_partner-own_under_6-size_4", "hhage": "60_to_64", "sex": "female"}, ()),
    ({"hhtype": "no_partner-own_6_to_17-size_4", "hhage": "75_to_84", "sex": "female"}, ()),
    (
        {"hhtype": "no_partner-own_6_to_17-size_4", "hhage": "75_to_84", "sex": "male"},
        ("75_and_over",),
    ),
    ({"hhtype": "married_same_sex-own_both-size_4", "hhage": "75_to_84", "sex": "male"}, ()),
]


def test_structural_zeros_are_those_of_2020(schema: Schema) -> None:
    """Which ages the oldest member may be of, for some householders; all others are zeros."""
    for household, oldest in STRUCTURAL:
        run = read_model(ROOT / "conf" / "run" / "dhc-households.yaml", RunConfig)
        stated = [
            one for one in run.products["households"].invariants if isinstance(one, ZeroConfig)
        ]
        can_be = tuple(
            level
            for level in ELDERLY
            if not any(
                is_zero(schema, one, {**ONE, **household, "elderly": level}) for one in stated
            )
        )
        assert can_be == oldest


def is_zero(schema: Schema, entry: ZeroConfig, household: dict[str, str]) -> bool:
    """Whether a household has one of the levels of a zero in all attributes and recodes of it."""
    groups = {}
    for recode in schema.recodes:
        code = schema.attribute(recode.attribute).level_index[household[recode.attribute]]
        groups[recode.name] = recode.groups[recode.codes[code]]
    return all({**household, **groups}[name] in levels for name, levels in entry.zero.items())
