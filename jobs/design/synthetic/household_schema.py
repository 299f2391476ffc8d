"""Write the schema of households: `python -m jobs.design.synthetic.household_schema conf/schema`.

`dhc_households.yaml` has the 522 household types, and the groups of types that queries, tables and
structural zeros need. All follow from `jobs.design.synthetic.household_types`. A test compares the
file with the output of this module.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import yaml

from jobs.design.synthetic.household_types import (
    COUPLES,
    LARGEST_SIZE,
    NO_MINORS,
    HouseholdType,
    household_types,
)

FILE = "dhc_households.yaml"
HEAD = """\
# Households of the Demographic and Housing Characteristics: 2 x 9 x 2 x 7 x 4 x 3 x 522 = 1,578,528
# cells. One record is one household, and sex, age, race and ethnicity are its householder's.
# Written by `python -m jobs.design.synthetic.household_schema conf/schema` from the definition of
# household types in jobs/design/synthetic/household_types.py. Do not edit.
"""
AGES = (
    "15_to_24", "25_to_34", "35_to_44", "45_to_54", "55_to_59", "60_to_64", "65_to_74", "75_to_84",
    "85_and_over",
)  # fmt: skip
ELDERLY = ("none", "60_to_64", "65_to_74", "75_and_over")  # age of the oldest, if 60 or more
RACES = ("white", "black", "aian", "asian", "nhpi", "sor", "two_or_more")
TENURES = ("mortgage", "owned", "rented")
_OWN = (NO_MINORS, "under_6", "6_to_17", "both")
_SIZES = tuple(
    f"size_{size}" + ("_or_more" if size == LARGEST_SIZE else "")
    for size in range(1, LARGEST_SIZE + 1)
)


def schema_document() -> dict[str, object]:
    """Return the schema as the document of a schema file."""
    types = household_types()
    attributes = {
        "sex": ("male", "female"),
        "hhage": AGES,
        "hispanic": ("not_hispanic", "hispanic"),
        "race": RACES,
        "elderly": ELDERLY,
        "tenure": TENURES,
        "hhtype": tuple(kind.label for kind in types),
    }
    recodes: dict[tuple[str, str], Mapping[str, tuple[str, ...]]] = {
        ("hhage3", "hhage"): {
            "15_to_34": AGES[:2], "35_to_64": AGES[2:6], "65_and_over": AGES[6:],
        },
        ("elderly60", "elderly"): {"nobody": ELDERLY[:1], "60_and_over": ELDERLY[1:]},
        ("elderly65", "elderly"): {"nobody": ELDERLY[:2], "65_and_over": ELDERLY[2:]},
        ("elderly75", "elderly"): {"nobody": ELDERLY[:3], "75_and_over": ELDERLY[3:]},
        ("tenure2", "tenure"): {"owner": TENURES[:2], "renter": TENURES[2:]},
        **{
            (name, "hhtype"): _groups(types, group, order)
            for name, (group, order) in RECODES.items()
        },
    }  # fmt: skip
    return {
        "name": "dhc_households",
        "attributes": [{"name": name, "levels": [*levels]} for name, levels in attributes.items()],
        "recodes": [
            {
                "name": name,
                "attribute": attribute,
                "groups": {
                    label: _runs(levels, attributes[attribute]) for label, levels in groups.items()
                },
            }
            for (name, attribute), groups in recodes.items()
        ],
    }


def schema_text() -> str:
    """Return the text of the schema file."""
    body = yaml.safe_dump(schema_document(), sort_keys=False, default_flow_style=None, width=100)
    return HEAD + body


def _runs(levels: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the levels; write runs that are consecutive in `known` as ranges."""
    index_of = {level: index for index, level in enumerate(known)}
    runs: list[list[str]] = []
    for level in levels:
        if runs and index_of[level] == index_of[runs[-1][-1]] + 1:
            runs[-1].append(level)
        else:
            runs.append([level])
    return [run[0] if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in runs]


def _partner_children(household: HouseholdType) -> str:
    partner = household.couple.partition("_")[0] if household.has_partner else household.couple
    return f"{partner}-own_{household.own}"


def _family(household: HouseholdType) -> str:
    generations = "-three_generations" if household.generations else ""
    return f"{household.couple}{generations}-own_{household.own}-{_SIZES[household.size - 1]}"


def _kind(household: HouseholdType) -> str:
    if household.is_married:
        return "married_couple_family"
    if household.relatives:
        return "other_family"
    return "living_alone" if household.size == 1 else "nonfamily_not_alone"


def _members(household: HouseholdType) -> str:
    """Return the group of households whose members are all known, as structural zeros need it."""
    size, has_partner, minor_head = household.size, household.has_partner, household.minor_head
    groups = {
        "minor_alone": size == 1 and minor_head,
        "alone": size == 1,
        "couple_with_minor": size == 2 and has_partner and minor_head,
        "couple": size == 2 and has_partner,
        "one_and_minor": size == 2 and household.minors != NO_MINORS,
        "minor_and_one": size == 2 and minor_head,
        "couple_and_child": size == 3 and has_partner and household.own != NO_MINORS,
        "one_and_two_children": size == 3 and household.own == "both",
        "couple_and_two_children": size == 4 and has_partner and household.own == "both",
    }
    return next((group for group, is_of_group in groups.items() if is_of_group), "others")


def _groups(
    types: tuple[HouseholdType, ...],
    group: Callable[[HouseholdType], str],
    order: tuple[str, ...] | None,
) -> dict[str, tuple[str, ...]]:
    """Return labels of types by group; without `order`, groups are in the order of `types`."""
    names = order or tuple(dict.fromkeys(group(kind) for kind in types))
    return {name: tuple(kind.label for kind in types if group(kind) == name) for name in names}


RECODES: dict[str, tuple[Callable[[HouseholdType], str], tuple[str, ...] | None]] = {
    "household_size": (lambda household: _SIZES[household.size - 1], _SIZES),
    "couple": (lambda household: household.couple, COUPLES),
    "multigenerational": (
        lambda household: "three_generations" if household.generations else "fewer",
        ("fewer", "three_generations"),
    ),
    "own_children": (lambda household: household.own, _OWN),
    "partner_children": (_partner_children, None),
    "minors": (
        lambda household: "under_18" if household.has_minors else "nobody",
        ("nobody", "under_18"),
    ),
    "household_kind": (
        _kind,
        ("married_couple_family", "other_family", "living_alone", "nonfamily_not_alone"),
    ),
    "family": (_family, None),
    "members": (_members, None),
}
"""Recodes of household types: the group of a type, and the order of groups."""


if __name__ == "__main__":
    (Path(sys.argv[1]) / FILE).write_text(schema_text(), encoding="utf-8")
