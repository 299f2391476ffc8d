"""Budget: the total privacy loss granted to one product, and what it is counted in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from das.definition import Definition
from das.errors import BudgetError
from das.privacy.accounting import epsilon_bun_steinke, epsilon_from_rho, rho_from_epsilon
from das.privacy.cost import Pure, ZeroConcentrated, compose, to_zero_concentrated
from das.queries.sensitivity import Neighbors
from das.rational import float_above


@dataclass(frozen=True)
class Budget:
    """A grant of privacy loss.

    Attributes:
      total: Cost of every root-to-leaf path: rho under ZCDP, epsilon under PURE; exact, > 0.
      delta: Where the (epsilon, delta) statement is made; does not influence the noise.
      neighbors: The relation under which the total is claimed.
      definition: What the total is counted in.
      epsilon_by_noise: What the noise of everything measured keeps at delta, exact, if the total
        was chosen by that; None if it was not.

    Raises:
      BudgetError: total or delta is out of range or not exact.
    """

    total: Fraction
    delta: Fraction
    neighbors: Neighbors
    definition: Definition = Definition.ZCDP
    epsilon_by_noise: Fraction | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.total, Fraction) or self.total <= 0:
            raise BudgetError(
                f"budget {self.definition.unit}",
                "must be a positive exact fraction",
                got=repr(self.total),
            )
        if not isinstance(self.delta, Fraction) or not 0 < self.delta < 1:
            raise BudgetError(
                "budget delta", "must be an exact fraction between 0 and 1", got=repr(self.delta)
            )

    def exact(self) -> dict[str, str]:
        """The fields as text, from which the budget can be made again."""
        return {
            "definition": str(self.definition),
            "total": str(self.total),
            "delta": str(self.delta),
            "neighbors": str(self.neighbors),
        }

    @property
    def zero_concentrated(self) -> ZeroConcentrated:
        """The cost in zCDP, which a pure cost implies."""
        if self.definition.is_pure:
            return to_zero_concentrated(Pure(self.total))
        return ZeroConcentrated(self.total)

    @property
    def rho(self) -> Fraction:
        """The cost in zCDP, exact."""
        return self.zero_concentrated.rho

    @property
    def epsilon(self) -> float:
        """Epsilon at delta, rounded up; under PURE the total, which holds at delta = 0 too."""
        if self.definition.is_pure:
            return float_above(self.total)
        return epsilon_from_rho(self.total, self.delta)

    @property
    def epsilon_simple(self) -> float:
        """Epsilon at delta by Bun & Steinke, rounded up; under PURE the total."""
        if self.definition.is_pure:
            return float_above(self.total)
        return epsilon_bun_steinke(self.total, self.delta)


def compose_budgets(budgets: Sequence[Budget]) -> Budget:
    """Return what several grants for the same people come to, for neighbors of one relation.

    Costs of one definition add up; grants of both definitions are added as rho, since a pure
    epsilon costs at most epsilon^2 / 2.

    Args:
      budgets: One at least, all for the same neighbors.

    Returns:
      Exact; stated at the smallest delta of the grants.
    """
    delta, neighbors = min(one.delta for one in budgets), budgets[0].neighbors
    if all(one.definition.is_pure for one in budgets):
        epsilon = compose([Pure(one.total) for one in budgets]).epsilon
        return Budget(epsilon, delta, neighbors, Definition.PURE)
    rho = compose([one.zero_concentrated for one in budgets]).rho
    return Budget(rho, delta, neighbors)


def total_from_epsilon(definition: Definition, epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the largest total whose budget has at most this epsilon at delta.

    Args:
      definition: What the total is counted in.
      epsilon: Exact, > 0.
      delta: Exact, 0 < delta < 1; under PURE not used.

    Returns:
      Under PURE epsilon itself, under ZCDP rho as `rho_from_epsilon` rounds it down.

    Raises:
      BudgetError: An argument is out of range, or no total fits.
    """
    return epsilon if definition.is_pure else rho_from_epsilon(epsilon, delta)
