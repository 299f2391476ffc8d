"""Shares found on a smaller tree against those found on the whole tree, and smaller trees."""

from __future__ import annotations

import numpy as np
import pytest

import das.tree.search
from das.errors import BudgetError
from das.queries.query import parse_query
from das.queries.sensitivity import Neighbors
from das.tree.allocation import AllocationProblem
from das.tree.classes import SubtreeClasses
from das.tree.coarse import coarse_classes
from das.tree.errors import SpineModel
from das.tree.information import Information
from das.tree.largest import Objective
from das.tree.search import find_shares
from tests.unit.das.tree.test_allocation_oracle import SCHEMA, even

TABLES = ("total", "adult * sex", "detailed")
QUERIES = ("total", "adult", "sex * age", "detailed")


def many(seed: int) -> SubtreeClasses:
    """Four counties of tracts of 1 to 60 blocks: chains, and nearly every tract of its own size."""
    random = np.random.default_rng(seed)
    tracts = random.integers(3, 9, 4)
    blocks = random.integers(1, 60, tracts.sum())
    return SubtreeClasses.of_tree([np.array([4]), tracts, blocks, np.zeros(blocks.sum(), int)])


def problem(tree: SubtreeClasses, exact=((),) * 4) -> AllocationProblem:
    known = tuple(tuple(parse_query(SCHEMA, text) for text in level) for level in exact)
    measured = tuple(parse_query(SCHEMA, text) for text in QUERIES)
    tables = tuple(parse_query(SCHEMA, text) for text in TABLES)
    model = SpineModel(tree, measured, known, tables)
    return AllocationProblem(model, Neighbors.BOUNDED, Information.TREE)


def aim_of(name: str, one: AllocationProblem) -> Objective:
    """A sum, or a sum or the largest within limits that the sum misses."""
    scale = np.random.default_rng(8).uniform(0.2, 2, (3, 4))
    if name == "sum":
        return Objective(scale, is_sum=True)
    free = one.errors(find_shares(one, Objective(scale, is_sum=True), even(one)).shares)
    limits = np.full((3, 4), np.inf)
    limits[0, 1], limits[2, 0] = 0.5 * free[0, 1], 0.9 * free[2, 0]
    return Objective(scale, is_sum=name == "sum within limits", limits=limits)


@pytest.mark.parametrize("name", ["sum", "sum within limits", "largest within limits"])
def test_a_smaller_tree_finds_what_the_whole_tree_does(monkeypatch, name):
    one = problem(many(1))
    aim = aim_of(name, one)
    whole = find_shares(one, aim, even(one))
    monkeypatch.setattr(das.tree.search, "_MANY_CLASSES", 0)
    found = find_shares(one, aim, even(one))
    assert coarse_classes(one.model.tree).n_classes < one.model.tree.n_classes
    goal, over = aim.ratios(one.errors(found.shares))
    assert found.value == pytest.approx(goal.max(), rel=1e-12)  # judged on the whole tree
    assert over.max() <= 1 + 1e-3
    assert found.shares.sum() == pytest.approx(1)
    assert found.value <= whole.value * (1 + 1e-3)
    assert found.bound <= found.value <= 1.02 * found.bound
    random = np.random.default_rng(3)
    for _ in range(100):
        other = found.shares * random.uniform(0.5, 2, found.shares.shape)
        goal, over = aim.ratios(one.errors(other / other.sum()))
        assert goal.max() >= found.bound or over.max() > 1


def test_what_invariants_give_counts_for_nothing(monkeypatch):
    monkeypatch.setattr(das.tree.search, "_MANY_CLASSES", 0)
    one = problem(many(2), (("total",), (), (), ()))
    found = find_shares(one, Objective(np.ones((3, 4)), limits=np.full((3, 4), 1e6)), even(one))
    assert one.errors(found.shares)[0, 0] == 0
    assert found.bound <= found.value <= 1.02 * found.bound


def test_limits_out_of_reach_are_refused(monkeypatch):
    monkeypatch.setattr(das.tree.search, "_MANY_CLASSES", 0)
    one = problem(many(1))
    with pytest.raises(BudgetError, match="cannot be met together"):
        find_shares(one, Objective(np.ones((3, 4)), limits=np.full((3, 4), 1e-6)), even(one))


@pytest.mark.parametrize("seed", range(5))
def test_a_smaller_tree_is_a_tree(seed):
    tree = many(seed)
    small = coarse_classes(tree, 0.5)
    assert small.n_classes < tree.n_classes
    assert small.geounits[-1] == 1
    assert small.level_sizes()[:2].tolist() == tree.level_sizes()[:2].tolist()
    assert small.level_sizes()[-1] == pytest.approx(tree.level_sizes()[-1], rel=0.3)
    counted = np.zeros(small.n_classes, np.int64)
    np.add.at(counted, small.child, small.geounits[small.parent] * small.number)
    assert counted[:-1].tolist() == small.geounits[:-1].tolist()  # each is a child of its parents
    assert (small.child < small.parent).all()
    assert (np.diff(small.parent) >= 0).all()
    bounds = [bound for chain in small.chains for bound in (chain.start, chain.stop)]
    assert bounds[0] == 0
    assert bounds[1:-1:2] == bounds[2::2]
    assert bounds[-1] == small.n_classes


def test_a_tree_of_classes_that_are_far_apart_stays():
    tree = many(0)
    same = coarse_classes(tree, 1e-9)
    assert same.geounits.tolist() == tree.geounits.tolist()
    assert np.stack([same.parent, same.child, same.number]).tolist() == (
        np.stack([tree.parent, tree.child, tree.number]).tolist()
    )
    assert same.chains == tree.chains
