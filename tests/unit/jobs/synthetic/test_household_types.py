"""Household types: which there are, in which order, and that the schema file is made of them."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np

from jobs.synthetic.household_schema import FILE, RECODES, schema_text
from jobs.synthetic.household_types import (
    COUPLES,
    OTHERS,
    HouseholdType,
    household_types,
    type_of,
)
from tests.checkout import ROOT

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
    assert text == schema_text(), "run python -m jobs.synthetic.household_schema conf/schema"


def test_groups_that_2020_measured_have_its_sizes() -> None:
    sizes = {
        name: len({group(one) for one in household_types()}) for name, (group, _) in RECODES.items()
    }
    assert (sizes["family"], sizes["partner_children"]) == (183, 12)
    assert 2 * 2 * 3 * 7 * sizes["family"] == 15_372
    members = Counter(RECODES["members"][0](one) for one in household_types())
    assert members["one_and_two_children"] == 1
    assert members["couple_and_two_children"] == 4
