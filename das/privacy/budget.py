"""Budget: the total privacy loss granted to one product, and how neighbors are defined."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from das.errors import BudgetError
from das.privacy.accounting import epsilon_bun_steinke, epsilon_from_rho
from das.queries.sensitivity import Neighbors


@dataclass(frozen=True)
class Budget:
    """A grant of rho-zCDP.

    Attributes:
      rho: Total cost of every root-to-leaf path, exact, rho > 0.
      delta: Where the (epsilon, delta) statement is made; does not influence the noise.
      neighbors: The relation under which rho is claimed.

    Raises:
      BudgetError: rho or delta is out of range or not exact.
    """

    rho: Fraction
    delta: Fraction
    neighbors: Neighbors

    def __post_init__(self) -> None:
        if not isinstance(self.rho, Fraction) or self.rho <= 0:
            raise BudgetError("budget rho", "must be positive", got=self.rho)
        if not isinstance(self.delta, Fraction) or not 0 < self.delta < 1:
            raise BudgetError("budget delta", "must lie between 0 and 1", got=self.delta)

    @property
    def epsilon(self) -> float:
        """Epsilon at delta by the optimum of Canonne, Kamath & Steinke, rounded up."""
        return epsilon_from_rho(self.rho, self.delta)

    @property
    def epsilon_simple(self) -> float:
        """Epsilon at delta by Bun & Steinke, rounded up."""
        return epsilon_bun_steinke(self.rho, self.delta)
