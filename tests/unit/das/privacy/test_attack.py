"""Bounds on attacks: above every test there is, and hardly above where theory says so."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from das.definition import Definition
from das.errors import BudgetError
from das.mechanisms.gaussian import DiscreteGaussian
from das.mechanisms.laplace import DiscreteLaplace
from das.privacy import attack
from das.privacy.attack import AttacksByEpsilon, AttacksByLosses, AttacksByRho
from das.privacy.loss_distribution import UnitShifts, losses_of_paths
from das.queries.sensitivity import Neighbors

DELTA = Fraction(1, 10**10)
RATES = attack.FALSE_POSITIVE_RATES
OWN_ROUNDING = 1 - 1e-12  # of the sums in floats that bounds are compared with


def by_noise(*shifts: UnitShifts) -> AttacksByLosses:
    return AttacksByLosses(losses_of_paths(1, [{(0, 0): shifts}], Neighbors.UNBOUNDED, DELTA))


def best_test(one: np.ndarray, other: np.ndarray, false_positive_rate: float) -> float:
    """Says yes where the ratio of likelihoods is largest, at random on the last of them."""
    order = np.argsort(-one / other, kind="stable")
    said, right = np.cumsum(other[order]), np.cumsum(one[order])
    return float(np.interp(false_positive_rate, [0.0, *said], [0.0, *right]))


def laws(shifts: list[UnitShifts]) -> tuple[np.ndarray, np.ndarray]:
    """Both joint laws of answers that one data set moves by 1; all but 10^-14 of them."""
    one, other, k = np.ones(1), np.ones(1), np.arange(-34, 36)
    for shift in shifts:
        here, there = (np.exp(shift.mechanism.log_ratio(at)) for at in (k, k - 1))
        one = np.multiply.outer(one, here / here.sum()).ravel()
        other = np.multiply.outer(other, there / there.sum()).ravel()
    return one, other


@pytest.mark.parametrize(
    "noise",
    [
        [DiscreteGaussian(Fraction(1))],
        [DiscreteGaussian(Fraction(3, 2)), DiscreteGaussian(Fraction(4))],
        [DiscreteLaplace(Fraction(1))],
        [DiscreteLaplace(Fraction(1, 2)), DiscreteLaplace(Fraction(1))],
        [DiscreteLaplace(Fraction(1)), DiscreteGaussian(Fraction(5))],
    ],
)
def test_no_test_is_better_than_the_bounds_and_the_losses_are_the_best_test(noise):
    shifts = [UnitShifts(one) for one in noise]
    pair = laws(shifts)
    found = [by_noise(*shifts), AttacksByRho(sum(shift.rho for shift in shifts))]
    if all(one.kind == "discrete_laplace" for one in noise):
        found.append(AttacksByEpsilon(sum(1 / one.parameter for one in noise)))
    for one, other in (pair, pair[::-1]):
        variation = float(np.maximum(one - other, 0).sum())
        assert all(variation * OWN_ROUNDING <= bounds.advantage() for bounds in found)
        assert found[0].advantage() <= variation * 1.001
        for rate in RATES:
            best = best_test(one, other, float(rate))
            assert all(best * OWN_ROUNDING <= bounds.true_positive_rate(rate) for bounds in found)
            assert found[0].true_positive_rate(rate) <= best * 1.01  # the split onto the grid


@pytest.mark.parametrize("rho", [Fraction(1, 100), Fraction(1, 2), Fraction(3)])
def test_the_bounds_of_rho_hold_for_continuous_noise_of_that_rho(rho):
    bounds, mu = AttacksByRho(rho), math.sqrt(2 * rho)
    assert attack.mu_gdp(rho) == pytest.approx(mu, rel=1e-15)
    assert 2 * stats.norm.cdf(mu / 2) - 1 <= bounds.advantage() <= 1
    for rate in RATES:
        gaussian = stats.norm.cdf(stats.norm.ppf(float(rate)) + mu)
        assert gaussian <= bounds.true_positive_rate(rate) <= 1


def test_the_bound_of_rho_is_the_least_over_all_orders():
    rho = Fraction(1, 2)
    for rate in (Fraction(1, 10**6), Fraction(1, 1000)):
        orders = 1 + np.geomspace(1e-3, 1e3, 4001)
        exponents = (orders - 1) * (float(rho) + math.log(rate) / orders)
        least = math.exp(exponents.min())
        assert float(AttacksByRho(rho).true_positive_rate(rate)) == pytest.approx(least, rel=1e-5)


def test_many_measurements_are_close_to_mu_gdp_and_one_is_not():
    rho, rate = Fraction(2), Fraction(1, 100)
    gaussian = stats.norm.cdf(stats.norm.ppf(0.01) + 2)
    many = by_noise(UnitShifts(DiscreteGaussian(100 / (2 * rho)), 100)).true_positive_rate(rate)
    one = by_noise(UnitShifts(DiscreteGaussian(1 / (2 * rho)))).true_positive_rate(rate)
    assert float(many) == pytest.approx(gaussian, rel=1e-3)
    assert abs(float(one) - gaussian) > 0.01


def test_without_loss_there_is_nothing_to_gain_but_guesses():
    for bounds in (AttacksByRho(Fraction(0)), AttacksByEpsilon(Fraction(0))):
        assert bounds.advantage() < Fraction(1, 10**19)
        for rate in RATES:
            assert 0 <= bounds.true_positive_rate(rate) - rate < Fraction(1, 10**29)


def test_absurd_losses_gain_all():
    """Where e^-epsilon is below the least decimal number."""
    for bounds in (AttacksByRho(Fraction(10**18)), AttacksByEpsilon(Fraction(10**18))):
        assert float(bounds.advantage()) == 1
        assert {float(bounds.true_positive_rate(rate)) for rate in RATES} == {1}


def test_more_loss_never_gains_less():
    for definition in Definition:
        found = [attack.attacks_of_total(definition, Fraction(n, 10)) for n in (1, 5, 20, 100, 900)]
        for less, more in itertools.pairwise(found):
            assert less.advantage() <= more.advantage() <= 1
            for rate in RATES:
                assert less.true_positive_rate(rate) <= more.true_positive_rate(rate) <= 1


@pytest.mark.parametrize("rate", [Fraction(0), Fraction(1), 0.5])
def test_it_refuses_a_rate(rate):
    with pytest.raises(BudgetError, match="false positive rate: must be an exact fraction"):
        AttacksByRho(Fraction(1)).true_positive_rate(rate)
