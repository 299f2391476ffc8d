"""The cost of GEM's rounds: published check values, and by its parts."""

from __future__ import annotations

from fractions import Fraction

import pytest

from das.errors import BudgetError
from das.mechanisms.exponential import Selection
from das.privacy.accounting import epsilon_from_rho, rho_from_epsilon
from das.synthesis.private_generator import generator_rho, generator_round_epsilon

DELTA = Fraction(1, 10**9)


@pytest.mark.parametrize(
    ("nominal", "rho", "epsilon"),
    [
        ("0.01", 0.00279, 0.42),
        ("0.05", 0.0697, 2.2),
        ("0.1", 0.279, 4.7),
        ("0.5", 6.97, 30),
        ("1", 27.9, 74),
        ("5", 697, 935),
    ],
)
def test_an_epsilon_for_all_that_is_given_to_every_round(nominal, rho, epsilon):
    cost = generator_rho(Fraction(nominal))
    assert float(cost) == pytest.approx(rho, rel=2e-3)
    assert epsilon_from_rho(cost, DELTA) == pytest.approx(epsilon, rel=0.02)


def test_the_right_epsilon_of_a_round():
    rho = rho_from_epsilon(Fraction(1), DELTA)
    found = generator_round_epsilon(rho)
    assert found == pytest.approx(0.0232, abs=5e-5)
    assert rho * (1 - Fraction(1, 10**12)) < generator_rho(Fraction(found)) <= rho


def test_a_round_is_a_selection_and_an_answer():
    epsilon, share = Fraction(1, 50), Fraction(2, 3)
    selection = Selection(2 * share * epsilon, 1).rho
    answer = ((1 - share) * epsilon) ** 2 / 2
    assert generator_rho(epsilon, 7, share) == 7 * (selection + answer)


@pytest.mark.parametrize(
    "make",
    [
        lambda: generator_rho(Fraction(0)),
        lambda: generator_rho(0.5),
        lambda: generator_rho(Fraction(1), rounds=0),
        lambda: generator_round_epsilon(Fraction(1), share=Fraction(1)),
    ],
)
def test_bad_input_is_refused(make):
    with pytest.raises(BudgetError):
        make()
