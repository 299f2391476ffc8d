"""The lattice of random trees is the tree that a plain dict gives."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given

from geography.lattice import Lattice
from tests.builders.strategies import trees


def naive(spine, leaves) -> list[dict[str, set[str]]]:
    """Per geolevel: geocode to the geocodes of its children."""
    out = []
    for level, digits in enumerate(spine.digits):
        children: dict[str, set[str]] = defaultdict(set)
        for leaf in leaves:
            below = spine.digits[level + 1] if level + 1 < len(spine.digits) else None
            code = leaf[:digits] if digits else "0"
            children[code] |= set() if below is None else {leaf[:below]}
        out.append(dict(children))
    return out


def naive_chain_end(tree, level: int, code: str) -> int:
    while len(tree[level][code]) == 1:
        (code,) = tree[level][code]
        level += 1
    return level


@given(trees())
def test_geounits_parents_and_children(drawn):
    spine, leaves = drawn
    lattice = Lattice.from_leaves(spine, leaves)
    tree = naive(spine, leaves)
    for level, expected in enumerate(tree):
        codes = [code.decode() for code in lattice.codes[level]]
        assert codes == sorted(expected)
        counts = lattice.n_children(level)
        for row, code in enumerate(codes):
            assert counts[row] == len(expected[code])
            if level + 1 < len(tree):
                first, last = lattice.first_child[level][row : row + 2]
                inside = [c.decode() for c in lattice.codes[level + 1][first:last]]
                assert inside == sorted(expected[code])
                assert set(lattice.parents[level + 1][first:last]) == {row}
    assert lattice.parents[0].tolist() == [-1]
    assert lattice.sizes() == {
        name: len(geounits) for name, geounits in zip(spine.levels, tree, strict=True)
    }


@given(trees())
def test_only_children_and_chains(drawn):
    spine, leaves = drawn
    lattice = Lattice.from_leaves(spine, leaves)
    tree = naive(spine, leaves)
    for level, geounits in enumerate(tree):
        for row, code in enumerate(sorted(geounits)):
            siblings = [
                children
                for children in (tree[level - 1].values() if level else [{code, "none"}])
                if code in children
            ]
            assert lattice.is_only_child[level][row] == (len(siblings[0]) == 1)
            assert lattice.chain_end[level][row] == naive_chain_end(tree, level, code)


@given(trees())
def test_every_leaf_is_under_the_geounits_its_prefixes_name(drawn):
    spine, leaves = drawn
    lattice = Lattice.from_leaves(spine, leaves)
    for row, leaf in enumerate(sorted(leaves)):
        for level in range(len(spine.levels) - 1, -1, -1):
            assert lattice.codes[level][row].decode() == spine.code_at(leaf, level)
            row = lattice.parents[level][row]


@given(trees())
def test_measured_chains_tile_every_path(drawn):
    """Walking down from the root, each measured chain begins where the one above ends."""
    spine, leaves = drawn
    lattice = Lattice.from_leaves(spine, leaves)
    for leaf_row in range(len(leaves)):
        path = [leaf_row]
        for level in range(len(spine.levels) - 1, 0, -1):
            path.insert(0, int(lattice.parents[level][path[0]]))
        level = 0
        while level < len(path):
            assert not lattice.is_only_child[level][path[level]]
            end = int(lattice.chain_end[level][path[level]])
            inside = range(level + 1, end + 1)
            assert all(lattice.is_only_child[i][path[i]] for i in inside)
            level = end + 1


@given(trees())
def test_the_order_of_the_leaves_does_not_matter(drawn):
    spine, leaves = drawn
    one, two = Lattice.from_leaves(spine, leaves), Lattice.from_leaves(spine, sorted(leaves))
    assert all(np.array_equal(a, b) for a, b in zip(one.codes, two.codes, strict=True))
