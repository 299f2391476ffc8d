"""Ledger: an append-only record of the privacy cost of every measured query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from das.errors import LedgerError
from das.mechanisms.mechanism import Mechanism

Chain = tuple[int, int]  # positions of the first and the last geolevel measured together


@dataclass(frozen=True)
class LedgerEntry:
    """One query measured in all geounits of one class.

    Attributes:
      geolevel: Geolevel at which the query is measured.
      chain_end: Deepest geolevel of the chain of only children that shares this measurement;
        equals `geolevel` for ordinary geounits.
      query: Canonical name of the query.
      attributes: Names of the attributes that the query does not sum out.
      mechanism: The noise of the answers.
      cost: Privacy loss of one record in one of these geounits, in the unit of the budget. A query
        of a planned strategy has its share of the joint cost of the strategy.
      geounits: Number of geounits measured.
      stratum: The stratum whose records the query counts; empty if it counts all records.
    """

    geolevel: str
    chain_end: str
    query: str
    attributes: tuple[str, ...]
    mechanism: Mechanism
    cost: Fraction
    geounits: int
    stratum: str = ""


@dataclass(frozen=True)
class Ledger:
    """All entries of a run, in order of geolevel.

    A record lies on one root-to-leaf path and in one stratum. The path is a concatenation of chains
    (geolevel, chain_end), one per measured geounit. So its cost is a sum over chains that tile the
    spine, of the entries for all records and the entries of the stratum.

    Attributes:
      spine: Geolevels, root first.
      granted: The budget of every root-to-leaf path, exact.
      entries: The recorded measurements.
      strata: Names of the strata, disjoint groups that hold every record; empty if every entry
        counts all records.

    Raises:
      LedgerError: The stratum of an entry is not listed, or its chain is not on the spine.
    """

    spine: tuple[str, ...]
    granted: Fraction
    entries: tuple[LedgerEntry, ...] = ()
    strata: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        unknown = {entry.stratum for entry in self.entries} - {"", *self.strata}
        if unknown:
            raise LedgerError("ledger", "has entries of unlisted strata", got=sorted(unknown))
        position = {name: index for index, name in enumerate(self.spine)}
        for chain in dict.fromkeys((entry.geolevel, entry.chain_end) for entry in self.entries):
            first, last = (position.get(name) for name in chain)
            if first is None or last is None or last < first:
                raise LedgerError(
                    "ledger",
                    "has entries of an unknown chain of geolevels",
                    got=chain,
                    want=self.spine,
                )

    def append(self, entries: Iterable[LedgerEntry]) -> Ledger:
        """Return a ledger with more entries.

        Raises:
          LedgerError: A path would cost more than its budget; this ledger is unchanged.
        """
        longer = replace(self, entries=(*self.entries, *entries))
        spent = longer.largest_cost()
        if spent > self.granted:
            raise LedgerError(
                "ledger", "more would be spent than was granted", got=spent, want=self.granted
            )
        return longer

    def largest_cost(self) -> Fraction:
        """Return the largest cost of a path so far; unrecorded geolevels cost nothing."""
        unrecorded = {(level, level): Fraction(0) for level in range(len(self.spine))}
        largest = Fraction(0)
        for stratum in self.strata or ("",):
            spent = costs_of_paths(len(self.spine), unrecorded | self._chain_costs(stratum))
            largest = max(largest, spent[1] if spent else Fraction(0))
        return largest

    def path_costs(self, stratum: str = "") -> tuple[Fraction, Fraction]:
        """Return the smallest and the largest cost over all tilings of the spine by chains.

        Args:
          stratum: Stratum of the record; empty for queries on all records only.

        Raises:
          LedgerError: No tiling exists, so some geolevel was never measured.
        """
        costs = costs_of_paths(len(self.spine), self._chain_costs(stratum))
        if costs is None:
            raise LedgerError("ledger", "does not cover every geolevel", got=self.spine)
        return costs

    def finalize(self) -> None:
        """Check that every root-to-leaf path spends exactly its budget, in every stratum.

        Raises:
          LedgerError: A path spends more or less; the message has both numbers.
        """
        for stratum in self.strata or ("",):
            low, high = self.path_costs(stratum)
            if low != self.granted or high != self.granted:
                raise LedgerError(
                    f"ledger, stratum {stratum}" if stratum else "ledger",
                    "some root-to-leaf path does not spend exactly the budget",
                    got=f"{low}..{high}",
                    want=self.granted,
                )

    def _chain_costs(self, stratum: str) -> dict[Chain, Fraction]:
        cost: dict[Chain, Fraction] = {}
        position = {name: index for index, name in enumerate(self.spine)}
        for entry in self.entries:
            chain = (position[entry.geolevel], position[entry.chain_end])
            counted = entry.cost if entry.stratum in ("", stratum) else Fraction(0)
            cost[chain] = cost.get(chain, Fraction(0)) + counted
        return cost


def costs_of_paths(
    n_levels: int, costs: Mapping[Chain, Fraction]
) -> tuple[Fraction, Fraction] | None:
    """Return the smallest and the largest cost over all tilings of a path by chains of geolevels.

    There may be 2^(n_levels - 1) tilings; dynamic programming takes one step per chain, from the
    last geolevel up.

    Args:
      n_levels: Number of geolevels of the path.
      costs: Exact cost of every existing chain (first, last geolevel).

    Returns:
      Both costs, exact; None if the chains tile no path.

    >>> costs_of_paths(2, {(0, 0): Fraction(1), (1, 1): Fraction(3), (0, 1): Fraction(2)})
    (Fraction(2, 1), Fraction(4, 1))
    """
    rest = {n_levels: (Fraction(0), Fraction(0))}  # costs of a path from a geolevel down
    for first in range(n_levels - 1, -1, -1):
        below = [
            (cost, rest[last + 1])
            for (top, last), cost in costs.items()
            if top == first and last + 1 in rest
        ]
        if below:
            rest[first] = (
                min(cost + low for cost, (low, _) in below),
                max(cost + high for cost, (_, high) in below),
            )
    return rest.get(0)
