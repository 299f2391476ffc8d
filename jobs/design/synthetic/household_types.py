"""The 522 household types of the 2020 demographic and housing characteristics, from a definition.

A household type describes who lives with the householder: the couple, ages of own children and of
all minors, relatives, three generations, minors at the head, and the size. The existing
combinations are found by composing households person by person (`household_types`).

Levels of the attribute `hhtype` are named after these facts, in the order of the numbers of the
2020 system, so that files with these numbers can be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, product

LARGEST_SIZE = 7  # stands for 7 and more
_AGES = ("under_6", "6_to_17", "both")
NO_MINORS = "none"
COUPLES = (
    "married_opposite_sex",
    "married_same_sex",
    "cohabiting_opposite_sex",
    "cohabiting_same_sex",
    "no_partner",
)
# Members besides householder and partner: own children, other relatives, others.
OWN_CHILDREN, GRANDCHILDREN, _RELATIVES, _NONRELATIVES = (
    tuple(f"{kind}_{age}" for age in ("under_6", "6_to_17", "adult"))
    for kind in ("own", "grandchild", "relative", "nonrelative")
)
OTHERS = (*OWN_CHILDREN, *GRANDCHILDREN, "parent", *_RELATIVES, *_NONRELATIVES)


@dataclass(frozen=True)
class HouseholdType:
    """Household type.

    Attributes:
      couple: One of `COUPLES`.
      own: Ages of the householder's own children under 18: "none", "under_6", "6_to_17" or "both".
      minors: Ages of all persons under 18 except householder and partner.
      relatives: Whether a member is related to the householder, spouses included.
      minor_head: Whether householder or partner are under 18; False if other members are.
      generations: Whether a child of the householder and a grandchild or a parent are members.
      size: Number of persons, 1 to 7; 7 stands for more.
    """

    couple: str
    own: str
    minors: str
    relatives: bool
    minor_head: bool
    generations: bool
    size: int

    @property
    def has_partner(self) -> bool:
        """Return whether the householder lives with a spouse or partner."""
        return self.couple != "no_partner"

    @property
    def is_married(self) -> bool:
        """Return whether the householder lives with a spouse."""
        return self.couple.startswith("married")

    @property
    def has_minors(self) -> bool:
        """Return whether a member is under 18."""
        return self.minors != NO_MINORS or self.minor_head

    @property
    def label(self) -> str:
        """Return the name of the type, without facts that follow from earlier ones."""
        follows = self.is_married or self.own != NO_MINORS or self.generations or self.size == 1
        size = f"{self.size}_or_more" if self.size == LARGEST_SIZE else str(self.size)
        facts = {
            "couple": self.couple,
            "relatives": "" if follows else "relatives" if self.relatives else "no_relatives",
            "own": "" if self.own == NO_MINORS else f"own_{self.own}",
            "minors": "" if self.minors == self.own else f"minors_{self.minors}",
            "head": "minor_head" if self.minor_head else "",
            "generations": "three_generations" if self.generations else "",
            "size": f"size_{size}",
        }
        return "-".join(fact for fact in facts.values() if fact)


def type_of(couple: str, others: Mapping[str, int], *, minor_head: bool) -> HouseholdType:
    """Return the type of a household.

    Args:
      couple: One of `COUPLES`.
      others: Number of members of each kind in `OTHERS`.
      minor_head: Whether householder or partner are under 18.
    """
    present = {kind for kind, number in others.items() if number}
    minors = _ages(present, ("own", "grandchild", "relative", "nonrelative"))
    size = 1 + (couple != "no_partner") + sum(others.values())
    return HouseholdType(
        couple,
        _ages(present, ("own",)),
        minors,
        couple.startswith("married") or any(not k.startswith("nonrelative") for k in present),
        minor_head and minors == NO_MINORS,
        bool(present & {*OWN_CHILDREN} and present & {*GRANDCHILDREN, "parent"}),
        min(size, LARGEST_SIZE),
    )


def _ages(present: set[str], kinds: tuple[str, ...]) -> str:
    young, older = (any(f"{k}_{age}" in present for k in kinds) for age in _AGES[:2])
    if young and older:
        return "both"
    return "under_6" if young else "6_to_17" if older else NO_MINORS


@cache
def household_types() -> tuple[HouseholdType, ...]:
    """Return all types, in the order of their numbers of 2020.

    All facts except the size depend on the kinds of members, not on their numbers, and four kinds
    give every combination of facts. Further members can be adult nonrelatives, so a type of one
    size exists in all larger sizes.
    """
    types = set[HouseholdType]()
    for couple, minor_head in product(COUPLES, (False, True)):
        for kinds in (kinds for number in range(5) for kinds in combinations(OTHERS, number)):
            is_householder = minor_head and couple == "no_partner"
            if is_householder and {"own_adult", *GRANDCHILDREN} & {*kinds}:
                continue  # minors have no grown children
            smallest = type_of(couple, Counter(kinds), minor_head=minor_head)
            sizes = range(smallest.size, LARGEST_SIZE + 1)
            types |= {replace(smallest, size=size) for size in sizes}
    ages = (*_AGES, NO_MINORS)

    def number(kind: HouseholdType) -> tuple[int, ...]:
        order = (COUPLES.index(kind.couple), kind.size > 1, not kind.relatives)
        minors = (ages.index(kind.own), ages.index(kind.minors), kind.minor_head)
        return (*order, *minors, kind.generations, kind.size)

    return tuple(sorted(types, key=number))
