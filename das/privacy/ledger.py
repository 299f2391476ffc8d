"""Ledger: an append-only record of what every measured query costs."""

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
      geolevel: Geolevel at which it is measured.
      chain_end: Deepest geolevel of the chain of only children that shares this measurement;
        equals `geolevel` for ordinary geounits.
      query: Canonical name.
      attributes: Names of the attributes whose levels the query tells apart.
      mechanism: The noise.
      cost: Cost for one record in one of these geounits, in what the budget counts; for a query of
        a planned strategy its part of what all queries of the strategy cost together.
      geounits: How many geounits are measured so.
      stratum: The stratum whose records alone it counts; empty if it counts everybody.
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
    (geolevel, chain_end), one per measured geounit on it, so its cost is a sum over chains that
    tile the spine: of the entries for everybody and of those of the stratum.

    Attributes:
      spine: Geolevels, root first.
      granted: What every path may cost, exact.
      entries: What was recorded.
      strata: Names of the strata, disjoint groups that hold every record; none if entries are all
        for everybody.

    Raises:
      LedgerError: An entry is of a stratum that is not listed, or of a chain that does not lie on
        the spine.
    """

    spine: tuple[str, ...]
    granted: Fraction
    entries: tuple[LedgerEntry, ...] = ()
    strata: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        unknown = {entry.stratum for entry in self.entries} - {"", *self.strata}
        if unknown:
            raise LedgerError("ledger", "has entries of unknown strata", got=sorted(unknown))
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
          LedgerError: Some path would cost more than was granted; this ledger is unchanged.
        """
        longer = replace(self, entries=(*self.entries, *entries))
        spent = longer.largest_cost()
        if spent > self.granted:
            raise LedgerError(
                "ledger", "more would be spent than was granted", got=spent, want=self.granted
            )
        return longer

    def largest_cost(self) -> Fraction:
        """Largest cost of a path so far; geolevels that are not recorded yet cost nothing."""
        unrecorded = {(level, level): Fraction(0) for level in range(len(self.spine))}
        largest = Fraction(0)
        for stratum in self.strata or ("",):
            spent = costs_of_paths(len(self.spine), unrecorded | self._chain_costs(stratum))
            largest = max(largest, spent[1] if spent else Fraction(0))
        return largest

    def path_costs(self, stratum: str = "") -> tuple[Fraction, Fraction]:
        """Smallest and largest cost over all tilings of the spine by recorded chains.

        Args:
          stratum: Where the record is; empty for what is measured of everybody alone.

        Raises:
          LedgerError: No tiling exists, so some geolevel was never measured.
        """
        costs = costs_of_paths(len(self.spine), self._chain_costs(stratum))
        if costs is None:
            raise LedgerError("ledger", "does not cover every geolevel", got=self.spine)
        return costs

    def finalize(self) -> None:
        """Check that every root-to-leaf path spends exactly what was granted, in every stratum.

        Raises:
          LedgerError: It does not; carries both numbers.
        """
        for stratum in self.strata or ("",):
            low, high = self.path_costs(stratum)
            if low != self.granted or high != self.granted:
                raise LedgerError(
                    f"ledger, stratum {stratum}" if stratum else "ledger",
                    "spent differs from granted",
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
    """Smallest and largest cost over all ways to cut a path of geolevels into chains.

    There may be 2^(n_levels - 1) ways; this takes one step per chain, from the last geolevel up.

    Args:
      n_levels: The path has the geolevels 0..n_levels - 1.
      costs: Exact cost of every chain that occurs.

    Returns:
      Both costs, exact; None if the chains tile no path.

    >>> costs_of_paths(2, {(0, 0): Fraction(1), (1, 1): Fraction(3), (0, 1): Fraction(2)})
    (Fraction(2, 1), Fraction(4, 1))
    """
    rest = {n_levels: (Fraction(0), Fraction(0))}  # of a path from a geolevel down
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
