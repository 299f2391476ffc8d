"""Costs compose exactly, convert by theorems, and never mix silently."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest

from das.errors import BudgetError
from das.privacy.cost import (
    Pure,
    ZeroConcentrated,
    compose,
    to_zero_concentrated,
)

THIRD, SIXTH = Fraction(1, 3), Fraction(1, 6)


@pytest.mark.parametrize(
    ("costs", "whole"),
    [
        ([Pure(THIRD), Pure(SIXTH)], Pure(Fraction(1, 2))),
        ([ZeroConcentrated(THIRD)] * 3, ZeroConcentrated(Fraction(1))),
        ([Pure(THIRD)], Pure(THIRD)),
    ],
)
def test_costs_of_one_definition_add_up(costs, whole):
    assert compose(costs) == whole
    assert compose(iter(costs)) == whole


@pytest.mark.parametrize(
    ("costs", "got"),
    [
        ([], r"\[\]"),
        ([Pure(THIRD), ZeroConcentrated(THIRD)], r"\['Pure', 'ZeroConcentrated'\]"),
    ],
)
def test_other_sums_are_refused(costs, got):
    with pytest.raises(BudgetError, match=f"exactly one definition; got {got}; convert"):
        compose(costs)


def test_different_definitions_compose_after_conversion():
    """One census product under zCDP and one under pure differential privacy."""
    persons, units = ZeroConcentrated(Fraction("2.56")), Pure(Fraction(1, 2))
    assert compose([persons, to_zero_concentrated(units)]) == ZeroConcentrated(
        Fraction("2.56") + Fraction(1, 8)
    )


def test_pure_implies_its_zcdp_for_the_worst_mechanism():
    """Randomized response is the worst mechanism of an epsilon; its Renyi divergence in closed form."""
    for epsilon, order in itertools.product(
        [Fraction(1, 10), Fraction(1), Fraction(5)], [1.001, 1.5, 2, 10, 100]
    ):
        e = float(epsilon)
        p, q = 1 / (1 + math.exp(-e)), 1 / (1 + math.exp(e))
        divergence = math.log(p**order * q ** (1 - order) + q**order * p ** (1 - order)) / (
            order - 1
        )
        assert divergence <= float(to_zero_concentrated(Pure(epsilon)).rho) * order


def test_the_constant_of_pure_to_zcdp_is_the_best_for_small_epsilon():
    e = 1e-3
    p, q = 1 / (1 + math.exp(-e)), 1 / (1 + math.exp(e))
    divergence = math.log(p**2 / q + q**2 / p)
    rho = float(to_zero_concentrated(Pure(Fraction(1, 1000))).rho)
    assert divergence == pytest.approx(2 * rho, rel=1e-5)


@pytest.mark.parametrize(
    ("make", "where"),
    [
        (Pure, "Pure epsilon"),
        (ZeroConcentrated, "ZeroConcentrated rho"),
    ],
)
def test_only_nonnegative_fractions_are_costs(make, where):
    for wrong in [0.5, 1, "1/2", Fraction(-1, 2)]:
        with pytest.raises(
            BudgetError, match=f"^{where}: must be a nonnegative exact fraction; got"
        ):
            make(wrong)
