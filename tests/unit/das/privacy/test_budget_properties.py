"""Every root-to-leaf path of every lattice spends exactly rho, and the ledger notices when not."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from das.errors import LedgerError
from das.privacy.ledger import Ledger
from das.queries.sensitivity import l2_sensitivity_sq
from das.strategy import noisy_queries
from geography.lattice import Lattice
from jobs.pipeline.plan import Plan, planned_ledger
from tests.builders.strategies import budgets, schemas, strategies_for, trees


@st.composite
def plans(draw) -> tuple[Plan, Lattice]:
    spine, leaves = draw(trees())
    schema = draw(schemas(most_attributes=2, most_levels=3))
    plan = Plan(
        schema,
        spine,
        draw(strategies_for(schema, spine)),
        draw(budgets()),
        (),
        (),
        1e-7,
        False,
        "",
    )
    return plan, Lattice.from_leaves(spine, leaves)


def path_cost(plan: Plan, lattice: Lattice, leaf: bytes) -> Fraction:
    """Walk from the root to a leaf and pay for each geounit that is not an only child."""
    spent = Fraction(0)
    for level, digits in enumerate(plan.spine.digits):
        code = leaf[:digits] or b"0"
        row = list(lattice.codes[level]).index(code)
        if lattice.is_only_child[level][row]:
            continue
        end = int(lattice.chain_end[level][row])
        spent += sum(noisy.cost for noisy in noisy_queries(plan.strategy, plan.budget, level, end))
    return spent


@given(plans())
def test_every_path_of_a_lattice_spends_exactly_rho(drawn):
    plan, lattice = drawn
    for leaf in lattice.codes[-1]:
        assert path_cost(plan, lattice, leaf) == plan.budget.total


@given(plans())
def test_the_noise_of_every_query_costs_what_the_ledger_says(drawn):
    plan, lattice = drawn
    for entry in planned_ledger(plan, lattice).entries:
        level = plan.spine.levels.index(entry.geolevel)
        (query,) = [
            share.query
            for share in plan.strategy.levels[level].queries
            if share.query.name == entry.query
        ]
        sensitivity_sq = l2_sensitivity_sq(query, plan.budget.neighbors)
        assert entry.cost == Fraction(sensitivity_sq) / (2 * entry.mechanism.sigma_sq)


@given(plans())
def test_the_planned_ledger_counts_every_measured_geounit(drawn):
    plan, lattice = drawn
    ledger = planned_ledger(plan, lattice)
    for level, name in enumerate(plan.spine.levels):
        measured = int((~lattice.is_only_child[level]).sum())
        for share in plan.strategy.levels[level].queries:
            entries = [
                e for e in ledger.entries if (e.geolevel, e.query) == (name, share.query.name)
            ]
            assert sum(e.geounits for e in entries) == measured


@given(plans(), st.data())
def test_a_lost_or_doubled_or_changed_entry_is_not_finalized(drawn, data):
    plan, lattice = drawn
    entries = planned_ledger(plan, lattice).entries
    index = data.draw(st.integers(0, len(entries) - 1))
    chosen = entries[index]
    others = entries[:index] + entries[index + 1 :]
    dearer = replace(chosen, cost=chosen.cost + Fraction(1, 10**30))
    chain_is_left = any(
        (e.geolevel, e.chain_end) == (chosen.geolevel, chosen.chain_end) for e in others
    )
    tampered = [(*entries, chosen), (*others, dearer)]
    if chain_is_left or not _has_other_path(plan, others):
        tampered.append(others)
    for forged in tampered:
        with pytest.raises(LedgerError):
            Ledger(plan.spine.levels, plan.budget.total, forged).finalize()


def _has_other_path(plan: Plan, entries) -> bool:
    try:
        Ledger(plan.spine.levels, plan.budget.total, entries).path_costs()
    except LedgerError:
        return False
    return True


@given(plans(), st.data())
def test_a_missing_geolevel_is_not_finalized(drawn, data):
    plan, lattice = drawn
    name = data.draw(st.sampled_from(plan.spine.levels))
    position = plan.spine.levels.index(name)
    entries = [
        e
        for e in planned_ledger(plan, lattice).entries
        if not (
            plan.spine.levels.index(e.geolevel) <= position <= plan.spine.levels.index(e.chain_end)
        )
    ]
    with pytest.raises(LedgerError, match="does not cover every geolevel"):
        Ledger(plan.spine.levels, plan.budget.total).append(entries).finalize()
