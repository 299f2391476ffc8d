"""Whatever the entities: leaves stay, nesting stays, groups keep their limits."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from geography.lattice import Lattice
from geography.offspine import Entities, offspine_distances
from geography.respine import (
    SpineDesign,
    design_spine,
    group_items,
    most_children,
    optimize_spine,
    without_geolevel,
)
from tests.builders.strategies import trees


@st.composite
def designs(draw: st.DrawFn):
    """A spine, leaves, entities, marks, and any design that fits the spine."""
    spine, leaves = draw(trees(most_levels=5).filter(lambda drawn: len(drawn[0].levels) > 1))
    n_kinds = draw(st.integers(1, 3))
    row = st.lists(st.integers(-1, 2), min_size=n_kinds, max_size=n_kinds)
    members = np.array(draw(st.lists(row, min_size=len(leaves), max_size=len(leaves))))
    entities = Entities(tuple(f"kind{index}" for index in range(n_kinds)), members)
    marked = np.array(draw(st.lists(st.booleans(), min_size=len(leaves), max_size=len(leaves))))
    inner = st.sampled_from(spine.levels[:-1])
    regroup = draw(st.none() | st.sampled_from(spine.levels[1:-1] or (None,)))
    gather = draw(st.none() | inner.filter(lambda name: name != regroup))
    split = draw(st.none() | inner)
    cutoff = draw(st.integers(0, 2))
    codes = np.array([leaf.encode() for leaf in leaves])
    return spine, codes, entities, marked, SpineDesign(split, regroup, gather, cutoff)


@given(designs())
def test_leaves_stay_distinct_and_geolevels_are_known_before(drawn):
    spine, codes, entities, marked, design = drawn
    made = optimize_spine(spine, codes, entities, design, marked)
    assert made.spine == design_spine(spine, design)
    assert len(set(made.codes.tolist())) == len(codes)
    lattice = Lattice.from_leaves(made.spine, made.codes)  # nests, or raises
    assert lattice.sizes()[made.spine.levels[-1]] == len(codes)


@given(designs())
def test_geolevels_that_stay_hold_the_same_leaves_unless_split(drawn):
    """A tract of the new spine holds the blocks of one tract and one half, and all of them.

    Those that are halves are called parts, so that a name always means the same geounits.
    """
    spine, codes, entities, marked, design = drawn
    made = optimize_spine(spine, codes, entities, design, marked)
    above = spine.levels.index(design.split) if design.split else len(spine.levels)
    for level, name in enumerate(spine.levels):
        if name == design.regroup:
            continue
        old = [code[: spine.digits[level]] for code in codes.tolist()]
        if level > above:
            old = [(code, mark) for code, mark in zip(old, marked.tolist(), strict=True)]
        is_part = above < level < len(spine.levels) - 1
        assert (name in made.spine.levels) != is_part
        known = f"{name}_part" if is_part else name
        digits = made.spine.digits[made.spine.levels.index(known)]
        new = [code[:digits] for code in made.codes.tolist()]
        assert len(set(zip(old, new, strict=True))) == len(set(old)) == len(set(new))


@given(designs())
def test_the_order_of_the_leaves_does_not_matter(drawn):
    spine, codes, entities, marked, design = drawn
    order = np.argsort(codes)
    made = optimize_spine(spine, codes, entities, design, marked)
    sorted_made = optimize_spine(spine, codes[order], entities.take(order), design, marked[order])
    assert made.codes[order].tolist() == sorted_made.codes.tolist()
    assert made.spine == sorted_made.spine


@given(designs())
def test_a_new_geolevel_never_puts_an_entity_farther_away(drawn):
    spine, codes, entities, marked, design = drawn
    bare = spine
    if design.regroup is not None:
        bare = without_geolevel(spine, spine.levels.index(design.regroup))
    if design.split is not None:
        return
    made = optimize_spine(spine, codes, entities, design)
    old, new = Lattice.from_leaves(bare, codes), Lattice.from_leaves(made.spine, made.codes)
    before = offspine_distances(old, entities.take(np.argsort(codes)))
    after = offspine_distances(new, entities.take(np.argsort(made.codes)))
    for kind in entities.kinds:
        assert (after[kind] <= before[kind]).all()


@given(st.integers(1, 30), st.integers(0, 3), st.integers(0, 4), st.data())
def test_groups_keep_their_limits(n, n_entities, cutoff, data):
    rows = st.lists(st.integers(0, 1), min_size=n_entities, max_size=n_entities)
    drawn = data.draw(st.lists(rows, min_size=n, max_size=n))
    inside = np.array(drawn, np.int64).reshape(n, n_entities)
    labels = group_items(inside, 1 - inside, cutoff)
    limit = most_children(n, cutoff)
    sizes = Counter(labels.tolist())
    assert sorted(sizes) == list(range(len(sizes)))
    assert max(sizes.values()) <= limit
    assert len(sizes) <= max(limit, 2 * n / limit + 1)
    assert list(dict.fromkeys(labels.tolist())) == list(range(len(sizes)))  # by first item
