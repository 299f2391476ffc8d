"""Junction trees against brute force over all cells, and assignment in whole numbers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from das.errors import SchemaError
from das.synthesis.graphical import GraphicalModel, assign, junction_tree

ATTRIBUTES = range(5)
SETS = st.lists(
    st.sets(st.sampled_from(ATTRIBUTES), min_size=1, max_size=3).map(lambda s: tuple(sorted(s))),
    max_size=6,
    unique=True,
)
SIZES = st.lists(st.integers(2, 4), min_size=5, max_size=5)


def joint_of(sizes, potentials):
    """The distribution over all cells."""
    scores = np.zeros(sizes)
    for each, table in potentials.items():
        scores += table.reshape([sizes[i] if i in each else 1 for i in range(len(sizes))])
    shares = np.exp(scores - scores.max())
    return shares / shares.sum()


@settings(max_examples=25, deadline=None)
@given(SIZES, SETS, st.integers(0, 2**32 - 1))
def test_beliefs_are_the_marginals_of_the_joint_distribution(sizes, sets, seed):
    rng = np.random.default_rng(seed)
    # Spread wide enough that sums of exponentials without logarithms lose cells.
    potentials = {s: rng.normal(0, 30, [sizes[i] for i in s]) for s in sets}
    tree = junction_tree(sizes, sets)
    beliefs = tree.beliefs(potentials)
    joint = joint_of(sizes, potentials)
    for clique, belief in zip(tree.cliques, beliefs, strict=True):
        away = tuple(i for i in ATTRIBUTES if i not in clique)
        assert belief == pytest.approx(joint.sum(axis=away), abs=1e-9)
    for each in sets:
        away = tuple(i for i in ATTRIBUTES if i not in each)
        assert tree.marginal(beliefs, each) == pytest.approx(joint.sum(axis=away), abs=1e-9)


def test_beliefs_given_levels_are_those_of_the_joint_distribution_there():
    rng = np.random.default_rng(5)
    sizes, sets = (2, 3, 2, 4, 2), [(0, 1), (1, 2), (3,), (3, 4)]
    potentials = {s: rng.normal(0, 3, [sizes[i] for i in s]) for s in sets}
    tree = junction_tree(sizes, sets)
    model = GraphicalModel(tree, potentials, tree.beliefs(potentials))
    joint = joint_of(sizes, potentials)[:, 2, :, 1]
    first, third, fourth = model.marginals([(0,), (2,), (3,)], {1: 2, 3: 1})
    assert first == pytest.approx(joint.sum((1, 2)) / joint.sum())
    assert third == pytest.approx(joint.sum((0, 2)) / joint.sum())
    assert fourth == pytest.approx([0, 1, 0, 0])


@settings(max_examples=25, deadline=None)
@given(SIZES, SETS)
def test_a_tree_has_running_intersection(sizes, sets):
    tree = junction_tree(sizes, sets)
    assert {i for clique in tree.cliques for i in clique} == {*ATTRIBUTES}
    assert all(tree.home(each) is not None for each in sets)
    for one, other in itertools.permutations(tree.cliques, 2):
        assert not set(one) < set(other)
    for k in range(1, len(tree.cliques)):
        assert 0 <= tree.parents[k] < k
        # What a clique shares with all cliques before it lies in its parent.
        before = {i for clique in tree.cliques[:k] for i in clique}
        assert set(tree.cliques[k]) & before == set(tree.separators[k])
    assert tree.cells == sum(math.prod(sizes[i] for i in clique) for clique in tree.cliques)


def test_drawn_records_have_the_counts_of_every_clique():
    rng = np.random.default_rng(4)
    sizes = (3, 4, 2, 3)
    sets = [(0, 1), (1, 2), (2, 3)]
    tree = junction_tree(sizes, sets)
    beliefs = tree.beliefs({s: rng.normal(0, 1, [sizes[i] for i in s]) for s in sets})
    codes = tree.draw(beliefs, 5000, rng)
    for clique, belief in zip(tree.cliques, beliefs, strict=True):
        spots = np.ravel_multi_index(codes[:, clique].T, belief.shape)
        counts = np.bincount(spots, minlength=belief.size)
        # Each is within 1 of what its separator's counts imply; these within 1 of theirs, 4 levels.
        assert np.abs(counts - 5000 * belief.reshape(-1)).max() < 5
    assert tree.draw(beliefs, 0, rng).shape == (0, 4)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 200))
def test_assignment_rounds_every_expected_number_up_or_down(seed, n):
    rng = np.random.default_rng(seed)
    weights = rng.gamma(0.3, 1, (4, 7)) * (rng.random((4, 7)) < 0.7)
    weights[2] = 0.0
    groups = rng.integers(0, 4, n)
    columns = assign(weights, groups, rng)
    for g in range(4):
        members = int((groups == g).sum())
        row = weights[g] if weights[g].any() else np.ones(7)
        expected = members * row / row.sum()
        counts = np.bincount(columns[groups == g], minlength=7)
        assert (counts >= np.floor(expected - 1e-9)).all()
        assert (counts <= np.ceil(expected + 1e-9)).all()


def test_sets_outside_of_all_cliques_are_refused():
    tree = junction_tree((2, 2, 2), [(0, 1), (1, 2)])
    with pytest.raises(SchemaError):
        tree.beliefs({(0, 2): np.zeros((2, 2))})
    with pytest.raises(SchemaError):
        tree.marginal(tree.beliefs({}), (0, 2))
