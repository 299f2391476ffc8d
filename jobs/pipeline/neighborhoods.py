"""What the invariants of a plan leave of its privacy statements, as data and in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final

import numpy as np

from das.privacy.budget import Budget
from das.privacy.cost import Pure, ZeroConcentrated, of_group
from das.privacy.neighborhoods import Comparable, Distance, Invariance, Neighborhood
from das.privacy.semantics import Change
from das.queries.sensitivity import Neighbors
from invariants.zeros import cells_at
from jobs.pipeline.documents.manifest import Limited, Nearest, Stated, Statement
from jobs.pipeline.plan import Plan

# Where the list of geounits comes from, in a manifest.
PUBLIC_LIST: Final = "public list"
FROM_DATA: Final = "data"
# Cells of a schema from which on levels that no invariant tells apart are not all looked at: 0.8 MB
# an array, of which there are some for each invariant.
_MANY_CELLS = 100_000


def invariance(plan: Plan, geounits_source: str) -> Invariance:
    """All that neighboring data sets must have in common under a plan.

    Args:
      plan: The plan.
      geounits_source: "data" if the list of geounits is that of the data.
    """
    schema, limits, levels = plan.schema, plan.limits, plan.spine.levels
    # Two records that change are told from one another by four cells at most, so that of levels
    # that no invariant tells apart four stand for all.
    queries = [invariant.query for invariant in plan.invariants]
    alike = [np.arange(size) for size in schema.shape]
    if schema.size >= _MANY_CELLS:
        alike = limits.representative_levels(schema, queries, most=4)
    cells = cells_at(schema.shape, alike)
    others = [one for one in limits.stated if one not in limits.rows]
    return Invariance(
        levels,
        tuple(a.name for a in schema.attributes),
        tuple(map(len, alike)),
        [held for one in (*plan.invariants, *limits.rows, *others) for held in one.held(cells)],
        None if limits.zeros is None else ~limits.zeros.holds(cells),
        places="the list of geounits" if geounits_source == FROM_DATA else "",
    )


def geounits_from_data(leaf: str) -> str:
    """That the list of geounits is not public input, and what to do."""
    return (
        f"the list of geounits: which {leaf} exists comes from the data and is published; give "
        "geography.geounits, a list made without the data"
    )


def neighborhood(plan: Plan, geounits_source: str) -> Limited:
    """What is left of the neighbors of the run itself."""
    kept = invariance(plan, geounits_source)
    neighbors = plan.budget.neighbors
    found = kept.added() if neighbors is Neighbors.UNBOUNDED else kept.record()
    return _limited(found, relation_words(neighbors, found))


def nearest(plan: Plan, geounits_source: str) -> Nearest | None:
    """The nearest data sets that agree on what is exact; None if nothing is."""
    kept, budget = invariance(plan, geounits_source), plan.budget
    if not any(one.is_exact for one in kept.held):
        return None
    found = kept.distance(budget.neighbors)
    cost = None
    if found.is_least and found.records is not None:
        cost = replace(budget, total=_of_group(budget, found.records))
    return Nearest(
        records=found.records,
        is_least=found.is_least,
        total=str(cost.total) if cost else None,
        epsilon=cost.epsilon if cost else None,
        in_words=nearest_words(budget, found, cost),
    )


def _of_group(budget: Budget, records: int) -> Fraction:
    if budget.definition.is_pure:
        return of_group(Pure(budget.total), records).epsilon
    return of_group(ZeroConcentrated(budget.total), records).rho


def nearest_words(budget: Budget, found: Distance, cost: Budget | None) -> str:
    """How far apart the nearest data sets are that agree on what is exact, and what that costs.

    Args:
      budget: Of neighbors.
      found: How far apart.
      cost: Of two data sets so far apart, if that is known.
    """
    changed = "changed" if budget.neighbors is Neighbors.BOUNDED else "added or removed"
    k, unit = found.records, budget.definition.unit
    if k is None:
        return (
            "No two data sets agree on what is exact: it determines every count, so nothing is "
            "left to promise."
        )
    if cost is None:
        return (
            "How far apart the nearest data sets are that agree on what is exact was not found: "
            f"k is at least {k} records {changed}."
        )
    if k == 1:
        return (
            f"The nearest data sets that agree on what is exact are neighbors (k = 1, {changed})."
        )
    group = f"k {unit}" if budget.definition.is_pure else f"k² {unit}"
    return (
        f"The nearest data sets that agree on what is exact are k = {k} records apart ({changed}). "
        f"Of them the run promises {group} = {cost.total}, by group privacy"
        + ("." if budget.definition.is_pure else f", so {_upward(cost)} at delta {cost.delta}.")
    )


def _upward(cost: Budget) -> str:
    return f"epsilon {math.ceil(cost.epsilon * 1e3) / 1e3:,.3f}"


def limited_statements(
    stated: Sequence[Stated], plan: Plan, geounits_source: str
) -> tuple[Statement, ...]:
    """Statements with what the invariants leave of each; empty ones lose their cost.

    Args:
      stated: What changes cost, invariants aside.
      plan: The plan.
      geounits_source: Where the list of geounits comes from.
    """
    left = {(one.change, one.name): one for one in invariance(plan, geounits_source).all()}
    statements = []
    for statement in stated:
        found = left[statement.change, statement.name]
        if found.comparable is Comparable.NONE:
            statement = replace(statement, total=None, epsilon=None, epsilon_simple=None)
        limited = _limited(found, statement_words(found))
        statements.append(Statement(**vars(statement), **vars(limited)))
    return tuple(statements)


def _limited(found: Neighborhood, in_words: str) -> Limited:
    return Limited(
        comparable=found.comparable,
        limited_by=found.limited_by,
        stays_in=found.stays_in,
        in_words=in_words,
    )


def relation_words(neighbors: Neighbors, found: Neighborhood) -> str:
    """What the invariants leave of the epsilon of a run; empty if all of it.

    Args:
      neighbors: The relation of the run.
      found: Its neighborhood.
    """
    by, comparable = listed(found.limited_by), found.comparable
    if comparable is Comparable.NONE and neighbors is Neighbors.UNBOUNDED:
        return (
            f"No two neighboring data sets agree on what is exact ({by}): it changes with every "
            "record that is added or removed. So the epsilon of the run promises nothing for "
            "adding or removing a record; what is left is the cost of changing one, stated for the "
            "whole record."
        )
    if comparable is Comparable.NONE:
        return (
            f"No two neighboring data sets agree on what is exact ({by}): the epsilon of the run "
            "promises nothing about one record."
        )
    if comparable is Comparable.SOME:
        return (
            f"Only neighboring data sets that agree on these are compared: {by}. What they tell "
            "about a record is not protected."
        )
    return ""


def statement_words(found: Neighborhood) -> str:
    """What the invariants leave of one statement; empty if all of it.

    >>> kind, by = Change.WITHIN, ("total in every tract",)
    >>> statement_words(Neighborhood(kind, "tract", Comparable.NONE, by))
    'not protected: no such change keeps total in every tract'
    >>> statement_words(Neighborhood(kind, "state", Comparable.SOME, by, stays_in="tract"))
    'only moves within one tract: others change total in every tract'
    """
    by, place = listed(found.limited_by), found.stays_in
    if found.comparable is Comparable.NONE:
        return f"not protected: no such change keeps {by}"
    if found.comparable is Comparable.ALL:
        return ""
    if found.change is Change.WITHIN and place:
        return f"only moves within one {place}: others change {by}"
    if place:
        return f"only changes that keep {by}, so no move out of one {place}"
    return f"only changes that keep {by}"


def listed(names: Sequence[str]) -> str:
    """Names in one phrase.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join([", ".join(names[:-1]), *names[-1:]]) if names[1:] else "".join(names)
