"""Privacy budget of one product, and the composition of the budgets of several products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate

from das.definition import Definition
from das.privacy.accounting import epsilon_bun_steinke, epsilon_from_rho, rho_from_epsilon
from das.privacy.cost import Pure, ZeroConcentrated, compose, of_group, to_zero_concentrated
from das.queries.sensitivity import Neighbors
from das.rational import float_above, require_positive, require_probability


@dataclass(frozen=True)
class Budget:
    """The privacy budget of one product.

    Attributes:
      total: Privacy loss of every root-to-leaf path: rho under ZCDP, epsilon under PURE; exact,
        > 0.
      delta: The delta of the reported (epsilon, delta) statement; does not influence the noise.
      neighbors: The neighboring relation under which the total holds.
      definition: The privacy definition that the total is a parameter of.
      epsilon_by_noise: Epsilon at delta from the exact noise of all measurements, if the total was
        chosen by it; otherwise None.

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
        """Return the fields as exact text, from which the budget can be rebuilt."""
        return {
            "definition": str(self.definition),
            "total": str(self.total),
            "delta": str(self.delta),
            "neighbors": str(self.neighbors),
        }

    @property
    def zero_concentrated(self) -> ZeroConcentrated:
        """Return the total as a zCDP cost; a pure total is converted."""
        if self.definition.is_pure:
            return to_zero_concentrated(Pure(self.total))
        return ZeroConcentrated(self.total)

    @property
    def rho(self) -> Fraction:
        """Return rho of the total budget in zCDP, exact; a pure budget is converted."""
        return self.zero_concentrated.rho

    @property
    def epsilon(self) -> float:
        """Return epsilon at delta, rounded up; under PURE the total, which holds at delta = 0."""
        if self.definition.is_pure:
            return float_above(self.total)
        return epsilon_from_rho(self.total, self.delta)

    @property
    def epsilon_simple(self) -> float:
        """Return epsilon at delta by Bun & Steinke, rounded up; under PURE the total."""
        if self.definition.is_pure:
            return float_above(self.total)
        return epsilon_bun_steinke(self.total, self.delta)


@dataclass(frozen=True)
class Composition:
    """The composed privacy loss of several budgets spent on the same people.

    Attributes:
      budget: The exact sum of epsilons if all budgets are pure, of rho otherwise. Stated at the
        smallest delta of the budgets.
      epsilon: The smallest valid epsilon at that delta, rounded up. It can be below
        `budget.epsilon` if budgets of both definitions are composed.
      epsilon_simple: Epsilon by Bun & Steinke, which bounds the privacy loss itself.
    """

    budget: Budget
    epsilon: float
    epsilon_simple: float


def compose_budgets(budgets: Sequence[Budget]) -> Composition:
    """Compose the budgets of several products about the same people.

    Costs of one definition add up. Budgets of both definitions can be composed in two valid ways.
    First, epsilon-DP implies rho = epsilon^2 / 2, and rhos add up. Second, the sum of rhos is
    converted to epsilon at delta, and pure epsilons are added (basic composition: their delta is
    0). The first is smaller for small epsilons, the second for large ones. So epsilons are sorted:
    the smallest are added as rho, the others as epsilon, and the best such split is returned.

    Args:
      budgets: At least one; all with the same neighboring relation.

    >>> delta, bounded = Fraction(1, 10**10), Neighbors.BOUNDED
    >>> parts = [
    ...     Budget(Fraction(7, 125), delta, bounded),
    ...     Budget(Fraction(2), delta, bounded, Definition.PURE),
    ... ]
    >>> round(compose_budgets(parts).epsilon, 3), round(compose_budgets(parts).budget.epsilon, 3)
    (4.123, 15.109)
    """
    delta, neighbors = min(budget.delta for budget in budgets), budgets[0].neighbors
    pure = sorted(budget.total for budget in budgets if budget.definition.is_pure)
    if len(pure) == len(budgets):
        total = Budget(sum(pure, Fraction(0)), delta, neighbors, Definition.PURE)
        return Composition(total, total.epsilon, total.epsilon_simple)
    first = compose([b.zero_concentrated for b in budgets if not b.definition.is_pure]).rho
    rhos = [*accumulate((to_zero_concentrated(Pure(e)).rho for e in pure), initial=first)]

    def smallest(convert: Callable[[Fraction, Fraction], float]) -> float:
        return min(
            float_above(Fraction(convert(rho, delta)) + sum(pure[n:])) for n, rho in enumerate(rhos)
        )

    return Composition(
        Budget(rhos[-1], delta, neighbors),
        smallest(epsilon_from_rho),
        smallest(epsilon_bun_steinke),
    )


def group_total(definition: Definition, total: Fraction, records: int) -> Fraction:
    """Return the exact cost of several records together, from the cost of one record.

    No smaller bound holds: the records may be equal, lie in one geounit and change in the same way.
    Then the answers change by `records` times as much. A group that also shrinks or grows costs no
    more, since the distance of two data sets is convex in the sizes before and after.

    >>> group_total(Definition.ZCDP, Fraction(1, 2), 3)
    Fraction(9, 2)
    """
    if definition.is_pure:
        return of_group(Pure(total), records).epsilon
    return of_group(ZeroConcentrated(total), records).rho


def changed_record_bound(budget: Budget) -> Fraction:
    """Return a bound on the privacy loss of one changed record that holds for any mechanism.

    Changing a record means removing one and adding one. Under UNBOUNDED neighbors the two data sets
    are two steps apart: twice the epsilon, four times the rho. The measured queries may cost less
    (`das.change_costs`).

    >>> changed_record_bound(Budget(Fraction(1), Fraction(1, 10**10), Neighbors.UNBOUNDED))
    Fraction(4, 1)
    """
    if budget.neighbors is Neighbors.BOUNDED:
        return budget.total
    return group_total(budget.definition, budget.total, 2)


def total_from_epsilon(definition: Definition, epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the largest total privacy loss that implies at most this epsilon at delta.

    Args:
      definition: The privacy definition that the total is a parameter of.
      epsilon: Exact, > 0.
      delta: Exact, 0 < delta < 1; not used under PURE.

    Returns:
      Under PURE epsilon itself; under ZCDP rho, rounded down as in `rho_from_epsilon`.

    Raises:
      BudgetError: An argument is out of range, or no total fits.
    """
    return epsilon if definition.is_pure else rho_from_epsilon(epsilon, delta)
