"""Budget: the total privacy loss granted to one product, and what it is counted in."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from das.errors import BudgetError
from das.privacy.accounting import epsilon_bun_steinke, epsilon_from_rho
from das.privacy.cost import Pure, ZeroConcentrated, to_zero_concentrated
from das.queries.sensitivity import Neighbors


class Definition(StrEnum):
    """The definition of privacy that costs are counted in.

    ZCDP counts rho of zero-concentrated differential privacy and pays for discrete Gaussian noise.
    PURE counts epsilon of differential privacy and pays for discrete Laplace noise.
    """

    ZCDP = "zcdp"
    PURE = "pure"


@dataclass(frozen=True)
class Budget:
    """A grant of privacy loss.

    Attributes:
      total: Cost of every root-to-leaf path: rho under ZCDP, epsilon under PURE; exact, > 0.
      delta: Where the (epsilon, delta) statement is made; does not influence the noise.
      neighbors: The relation under which the total is claimed.
      definition: What the total is counted in.

    Raises:
      BudgetError: total or delta is out of range or not exact.
    """

    total: Fraction
    delta: Fraction
    neighbors: Neighbors
    definition: Definition = Definition.ZCDP

    def __post_init__(self) -> None:
        unit = "rho" if self.definition is Definition.ZCDP else "epsilon"
        if not isinstance(self.total, Fraction) or self.total <= 0:
            raise BudgetError(
                f"budget {unit}", "must be a positive exact fraction", got=repr(self.total)
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

    def document(self) -> dict[str, str | float]:
        """The fields as text and what they imply, for files and reports."""
        return {
            **self.exact(),
            "rho": str(self.rho),
            "epsilon": self.epsilon,
            "epsilon_simple": self.epsilon_simple,
        }

    @property
    def zero_concentrated(self) -> ZeroConcentrated:
        """The cost in zCDP, which a pure cost implies."""
        if self.definition is Definition.PURE:
            return to_zero_concentrated(Pure(self.total))
        return ZeroConcentrated(self.total)

    @property
    def rho(self) -> Fraction:
        """The cost in zCDP, exact."""
        return self.zero_concentrated.rho

    @property
    def epsilon(self) -> float:
        """Epsilon at delta, rounded up; under PURE the total, which holds at delta = 0 too."""
        if self.definition is Definition.PURE:
            return _rounded_up(self.total)
        return epsilon_from_rho(self.total, self.delta)

    @property
    def epsilon_simple(self) -> float:
        """Epsilon at delta by Bun & Steinke, rounded up; under PURE the total."""
        if self.definition is Definition.PURE:
            return _rounded_up(self.total)
        return epsilon_bun_steinke(self.total, self.delta)


def _rounded_up(value: Fraction) -> float:
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)
