"""Privacy costs under two definitions: composition, group privacy and conversion.

Costs of one definition add up exactly. Costs of different definitions do not add: convert them to
the weaker definition first, explicitly, so that the loss of accuracy is visible.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import TypeVar

from das.errors import BudgetError
from das.rational import require_positive


@dataclass(frozen=True)
class ZeroConcentrated:
    """A cost under zero-concentrated differential privacy (rho-zCDP).

    Attributes:
      rho: Exact, rho >= 0.

    Raises:
      BudgetError: rho is negative or not a fraction.
    """

    rho: Fraction

    def __post_init__(self) -> None:
        require_positive("ZeroConcentrated rho", self.rho, or_zero=True)


@dataclass(frozen=True)
class Pure:
    """A cost under pure differential privacy (epsilon-DP).

    Attributes:
      epsilon: In nats, exact, epsilon >= 0.

    Raises:
      BudgetError: epsilon is negative or not a fraction.
    """

    epsilon: Fraction

    def __post_init__(self) -> None:
        require_positive("Pure epsilon", self.epsilon, or_zero=True)


Cost = TypeVar("Cost", ZeroConcentrated, Pure)


def compose(costs: Iterable[Cost]) -> Cost:
    """Return the sum of costs of one definition, by composition.

    The sum also holds if each mechanism is chosen after seeing the previous answers.

    Args:
      costs: At least one, all of one definition.

    Returns:
      A cost of that definition, exact.

    Raises:
      BudgetError: There is no cost, or there are several definitions.

    References:
      zCDP: Bun & Steinke, TCC 2016, arXiv:1605.02065, Lemma 1.7. Pure: basic
      composition, Dwork & Roth, The Algorithmic Foundations of Differential Privacy, 2014,
      Thm. 3.16 and App. B.

    >>> compose([Pure(Fraction(1, 3)), Pure(Fraction(1, 6))])
    Pure(epsilon=Fraction(1, 2))
    """
    given = tuple(costs)
    kinds = {type(cost) for cost in given}
    if len(kinds) != 1:
        raise BudgetError(
            "composition",
            "needs costs of exactly one definition",
            got=sorted(kind.__name__ for kind in kinds),
            remedy="convert the pure costs with to_zero_concentrated",
        )
    (kind,) = kinds
    (number,) = fields(kind)
    return kind(sum((getattr(cost, number.name) for cost in given), Fraction(0)))


def of_group(cost: Cost, records: int) -> Cost:
    """Return the exact cost between data sets that are several neighboring steps apart.

    Args:
      cost: Cost between neighbors.
      records: Number of neighboring steps k, at least 1.

    Returns:
      k epsilon for a pure cost, k^2 rho for zCDP: the Rényi divergence of order alpha is at most
      alpha k^2 rho.

    Raises:
      BudgetError: `records` is below 1.

    References:
      zCDP: Bun & Steinke, TCC 2016, arXiv:1605.02065, Proposition 1.9. Pure: Dwork & Roth 2014,
      Theorem 2.2.

    >>> of_group(Pure(Fraction(1, 2)), 3), of_group(ZeroConcentrated(Fraction(1, 2)), 3)
    (Pure(epsilon=Fraction(3, 2)), ZeroConcentrated(rho=Fraction(9, 2)))
    """
    if records < 1:
        raise BudgetError("group", "has at least one record", got=records)
    factor = records if isinstance(cost, Pure) else records**2
    (number,) = fields(cost)
    return type(cost)(factor * getattr(cost, number.name))


def to_zero_concentrated(cost: Pure) -> ZeroConcentrated:
    """Return rho = epsilon^2 / 2, the exact zCDP cost that epsilon-DP implies.

    References:
      Bun & Steinke, TCC 2016, arXiv:1605.02065, Prop. 1.4.

    >>> to_zero_concentrated(Pure(Fraction(1, 2)))
    ZeroConcentrated(rho=Fraction(1, 8))
    """
    return ZeroConcentrated(cost.epsilon**2 / 2)
