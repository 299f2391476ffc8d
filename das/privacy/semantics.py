r"""What a release says about one attribute, or about the place within a geounit.

Neighbors are bounded: one record is changed. Every measured query has a cost for any such change,
and all costs on the record's path add up to the budget. A change that leaves most queries alone
costs less:

- **Attribute a.** The record keeps its geounits and all attributes but a. A query that sums a out
  counts the record in the same answer before and after, so its answers do not change and its
  measurements have the same law; the others cost at most their cost. By composition the change
  costs at most the sum over queries that touch a: every factor but the sum over a touches it, so
  recodes of a and the detailed query do.
- **Within geolevel L.** The record keeps all attributes and moves between leaves of one geounit of
  L. The geounits of L and of all coarser geolevels that hold it stay the same, and so do their
  answers. The change costs at most the sum over geolevels strictly below L.

A chain of only children first..last is measured once, in its topmost geounit: the queries of
geolevel `first`, with the summed budget of all its geolevels. So a path is a tiling of the spine by
chains, and the rules are about `first`. A chain touches the attributes that the queries of `first`
touch, and costs something within L only if `first` is strictly below L: if `first` is at or above
L, the measured geounit holds the record before and after, even where the chain reaches below L.
Paths differ in their tilings, and the change of an attribute stays on one path, so the largest sum
over all tilings is a bound. A move leaves one path and enters another. Each query on each of the
two changes one count by one, which costs half of what changing a record costs in rho (the square of
the distance halves) and in pure epsilon (the distance halves); half of one tiling and half of
another is at most the larger of the two.

The same proof serves rho and pure epsilon; costs are plain fractions of either.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from das.errors import LedgerError
from das.privacy.ledger import LedgerEntry, costs_of_paths
from das.queries.factor import FactorKind
from das.queries.query import Query


class Change(StrEnum):
    """What a statement protects: how the two data sets may differ."""

    RECORD = "record"  # one record, in any way
    ATTRIBUTE = "attribute"  # one attribute of one record
    WITHIN = "within"  # the place of one record within its geounit of a geolevel


@dataclass(frozen=True)
class Statement:
    """The cost of one kind of change.

    Attributes:
      change: How neighbors may differ.
      name: The attribute or geolevel; empty for `Change.RECORD`.
      cost: Exact upper bound, in the unit of the costs given.
    """

    change: Change
    name: str
    cost: Fraction


def statements(
    spine: Sequence[str], attributes: Sequence[str], measured: Collection[LedgerEntry]
) -> tuple[Statement, ...]:
    """Return the cost of a whole record, of each attribute, and within each geolevel but the last.

    Args:
      spine: Names of geolevels, root first.
      attributes: Names of the attributes to report.
      measured: Every query of every chain that occurs, with the cost of a changed record (bounded
        neighbors).

    Returns:
      Rows in the order record, attributes, geolevels from the finest to the coarsest.

    Raises:
      LedgerError: The chains tile no path.

    >>> from das.mechanisms.mechanism import DiscreteGaussian
    >>> def entry(geolevel, attributes, rho):
    ...     noise = DiscreteGaussian.costing(rho, l2_sensitivity_sq=2)
    ...     return LedgerEntry(geolevel, geolevel, "q", attributes, noise, rho, geounits=1)
    >>> for row in statements(["state", "block"], ["sex"], [
    ...     entry("state", ("sex",), Fraction(1, 8)),
    ...     entry("state", (), Fraction(3, 8)),
    ...     entry("block", ("sex",), Fraction(1, 2)),
    ... ]):
    ...     print(row.change, row.name, row.cost)
    record  1
    attribute sex 5/8
    within state 1/2
    """
    position = {name: index for index, name in enumerate(spine)}
    chains = {(position[one.geolevel], position[one.chain_end]) for one in measured}

    def largest(counts: Collection[LedgerEntry]) -> Fraction:
        cost = dict.fromkeys(chains, Fraction(0))
        for one in counts:
            cost[position[one.geolevel], position[one.chain_end]] += one.cost
        costs = costs_of_paths(len(spine), cost)
        if costs is None:
            raise LedgerError("measured queries", "cover no root-to-leaf path", got=list(spine))
        return costs[1]

    rows = [Statement(Change.RECORD, "", largest(measured))]
    for name in attributes:
        touching = [one for one in measured if name in one.attributes]
        rows.append(Statement(Change.ATTRIBUTE, name, largest(touching)))
    for level in range(len(spine) - 2, -1, -1):
        below = [one for one in measured if position[one.geolevel] > level]
        rows.append(Statement(Change.WITHIN, spine[level], largest(below)))
    return tuple(rows)


def touched_attributes(query: Query, attributes: Sequence[str]) -> tuple[str, ...]:
    """Return the attributes, given in the schema's order, that the query does not sum out.

    >>> from das.queries.query import marginal
    >>> from das.schema.schema import Attribute, Schema
    >>> schema = Schema("s", (Attribute("sex", ("f", "m")), Attribute("age", ("0", "1"))))
    >>> touched_attributes(marginal(schema, ["age"]), ["sex", "age"])
    ('age',)
    """
    pairs = zip(attributes, query.factors, strict=True)
    return tuple(name for name, factor in pairs if factor.kind is not FactorKind.TOTAL)
