"""Ledger: an append-only record of what every measured query costs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
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
      cost: Cost for one record in one of these geounits, in what the budget counts.
      geounits: How many geounits are measured so.
    """

    geolevel: str
    chain_end: str
    query: str
    attributes: tuple[str, ...]
    mechanism: Mechanism
    cost: Fraction
    geounits: int


@dataclass(frozen=True)
class Ledger:
    """All entries of a run, in order of geolevel.

    A record lies on one root-to-leaf path. The path is a concatenation of chains
    (geolevel, chain_end), one per measured geounit on it, so its cost is a sum over chains that
    tile the spine.

    Attributes:
      spine: Geolevels, root first.
      granted: What every path may cost, exact.
      entries: What was recorded.
    """

    spine: tuple[str, ...]
    granted: Fraction
    entries: tuple[LedgerEntry, ...] = ()

    def append(self, entries: Iterable[LedgerEntry]) -> Ledger:
        """Return a ledger with more entries.

        Raises:
          LedgerError: Some path would cost more than was granted; this ledger is unchanged.
        """
        longer = Ledger(self.spine, self.granted, (*self.entries, *entries))
        spent = longer.largest_cost()
        if spent > self.granted:
            raise LedgerError(
                "ledger", "more would be spent than was granted", got=spent, want=self.granted
            )
        return longer

    def largest_cost(self) -> Fraction:
        """Largest cost of a path so far; geolevels that are not recorded yet cost nothing."""
        unrecorded = {(level, level): Fraction(0) for level in range(len(self.spine))}
        return max(self._costs_of_paths(unrecorded | self._chain_costs()))

    def path_costs(self) -> tuple[Fraction, Fraction]:
        """Smallest and largest cost over all tilings of the spine by recorded chains.

        Raises:
          LedgerError: No tiling exists, so some geolevel was never measured.
        """
        costs = list(self._costs_of_paths(self._chain_costs()))
        if not costs:
            raise LedgerError("ledger", "does not cover every geolevel", got=self.spine)
        return min(costs), max(costs)

    def seal(self) -> None:
        """Check that every root-to-leaf path spends exactly what was granted.

        Raises:
          LedgerError: It does not; carries both numbers.
        """
        low, high = self.path_costs()
        if low != self.granted or high != self.granted:
            raise LedgerError(
                "ledger", "spent differs from granted", got=f"{low}..{high}", want=self.granted
            )

    def _chain_costs(self) -> dict[Chain, Fraction]:
        cost: dict[Chain, Fraction] = {}
        position = {name: index for index, name in enumerate(self.spine)}
        for entry in self.entries:
            chain = (position[entry.geolevel], position[entry.chain_end])
            cost[chain] = cost.get(chain, Fraction(0)) + entry.cost
        return cost

    def _costs_of_paths(self, chain_costs: dict[Chain, Fraction]) -> Iterator[Fraction]:
        for path in tilings(len(self.spine), chain_costs):
            yield sum((chain_costs[chain] for chain in path), Fraction(0))


def tilings(n_levels: int, chains: Collection[Chain]) -> Iterator[tuple[Chain, ...]]:
    """Yield every way to cut a path of geolevels 0..n_levels - 1 into the given chains.

    >>> list(tilings(2, [(0, 0), (1, 1), (0, 1)]))
    [((0, 0), (1, 1)), ((0, 1),)]
    """

    def from_level(start: int) -> Iterator[tuple[Chain, ...]]:
        if start == n_levels:
            yield ()
        for first, last in chains:
            if first == start:
                for rest in from_level(last + 1):
                    yield ((first, last), *rest)

    return from_level(0)
