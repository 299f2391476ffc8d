"""What changing a record, one attribute of it or its place costs by what a geounit measures."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from das.mechanisms.mechanism import Norm
from das.mechanisms.registry import choose_mechanism
from das.privacy.budget import Budget
from das.privacy.semantics import ChangeCosts, touched_attributes
from das.queries.joint_sensitivity import JointSensitivity
from das.queries.query import Query
from das.queries.sensitivity import Neighbors, sensitivity
from das.strategy import NoisyQuery, Strategy, noisy_queries


@dataclass(frozen=True)
class Chain:
    """A chain of geolevels that is measured once, by position and by name."""

    first: int
    last: int
    names: tuple[str, str]


def change_costs(
    strategy: Strategy, budget: Budget, attributes: Sequence[str], chain: Chain
) -> tuple[ChangeCosts, ...]:
    """Return the costs of changes of one record, in what the budget counts, by stratum.

    Changing a record is removing one and adding one. Where the budget is for changed records, its
    costs are those of a change. Where it is for added ones, a change costs

    - within one geounit, per query that is charged for itself, the quotient of its sensitivities in
      the norm that the noise is charged by: for squared L2 sensitivities 2 for partitions and up to
      4 for rows with negative entries, for L1 sensitivities 2 for all;
    - for queries that are charged together, their worst pair of cells together;
    - for a move, twice as much as adding one.

    In a stratum a record is counted by the queries for everybody and by those of the stratum, whose
    costs add up. A change from one stratum into another takes it out of the queries of the one,
    each of which tells all its attributes apart from those of others, and puts it into those of the
    other: half of what a change costs in either, so at most what it costs in one of them.

    Args:
      strategy: What is measured.
      budget: The budget and its neighbors.
      attributes: Names of the schema's attributes, in order.
      chain: Where it is measured.

    Returns:
      Exact upper bounds: of everybody's queries, in every stratum, and of those of each stratum;
      entries of one stratum add up.
    """
    noisy = noisy_queries(strategy, budget, chain.first, chain.last)
    norm = choose_mechanism(budget.definition, strategy.mechanism).norms[budget.definition]
    found = []
    for stratum, part in strategy.asked(chain.first, chain.last):
        name = "" if stratum is None else stratum.name
        own = [one for one in noisy if one.stratum == name]
        # A change of what tells a stratum from others may lead into another one.
        labels = ("",) * len(attributes) if stratum is None else stratum.group.labels
        leaving = [one for one, label in zip(attributes, labels, strict=True) if label]
        record, touched, place = _costs(
            own, part.joint, norm, budget.neighbors, attributes, leaving
        )
        found.append(ChangeCosts(*chain.names, record, touched, place, name))
    everybody, *others = found
    if not strategy.strata:
        return (everybody,)
    return (*(replace(everybody, stratum=one.name) for one in strategy.strata), *others)


def _costs(
    noisy: Sequence[NoisyQuery],
    joint: JointSensitivity | None,
    norm: Norm,
    neighbors: Neighbors,
    attributes: Sequence[str],
    leaving: Collection[str],
) -> tuple[Fraction, Mapping[str, Fraction], Fraction]:
    """Costs of a record, of its attributes and of its place, by queries charged together or not.

    A change of an attribute in `leaving` may lead into another stratum. That costs half of `place`
    here and half there, also where no two cells of the stratum differ in the attribute alone.
    """
    cost = sum((one.cost for one in noisy), Fraction(0))
    place = cost if neighbors is Neighbors.BOUNDED else 2 * cost
    if joint is not None:
        pair = max(place, cost * joint.pair)
        record = place if neighbors is Neighbors.BOUNDED else pair
        alone = (min(record, cost * one) for one in joint.attributes)
        touched = dict(zip(attributes, alone, strict=True))
        return record, touched | {name: max(touched[name], place) for name in leaving}, place
    record, touched = Fraction(0), dict.fromkeys(attributes, Fraction(0))
    for one in noisy:
        changed = one.cost * _change_quotient(one.query, neighbors, norm)
        record += changed
        for name in touched_attributes(one.query, attributes):
            touched[name] += changed
    return record, touched, place


def _change_quotient(query: Query, neighbors: Neighbors, norm: Norm) -> Fraction:
    """How much more a changed record costs than the neighbors of the budget."""
    changed = sensitivity(query, Neighbors.BOUNDED, norm)
    return changed / sensitivity(query, neighbors, norm)
