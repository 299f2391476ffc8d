"""Ledger: an append-only record of what every measured query cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from das.errors import LedgerError
from das.privacy.budget import Budget


@dataclass(frozen=True)
class LedgerEntry:
    """One query measured in all geounits of one class.

    Attributes:
      geolevel: Geolevel at which it was measured.
      chain_end: Deepest geolevel of the chain of only children that shares this measurement;
        equals `geolevel` for ordinary geounits.
      query: Canonical name.
      sigma_sq: Parameter of the discrete Gaussian.
      rho: Cost for one record in one of these geounits.
      geounits: How many geounits were measured so.
    """

    geolevel: str
    chain_end: str
    query: str
    sigma_sq: Fraction
    rho: Fraction
    geounits: int


@dataclass(frozen=True)
class Ledger:
    """All entries of a run, in order of geolevel.

    A record lies on one root-to-leaf path. The path is a concatenation of chains
    (geolevel, chain_end), one per measured geounit on it, so its cost is a sum over chains that
    tile the spine.
    """

    spine: tuple[str, ...]
    entries: tuple[LedgerEntry, ...]

    def append(self, entries: Iterable[LedgerEntry]) -> Ledger:
        """Return a ledger with more entries."""
        return Ledger(self.spine, self.entries + tuple(entries))

    def path_costs(self) -> tuple[Fraction, Fraction]:
        """Smallest and largest cost over all tilings of the spine by recorded chains.

        Raises:
          LedgerError: No tiling exists, so some geolevel was never measured.
        """
        cost: dict[tuple[int, int], Fraction] = {}
        position = {name: index for index, name in enumerate(self.spine)}
        for entry in self.entries:
            chain = (position[entry.geolevel], position[entry.chain_end])
            cost[chain] = cost.get(chain, Fraction(0)) + entry.rho
        low: dict[int, Fraction] = {len(self.spine): Fraction(0)}
        high: dict[int, Fraction] = {len(self.spine): Fraction(0)}
        for start in range(len(self.spine) - 1, -1, -1):
            ways = [
                (chain[1] + 1, rho)
                for chain, rho in cost.items()
                if chain[0] == start and chain[1] + 1 in low
            ]
            if ways:
                low[start] = min(low[after] + rho for after, rho in ways)
                high[start] = max(high[after] + rho for after, rho in ways)
        if 0 not in low:
            raise LedgerError("ledger", "does not cover every geolevel", got=self.spine)
        return low[0], high[0]

    def seal(self, budget: Budget) -> None:
        """Check that every root-to-leaf path spent exactly what was granted.

        Raises:
          LedgerError: It did not; carries both numbers.
        """
        low, high = self.path_costs()
        if low != budget.rho or high != budget.rho:
            raise LedgerError(
                "ledger", "spent differs from granted", got=f"{low}..{high}", want=budget.rho
            )
