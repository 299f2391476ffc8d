"""The ledger that measuring will produce: every cost of every chain, known before a draw."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from das.privacy.ledger import Ledger, LedgerEntry
from das.privacy.semantics import touched_attributes
from geography.lattice import Lattice
from jobs.pipeline.plan import Plan


def planned_ledger(plan: Plan, lattice: Lattice) -> Ledger:
    """The ledger that measuring this lattice will produce; checked against the budget.

    Raises:
      LedgerError: A path of the tree would not spend exactly the budget.
      BudgetError: A planned strategy costs more than its share.
    """
    geounits: dict[tuple[int, int], int] = {}
    for level in range(len(plan.spine.levels)):
        measured = ~lattice.is_only_child[level]
        ends, sizes = np.unique(lattice.chain_end[level][measured], return_counts=True)
        geounits |= {(level, int(end)): int(size) for end, size in zip(ends, sizes, strict=True)}
    return _ledger(plan, geounits)


def ordinary_ledger(plan: Plan) -> Ledger:
    """The ledger of one path of geounits none of which is an only child.

    Raises:
      LedgerError: The path would not spend exactly the budget.
      BudgetError: A planned strategy costs more than its share.
    """
    return _ledger(plan, {(level, level): 1 for level in range(len(plan.spine.levels))})


def _ledger(plan: Plan, geounits: Mapping[tuple[int, int], int]) -> Ledger:
    """Entries of every chain that occurs, given the number of its geounits."""
    names = plan.spine.levels
    attributes = [attribute.name for attribute in plan.schema.attributes]
    strategy = plan.strategy
    for level in range(len(strategy.levels)):
        for _, part in strategy.parts(level):
            part.check_joint_cost(plan.budget.neighbors)
    entries = [
        LedgerEntry(
            names[first],
            names[last],
            noisy.query.name,
            touched_attributes(noisy.query, attributes),
            noisy.mechanism,
            noisy.cost,
            number,
            noisy.stratum,
        )
        for (first, last), number in geounits.items()
        for noisy in plan.noise(first, last)
    ]
    strata = tuple(stratum.name for stratum in strategy.strata)
    ledger = Ledger(names, plan.budget.total, strata=strata).append(entries)
    ledger.seal()
    return ledger
