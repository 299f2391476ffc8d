"""Household types: which there are, in which order, and that the schema file is made of them."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from das.errors import InputError
from das.schema import Schema
from jobs.design.synthetic.households import COUPLES, household_type
from jobs.pipeline.config.files import read_model
from jobs.pipeline.config.models.data import RecordsData
from jobs.pipeline.config.models.kinds.zero import ZeroConfig
from jobs.pipeline.config.models.run import RunConfig
from jobs.pipeline.config.schema import load_schema
from tests.checkout import ROOT
from tests.unit.jobs.pipeline.confidential.read.reading import read

ELDERLY = ("none", "60_to_64", "65_to_74", "75_and_over")
FACTS = (range(len(COUPLES)), range(4), range(4), range(2), range(2), range(2), range(1, 8))


def exists(facts: tuple[int, ...]) -> bool:
    """By the number of persons that the facts need at least, without putting households together."""
    couple, own, minors, relatives, minor_head, generations, size = facts
    has_partner, is_married = COUPLES[couple] != "no_partner", couple < 2
    parts = (0, 1, 1, 2)
    other_minors = parts[minors] - parts[own]
    holds = minors in (own, 3) or own == 0
    people = 1 + has_partner + parts[minors]
    related = bool(is_married or own)
    if minor_head and minors:
        return False  # not told apart
    if generations:
        # A child of the householder, and a parent or a grandchild; minors may be either of them.
        child = 0 if own else 1
        third = 0 if other_minors else 1
        people += child + third
        related = True
        if minor_head and not has_partner:
            return False  # a minor with grown children
    if relatives and not related and not minors:
        people += 1
    return holds and people <= size and bool(relatives or not related)


def test_types_are_those_that_some_household_is_of(schema: Schema) -> None:
    levels = schema.attribute("hhtype").levels
    named = [household_type(facts) for facts in product(*FACTS) if exists(facts)]
    assert len(named) == len(levels) == 522
    assert set(named) == {*levels}


def groups_of(schema: Schema, name: str) -> list[str]:
    """Return the group of each household type."""
    recode = next(one for one in schema.recodes if one.name == name)
    return [recode.groups[code] for code in recode.codes]


def test_numbers_are_those_of_2020(schema: Schema) -> None:
    """Places that the documents of the 2020 system name, from first to last."""
    labels = list(schema.attribute("hhtype").levels)
    couples_and_child = [0, 17, 86, 103, 172, 189, 282, 299]
    members = np.array(groups_of(schema, "members"))
    assert np.flatnonzero(members == "couple_and_child").tolist() == couples_and_child
    assert labels.index("no_partner-own_both-size_3") == 436
    assert [labels[i] for i in (392, 393, 521)] == [
        "no_partner-size_1",
        "no_partner-minor_head-size_1",
        "no_partner-no_relatives-minor_head-size_7_or_more",
    ]


def test_recodes_group_types_by_their_facts(schema: Schema) -> None:
    facts_of = {household_type(facts): facts for facts in product(*FACTS) if exists(facts)}
    facts = [facts_of[level] for level in schema.attribute("hhtype").levels]
    expected = {
        "couple": [COUPLES[one[0]] for one in facts],
        "own_children": [("none", "under_6", "6_to_17", "both")[one[1]] for one in facts],
        "minors": ["under_18" if one[2] or one[4] else "nobody" for one in facts],
        "multigenerational": ["three_generations" if one[5] else "fewer" for one in facts],
        "household_size": [f"size_{one[6]}".replace("7", "7_or_more") for one in facts],
        "household_kind": [kind_of(one) for one in facts],
    }
    assert {name: groups_of(schema, name) for name in expected} == expected


def kind_of(facts: tuple[int, ...]) -> str:
    couple, relatives, size = facts[0], facts[3], facts[6]
    if couple < 2:
        return "married_couple_family"
    if relatives:
        return "other_family"
    return "living_alone" if size == 1 else "nonfamily_not_alone"


def test_groups_that_2020_measured_have_its_sizes(schema: Schema) -> None:
    families = len({*groups_of(schema, "family")})
    assert (families, len({*groups_of(schema, "partner_children")})) == (183, 12)
    assert 2 * 2 * 3 * 7 * families == 15_372
    members = Counter(groups_of(schema, "members"))
    assert members["one_and_two_children"] == 1
    assert members["couple_and_two_children"] == 4


@pytest.fixture(scope="module")
def schema() -> Schema:
    return load_schema(ROOT / "conf" / "schema" / "dhc_households.yaml")


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
