"""What every pair of neighbors costs where strata have queries of their own, by brute force.

The cost of a pair is summed over all answers of all geounits that differ: distance^2 / (2 sigma^2)
in zCDP, distance / scale under pure privacy. Nothing but the noise of a query comes from the
package.
"""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import numpy as np
import pytest

from das.change_costs import Chain, change_costs
from das.definition import Definition
from das.errors import DasError
from das.mechanisms.gaussian import DiscreteGaussian
from das.privacy.budget import Budget
from das.privacy.ledger import Ledger, LedgerEntry
from das.privacy.semantics import Change, statements
from das.queries.query import Group, groups_of, parse_query, restricted
from das.queries.sensitivity import Neighbors
from das.strategy import LevelStrategy, QueryShare, Strategy, Stratum
from jobs.pipeline.config.models.allocation import WorkloadConfig
from jobs.pipeline.config.workload import BudgetKind, plan_group_shares, plan_shares
from tests.evidence.privacy.tiny_tree import (
    ONLY_CHILD,
    SCHEMA,
    TWO_BLOCKS,
    Tree,
    neighbors_of,
    planned,
    strategy,
)

RHO = Fraction(7, 3)
EVERYBODY = [("1/8", {"detailed": "1"}), ("3/8", {"sex": "1/3", "detailed": "2/3"})]
BY_SEX = {
    "sex=f": [("1/4", {"total": "1/4", "age": "3/4"}), ("1/4", {"age": "1"})],
    "sex=m": [("1/2", {"age": "1"})],
}
BY_AGE = {
    "age=0": [("1/2", {"total": "1"})],
    "age=1": [("1/8", {"sex": "1"}), ("3/8", {"sex": "1"})],
    "age=2": [("1/3", {"sex": "1/2", "total": "1/2"}), ("1/6", {"total": "1"})],
}
BY_BOTH = {group.name: [("1/2", {"total": "1"})] for group in groups_of(
    SCHEMA, parse_query(SCHEMA, "detailed")
)}  # fmt: skip
PLANS: dict[str, tuple[Tree, Strategy]] = {
    "two strata": (TWO_BLOCKS, strategy(EVERYBODY, BY_SEX)),
    "three strata": (TWO_BLOCKS, strategy(EVERYBODY, BY_AGE)),
    "every cell a stratum": (TWO_BLOCKS, strategy(EVERYBODY, BY_BOTH)),
    "an only child": (
        ONLY_CHILD,
        strategy([*EVERYBODY[:1], ("1/8", {"detailed": "1"}), ("1/4", {"detailed": "1"})], BY_AGE),
    ),
}
each_plan = pytest.mark.parametrize("plan", PLANS)
each_relation = pytest.mark.parametrize("relation", list(Neighbors))


def budget(relation, definition=Definition.ZCDP) -> Budget:
    return Budget(RHO, Fraction(1, 10**10), relation, definition)


def cost_of(measurements, one, other) -> Fraction:
    """What all measurements cost for a pair of data sets, int64[leaves, cells] each."""
    cost = Fraction(0)
    for noisy, leaves in measurements:
        moved = (other - one)[list(leaves)].sum(0)
        distances = noisy.query.columns(np.arange(SCHEMA.size)) @ moved
        if isinstance(noisy.mechanism, DiscreteGaussian):
            cost += Fraction(int(distances @ distances)) / (2 * noisy.mechanism.sigma_sq)
        else:
            cost += int(abs(distances).sum()) / noisy.mechanism.scale
    return cost


def test_no_pair_of_neighbors_costs_more_than_rho_and_some_cost_it():
    for plan, relation, definition in itertools.product(PLANS, list(Neighbors), list(Definition)):
        tree, levels = PLANS[plan]
        measurements = planned(tree, levels, budget(relation, definition))
        costs = [cost_of(measurements, *pair) for pair in neighbors_of(tree, relation)]
        assert max(costs) == RHO


@each_plan
def test_an_added_record_costs_rho_wherever_it_is(plan):
    """Equality for every cell and leaf, so no stratum and no path spends less."""
    tree, levels = PLANS[plan]
    measurements = planned(tree, levels, budget(Neighbors.UNBOUNDED))
    pairs = neighbors_of(tree, Neighbors.UNBOUNDED)
    assert {cost_of(measurements, *pair) for pair in pairs} == {RHO}


def test_a_move_between_strata_costs_half_in_each():
    """The strata spend 1/2 each, so a change into the other costs what one within costs."""
    tree, levels = PLANS["two strata"]
    measurements = planned(tree, levels, budget(Neighbors.BOUNDED))
    own = [(noisy, leaves) for noisy, leaves in measurements if noisy.stratum]
    base = np.zeros((2, SCHEMA.size), np.int64)
    found = set()
    for (leaf, cell), (other_leaf, other_cell) in itertools.product(
        itertools.product((0, 1), (0, 1, 2)), itertools.product((0, 1), (3, 4, 5))
    ):
        one, other = base.copy(), base.copy()
        one[leaf, cell] = other[other_leaf, other_cell] = 1
        found.add(cost_of(own, one, other))
    assert found == {RHO / 2}


def check_statements(tree: Tree, levels: Strategy, granted: Budget) -> tuple[Fraction, Fraction]:
    """Compare all changed records with what is stated; the budget may be for added ones.

    Returns:
      The worst cost of a changed record, and the stated one.
    """
    measurements = planned(tree, levels, granted)
    names = [f"level{index}" for index in range(tree.n_levels)]
    chains = dict.fromkeys((first, last) for first, last, _ in tree.measured)
    changed = [
        costs
        for first, last in chains
        for costs in change_costs(
            levels, granted, ["sex", "age"], Chain(first, last, (names[first], names[last]))
        )
    ]
    stated = {
        (row.change, row.name): row.cost for row in statements(names, ["sex", "age"], changed)
    }
    worst: dict[tuple[Change, str], Fraction] = {}
    for one, other in neighbors_of(tree, Neighbors.BOUNDED):
        (leaf, cell), (other_leaf, other_cell) = (
            tuple(np.argwhere(a > b)[0].tolist()) for a, b in ((one, other), (other, one))
        )
        cost = cost_of(measurements, one, other)
        kinds = [(Change.RECORD, "")]
        differ = [
            name
            for name, codes in SCHEMA.codes_of(np.array([cell, other_cell])).items()
            if codes[0] != codes[1]
        ]
        if leaf == other_leaf and len(differ) == 1:
            kinds.append((Change.ATTRIBUTE, differ[0]))
        if not differ:
            kinds.append((Change.WITHIN, names[0]))
        for kind in kinds:
            worst[kind] = max(worst.get(kind, Fraction(0)), cost)
    assert len(worst) == 4
    assert all(cost <= stated[kind] for kind, cost in worst.items())
    return worst[Change.RECORD, ""], stated[Change.RECORD, ""]


def test_statements_bound_every_change_of_one_attribute_and_every_move():
    for plan, relation in itertools.product(PLANS, list(Neighbors)):
        worst, stated = check_statements(*PLANS[plan], budget(relation))
        factor = 2 if relation is Neighbors.UNBOUNDED else 1
        assert worst == stated == factor * RHO


def planned_by_sex(relation, method) -> Strategy:
    """Women and men planned apart, so that the queries of each are charged together."""
    kind = BudgetKind(Definition.ZCDP, relation)
    tables = {"women": {"total": "1", "age": "3"}, "men": {"age": "1"}}
    groups = groups_of(SCHEMA, parse_query(SCHEMA, "sex"))
    strata = []
    for group, wanted in zip(groups, tables.values(), strict=True):
        workload = WorkloadConfig.model_validate({"method": method, "tables": wanted})
        shares = plan_group_shares(SCHEMA, group, workload, kind)
        half = tuple(LevelStrategy(f"level{i}", Fraction(1, 4), shares) for i in range(2))
        strata.append(Stratum(group, half))
    return Strategy(strategy(EVERYBODY, BY_SEX).levels, strata=tuple(strata))


@each_relation
@pytest.mark.parametrize("method", ["orp", "residual_planner", "hdmm"])
def test_planned_strata_cost_no_more_than_is_stated(relation, method):
    levels, granted = planned_by_sex(relation, method), budget(relation)
    for _, part in levels.parts(0):
        part.check_joint_cost(relation)
    measurements = planned(TWO_BLOCKS, levels, granted)
    costs = [cost_of(measurements, *pair) for pair in neighbors_of(TWO_BLOCKS, relation)]
    assert Fraction(97, 100) * RHO < max(costs) <= RHO
    names = ["level0", "level1"]
    changed = [
        one
        for index, name in enumerate(names)
        for one in change_costs(levels, granted, ["sex", "age"], Chain(index, index, (name, name)))
    ]
    stated = {
        (row.change, row.name): row.cost for row in statements(names, ["sex", "age"], changed)
    }
    for one, other in neighbors_of(TWO_BLOCKS, Neighbors.BOUNDED):
        cost = cost_of(measurements, one, other)
        assert cost <= stated[Change.RECORD, ""]
        (leaf, cell), (other_leaf, other_cell) = (
            tuple(np.argwhere(a > b)[0].tolist()) for a, b in ((one, other), (other, one))
        )
        if leaf == other_leaf and abs(cell - other_cell) == SCHEMA.shape[1]:
            assert cost <= stated[Change.ATTRIBUTE, "sex"]


def split(rng: random.Random, n: int, total: Fraction) -> list[Fraction]:
    weights = [rng.randint(1, 9) for _ in range(n)]
    return [total * weight / sum(weights) for weight in weights]


def random_shares(
    rng: random.Random, kind: BudgetKind, group: Group | None
) -> tuple[QueryShare, ...]:
    """Queries for everybody or of a stratum: given, or planned for a workload."""
    detailed = ["detailed"] if group is None else []
    if kind.definition is Definition.ZCDP and rng.random() < 0.5:
        texts = rng.sample(["total", "age", "sex"], 2) + detailed
        methods = ["orp", "residual_planner", "residual_planner_plus", "hdmm", "auto"]
        wanted = {
            "method": rng.choice(methods),
            "tables": {text: str(rng.randint(1, 5)) for text in texts},
        }
        if wanted["method"] != "residual_planner" and rng.random() < 0.5:
            wanted["bases"] = {"age": rng.choice([["prefix"], ["ranges"], ["identity", "prefix"]])}
        workload = WorkloadConfig.model_validate(wanted)
        if group is None:
            return plan_shares(SCHEMA, workload, kind)
        return plan_group_shares(SCHEMA, group, workload, kind)
    texts = rng.sample(["total", "age", "sex"], rng.choice((1, 2))) + detailed
    queries = [parse_query(SCHEMA, text) for text in texts]
    if group is not None:
        queries = [restricted(query, group) for query in queries]
    shares = split(rng, len(queries), Fraction(1))
    return tuple(QueryShare(*each) for each in zip(queries, shares, strict=True))


def random_strategy(rng: random.Random, n_levels: int, kind: BudgetKind) -> Strategy:
    everybody = Fraction(rng.randint(1, 9), 10)

    def levels(shares: list[Fraction], group: Group | None = None) -> tuple[LevelStrategy, ...]:
        return tuple(
            LevelStrategy(f"level{i}", share, random_shares(rng, kind, group))
            for i, share in enumerate(shares)
        )

    by = parse_query(SCHEMA, rng.choice(["sex", "age", "detailed"]))
    strata = tuple(
        Stratum(group, levels(split(rng, rng.randint(1, n_levels), 1 - everybody), group))
        for group in groups_of(SCHEMA, by)
    )
    return Strategy(levels(split(rng, n_levels, everybody)), strata=strata)


@each_relation
@pytest.mark.parametrize("definition", list(Definition))
def test_random_strategies_cost_no_more_than_is_granted_and_stated(definition, relation):
    """Some are refused: no integer scales, or more than the budget; half of all must be left."""
    measured, kind, granted = 0, BudgetKind(definition, relation), budget(relation, definition)
    for seed in range(5):
        rng = random.Random(f"{definition} {relation} {seed}")
        tree = rng.choice([TWO_BLOCKS, ONLY_CHILD])
        try:
            levels = random_strategy(rng, tree.n_levels, kind)
            for level in range(tree.n_levels):
                for _, part in levels.parts(level):
                    part.check_joint_cost(relation)
            measurements = planned(tree, levels, granted)
        except DasError:
            continue
        costs = [cost_of(measurements, *pair) for pair in neighbors_of(tree, relation)]
        assert max(costs) <= RHO, seed
        check_statements(tree, levels, granted)
        measured += 1
    assert measured >= 3


@each_plan
def test_the_ledger_of_a_tree_is_finalized_for_every_stratum(plan):
    tree, levels = PLANS[plan]
    names = tuple(f"level{index}" for index in range(tree.n_levels))
    entries, seen = [], set()
    for first, last, leaves in tree.measured:
        if (first, last) in seen:
            continue
        seen.add((first, last))
        some = Tree(tree.n_levels, tree.n_leaves, ((first, last, leaves),))
        entries += [
            LedgerEntry(
                names[first],
                names[last],
                noisy.query.name,
                (),
                noisy.mechanism,
                noisy.cost,
                1,
                noisy.stratum,
            )
            for noisy, _ in planned(some, levels, budget(Neighbors.BOUNDED))
        ]
    strata = tuple(stratum.name for stratum in levels.strata)
    ledger = Ledger(names, RHO, strata=strata).append(entries)
    ledger.finalize()
    for stratum in strata:
        assert ledger.path_costs(stratum) == (RHO, RHO)
