"""Implied constraints against all dealings spelled out, a plain network, and the published program."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from invariants.implied import (
    can_be_assigned,
    cut_by_flow,
    lower_bounds,
    most_violated,
    upper_bounds,
)
from invariants.leaves import Leaves, empty_rows, tighten
from tests.builders.leaves import one_owner
from tests.unit.invariants.implied_program import cut_by_program

MOST = 6  # persons of a type in the counts tried


def all_dealings(leaves: Leaves) -> set[tuple[int, ...]]:
    """Every sum of counts that fit the rows."""
    sums = {(0,) * leaves.n_types}
    for row in range(leaves.n_rows):
        ranges = [
            range(low, high + 1)
            for low, high in zip(leaves.least[row], leaves.most[row], strict=True)
        ]
        fits = [
            one
            for one in itertools.product(*ranges)
            if leaves.low[row] <= sum(one) <= leaves.high[row]
        ]
        sums = {tuple(np.add(a, b).tolist()) for a in sums for b in fits}
    return sums


def random_leaves(rng: np.random.Generator) -> Leaves:
    """1 to 4 rows that fit something, of 1 to 3 types; mosts that bind, and mosts that do not."""
    while True:
        R, t = rng.integers(1, 5), rng.integers(1, 4)
        least = rng.integers(0, 2, (R, t))
        most = least + rng.integers(0, 4, (R, t)) * rng.integers(0, 2, (R, t))
        low = rng.integers(0, 4, R)
        high = low + rng.integers(0, 3, R)
        if rng.random() < 0.3:  # totals that only follow
            low, high = least.sum(1), most.sum(1)
        leaves = Leaves(least, most, low, high)
        kept = np.flatnonzero(~empty_rows(leaves))
        if len(kept):
            return leaves.rows(kept)


def largest_miss(leaves: Leaves, counts: np.ndarray) -> float:
    """Over all sets of types, by the formulas."""
    sets = np.array(list(itertools.product([False, True], repeat=leaves.n_types)))
    below = lower_bounds(leaves, sets) - sets @ counts
    above = sets @ counts - upper_bounds(leaves, sets)
    return float(max(0, below.max(), above.max()))


def test_counts_can_be_assigned_iff_a_dealing_exists():
    for seed in range(30):
        leaves = random_leaves(np.random.default_rng(seed))
        dealings, summed = all_dealings(leaves), one_owner(leaves)
        for counts in itertools.product(range(MOST), repeat=leaves.n_types):
            exists = counts in dealings
            assert can_be_assigned(leaves, np.array(counts)) is exists
            assert can_be_assigned(summed, np.array(counts)) is exists
            assert (largest_miss(tighten(leaves), np.array(counts)) == 0) is exists


def test_three_separations_find_the_same_violation():
    for seed in range(30):
        rng = np.random.default_rng(1000 + seed)
        leaves = random_leaves(rng)
        for _ in range(5):
            counts = rng.integers(0, 40, leaves.n_types) / 4
            miss = largest_miss(tighten(leaves), counts)
            assert most_violated(leaves, counts, cut_by_flow).violation == pytest.approx(miss)
            assert most_violated(leaves, counts, cut_by_program).violation == pytest.approx(miss)


def deals_by_network(leaves: Leaves, counts: np.ndarray) -> bool:
    """Feasibility as a circulation with lower bounds, in networkx."""
    graph = nx.DiGraph()
    supply: dict[object, int] = {}

    def arc(tail: object, head: object, low: int, high: int) -> None:
        graph.add_edge(tail, head, capacity=high - low)
        supply[head] = supply.get(head, 0) + low
        supply[tail] = supply.get(tail, 0) - low

    for i, persons in enumerate(counts):
        arc("in", ("type", i), int(persons), int(persons))
        for row in range(leaves.n_rows):
            arc(("type", i), ("row", row), int(leaves.least[row, i]), int(leaves.most[row, i]))
    for row in range(leaves.n_rows):
        arc(("row", row), "out", int(leaves.low[row]), int(leaves.high[row]))
    graph.add_edge("out", "in", capacity=10**6)
    needed = 0
    for name, persons in supply.items():
        if persons > 0:
            graph.add_edge("source", name, capacity=persons)
            needed += persons
        elif persons < 0:
            graph.add_edge(name, "sink", capacity=-persons)
    if not needed:
        return True
    if "sink" not in graph:
        return False
    return nx.maximum_flow_value(graph, "source", "sink") == needed


def group_quarters(rng: np.random.Generator) -> tuple[Leaves, np.ndarray]:
    """Blocks of exact totals, and counts with the right total that may not be dealt."""
    n, t = int(rng.integers(2, 7)), int(rng.integers(2, 6))
    facilities = rng.integers(0, 3, (n, t)) * (rng.random((n, t)) < 0.5)
    facilities[facilities.sum(1) == 0, 0] = 1
    totals = facilities.sum(1) + rng.integers(0, 30, n)
    counts = np.bincount(rng.integers(0, t, totals.sum()), minlength=t)
    return Leaves(facilities, facilities * 99_999, totals, totals), counts


def test_a_plain_network_agrees():
    for seed in range(100):
        leaves, counts = group_quarters(np.random.default_rng(seed))
        dealt = deals_by_network(leaves, counts)
        assert can_be_assigned(leaves, counts) is dealt
        assert can_be_assigned(one_owner(leaves), counts) is dealt


def test_the_instances_are_of_both_kinds():
    kinds = [can_be_assigned(*group_quarters(np.random.default_rng(seed))) for seed in range(100)]
    assert 5 <= sum(kinds) <= 95


def published_program(leaves: Leaves, counts: np.ndarray) -> float:
    """Optimum of (16)-(18) of Leclerc: min s'b - sum_R [T b_R + (1 - b_R) sum_P(R) f b].

    For every pattern b_R <= mean of b over its types; the product b_R b_i is made linear.
    """
    R, t = leaves.n_rows, leaves.n_types
    f, totals = leaves.least, leaves.low
    n = t + R + R * t
    cost = np.zeros(n)
    cost[:t] = counts - f.sum(0)
    cost[t : t + R] = -totals
    cost[t + R :] = f.ravel()
    rows, high = [], []
    for r in range(R):
        types = np.flatnonzero(f[r])
        row = np.zeros(n)
        row[t + r], row[types] = 1, -1 / len(types)
        rows.append(row)
        high.append(0)
        for i in types:
            row = np.zeros(n)
            row[t + r], row[i], row[t + R + r * t + i] = 1, 1, -1
            rows.append(row)
            high.append(1)
    integrality = np.concatenate((np.ones(t + R), np.zeros(R * t)))
    found = milp(
        cost,
        integrality=integrality,
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(np.array(rows), -np.inf, high),
    )
    return float(found.fun)


def test_the_published_program_finds_the_same_lower_violation():
    for seed in range(40):
        leaves, counts = group_quarters(np.random.default_rng(2000 + seed))
        sets = np.array(list(itertools.product([False, True], repeat=leaves.n_types)))
        miss = (lower_bounds(tighten(leaves), sets) - sets @ counts).max()
        assert -published_program(leaves, counts) == pytest.approx(miss, abs=1e-6)
