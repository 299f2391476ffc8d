"""Privacy cost of GEM, a generator that is fitted to adaptively selected queries.

GEM fits a generator, a mixture of products, in T rounds. Each selects a query by the exponential
mechanism, whose epsilon is 2 a eps0, and answers it with Gaussian noise of standard deviation
1 / ((1 - a) eps0) for sensitivity 1. A round costs (2 a eps0)^2 / 8 + ((1 - a) eps0)^2 / 2, so

    rho = T eps0^2 (a^2 + (1 - a)^2) / 2.

eps0 is the epsilon of one round. If the total epsilon is passed in its place by mistake, the cost
at epsilon 1 is 1,860 times too large. `das.synthesis.mixture` has the generator without rounds: it
is fitted to all pairs at once.

References:
  Liu, Vietri & Wu, Iterative methods for private synthetic data, NeurIPS 2021 (GEM).
"""

from __future__ import annotations

import math
from fractions import Fraction

from das.errors import BudgetError

ROUNDS = 100
SELECTION_SHARE = Fraction(67, 100)  # a


def generator_rho(
    round_epsilon: Fraction, rounds: int = ROUNDS, share: Fraction = SELECTION_SHARE
) -> Fraction:
    """Return the exact rho of all rounds from the epsilon of one round.

    Args:
      round_epsilon: eps0, the epsilon of one round, positive.
      rounds: T, the number of rounds, positive.
      share: a, between 0 and 1.

    Raises:
      BudgetError: An argument is out of range, or not exact.

    >>> float(generator_rho(Fraction(1)))
    27.89
    """
    _check(round_epsilon, rounds, share)
    return rounds * round_epsilon**2 * (share**2 + (1 - share) ** 2) / 2


def generator_round_epsilon(
    rho: Fraction, rounds: int = ROUNDS, share: Fraction = SELECTION_SHARE
) -> float:
    """Return the largest eps0 of a round at which all rounds cost at most rho, rounded down.

    Args:
      rho: The cost of all rounds.
      rounds: Number of rounds.
      share: Share of eps0 for the selection in a round; the rest is for the measurement.

    Raises:
      BudgetError: An argument is out of range, or not exact.
    """
    _check(rho, rounds, share)
    square = 2 * rho / (rounds * (share**2 + (1 - share) ** 2))
    epsilon = math.nextafter(math.sqrt(float(square)), 0.0)
    while Fraction(epsilon) ** 2 > square:
        epsilon = math.nextafter(epsilon, 0.0)
    return epsilon


def _check(amount: Fraction, rounds: int, share: Fraction) -> None:
    is_exact = isinstance(amount, Fraction) and isinstance(share, Fraction)
    if not is_exact or amount <= 0 or rounds < 1 or not 0 < share < 1:
        raise BudgetError(
            "generator",
            "needs an exact positive budget, rounds and a share between 0 and 1",
            got=f"{amount!r}, {rounds}, {share!r}",
        )
