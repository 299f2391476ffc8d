"""Off-spine distances and groups against a search over all sums and all groupings."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from geography.lattice import Lattice, Spine
from geography.offspine import Entities, combine, offspine_distances
from geography.respine import group_items, most_children
from tests.builders.strategies import trees


def least_terms(lattice: Lattice, inside: np.ndarray) -> int:
    """Fewest geounits whose sum with signs is the indicator of the entity, by trying all."""
    leaves = lattice.codes[-1]
    columns = [
        np.char.startswith(leaves, code if digits else b"").astype(np.int64)
        for digits, codes in zip(lattice.spine.digits, lattice.codes, strict=True)
        for code in codes
    ]
    columns = list({column.tobytes(): column for column in columns}.values())
    for terms in range(1, len(leaves) + 1):
        for chosen in itertools.combinations(columns, terms):
            for signs in itertools.product((1, -1), repeat=terms):
                if np.array_equal(np.dot(signs, chosen), inside):
                    return terms
    raise AssertionError("leaves alone always do")


@given(trees(most_levels=4, most_leaves=6), st.data())
def test_no_sum_with_signs_is_shorter(drawn, data):
    spine, leaves = drawn
    lattice = Lattice.from_leaves(spine, leaves)
    inside = np.array([data.draw(st.booleans()) for _ in leaves])
    assume(inside.any())
    entities = Entities(("place",), np.where(inside, 0, -1)[:, None])
    found = offspine_distances(lattice, entities)["place"].tolist()
    assert found == [least_terms(lattice, inside.astype(np.int64))]


def test_a_leaf_may_have_the_geocode_of_the_root():
    """A root without digits is called 0, as may be the first leaf; it holds all leaves all the same."""
    lattice = Lattice.from_leaves(Spine(("all", "leaf"), (0, 1)), ["0", "1"])
    for inside, terms in (([1, 0], 1), ([0, 1], 1), ([1, 1], 1)):
        entities = Entities(("place",), np.where(inside, 0, -1)[:, None])
        assert offspine_distances(lattice, entities)["place"].tolist() == [terms]
        assert least_terms(lattice, np.array(inside)) == terms


def total_distance(labels, inside: np.ndarray, outside: np.ndarray) -> int:
    """Sum of distances inside the parent when its children are grouped."""
    sums = np.zeros((2, max(labels) + 1, inside.shape[1]), np.int64)
    np.add.at(sums[0], list(labels), inside)
    np.add.at(sums[1], list(labels), outside)
    groups = combine(*sums)
    return int(combine(groups[0].sum(axis=0), groups[1].sum(axis=0))[0].sum())


def groupings(n: int):
    """All partitions of n items, as labels in order of first appearance."""
    labels = [()]
    for _ in range(n):
        labels = [(*one, new) for one in labels for new in range(max(one, default=-1) + 2)]
    return labels


@given(st.integers(2, 6), st.integers(1, 3), st.data())
def test_groups_of_few_blocks_are_nearly_the_best(n, n_entities, data):
    rows = st.lists(st.integers(0, 1), min_size=n_entities, max_size=n_entities)
    inside = np.array(data.draw(st.lists(rows, min_size=n, max_size=n)), np.int64)
    labels = group_items(inside, 1 - inside, 12)
    found = total_distance(labels, inside, 1 - inside)
    best = min(total_distance(one, inside, 1 - inside) for one in groupings(n))
    assert best <= found <= total_distance(range(n), inside, 1 - inside)
    assert found - best <= n_entities  # never seen to differ by more; see the test below


def test_greedy_groups_are_the_best_in_most_small_cases():
    """Over 400 seeded cases the greedy sum is the least in at least 9 of 10."""
    rng = np.random.default_rng(11)
    optimal = 0
    for _ in range(400):
        inside = rng.integers(0, 2, (6, 2))
        labels = group_items(inside, 1 - inside, most_children(6, 12))
        least = min(total_distance(one, inside, 1 - inside) for one in groupings(6))
        optimal += total_distance(labels, inside, 1 - inside) == least
    assert optimal >= 360
