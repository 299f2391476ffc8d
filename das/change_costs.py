"""What changing a record, one attribute of it or its place costs by what a geounit measures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from das.mechanisms.mechanism import Norm
from das.mechanisms.registry import choose_mechanism
from das.privacy.budget import Budget
from das.privacy.semantics import ChangeCosts, touched_attributes
from das.queries.query import Query
from das.queries.sensitivity import Neighbors, sensitivity
from das.strategy import Strategy, noisy_queries


@dataclass(frozen=True)
class Chain:
    """A chain of geolevels that is measured once, by position and by name."""

    first: int
    last: int
    names: tuple[str, str]


def change_costs(
    strategy: Strategy, budget: Budget, attributes: Sequence[str], chain: Chain
) -> ChangeCosts:
    """Return the costs of changes of one record, in what the budget counts.

    Changing a record is removing one and adding one. Where the budget is for changed records, its
    costs are those of a change. Where it is for added ones, a change costs

    - within one geounit, per query that is charged for itself, the quotient of its sensitivities in
      the norm that the noise is charged by: for squared L2 sensitivities 2 for partitions and up to
      4 for rows with negative entries, for L1 sensitivities 2 for all;
    - for queries that are charged together, their worst pair of cells together;
    - for a move, twice as much as adding one.

    Args:
      strategy: What is measured.
      budget: The budget and its neighbors.
      attributes: Names of the schema's attributes, in order.
      chain: Where it is measured.

    Returns:
      Exact upper bounds.
    """
    level = strategy.levels[chain.first]
    noisy = noisy_queries(strategy, budget, chain.first, chain.last)
    cost = sum((one.cost for one in noisy), Fraction(0))
    place = cost if budget.neighbors is Neighbors.BOUNDED else 2 * cost
    if level.joint is not None:
        pair = max(place, cost * level.joint.pair)
        record = place if budget.neighbors is Neighbors.BOUNDED else pair
        alone = (min(record, cost * one) for one in level.joint.attributes)
        touched = dict(zip(attributes, alone, strict=True))
        return ChangeCosts(*chain.names, record, touched, place)
    record, touched = Fraction(0), dict.fromkeys(attributes, Fraction(0))
    norm = choose_mechanism(budget.definition, strategy.mechanism).norms[budget.definition]
    for one in noisy:
        changed = one.cost * _change_quotient(one.query, budget.neighbors, norm)
        record += changed
        for name in touched_attributes(one.query, attributes):
            touched[name] += changed
    return ChangeCosts(*chain.names, record, touched, place)


def _change_quotient(query: Query, neighbors: Neighbors, norm: Norm) -> Fraction:
    """How much more a changed record costs than the neighbors of the budget."""
    changed = sensitivity(query, Neighbors.BOUNDED, norm)
    return changed / sensitivity(query, neighbors, norm)
