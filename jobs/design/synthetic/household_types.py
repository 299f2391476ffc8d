"""The 522 household types of the 2020 demographic and housing characteristics, from a definition.

A household type is what the tables ask of who lives with the householder: the couple, the ages of
own children and of all minors, whether there are relatives, three generations, minors at the head,
and the size. Which combinations exist is not listed anywhere: they are those of some household,
found by putting households together person by person (`household_types`).

Levels of the attribute `hhtype` are named after their facts and stand in the order of the numbers
that the 2020 system gives them, so that files with these numbers can be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations

LARGEST_SIZE = 7  # stands for it and more
_AGES = ("under_6", "6_to_17", "both")
NO_MINORS = "none"
COUPLES = (
    "married_opposite_sex",
    "married_same_sex",
    "cohabiting_opposite_sex",
    "cohabiting_same_sex",
    "no_partner",
)
# Who may live with the householder, beside a partner: own children, other relatives, others.
OWN_CHILDREN, GRANDCHILDREN, _RELATIVES, _NONRELATIVES = (
    tuple(f"{kind}_{age}" for age in ("under_6", "6_to_17", "adult"))
    for kind in ("own", "grandchild", "relative", "nonrelative")
)
OTHERS = (*OWN_CHILDREN, *GRANDCHILDREN, "parent", *_RELATIVES, *_NONRELATIVES)


@dataclass(frozen=True)
class HouseholdType:
    """One type.

    Attributes:
      couple: One of `COUPLES`; the householder's partner lives in the household.
      own: Ages of the householder's own children under 18: "none", "under_6", "6_to_17" or "both".
      minors: Ages of all persons under 18 but householder and partner, own children among them.
      relatives: Whether somebody is related to the householder, spouses included.
      minor_head: Whether householder or partner are under 18; known only where nobody else is.
      generations: Whether there are a child of the householder and a grandchild or a parent.
      size: Persons, 1 to 7; 7 for more.
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
        """Whether the householder lives with spouse or partner."""
        return self.couple != "no_partner"

    @property
    def is_married(self) -> bool:
        """Whether with a spouse."""
        return self.couple.startswith("married")

    @property
    def has_minors(self) -> bool:
        """Whether anybody is under 18."""
        return self.minors != NO_MINORS or self.minor_head

    @property
    def label(self) -> str:
        """Its name: the facts that do not follow from those before them."""
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
    """The type of a household.

    Args:
      couple: One of `COUPLES`.
      others: How many of each of `OTHERS` live in it.
      minor_head: Whether householder or partner are under 18.
    """
    there = {kind for kind, number in others.items() if number}
    minors = _ages(there, ("own", "grandchild", "relative", "nonrelative"))
    has_child = bool(there & {*OWN_CHILDREN})
    size = 1 + (couple != "no_partner") + sum(others.values())
    return HouseholdType(
        couple,
        _ages(there, ("own",)),
        minors,
        couple.startswith("married") or any(not k.startswith("nonrelative") for k in there),
        minor_head and minors == NO_MINORS,
        has_child and bool(there & {*GRANDCHILDREN, "parent"}),
        min(size, LARGEST_SIZE),
    )


def _ages(there: set[str], kinds: tuple[str, ...]) -> str:
    young, older = (any(f"{k}_{age}" in there for k in kinds) for age in _AGES[:2])
    if young and older:
        return "both"
    return "under_6" if young else "6_to_17" if older else NO_MINORS


@cache
def household_types() -> tuple[HouseholdType, ...]:
    """All types, in the order of their numbers of 2020.

    Facts but the size hang on which kinds of persons are there, not on how many, and four kinds
    show any combination of them. Whoever else lives there may be an adult who is no relative, so
    what is of some size is of all larger ones.
    """
    smallest = (
        type_of(couple, Counter(kinds), minor_head=minor_head)
        for couple in COUPLES
        for number in range(5)
        for kinds in combinations(OTHERS, number)
        for minor_head in (False, True)
        if _can_be(couple, kinds, minor_head)
    )
    types = {
        replace(one, size=size) for one in smallest for size in range(one.size, LARGEST_SIZE + 1)
    }
    return tuple(sorted(types, key=_number))


def _can_be(couple: str, kinds: tuple[str, ...], minor_head: bool) -> bool:
    """Whether such people can live together: minors have no grown children."""
    is_householder = minor_head and couple == "no_partner"
    return not (is_householder and {"own_adult", *GRANDCHILDREN} & {*kinds})


def _number(one: HouseholdType) -> tuple[int, ...]:
    ages = (*_AGES, NO_MINORS)
    return (
        COUPLES.index(one.couple),
        one.size > 1,
        not one.relatives,
        ages.index(one.own),
        ages.index(one.minors),
        one.minor_head,
        one.generations,
        one.size,
    )
