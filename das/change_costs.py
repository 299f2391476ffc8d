"""What changing a record, one attribute of it or its place costs by what a geounit measures."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from das.mechanisms.mechanism import Norm
from das.mechanisms.registry import choose_mechanism
from das.privacy.budget import Budget
from das.privacy.semantics import ChangeCosts, touched_attributes
from das.queries.joint_sensitivity import JointSensitivity
from das.queries.query import Query
from das.queries.sensitivity import Neighbors, sensitivity
from das.strategy import NoisyQuery, Strategy, Stratum, noisy_queries


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
      Exact upper bounds, one entry per stratum; one in all if there are none.
    """
    noisy = noisy_queries(strategy, budget, chain.first, chain.last)
    norm = choose_mechanism(budget.definition, strategy.mechanism).norms[budget.definition]
    found = {}
    for stratum, part in strategy.asked(chain.first, chain.last):
        name = "" if stratum is None else stratum.name
        own = [one for one in noisy if one.stratum == name]
        leaving = () if stratum is None else _leaving(stratum, attributes)
        found[name] = _costs(own, part.joint, norm, budget.neighbors, attributes, leaving)
    everybody = found.pop("")
    if not strategy.strata:
        return (everybody.of(chain),)
    none = _Costs(Fraction(0), dict.fromkeys(attributes, Fraction(0)), Fraction(0))
    return tuple(
        everybody.plus(found.get(stratum.name, none)).of(chain, stratum.name)
        for stratum in strategy.strata
    )


@dataclass(frozen=True)
class _Costs:
    """What changes cost by some queries; as `ChangeCosts` has them."""

    record: Fraction
    attributes: Mapping[str, Fraction]
    place: Fraction

    def plus(self, other: _Costs) -> _Costs:
        touched = {name: cost + other.attributes[name] for name, cost in self.attributes.items()}
        return _Costs(self.record + other.record, touched, self.place + other.place)

    def of(self, chain: Chain, stratum: str = "") -> ChangeCosts:
        return ChangeCosts(*chain.names, self.record, self.attributes, self.place, stratum)


def _costs(
    noisy: Sequence[NoisyQuery],
    joint: JointSensitivity | None,
    norm: Norm,
    neighbors: Neighbors,
    attributes: Sequence[str],
    leaving: Collection[str],
) -> _Costs:
    """Costs of queries that are charged together, or each for itself.

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
        return _Costs(
            record, touched | {name: max(touched[name], place) for name in leaving}, place
        )
    record, touched = Fraction(0), dict.fromkeys(attributes, Fraction(0))
    for one in noisy:
        changed = one.cost * _change_quotient(one.query, neighbors, norm)
        record += changed
        for name in touched_attributes(one.query, attributes):
            touched[name] += changed
    return _Costs(record, touched, place)


def _leaving(stratum: Stratum, attributes: Sequence[str]) -> tuple[str, ...]:
    """Attributes a change of which may lead out of a stratum."""
    pairs = zip(attributes, stratum.group.labels, strict=True)
    return tuple(name for name, label in pairs if label)


def _change_quotient(query: Query, neighbors: Neighbors, norm: Norm) -> Fraction:
    """How much more a changed record costs than the neighbors of the budget."""
    changed = sensitivity(query, Neighbors.BOUNDED, norm)
    return changed / sensitivity(query, neighbors, norm)
