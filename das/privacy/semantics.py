r"""What a release says about one attribute, or about the place within a geounit.

One record is changed. What a geounit measures has a cost for every such change (`ChangeCosts`), and
all costs on the record's path add up. A change that leaves most queries alone costs less:

- **Attribute a.** The record keeps its geounits and all attributes but a. A query that sums a out
  counts the record in the same answer before and after, so its answers do not change and its
  measurements have the same distribution. The others cost what they cost for cells that differ in
  a alone: queries charged one by one at most their cost for any change, queries charged together
  the worst pair of such cells. Recodes of a and the detailed query are among those that touch it.
- **Within geolevel L.** The record keeps all attributes and moves between leaves of one geounit of
  L. The geounits of L and of all coarser geolevels that hold it stay the same, and so do their
  answers. The change costs at most the sum over geolevels strictly below L.

A chain of only children first..last is measured once, in its topmost geounit: the queries of
geolevel `first`, with the summed budget of all its geolevels. So a path is a tiling of the spine by
chains, and the rules are about `first`. A chain touches the attributes that the queries of `first`
touch, and costs something within L only if `first` is strictly below L: if `first` is at or above
L, the measured geounit holds the record before and after, even where the chain reaches below L.
Paths differ in their tilings, and the change of an attribute stays on one path, so the largest sum
over all tilings is a bound. A move leaves one path and enters another. In each of the two it costs
what one added or removed record costs, which is at most half of what `place` and `record` say; half
of one tiling and half of another is at most the larger of the two.

With strata, groups of cells with queries of their own, a path is a list of geounits and a stratum.
A change within a stratum stays on one path or leads from one to another, as above. A change between
strata costs half of what its kind costs in the one and half of what it costs in the other, which
again is at most the larger of the two. So all bounds are the largest over strata.

The same proof serves rho and pure epsilon; costs are plain fractions of either.
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


@dataclass(frozen=True)
class ChangeCosts:
    """What changes of one record cost by the measurements of a chain of only children.

    Attributes:
      geolevel: Geolevel at which it is measured.
      chain_end: Deepest geolevel of the chain; equals `geolevel` for ordinary geounits.
      record: Of any change, also between geounits; at least twice what one added record costs.
      attributes: By name, of a change of that attribute alone, within the geounit.
      place: Of a move to another geounit with all attributes kept; at least twice what one added
        record costs.
      stratum: Of which records; empty for all. A change into another stratum costs half of this
        and half of what it costs there.
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
      attributes: Names of the attributes to report; what is not named in the costs costs nothing.
      measured: The costs of every chain that occurs, as one entry or as several that add up; of
        every stratum, if there are strata.

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
        for one in measured:
            chain = (position[one.geolevel], position[one.chain_end])
            of_stratum = cost.setdefault(one.stratum, {})
            of_stratum[chain] = of_stratum.get(chain, Fraction(0)) + count(one)
        found = [costs_of_paths(len(spine), of_stratum) for of_stratum in cost.values()]
        highest = [costs[1] for costs in found if costs is not None]
        if not highest or len(highest) < len(found):
            raise LedgerError("measured queries", "cover no root-to-leaf path", got=list(spine))
        return max(highest)

    def below(level: int) -> Fraction:
        return largest(lambda one: one.place if position[one.geolevel] > level else Fraction(0))

    def of(name: str) -> Fraction:
        return largest(lambda one: one.attributes.get(name, Fraction(0)))

    return (
        Statement(Change.RECORD, "", largest(lambda one: one.record)),
        *(Statement(Change.ATTRIBUTE, name, of(name)) for name in attributes),
        *(Statement(Change.WITHIN, name, below(at)) for at, name in [*enumerate(spine)][-2::-1]),
    )


def touched_attributes(query: Query, attributes: Sequence[str]) -> tuple[str, ...]:
    """Return the attributes, given in the schema's order, that the query does not sum out.

    >>> from das.queries.query import marginal
    >>> from das.schema import Attribute, Schema
    >>> schema = Schema("s", (Attribute("sex", ("f", "m")), Attribute("age", ("0", "1"))))
    >>> touched_attributes(marginal(schema, ["age"]), ["sex", "age"])
    ('age',)
    """
    pairs = zip(attributes, query.factors, strict=True)
    return tuple(name for name, factor in pairs if factor.kind is not FactorKind.TOTAL)
