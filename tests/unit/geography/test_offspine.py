"""Off-spine distances: small trees by hand, and every refusal."""

from __future__ import annotations

import numpy as np
import pytest

from das.errors import GeographyError
from geography.lattice import Lattice, Spine
from geography.offspine import NO_ENTITY, Entities, coverage, offspine_distances

# Root with the tracts 1 and 2; tract 1 has the groups 11 (three blocks) and 12 (two blocks).
SPINE = Spine(("all", "tract", "group", "block"), (0, 1, 2, 3))
LEAVES = ["111", "112", "113", "121", "122", "211", "221", "222"]
LATTICE = Lattice.from_leaves(SPINE, LEAVES)


def distance(*inside: str) -> int:
    members = np.array([[0 if leaf in inside else NO_ENTITY] for leaf in LEAVES])
    return int(offspine_distances(LATTICE, Entities(("place",), members))["place"][0])


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        (LEAVES, 1),  # the root
        (["111", "112", "113"], 1),  # a group
        (["111"], 1),
        (["211"], 1),  # a block, or the group that is nothing else
        (["111", "112"], 2),  # two blocks, or a group less a block
        (["111", "112", "121", "122"], 2),  # tract 1 less a block
        (["111", "112", "113", "221", "222"], 2),  # two groups
        (["112", "113", "121", "122", "211", "221", "222"], 2),  # all less a block
        (["111", "121", "221"], 3),
    ],
)
def test_distances_by_hand(inside, expected):
    assert distance(*inside) == expected


def test_each_kind_has_its_entities_in_order_of_their_numbers():
    members = np.full((8, 2), NO_ENTITY)
    members[:3, 0] = 40  # group 11
    members[[3, 5], 0] = 7  # two single blocks
    members[:5, 1] = 7  # tract 1: another kind, so another entity than place 7
    found = offspine_distances(LATTICE, Entities(("place", "district"), members))
    assert {kind: d.tolist() for kind, d in found.items()} == {"place": [2, 1], "district": [1]}


def test_coverage_counts_both_sides():
    members = np.array([[0], [0], [-1], [-1], [-1], [-1], [-1], [-1]])
    tract = coverage(LATTICE, Entities(("place",), members))[1]
    assert (tract.geounits.tolist(), tract.entities.tolist()) == ([0], [0])
    assert (tract.inside.tolist(), tract.outside.tolist()) == ([2], [2])  # 113 + group 12


def test_no_entity_and_no_kind_have_no_distances():
    nothing = np.full((8, 1), NO_ENTITY)
    assert offspine_distances(LATTICE, Entities(("place",), nothing))["place"].tolist() == []
    assert offspine_distances(LATTICE, Entities((), np.zeros((8, 0)))) == {}


@pytest.mark.parametrize(
    ("kinds", "members", "message"),
    [
        (("a", "a"), np.zeros((2, 2)), "entities: name a kind twice; got ['a']"),
        (
            ("a",),
            np.zeros((2, 2)),
            "entities: need one column per kind; got (2, 2); expected 1",
        ),
        (("a",), np.array([[-2]]), "entities: have a negative number; got -2"),
    ],
)
def test_entities_are_refused(kinds, members, message):
    with pytest.raises(GeographyError) as caught:
        Entities(kinds, members)
    assert str(caught.value) == message


def test_one_row_per_leaf():
    with pytest.raises(GeographyError, match="need one row per leaf; got 3; expected 8"):
        offspine_distances(LATTICE, Entities(("a",), np.zeros((3, 1))))


def test_a_difference_of_differences():
    """All less (a tract less one of its five blocks): three terms, not five."""
    leaves = ["11", "12", "13", "14", "15", "21", "31", "41", "51"]
    lattice = Lattice.from_leaves(Spine(("all", "tract", "block"), (0, 1, 2)), leaves)
    outside = {"12", "13", "14", "15"}
    members = np.array([[NO_ENTITY if leaf in outside else 0] for leaf in leaves])
    assert offspine_distances(lattice, Entities(("place",), members))["place"].tolist() == [3]
