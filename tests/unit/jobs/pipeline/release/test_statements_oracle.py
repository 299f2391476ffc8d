"""Budgets and published statements against every pair of neighbors on small trees."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from das.definition import Definition
from das.privacy.budget import Budget
from das.privacy.semantics import Change
from das.queries.query import parse_query
from das.queries.sensitivity import Neighbors
from das.schema import Attribute, Schema
from das.strategy import LevelStrategy, QueryShare, strategy_for
from das.workload.choices import Method
from geography.lattice import Lattice, Spine
from jobs.pipeline.config.models.allocation import WorkloadConfig
from jobs.pipeline.config.workload import BudgetKind, plan_shares
from jobs.pipeline.plan import Plan, Solving, planned_ledger
from jobs.pipeline.release.statements import privacy_statements

SPINE = Spine(("nation", "county", "block"), (0, 1, 2))
TREES = (
    ("aa", "ab", "ba", "bb", "bc"),
    ("aa", "ba", "bb"),  # county a has one block: a chain
    ("aa",),
)
DELTA = Fraction(1, 10**10)
SIZE = 3  # persons of a household
ROUNDING = 1e-9  # of the sums in floats below


@st.composite
def levels(draw, schema: Schema, kind: BudgetKind):
    """A planned or a listed geolevel; listed ones with negative entries too."""
    names = [attribute.name for attribute in schema.attributes]
    if kind.definition is Definition.ZCDP and draw(st.booleans()):
        method = draw(st.sampled_from([each.value for each in Method]))
        weights = st.sampled_from(["0", "1", "40"])
        tables = {"detailed": "1", "total": draw(weights)}
        if len(names) > 1:
            tables[names[0]] = draw(weights)
        bases = {}
        if method != "residual_planner":
            kinds = ["identity", "prefix", "ranges"]
            bases = {
                name: draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=2, unique=True))
                for name in names
            }
        wanted = {"method": method, "tables": tables, "bases": bases}
        return plan_shares(schema, WorkloadConfig.model_validate(wanted), kind)
    texts = ["detailed", "total", names[-1], f"residual({names[0]})", f"contrasts({names[0]})"]
    chosen = ["detailed", *draw(st.lists(st.sampled_from(texts[1:]), unique=True))]
    queries = {q.name: q for q in (parse_query(schema, text) for text in chosen)}
    parts = [draw(st.integers(1, 8)) for _ in queries]
    return tuple(
        QueryShare(query, Fraction(part, sum(parts)))
        for query, part in zip(queries.values(), parts, strict=True)
    )


@st.composite
def plans(draw):
    sizes = draw(st.lists(st.integers(2, 3), min_size=1, max_size=2))
    schema = Schema("s", tuple(Attribute(f"a{i}", tuple("xyz"[:n])) for i, n in enumerate(sizes)))
    definition = draw(st.sampled_from([Definition.ZCDP, Definition.ZCDP, Definition.PURE]))
    neighbors = draw(st.sampled_from(list(Neighbors)))
    kind = BudgetKind(definition, neighbors)
    strategy = strategy_for(
        [
            LevelStrategy(name, share, draw(levels(schema, kind)))
            for name, share in zip(SPINE.levels, map(Fraction, ("1/6", "1/3", "1/2")), strict=True)
        ],
        SPINE.levels,
    )
    budget = Budget(Fraction(5, 3), DELTA, neighbors, definition)
    plan = Plan(schema, SPINE, strategy, budget, (), (), Solving(), False, "d", household_size=SIZE)
    return plan, Lattice.from_leaves(SPINE, list(draw(st.sampled_from(TREES))))


def measured_geounits(lattice: Lattice) -> list[list[tuple[int, int, int]]]:
    """Per leaf the measured geounits above it: (geolevel, position, last geolevel of the chain)."""
    paths = []
    for leaf in range(len(lattice.codes[-1])):
        path = [leaf]
        for level in range(2, 0, -1):
            path.insert(0, int(lattice.parents[level][path[0]]))
        only = [
            level > 0 and (lattice.parents[level] == path[level - 1]).sum() == 1
            for level in range(3)
        ]
        starts = [level for level in range(3) if not only[level]]
        ends = [*(start - 1 for start in starts[1:]), 2]
        paths.append([(s, path[s], e) for s, e in zip(starts, ends, strict=True)])
    return paths


def costs_of(plan: Plan, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    """Cost of adding cell j to one geounit, and of changing j to k in it."""
    cells = np.arange(plan.schema.size)
    add, change = np.zeros(len(cells)), np.zeros((len(cells), len(cells)))
    for noisy in plan.noise(first, last):
        columns = noisy.query.columns(cells).astype(float)
        apart = columns[:, :, None] - columns[:, None, :]
        if plan.budget.definition is Definition.PURE:
            weight, sizes, steps = 1, abs(columns), abs(apart)
        else:
            weight, sizes, steps = Fraction(1, 2), columns**2, apart**2
        scale = float(weight / noisy.mechanism.parameter)
        add += scale * sizes.sum(0)
        change += scale * steps.sum(0)
    return add, change


@given(plans())
def test_no_pair_of_neighbors_costs_more_than_is_said(drawn):
    plan, lattice = drawn
    ledger = planned_ledger(plan, lattice)
    said = {
        (str(row.change), row.name): float(Fraction(row.total or "0")) * (1 + ROUNDING)
        for row in privacy_statements(plan, ledger, "public list")
    }
    paths = measured_geounits(lattice)
    known = {(f, e): costs_of(plan, f, e) for path in paths for f, _, e in path}
    n = plan.schema.size
    levels_of = np.array(np.unravel_index(np.arange(n), [a.size for a in plan.schema.attributes]))
    granted = float(plan.budget.total) * (1 + ROUNDING)
    for path in paths:
        added = sum(known[first, end][0] for first, _, end in path)
        if plan.budget.neighbors is Neighbors.UNBOUNDED:
            assert added.max() <= granted
    for one, other in itertools.product(range(len(paths)), repeat=2):
        shared = set(paths[one]) & set(paths[other])
        cost = np.zeros((n, n))
        for geounit in paths[one]:
            add, change = known[geounit[0], geounit[2]]
            cost += change if geounit in shared else add[:, None]
        for geounit in paths[other]:
            if geounit not in shared:
                cost += known[geounit[0], geounit[2]][0][None, :]
        assert cost.max() <= said["record", ""]
        if plan.budget.neighbors is Neighbors.BOUNDED:
            assert cost.max() <= granted
        if one == other:
            for axis, attribute in enumerate(plan.schema.attributes):
                rest = np.delete(levels_of, axis, axis=0)
                alone = (rest[:, :, None] == rest[:, None, :]).all(axis=0)
                assert cost[alone].max() <= said["attribute", attribute.name]
        for level, name in enumerate(SPINE.levels[:-1]):
            codes = [lattice.codes[2][leaf][:level] for leaf in (one, other)]
            if codes[0] == codes[1]:
                assert cost.diagonal().max() <= said["within", name]


@settings(max_examples=8, deadline=None)
@given(plans())
def test_a_household_costs_what_is_said(drawn):
    """Every household of at most SIZE persons before, every one after, in every two leaves."""
    plan, lattice = drawn
    said = {row.change: row for row in privacy_statements(plan, planned_ledger(plan, lattice))}
    is_pure, n = plan.budget.definition.is_pure, plan.schema.size
    households = np.array(
        [
            np.bincount(np.array(cells, np.int64), minlength=n)
            for persons in range(SIZE + 1)
            for cells in itertools.combinations_with_replacement(range(n), persons)
        ]
    )
    persons = households.sum(axis=1)
    sizes = np.maximum(persons[:, None], persons)
    if plan.budget.neighbors is Neighbors.BOUNDED:  # the number of records stays the same
        sizes[persons[:, None] != persons] = SIZE + 1
    worst = {1: 0.0, SIZE: 0.0}
    for one, other in itertools.combinations_with_replacement(measured_geounits(lattice), 2):
        cost = np.zeros(sizes.shape)
        for geounit in {*one, *other}:
            first, _, last = geounit
            for noisy in plan.noise(first, last):
                answers = households @ noisy.query.columns(np.arange(n)).T.astype(float)
                before, after = answers * (geounit in one), answers * (geounit in other)
                apart = before[:, None] - after
                loss = abs(apart) if is_pure else apart**2 / 2
                cost += loss.sum(axis=2) / float(noisy.mechanism.parameter)
        worst = {size: max(cost[sizes <= size].max(), most) for size, most in worst.items()}
    factor = SIZE if is_pure else SIZE**2
    assert worst[SIZE] == pytest.approx(factor * worst[1])
    assert worst[SIZE] <= float(Fraction(said[Change.HOUSEHOLD].total)) * (1 + ROUNDING)
    assert Fraction(said[Change.HOUSEHOLD].total) == factor * Fraction(said[Change.RECORD].total)
