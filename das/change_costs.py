"""Privacy loss of changing a record, one of its attributes or its location, per geounit."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from das.mechanisms.mechanism import Norm
from das.mechanisms.registry import choose_mechanism
from das.privacy.budget import Budget
from das.privacy.semantics import ChangeCosts, touched_attributes
from das.queries.joint_sensitivity import JointSensitivity
from das.queries.sensitivity import Neighbors, sensitivity
from das.strategy import NoisyQuery, Strategy, noisy_queries


@dataclass(frozen=True)
class Chain:
    """A chain of geolevels that is measured once: positions and names of first and last."""

    first: int
    last: int
    names: tuple[str, str]


def change_costs(
    strategy: Strategy, budget: Budget, attributes: Sequence[str], chain: Chain
) -> tuple[ChangeCosts, ...]:
    """Return the costs of changes of one record, in the unit of the budget, by stratum.

    Changing a record means removing one and adding one. Under BOUNDED neighbors the budget covers
    a change. Under UNBOUNDED neighbors a change costs

    - within one geounit, per query that is charged alone, its cost times the ratio of its BOUNDED
      and UNBOUNDED sensitivities. For squared L2 sensitivities that is 2 for partitions and up to 4
      for rows with negative entries; for L1 sensitivities it is 2;
    - for queries that are charged jointly, the joint cost of their worst pair of cells;
    - for a move to another geounit, twice the cost of adding a record.

    In a stratum a record is counted by the population-wide queries and by the queries of the
    stratum, whose costs add up. A change between strata removes the record from the queries of one
    stratum and adds it to the queries of the other. It costs half of a change in each, so at most
    the larger one.

    Args:
      strategy: The measured queries.
      budget: The budget and its neighbors.
      attributes: Names of the schema's attributes, in order.
      chain: The chain of geolevels that is measured.

    Returns:
      Exact upper bounds: for the population-wide queries, repeated for every stratum, and for the
      queries of each stratum. Entries of the same stratum add up.
    """
    noisy = noisy_queries(strategy, budget, chain.first, chain.last)
    norm = choose_mechanism(budget.definition, strategy.mechanism).norms[budget.definition]
    costs = []
    for stratum, part in strategy.of_chain(chain.first, chain.last):
        name = "" if stratum is None else stratum.name
        of_stratum = [entry for entry in noisy if entry.stratum == name]
        # A change of an attribute that defines the stratum may lead into another stratum.
        labels = ("",) * len(attributes) if stratum is None else stratum.group.labels
        leaving = [axis for axis, label in zip(attributes, labels, strict=True) if label]
        record, touched, place = _costs(
            of_stratum, part.joint, norm, budget.neighbors, attributes, leaving
        )
        costs.append(ChangeCosts(*chain.names, record, touched, place, name))
    population_wide, *by_stratum = costs
    if not strategy.strata:
        return (population_wide,)
    repeated = (replace(population_wide, stratum=stratum.name) for stratum in strategy.strata)
    return (*repeated, *by_stratum)


def _costs(
    noisy: Sequence[NoisyQuery],
    joint: JointSensitivity | None,
    norm: Norm,
    neighbors: Neighbors,
    attributes: Sequence[str],
    leaving: Collection[str],
) -> tuple[Fraction, Mapping[str, Fraction], Fraction]:
    """Compute the costs of changing a record, each attribute alone, and the location.

    A change of an attribute in `leaving` may lead into another stratum. That costs half of `place`
    in each stratum, even if no two cells of the stratum differ in this attribute alone.

    Args:
      noisy: Noisy queries of one stratum, or of all records.
      joint: Sensitivities of queries charged jointly; None if each query is charged separately.
      norm: Norm of the sensitivities.
      neighbors: Which data sets count as neighbors.
      attributes: Names of the schema's attributes.
      leaving: Names of the attributes that define the stratum.
    """
    cost = sum((entry.cost for entry in noisy), Fraction(0))
    place = cost if neighbors is Neighbors.BOUNDED else 2 * cost
    if joint is not None:
        pair = max(place, cost * joint.pair)
        record = place if neighbors is Neighbors.BOUNDED else pair
        alone = (min(record, cost * change) for change in joint.attributes)
        touched = dict(zip(attributes, alone, strict=True))
        return record, touched | {name: max(touched[name], place) for name in leaving}, place
    record, touched = Fraction(0), dict.fromkeys(attributes, Fraction(0))
    for entry in noisy:
        ratio = sensitivity(entry.query, Neighbors.BOUNDED, norm)
        ratio /= sensitivity(entry.query, neighbors, norm)
        record += entry.cost * ratio
        for name in touched_attributes(entry.query, attributes):
            touched[name] += entry.cost * ratio
    return record, touched, place
