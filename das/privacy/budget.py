"""Budget: the total privacy loss granted to one product, and what it is counted in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from das.definition import Definition
from das.privacy.accounting import epsilon_bun_steinke, epsilon_from_rho, rho_from_epsilon
from das.privacy.cost import Pure, ZeroConcentrated, compose, of_group, to_zero_concentrated
from das.queries.sensitivity import Neighbors
from das.rational import float_above, require_positive, require_probability


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
        require_positive(f"budget {self.definition.unit}", self.total)
        require_probability("budget delta", self.delta)

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


@dataclass(frozen=True)
class Composition:
    """What several grants for the same people cost together, for neighbors of one relation.

    Attributes:
      budget: The sum, exact: of epsilons if all grants are pure, of rho otherwise. Stated at the
        smallest delta of the grants.
      epsilon: The smallest valid epsilon at that delta, rounded up. It may be less than what
        `budget` implies by itself, where grants of both definitions are composed.
      epsilon_simple: The same by Bun & Steinke, which bounds the privacy loss itself.
    """

    budget: Budget
    epsilon: float
    epsilon_simple: float


def compose_budgets(budgets: Sequence[Budget]) -> Composition:
    """Return what several grants for the same people come to, for neighbors of one relation.

    Costs of one definition add up. Grants of both definitions are composed in two valid ways. A
    pure epsilon is at most rho = epsilon^2 / 2, and rhos add up; or the rhos are converted to an
    epsilon at delta, to which pure epsilons are added (basic composition: their delta is 0). The
    first is smaller for small epsilons and the second for large ones, so they are sorted: the
    smallest ones are added as rho, the others as epsilon, and the best such split counts.

    Args:
      budgets: One at least, all for the same neighbors.

    >>> delta, bounded = Fraction(1, 10**10), Neighbors.BOUNDED
    >>> parts = [
    ...     Budget(Fraction(7, 125), delta, bounded),
    ...     Budget(Fraction(2), delta, bounded, Definition.PURE),
    ... ]
    >>> round(compose_budgets(parts).epsilon, 3), round(compose_budgets(parts).budget.epsilon, 3)
    (4.123, 15.109)
    """
    delta, neighbors = min(one.delta for one in budgets), budgets[0].neighbors
    pure = sorted(one.total for one in budgets if one.definition.is_pure)
    if len(pure) == len(budgets):
        epsilon = compose([Pure(one) for one in pure]).epsilon
        total = Budget(epsilon, delta, neighbors, Definition.PURE)
        return Composition(total, total.epsilon, total.epsilon_simple)
    rho = compose([one.zero_concentrated for one in budgets if not one.definition.is_pure]).rho
    rhos = [rho]
    for epsilon in pure:
        rhos.append(rhos[-1] + to_zero_concentrated(Pure(epsilon)).rho)

    def smallest(convert: Callable[[Fraction, Fraction], float]) -> float:
        return min(
            float_above(Fraction(convert(some, delta)) + sum(pure[n:]))
            for n, some in enumerate(rhos)
        )

    return Composition(
        Budget(rhos[-1], delta, neighbors),
        smallest(epsilon_from_rho),
        smallest(epsilon_bun_steinke),
    )


def changed_record_bound(budget: Budget) -> Fraction:
    """Return a bound on the cost of one changed record, which holds for any mechanism.

    To change a record is to remove one and to add one. Where the budget is for added and removed
    records, that is a pair of data sets two neighbors apart: twice the epsilon, four times the rho.
    Costs of the measured queries may be lower (`das.change_costs`).

    >>> changed_record_bound(Budget(Fraction(1), Fraction(1, 10**10), Neighbors.UNBOUNDED))
    Fraction(4, 1)
    """
    if budget.neighbors is Neighbors.BOUNDED:
        return budget.total
    if budget.definition.is_pure:
        return of_group(Pure(budget.total), 2).epsilon
    return of_group(ZeroConcentrated(budget.total), 2).rho


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
