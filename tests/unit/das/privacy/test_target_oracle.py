"""A budget from a target: the exact delta of its noise is just below the target."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from das.errors import BudgetError
from das.mechanisms.gaussian import DiscreteGaussian
from das.mechanisms.laplace import DiscreteLaplace
from das.privacy.accounting import rho_from_epsilon
from das.privacy.loss_distribution import UnitShifts, losses_of_paths
from das.privacy.target import Measured, rho_from_noise
from das.queries.sensitivity import Neighbors

DELTA = Fraction(1, 10**6)


def measured(*sigma_sq: int) -> Measured:
    """Queries of one geolevel, by their noise at rho 1."""
    shifts = tuple(UnitShifts(DiscreteGaussian(Fraction(one))) for one in sigma_sq)
    return ((((0, 0), shifts),),)


def exact_delta(noise: list[Fraction], epsilon: float) -> float:
    """Of independent answers, each of which moves by 1."""
    one, other = np.ones(1), np.ones(1)
    for sigma_sq in noise:
        bound = math.ceil(10 * math.sqrt(sigma_sq))
        law = np.exp(-(np.arange(-bound, bound + 1.0) ** 2) / (2 * float(sigma_sq)))
        law /= law.sum()
        one = np.multiply.outer(one, np.append(law, 0)).ravel()
        other = np.multiply.outer(other, np.append(0, law)).ravel()
    return float(np.maximum(one - math.exp(epsilon) * other, 0).sum())


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(3)])
@pytest.mark.parametrize("sigma_sq", [(1,), (1, 3)])
def test_the_exact_delta_is_kept_and_a_little_more_rho_would_not_keep_it(sigma_sq, epsilon):
    rho = rho_from_noise(1, measured(*sigma_sq), Neighbors.UNBOUNDED, epsilon, DELTA)
    noise = [Fraction(one) / rho for one in sigma_sq]
    assert exact_delta(noise, float(epsilon)) <= float(DELTA) * (1 + 1e-9)
    more = [one / Fraction(101, 100) for one in noise]
    assert exact_delta(more, float(epsilon)) > float(DELTA)
    whole = rho * sum(Fraction(1, 2 * one) for one in sigma_sq)
    assert whole > rho_from_epsilon(epsilon, DELTA)  # what rho alone affords


def test_it_is_the_largest_multiple_of_the_fifth_digit_of_what_rho_affords():
    asked = measured(4, 9, 9)
    rho = rho_from_noise(1, asked, Neighbors.BOUNDED, Fraction(2), DELTA)
    least = rho_from_epsilon(Fraction(2), DELTA)
    unit = Fraction(10) ** (math.floor(math.log10(least)) - 4)
    assert (rho / unit).denominator == 1

    def epsilon(total: Fraction) -> float:
        ((chain, shifts),) = asked[0]
        at = tuple(UnitShifts(DiscreteGaussian(s.mechanism.parameter / total)) for s in shifts)
        return losses_of_paths(1, [{chain: at}], Neighbors.BOUNDED, DELTA).epsilon(DELTA)

    assert epsilon(rho) <= 2 < epsilon(rho + unit)


def test_it_refuses_noise_whose_cost_is_not_inverse_to_its_parameter():
    shifts = (UnitShifts(DiscreteLaplace(Fraction(3))),)
    with pytest.raises(
        BudgetError, match=r"is not inverse to its parameter.*set epsilon_from to rho"
    ):
        rho_from_noise(1, ((((0, 0), shifts),),), Neighbors.BOUNDED, Fraction(1), DELTA)
