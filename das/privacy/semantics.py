r"""Privacy loss of a change of one attribute, or of the location within a geounit.

One record is changed. The measurements of a geounit have a cost for every kind of change
(`ChangeCosts`), and all costs on the record's path add up. A change that most queries do not see
costs less:

- **Attribute a.** The record keeps its geounits and all attributes but a. A query that sums a out
  counts the record in the same answer before and after. So its answers do not change, and its
  measurements have the same distribution. Any other query is charged for cells that differ in a
  alone. If queries are charged one by one, that is at most the cost of any change; if they are
  charged jointly, it is the cost of the worst such pair of cells. Recodes of a and the detailed
  query do not sum a out.
- **Within geolevel L.** The record keeps all attributes and moves between leaves of one geounit of
  L. The geounits of L and of all coarser geolevels that contain it stay the same, and so do their
  answers. The change costs at most the sum over geolevels strictly below L.

A chain of only children first..last is measured once, in its topmost geounit: the queries of
geolevel `first`, with the summed budget of all its geolevels. So a path is a tiling of the spine by
chains, and only `first` matters. The queries of a chain are the queries of `first`. A move within L
changes them only if `first` is strictly below L: otherwise the measured geounit contains the record
before and after, even if the chain reaches below L. Paths differ in their tilings. The change of an
attribute stays on one path, so the largest sum over all tilings is a bound. A move leaves one path
and enters another. On each path it costs as much as one added or removed record, which is at most
half of `place` and `record`; half of one tiling and half of another is at most the larger one.

With strata, groups of cells with separate queries, a path is a list of geounits and a stratum. A
change within a stratum stays on one path or leads from one to another, as above. A change between
strata costs half of its cost in one stratum and half of its cost in the other, which again is at
most the larger one. So all bounds are the largest over strata.

The same proof holds for rho and for pure epsilon; costs are plain fractions of either.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from das.errors import LedgerError
from das.privacy.ledger import costs_of_paths
from das.queries.factor import FactorKind
from das.queries.query import Query


class Change(StrEnum):
    """Difference of the two data sets that a privacy statement compares."""

    RECORD = "record"  # one record, in any way
    HOUSEHOLD = "household"  # all records of one household, in any way
    ATTRIBUTE = "attribute"  # one attribute of one record
    WITHIN = "within"  # the location of one record within its geounit of a geolevel


@dataclass(frozen=True)
class Statement:
    """The privacy loss of one kind of change.

    Attributes:
      change: The difference of the two data sets.
      name: The attribute or geolevel; empty for `Change.RECORD`.
      cost: Exact upper bound, in the unit of the costs given.
    """

    change: Change
    name: str
    cost: Fraction


@dataclass(frozen=True)
class ChangeCosts:
    """Privacy losses of changes of one record, from the measurements of a chain of only children.

    Attributes:
      geolevel: Geolevel at which the chain is measured.
      chain_end: Deepest geolevel of the chain; equals `geolevel` for ordinary geounits.
      record: Cost of any change, also between geounits; at least twice the cost of one added
        record.
      attributes: Cost of a change of one attribute alone, within the geounit; by attribute name.
      place: Cost of a move to another geounit with all attributes kept; at least twice the cost of
        one added record.
      stratum: Stratum of the records; empty for all. A change into another stratum costs half of
        the cost in each of the two.
    """

    geolevel: str
    chain_end: str
    record: Fraction
    attributes: Mapping[str, Fraction]
    place: Fraction
    stratum: str = ""


def statements(
    spine: Sequence[str], attributes: Sequence[str], measured: Collection[ChangeCosts]
) -> tuple[Statement, ...]:
    """Return the cost of a whole record, of each attribute, and within each geolevel but the last.

    Args:
      spine: Names of geolevels, root first.
      attributes: Names of the attributes to report; missing costs are 0.
      measured: Costs of every existing chain and stratum. Entries of the same chain add up.

    Returns:
      Rows in the order record, attributes, geolevels from the finest to the coarsest.

    Raises:
      LedgerError: The chains tile no path.

    >>> half = Fraction(1, 2)
    >>> for row in statements(["state", "block"], ["sex"], [
    ...     ChangeCosts("state", "state", half, {"sex": Fraction(1, 8)}, half),
    ...     ChangeCosts("block", "block", half, {"sex": half}, half),
    ... ]):
    ...     print(row.change, row.name, row.cost)
    record  1
    attribute sex 5/8
    within state 1/2
    """
    position = {name: index for index, name in enumerate(spine)}

    def largest(count: Callable[[ChangeCosts], Fraction]) -> Fraction:
        cost: dict[str, dict[tuple[int, int], Fraction]] = {}
        for costs in measured:
            chain = (position[costs.geolevel], position[costs.chain_end])
            of_stratum = cost.setdefault(costs.stratum, {})
            of_stratum[chain] = of_stratum.get(chain, Fraction(0)) + count(costs)
        paths = [costs_of_paths(len(spine), of_stratum) for of_stratum in cost.values()]
        highest = [path[1] for path in paths if path is not None]
        if not highest or len(highest) < len(paths):
            raise LedgerError("measured queries", "cover no root-to-leaf path", got=list(spine))
        return max(highest)

    def below(level: int) -> Fraction:
        return largest(lambda c: c.place if position[c.geolevel] > level else Fraction(0))

    def of(name: str) -> Fraction:
        return largest(lambda costs: costs.attributes.get(name, Fraction(0)))

    return (
        Statement(Change.RECORD, "", largest(lambda costs: costs.record)),
        *(Statement(Change.ATTRIBUTE, name, of(name)) for name in attributes),
        *(Statement(Change.WITHIN, name, below(at)) for at, name in [*enumerate(spine)][-2::-1]),
    )


def touched_attributes(query: Query, attributes: Sequence[str]) -> tuple[str, ...]:
    """Return the attributes, in the schema's order, that the query does not sum out.

    >>> from das.queries.query import marginal
    >>> from das.schema import Attribute, Schema
    >>> schema = Schema("s", (Attribute("sex", ("f", "m")), Attribute("age", ("0", "1"))))
    >>> touched_attributes(marginal(schema, ["age"]), ["sex", "age"])
    ('age',)
    """
    pairs = zip(attributes, query.factors, strict=True)
    return tuple(name for name, factor in pairs if factor.kind is not FactorKind.TOTAL)
