"""Losses on a grid: every operation bounds the exact distribution, hardly above it."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from das.mechanisms.gaussian import DiscreteGaussian
from das.mechanisms.laplace import DiscreteLaplace
from das.mechanisms.mechanism import LossAtoms
from das.privacy.losses import Losses, compose_all, dominating, losses_of

GRID, DIGITS = Fraction(1, 50), 30
EPSILONS = [Fraction(n, 7) for n in range(-20, 60)]
UP = Fraction(1, 10**25)  # more than what is moved or rounded in these few operations

masses = st.lists(st.integers(0, 10**30), min_size=1, max_size=12).filter(any)


def losses(units: list[int], lowest: int = 0, infinite: int = 0) -> Losses:
    """On a grid with few points, probabilities in thirds of all."""
    whole = 3 * sum(units)
    scaled = tuple(unit * 10**DIGITS // whole for unit in units)
    return Losses(GRID, DIGITS, lowest, scaled, infinite)


def exact_delta(one: Losses, epsilon: Fraction) -> float:
    """In floats, of numbers that are not small."""
    points = (one.lowest + np.arange(len(one.masses))) * float(GRID)
    units = np.array([float(mass) for mass in one.masses]) / 10**DIGITS
    return float((units * np.maximum(0, -np.expm1(float(epsilon) - points))).sum()) + (
        one.infinite / 10**DIGITS
    )


@given(masses, st.integers(-40, 40))
def test_delta_and_epsilon_against_the_sum(units, lowest):
    one = losses(units, lowest, 10**20)
    for epsilon in EPSILONS:
        assert float(one.delta(epsilon)) == pytest.approx(exact_delta(one, epsilon), abs=1e-12)
    for delta in (Fraction(1, 1000), Fraction(1, 10)):
        epsilon = one.epsilon(delta)
        assert one.delta(Fraction(epsilon)) <= delta + UP
        if epsilon > 1e-6:
            assert one.delta(Fraction(epsilon) - Fraction(1, 10**7)) > delta


@given(masses, masses, st.integers(-9, 9))
def test_a_convolution_is_the_double_sum_rounded_up(one, other, lowest):
    first, second = losses(one, lowest, 10**25), losses(other)
    both = first.compose(second)
    exact: dict[int, Fraction] = {}
    for i, a in enumerate(first.masses):
        for j, b in enumerate(second.masses):
            exact[lowest + i + j] = exact.get(lowest + i + j, 0) + Fraction(a * b, 10**DIGITS)
    for offset, mass in enumerate(both.masses[1:], both.lowest + 1):
        assert 0 <= mass - exact[offset] < 1
    whole = sum(exact.values()) + Fraction(10**25 * sum(second.masses), 10**DIGITS)
    assert whole <= sum(both.masses) + both.infinite <= whole + len(exact) + 1


@given(
    st.lists(
        st.tuples(masses, st.integers(-10, 10), st.integers(0, 10**27)), min_size=2, max_size=4
    )
)
def test_what_dominates_has_the_larger_delta_everywhere_and_is_the_least_such(several):
    given_ = [losses(units, lowest, infinite) for units, lowest, infinite in several]
    above = dominating(given_)
    for epsilon in EPSILONS:
        largest = max(one.delta(epsilon) for one in given_)
        assert above.delta(epsilon) >= largest - UP
    for point in range(min(one.lowest for one in given_), above.lowest + len(above.masses)):
        largest = max(one.delta(point * GRID) for one in given_)
        infinite = max(one.infinite for one in given_)
        assert above.delta(point * GRID) <= largest + UP + Fraction(infinite, 10**DIGITS)


@pytest.mark.parametrize(
    "noise", [DiscreteGaussian(Fraction(7, 3)), DiscreteLaplace(Fraction(5, 3))]
)
def test_atoms_put_on_the_grid_bound_the_exact_sum(noise):
    found = losses_of(noise.unit_losses(DIGITS), GRID, DIGITS)
    k = np.arange(-60, 61)
    here = np.exp(noise.log_ratio(k))
    here /= here.sum()
    there = np.exp(noise.log_ratio(k - 1))
    there /= there.sum()
    for epsilon in EPSILONS:
        exact = float(np.maximum(0, here - np.exp(float(epsilon)) * there).sum())
        assert exact * (1 - 1e-12) <= found.delta(epsilon) <= exact + 1e-3


def test_a_split_keeps_both_probabilities():
    loss, probability = Fraction(3, 7), Decimal("0.25")
    found = losses_of(LossAtoms([(loss, probability)], Decimal(0)), GRID, DIGITS)
    points = [(found.lowest + i) * GRID for i in range(len(found.masses))]
    units = [Fraction(mass, 10**DIGITS) for mass in found.masses]
    assert points[0] < loss < points[-1] == points[0] + GRID
    assert 0 <= sum(units) - Fraction(1, 4) < UP
    other = sum(
        float(unit) * np.exp(-float(point)) for unit, point in zip(units, points, strict=True)
    )
    assert other == pytest.approx(0.25 * np.exp(-3 / 7), rel=1e-12)


def test_any_order_of_convolutions_will_do():
    parts = [losses([1, 2, 3]), losses([5, 0, 1], -2), losses([1, 1]), losses([2])]
    one, other = compose_all(parts), compose_all(parts[::-1])
    for epsilon in EPSILONS:
        assert abs(one.delta(epsilon) - other.delta(epsilon)) < UP
    three = parts[0].compose(parts[0]).compose(parts[0])
    assert all(abs(parts[0].repeated(3).delta(e) - three.delta(e)) < UP for e in EPSILONS)
