"""Another spine: small cases by hand, real entities of a real county, and every refusal."""

from __future__ import annotations

import zipfile

import numpy as np
import pytest

from das.errors import GeographyError
from geography.lattice import Lattice, Spine
from geography.offspine import NO_ENTITY, Entities, offspine_distances
from geography.respine import SpineDesign, design_spine, group_items, optimize_spine
from tests.checkout import ROOT

SPINE = Spine(("state", "tract", "group", "block"), (1, 2, 3, 4))
CODES = np.array([b"7111", b"7112", b"7121", b"7122", b"7211", b"7212"])
PLACE = Entities(("place",), np.array([[0], [NO_ENTITY], [0], [NO_ENTITY], [0], [0]]))
REAL = ROOT / "tests" / "data" / "ri_2018_e2e.pl.zip"


def sorted_distances(made, entities, kind="place"):
    lattice = Lattice.from_leaves(made.spine, made.codes)
    return offspine_distances(lattice, entities.take(np.argsort(made.codes)))[kind].tolist()


def test_groups_follow_the_entities():
    made = optimize_spine(SPINE, CODES, PLACE, SpineDesign(regroup="group"))
    assert made.spine == Spine(("state", "tract", "group_regrouped", "block"), (1, 2, 5, 7))
    assert made.codes.tolist() == [
        *(b"7100011", b"7100112", b"7100021", b"7100122", b"7200011", b"7200012")
    ]
    assert design_spine(SPINE, SpineDesign(regroup="group")) == made.spine


def test_the_place_comes_closer():
    assert sorted_distances(
        optimize_spine(SPINE, CODES, PLACE, SpineDesign(None, None)), PLACE
    ) == [3]
    made = optimize_spine(SPINE, CODES, PLACE, SpineDesign(regroup="group"))
    assert sorted_distances(made, PLACE) == [2]


def test_split_makes_halves_below_the_geounit():
    marked = np.array([False, True, False, True, False, False])
    design = SpineDesign(split="state", regroup=None)
    made = optimize_spine(SPINE, CODES, PLACE, design, marked)
    assert made.spine.levels == ("state", "state_part", "tract_part", "group_part", "block")
    assert made.spine.digits == (1, 2, 3, 4, 5)
    assert made.codes.tolist() == [b"70111", b"71112", b"70121", b"71122", b"70211", b"70212"]
    lattice = Lattice.from_leaves(made.spine, made.codes)
    assert [len(codes) for codes in lattice.codes] == [1, 2, 3, 5, 6]


def test_all_three_steps_in_one_design():
    marked = np.array([False, True, False, True, False, False])
    design = SpineDesign(split="state", regroup="group", split_children="state_part")
    made = optimize_spine(SPINE, CODES, PLACE, design, marked)
    names = ("state", "state_part", "tract_part_group", "tract_part", "group_regrouped", "block")
    assert made.spine == Spine(names, (1, 2, 5, 6, 9, 11))
    assert design_spine(SPINE, design) == made.spine


def test_a_group_without_a_number_is_refused(monkeypatch):
    monkeypatch.setattr("geography.respine.GROUP_DIGITS", 1)
    codes = np.array([f"7{number:02d}".encode() for number in range(25)])
    places = Entities(("place",), np.arange(25)[:, None])  # 25 blocks, at most 17 in a group
    with pytest.raises(GeographyError) as caught:
        optimize_spine(
            Spine(("state", "block"), (1, 3)), codes, places, SpineDesign(None, None, "state")
        )
    assert str(caught.value) == (
        "spine design, geolevel block_group: has more groups in a geounit than can be numbered; "
        "got 17; expected 10 at most"
    )


def test_a_new_geolevel_takes_no_name_that_is_taken():
    spine = Spine(("state", "tract", "tract_group", "block"), (1, 2, 3, 4))
    with pytest.raises(GeographyError, match="a name that is taken; got tract_group"):
        design_spine(spine, SpineDesign(regroup=None, split_children="state"))


def test_pieces_of_one_class_are_even_and_in_order():
    nothing = np.zeros((50, 0), np.int64)
    assert group_items(nothing, nothing, 0).tolist() == [
        *([0] * 8), *([1] * 7), *([2] * 7), *([3] * 7), *([4] * 7), *([5] * 7), *([6] * 7)
    ]  # fmt: skip


def test_groups_beyond_the_limit_are_united_smallest_first():
    inside = np.eye(9, dtype=np.int64)  # nine blocks, each a place of its own; L = 3
    labels = group_items(inside, 1 - inside, 0)
    assert int(labels.max()) + 1 <= max(3, 2 * 9 // 3 + 1)
    assert np.bincount(labels).max() <= 3


def test_one_leaf_is_one_group():
    assert group_items(np.ones((1, 1), np.int64), np.zeros((1, 1), np.int64), 0).tolist() == [0]


def real_county() -> tuple[np.ndarray, Entities]:
    """569 blocks of Providence County: voting, legislative and congressional districts."""
    with zipfile.ZipFile(REAL) as files:
        text = files.read("rigeo2018_2020Style.pl").decode("latin-1")
    rows = [line.split("|") for line in text.splitlines()]
    blocks = [row for row in rows if row[2] == "750"]
    codes = np.array([row[9] for row in blocks], np.bytes_)
    columns = {"vtd": 77, "house": 72, "senate": 67, "congress": 62}
    members = [
        np.unique([row[column] for row in blocks], return_inverse=True)[1]
        for column in columns.values()
    ]
    return codes, Entities(tuple(columns), np.stack(members, axis=1))


def test_real_districts_come_closer():
    """Sums of off-spine distances before and after; docs/spine.md shows them."""
    codes, entities = real_county()
    spine = Spine(("state", "county", "tract", "block_group", "block"), (2, 5, 11, 12, 15))
    total = {}
    for name, design in {
        "census": SpineDesign(regroup=None),
        "regrouped": SpineDesign(),
        "gathered": SpineDesign(split_children="county"),
    }.items():
        made = optimize_spine(spine, codes, entities, design)
        total[name] = {kind: sum(sorted_distances(made, entities, kind)) for kind in entities.kinds}
    assert total == {
        "census": {"vtd": 331, "house": 178, "senate": 55, "congress": 67},
        "regrouped": {"vtd": 43, "house": 34, "senate": 20, "congress": 15},
        "gathered": {"vtd": 43, "house": 31, "senate": 16, "congress": 15},
    }


@pytest.mark.parametrize(
    ("design", "message"),
    [
        (
            SpineDesign(regroup="county"),
            "spine design: names an unknown geolevel; got county; "
            "expected ['state', 'tract', 'group', 'block']",
        ),
        (
            SpineDesign(regroup="block"),
            "spine design, regroup: needs a geolevel above and one below; got block",
        ),
        (
            SpineDesign(regroup="state"),
            "spine design, regroup: needs a geolevel above and one below; got state",
        ),
        (
            SpineDesign(regroup=None, split_children="block"),
            "spine design, split_children: needs a geolevel below; got block",
        ),
        (
            SpineDesign(split="state", regroup=None),
            "spine design: splits, so it needs one mark per leaf",
        ),
    ],
)
def test_designs_are_refused(design, message):
    with pytest.raises(GeographyError) as caught:
        optimize_spine(SPINE, CODES, PLACE, design)
    assert str(caught.value) == message


def test_leaves_cannot_be_split():
    with pytest.raises(GeographyError, match="cannot split leaves; got block"):
        optimize_spine(SPINE, CODES, PLACE, SpineDesign(split="block"), np.zeros(6, np.bool_))


def test_a_negative_cutoff_is_refused():
    with pytest.raises(GeographyError, match="cutoff is negative; got -1"):
        SpineDesign(fan_out_cutoff=-1)
