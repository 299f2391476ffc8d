"""Spine and lattice: known trees by hand, and every refusal with what it says."""

from __future__ import annotations

import numpy as np
import pytest

from das.errors import GeographyError
from geography.lattice import ROOT_CODE, Lattice, Spine

NATION = Spine(("nation", "state", "block"), (0, 1, 3))
STATE = Spine(("state", "county", "block"), (1, 2, 4))


def refused(build, message):
    with pytest.raises(GeographyError) as caught:
        build()
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("levels", "digits", "message"),
    [
        ((), (), "needs at least one geolevel and one length for each"),
        (("a",), (1, 2), "needs at least one geolevel and one length for each"),
        (("a", "a"), (1, 2), "names a geolevel twice; got ['a']"),
        (("a", "b"), (2, 2), "prefix lengths must increase from the root; got [2, 2]"),
        (("a", "b", "c"), (1, 3, 2), "prefix lengths must increase from the root; got [1, 3, 2]"),
        (("a", "b"), (-1, 2), "prefix lengths must increase from the root; got [-1, 2]"),
        (("a", "b", "c"), (0, 0, 2), "prefix lengths must increase from the root; got [0, 0, 2]"),
    ],
)
def test_spine_refuses(levels, digits, message):
    refused(lambda: Spine(levels, digits), f"spine: {message}")


def test_code_at_is_a_prefix_or_the_root_code():
    assert [NATION.code_at("123", level) for level in range(3)] == [ROOT_CODE, "1", "123"]


def test_a_small_nation_by_hand():
    lattice = Lattice.from_leaves(NATION, ["202", "101", "102", "303"])
    assert [codes.tolist() for codes in lattice.codes] == [
        [b"0"],
        [b"1", b"2", b"3"],
        [b"101", b"102", b"202", b"303"],
    ]
    assert [parents.tolist() for parents in lattice.parents] == [[-1], [0, 0, 0], [0, 0, 1, 2]]
    assert [first.tolist() for first in lattice.first_child] == [[0, 3], [0, 2, 3, 4]]
    assert [lattice.n_children(level).tolist() for level in range(3)] == [
        [3],
        [2, 1, 1],
        [0, 0, 0, 0],
    ]
    assert [one.tolist() for one in lattice.is_only_child] == [
        [False],
        [False, False, False],
        [False, False, True, True],
    ]
    assert [ends.tolist() for ends in lattice.chain_end] == [[0], [1, 2, 2], [2, 2, 2, 2]]
    assert lattice.sizes() == {"nation": 1, "state": 3, "block": 4}


def test_a_chain_through_all_geolevels():
    lattice = Lattice.from_leaves(STATE, ["7701"])
    assert [ends.tolist() for ends in lattice.chain_end] == [[2], [2], [2]]
    assert [one.tolist() for one in lattice.is_only_child] == [[False], [True], [True]]


def test_a_chain_in_the_middle_ends_where_the_tree_branches():
    lattice = Lattice.from_leaves(STATE, ["7101", "7102"])
    assert [ends.tolist() for ends in lattice.chain_end] == [[1], [1], [2, 2]]
    assert [one.tolist() for one in lattice.is_only_child] == [[False], [True], [False, False]]


def test_one_geolevel_is_one_geounit():
    lattice = Lattice.from_leaves(Spine(("all",), (2,)), ["77"])
    assert (lattice.codes[0].tolist(), lattice.first_child) == ([b"77"], ())
    assert lattice.chain_end[0].tolist() == [0]
    assert lattice.n_children(0).tolist() == [0]


def test_bytes_and_text_give_the_same_lattice():
    text = Lattice.from_leaves(NATION, ["202", "101"])
    raw = Lattice.from_leaves(NATION, np.array([b"101", b"202"]))
    assert [c.tolist() for c in text.codes] == [c.tolist() for c in raw.codes]


def test_no_leaf_is_refused():
    refused(lambda: Lattice.from_leaves(NATION, []), "geography: has no geounits")


def test_a_geocode_of_the_wrong_length_is_named():
    refused(
        lambda: Lattice.from_leaves(NATION, ["101", "22", "3", "4444"]),
        "geography, block: geocode of the wrong length (3 such); got 2 characters; expected 3",
    )
    refused(
        lambda: Lattice.from_leaves(NATION, ["101", ""]),
        "geography, block: geocode of the wrong length (1 such); got 0 characters; expected 3",
    )


def test_a_geocode_that_appears_twice_is_named():
    refused(
        lambda: Lattice.from_leaves(NATION, ["303", "101", "202", "101", "303", "101"]),
        "geography, block: geocode appears twice (3 repeated rows)",
    )
    refused(
        lambda: Lattice.from_leaves(NATION, ["303", "101", "303"]),
        "geography, block: geocode appears twice (1 repeated rows)",
    )


def test_several_roots_are_refused_with_the_way_out():
    refused(
        lambda: Lattice.from_leaves(STATE, ["7701", "8801", "9901"]),
        "geography, root geolevel state: the geounits do not share one root; "
        "got 3 roots; expected one; add a geolevel with 0 digits on top",
    )


def test_several_leaves_of_one_geolevel_are_several_roots():
    with pytest.raises(GeographyError, match="do not share one root; got 2 roots;"):
        Lattice.from_leaves(Spine(("all",), (1,)), ["2", "1"])


def test_a_geocode_that_is_not_ascii_is_refused():
    with pytest.raises(GeographyError):
        Lattice.from_leaves(NATION, ["1é1"])
