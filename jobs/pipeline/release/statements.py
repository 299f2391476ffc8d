"""State the privacy guarantee and the exact queries of a plan as parts of documents.

Reads no files.
"""

from __future__ import annotations

from collections.abc import Sequence

from das.privacy import attack
from das.privacy.budget import Budget, group_total
from das.privacy.ledger import Ledger
from das.privacy.neighborhoods import Comparable
from das.privacy.semantics import Change, ChangeCosts, statements
from das.privacy.semantics import Statement as Cost
from das.queries.sensitivity import Neighbors
from jobs.pipeline.documents.account import guarantee_of
from jobs.pipeline.documents.document import adapter
from jobs.pipeline.documents.manifest import (
    BudgetRow,
    ExactQuery,
    Limit,
    Privacy,
    Stated,
    Statement,
    StratumStatements,
    attacks_of,
)
from jobs.pipeline.neighborhoods import PUBLIC_LIST, limited_statements, nearest, neighborhood
from jobs.pipeline.plan import Plan


def budget_rows(plan: Plan, ledger: Ledger) -> tuple[BudgetRow, ...]:
    """Make one row per geolevel, chain and query: exact fractions as text, and floats."""
    geounits = {(e.geolevel, e.chain_end, e.query): e.geounits for e in ledger.entries}
    return tuple(
        BudgetRow(
            geolevel=geolevel,
            chain_end=chain_end,
            query=noisy.query.name,
            stratum=noisy.stratum,
            share=str(noisy.share),
            level_share=str(noisy.level_share),
            cost=str(noisy.cost),
            charged="alone" if noisy.sensitivity_sq is None else "together",
            mechanism=noisy.mechanism.kind,
            parameter=str(noisy.mechanism.parameter),
            variance=noisy.mechanism.variance(),
            answers=noisy.query.size,
            geounits=geounits[geolevel, chain_end, noisy.query.name],
        )
        for geolevel, chain_end in dict.fromkeys((e.geolevel, e.chain_end) for e in ledger.entries)
        for noisy in plan.noise(plan.level(geolevel).index, plan.level(chain_end).index)
    )


def privacy_statement(plan: Plan, geounits_source: str) -> Privacy:
    """State budget, guarantee, neighbors under the invariants, and source of the noise."""
    budget, left = plan.budget, neighborhood(plan, geounits_source)
    definition = budget.definition
    attacks = attacks_of(
        attack.attacks_of_total(budget.definition, budget.total), budget.definition.unit
    )
    return Privacy(
        **vars(guarantee_of(budget)),
        randomness=plan.randomness,
        lazy_queries=tuple(sorted(plan.on_demand)),
        neighborhood=left,
        epsilon_by_noise=str(budget.epsilon_by_noise) if budget.epsilon_by_noise else None,
        nearest=nearest(plan, geounits_source),
        mu_gdp=None if definition.is_pure else attack.mu_gdp(budget.total),
        attacks=None if left.comparable is Comparable.NONE else attacks,
    )


def privacy_statements(
    plan: Plan, ledger: Ledger, geounits_source: str = PUBLIC_LIST
) -> tuple[Statement, ...]:
    """State the cost of changing a whole record, one attribute, or its place within a geounit.

    Costs in the ledger are for the budget's neighbors; these are for changed records.
    """
    return _stated(plan, ledger, _changed(plan, ledger), geounits_source)


def stratum_statements(
    plan: Plan, ledger: Ledger, geounits_source: str = PUBLIC_LIST
) -> tuple[StratumStatements, ...]:
    """State for each stratum the cost of changes of a record that stay within it."""
    changed = _changed(plan, ledger)
    last = len(plan.spine.levels) - 1
    return tuple(
        StratumStatements(
            stratum=stratum.name,
            cells=stratum.group.size,
            own=str(plan.budget.total * plan.strategy.chain_share(0, last, stratum)),
            statements=_stated(
                plan,
                ledger,
                [costs for costs in changed if costs.stratum == stratum.name],
                geounits_source,
            ),
        )
        for stratum in plan.strategy.strata
    )


def _changed(plan: Plan, ledger: Ledger) -> list[ChangeCosts]:
    """Compute the costs of changes of a record in every chain and stratum."""
    chains = dict.fromkeys((entry.geolevel, entry.chain_end) for entry in ledger.entries)
    return [costs for first, last in chains for costs in plan.change_costs(first, last)]


def _stated(
    plan: Plan, ledger: Ledger, changed: Sequence[ChangeCosts], geounits_source: str
) -> tuple[Statement, ...]:
    budget = plan.budget
    names = [attribute.name for attribute in plan.schema.attributes]
    stated = []
    rows = list(statements(ledger.spine, names, changed))
    if plan.household_size is not None:
        size = plan.household_size
        together = group_total(budget.definition, rows[0].cost, size)
        rows.insert(1, Cost(Change.HOUSEHOLD, str(size), together))
    for row in rows:
        cost = None
        if row.cost:
            cost = Budget(row.cost, budget.delta, Neighbors.BOUNDED, budget.definition)
        stated.append(
            Stated(
                change=row.change,
                name=row.name,
                total=str(cost.total) if cost else "0",
                epsilon=cost.epsilon if cost else 0.0,
                epsilon_simple=cost.epsilon_simple if cost else 0.0,
            )
        )
    return limited_statements(stated, plan, geounits_source)


def exact_queries(plan: Plan) -> tuple[ExactQuery, ...]:
    """List the queries of a plan that are published without noise."""
    return tuple(
        ExactQuery(query=invariant.query.name, geolevels=tuple(invariant.geolevels))
        for invariant in plan.invariants
    )


def limits_of(plan: Plan) -> tuple[Limit, ...]:
    """List the invariants of a plan that are not exact queries."""
    rows = plan.limits.document(plan.schema)
    limits: tuple[Limit, ...] = adapter(tuple[Limit, ...]).validate_python(rows)
    return limits
