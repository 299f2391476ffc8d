"""Conversions of rho to epsilon reproduce published digits, and refuse what is not exact."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from das.errors import BudgetError
from das.privacy.accounting import epsilon_bun_steinke, epsilon_from_rho, rho_from_epsilon

DELTA = Fraction(1, 10**10)
PERSONS = Fraction(293764, 114921)  # 2020 redistricting release, United States
UNITS = Fraction(11417641, 152349649)


@pytest.mark.parametrize(
    ("rho", "optimum", "simple"),
    [
        (PERSONS, "17.14", "17.90"),
        (UNITS, "2.47", "2.702"),
        (Fraction("4.9622"), "25.42", "26.34"),
        (Fraction("7.7005"), "33.29", "34.33"),
    ],
)
def test_published_epsilons_of_the_2020_products(rho, optimum, simple):
    assert f"{epsilon_from_rho(rho, DELTA):.{_digits(optimum)}f}" == optimum
    assert f"{epsilon_bun_steinke(rho, DELTA):.{_digits(simple)}f}" == simple


# A strategy of rho (256/343)^2 with shares of 1024 for nation, state, county, tract, block group,
# block, of which 3/11 touch one attribute and 5/11 each other. A value that is inside a geolevel
# spends the shares below it.
OLD_RHO = Fraction(256, 343) ** 2
OLD_SHARES = (44, 44, 44, 44, 127, 721)


@pytest.mark.parametrize(
    ("part", "optimum", "simple"),
    [
        (Fraction(3, 11), "3.59809", "3.89258"),
        (Fraction(5, 11), "4.72920", "5.08237"),
        (Fraction(sum(OLD_SHARES[1:]), 1024), "7.08372", "7.54035"),
        (Fraction(sum(OLD_SHARES[2:]), 1024), "6.90772", "7.35730"),
        (Fraction(sum(OLD_SHARES[3:]), 1024), "6.72818", "7.17047"),
        (Fraction(sum(OLD_SHARES[4:]), 1024), "6.54483", "6.97956"),
        (Fraction(sum(OLD_SHARES[5:]), 1024), "5.99135", "6.40259"),
    ],
)
def test_published_parts_of_an_earlier_strategy(part, optimum, simple):
    assert f"{epsilon_from_rho(OLD_RHO * part, DELTA):.5f}" == optimum
    assert f"{epsilon_bun_steinke(OLD_RHO * part, DELTA):.5f}" == simple


@pytest.mark.parametrize(
    ("part", "optimum"),
    [
        ("7.65", 107.74557956),
        ("7.14", 102.58843891),
        ("11.9", 148.49113099),
        ("8.5", 116.18815593),
    ],
)
def test_published_parts_of_a_large_budget(part, optimum):
    """Rho 100, of which parts of 17."""
    epsilon = epsilon_from_rho(100 * Fraction(part) / 17, DELTA)
    assert optimum - 1e-8 <= epsilon <= optimum + 2e-7  # rounded up by at most one in 10^9


def test_no_cost_is_no_epsilon():
    assert epsilon_from_rho(Fraction(0), DELTA) == 0
    assert epsilon_bun_steinke(Fraction(0), DELTA) == 0


def test_a_delta_too_small_for_a_float():
    tiny = Fraction(1, 10**400)
    simple = epsilon_bun_steinke(Fraction(1), tiny)
    assert simple == pytest.approx(1 + 2 * math.sqrt(400 * math.log(10)), rel=2e-9)
    assert simple - 1 < epsilon_from_rho(Fraction(1), tiny) < simple


@pytest.mark.parametrize("convert", [epsilon_from_rho, epsilon_bun_steinke])
@pytest.mark.parametrize(
    ("rho", "delta", "message"),
    [
        (1.0, DELTA, r"^rho: must be a nonnegative exact fraction; got 1\.0$"),
        (1, DELTA, r"^rho: must be"),
        (
            Fraction(-1),
            DELTA,
            r"^rho: must be a nonnegative exact fraction; got Fraction\(-1, 1\)$",
        ),
        (Fraction(1), 1e-10, r"^delta: must be an exact fraction between 0 and 1; got 1e-10$"),
        (Fraction(1), Fraction(0), r"^delta: must be"),
        (Fraction(1), Fraction(1), r"^delta: must be"),
    ],
)
def test_conversions_refuse(convert, rho, delta, message):
    with pytest.raises(BudgetError, match=message):
        convert(rho, delta)


@pytest.mark.parametrize("epsilon", [1.0, 1, Fraction(0), Fraction(-1)])
def test_the_inverse_refuses(epsilon):
    with pytest.raises(BudgetError, match=r"^epsilon: must be a positive exact fraction; got"):
        rho_from_epsilon(epsilon, DELTA)


def test_the_inverse_refuses_an_epsilon_below_any_budget():
    with pytest.raises(BudgetError, match="is too small for any budget at this delta"):
        rho_from_epsilon(Fraction(1, 10**8), DELTA)


def test_the_inverse_at_a_known_point():
    rho = rho_from_epsilon(Fraction("17.14"), DELTA)
    assert rho.denominator <= 10**9
    assert 2.55 < rho < PERSONS + Fraction(1, 1000)
    assert epsilon_from_rho(rho, DELTA) <= 17.14 < epsilon_from_rho(rho + Fraction(1, 10**9), DELTA)


def _digits(printed: str) -> int:
    return len(printed.split(".")[1])
