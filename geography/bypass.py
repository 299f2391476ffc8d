"""Bypass: budget is not spent twice on the same persons.

A parent of one child holds the same persons as the child, so under zCDP one measurement with the
budget of both informs as much as two. With more children moving the budget loses: a parent's budget
p adds p to the information on its total, p more in each of n children add p / n.

A run measures a chain of only children at its top (`Lattice.chain_end`); here budgets move to its
bottom, for any budget of each geounit. The sums over paths are the same, and exact.

References:
  Cumings-Menon et al., J. Privacy and Confidentiality 14(3), 2024, arXiv:2203.16654.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from das.arrays import IntArray
from das.errors import BudgetError
from geography.lattice import Lattice


@dataclass(frozen=True, eq=False)
class SpineBudgets:
    """An exact budget for every geounit: few values, many geounits.

    Attributes:
      values: The distinct budgets.
      index: Per geolevel, int64[G_l]; geounit g has the budget values[index[level][g]].
    """

    values: tuple[Fraction, ...]
    index: tuple[IntArray, ...]

    def at(self, level: int, geounit: int) -> Fraction:
        """Return the budget of a geounit."""
        return self.values[int(self.index[level][geounit])]


def level_budgets(lattice: Lattice, shares: Sequence[Fraction]) -> SpineBudgets:
    """Give every geounit the budget of its geolevel.

    Raises:
      BudgetError: There is not one share per geolevel, or one is negative or not exact.
    """
    if len(shares) != len(lattice.codes):
        raise BudgetError(
            "budgets of the spine",
            "need one per geolevel",
            got=len(shares),
            want=len(lattice.codes),
        )
    if any(not isinstance(share, Fraction) or share < 0 for share in shares):
        raise BudgetError("budgets of the spine", "must be exact and not negative", got=shares)
    index = tuple(np.full(len(codes), level) for level, codes in enumerate(lattice.codes))
    return SpineBudgets(tuple(shares), index)


def bypass_parents_of_one(lattice: Lattice, budgets: SpineBudgets) -> SpineBudgets:
    """Move the budget of every geounit with exactly one child to that child, from the root down.

    Returns:
      Budgets with the same sum over every path from the root to a leaf; 0 where bypassed.
    """
    numbers = {value: number for number, value in enumerate(dict.fromkeys(budgets.values))}
    zero = numbers.setdefault(Fraction(0), len(numbers))
    same = np.array([numbers[value] for value in budgets.values], np.int64)
    index = [same[one] for one in budgets.index]
    for level in range(len(index) - 1):
        bypassed = np.flatnonzero(lattice.n_children(level) == 1)
        children = lattice.first_child[level][bypassed]
        index[level + 1][children] = _add(
            index[level][bypassed], index[level + 1][children], numbers
        )
        index[level][bypassed] = zero
    return SpineBudgets(tuple(numbers), tuple(index))


def path_sums(lattice: Lattice, budgets: SpineBudgets) -> frozenset[Fraction]:
    """Return the distinct sums of budgets over the paths from the root to the leaves, exact."""
    numbers = {value: number for number, value in enumerate(dict.fromkeys(budgets.values))}
    same = np.array([numbers[value] for value in budgets.values], np.int64)
    sums = same[budgets.index[0]]
    for level in range(1, len(budgets.index)):
        sums = _add(sums[lattice.parents[level]], same[budgets.index[level]], numbers)
    values = tuple(numbers)
    return frozenset(values[number] for number in np.unique(sums))


def require_path_sums(lattice: Lattice, budgets: SpineBudgets, total: Fraction) -> None:
    """Refuse budgets of which some path does not sum to exactly the total.

    Raises:
      BudgetError: A path sums to something else.
    """
    wrong = sorted(path_sums(lattice, budgets) - {total})
    if wrong:
        raise BudgetError(
            "budgets of the spine",
            "do not sum to the total on every path",
            got=", ".join(map(str, wrong[:3])),
            want=total,
        )


def _add(left: IntArray, right: IntArray, numbers: dict[Fraction, int]) -> IntArray:
    """Sums of budgets given by number, each distinct pair added once; new sums get numbers."""
    values = tuple(numbers)
    pairs, index = np.unique(left * len(values) + right, return_inverse=True)
    sums = [values[pair // len(values)] + values[pair % len(values)] for pair in pairs.tolist()]
    return np.array([numbers.setdefault(one, len(numbers)) for one in sums], np.int64)[index]
