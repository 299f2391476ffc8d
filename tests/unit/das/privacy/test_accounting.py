"""Conversions of rho to epsilon reproduce published digits, and refuse what is not exact."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from das.errors import BudgetError
from das.privacy.accounting import epsilon_bun_steinke, epsilon_from_rho, rho_from_epsilon
from tests.unit.das.privacy.releases import PAGE, page_rows, rounded_up

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


# rho | simple | optimum | exact for one continuous Gaussian of this rho, all at delta 10^-10.
TABLE = [
    ("2.56", "17.9153", "17.1583", "16.4794"),
    ("0.07", "2.6091", "2.3873", "2.2796"),
    ("2.63", "18.1938", "17.4306", "16.7420"),
    ("15.29", "52.8168", "51.5626", "49.8034"),
]


@pytest.mark.parametrize(("rho", "simple", "optimum", "gaussian"), TABLE)
def test_the_conversion_table(rho, simple, optimum, gaussian):
    exact = Fraction(rho)
    assert f"{epsilon_bun_steinke(exact, DELTA):.4f}" == simple
    assert f"{epsilon_from_rho(exact, DELTA):.4f}" == optimum
    assert f"{_gaussian_epsilon(exact, DELTA):.4f}" == gaussian


def test_conversions_in_the_accounting_page():
    table = page_rows("| rho | simple")
    assert len(table) == 4
    for rho, simple, optimum, gaussian in table:
        exact = Fraction(rho)
        assert simple == rounded_up(epsilon_bun_steinke(exact, DELTA))
        assert optimum == rounded_up(epsilon_from_rho(exact, DELTA))
        assert gaussian == rounded_up(_gaussian_epsilon(exact, DELTA))


def test_the_sum_of_two_products_in_the_accounting_page():
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    together = rounded_up(epsilon_from_rho(PERSONS + UNITS, DELTA))
    apart = rounded_up(epsilon_from_rho(PERSONS, DELTA) + epsilon_from_rho(UNITS, DELTA))
    assert f"together {float(PERSONS + UNITS):.4f}, and epsilon {together}" in text
    assert f"would give {apart} at twice the delta" in text


def _gaussian_epsilon(rho: Fraction, delta: Fraction) -> float:
    """Exact for one Gaussian: delta = Phi(m/2 - e/m) - exp(e) Phi(-m/2 - e/m), m^2 = 2 rho."""
    m = math.sqrt(2 * rho)

    def excess(epsilon: float) -> float:
        lower = math.exp(epsilon + norm.logcdf(-m / 2 - epsilon / m))
        return norm.cdf(m / 2 - epsilon / m) - lower - float(delta)

    return float(brentq(excess, 0, 1000, xtol=1e-12))


@pytest.mark.parametrize(
    ("rho", "moments", "gaussian"),
    [
        ("2.56", "17.1584", "16.4794"),
        ("0.07", "2.3873", "2.2796"),
        ("2.63", "17.4314", "16.7420"),
        ("15.29", "51.5630", "49.8034"),
    ],
)
def test_the_conversion_table_by_another_library(rho, moments, gaussian):
    """Its moments accountant looks at some alpha only, so it is at or above our optimum."""
    dp_accounting = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import privacy_loss_distribution
    from dp_accounting.rdp import RdpAccountant

    event = dp_accounting.ZCDpEvent(float(Fraction(rho)))
    epsilon = RdpAccountant().compose(event).get_epsilon(1e-10)
    assert f"{epsilon:.4f}" == moments
    assert epsilon >= epsilon_from_rho(Fraction(rho), DELTA) - 1e-12
    distribution = privacy_loss_distribution.from_gaussian_mechanism(
        1 / math.sqrt(2 * Fraction(rho)), use_connect_dots=True
    )
    assert f"{distribution.get_epsilon_for_delta(1e-10):.4f}" == gaussian


# A strategy of scale 343/256, so rho (256/343)^2 or epsilon 256/343, with shares of 1024 for nation,
# state, county, tract, block group, block. A value that is inside a geolevel spends the shares
# below it. The query shares are not published; the pure epsilons .203552 and .339253 imply that
# 3/11 of the budget touches hhgq and 5/11 each other attribute, and the others agree with that.
OLD_SCALE = Fraction(343, 256)
OLD_SHARES = (44, 44, 44, 44, 127, 721)
OLD_PARTS = [
    (Fraction(3, 11), "3.59809", "3.89258", "0.203552"),
    (Fraction(5, 11), "4.72920", "5.08237", "0.339253"),
    (Fraction(sum(OLD_SHARES[1:]), 1024), "7.08372", "7.54035", "0.714286"),
    (Fraction(sum(OLD_SHARES[2:]), 1024), "6.90772", "7.35730", "0.682216"),
    (Fraction(sum(OLD_SHARES[3:]), 1024), "6.72818", "7.17047", "0.650146"),
    (Fraction(sum(OLD_SHARES[4:]), 1024), "6.54483", "6.97956", "0.618076"),
    (Fraction(sum(OLD_SHARES[5:]), 1024), "5.99135", "6.40259", "0.525510"),
]


@pytest.mark.parametrize(("part", "optimum", "simple", "pure"), OLD_PARTS)
def test_published_parts_of_an_earlier_strategy(part, optimum, simple, pure):
    rho = part / OLD_SCALE**2
    assert f"{epsilon_from_rho(rho, DELTA):.5f}" == optimum
    assert f"{epsilon_bun_steinke(rho, DELTA):.5f}" == simple
    assert f"{float(part / OLD_SCALE):.6f}" == pure


@pytest.mark.parametrize(
    ("part", "optimum"),
    [
        ("7.65", "107.74557956"),
        ("7.14", "102.58843891"),
        ("11.9", "148.49113099"),
        ("8.5", "116.18815593"),
    ],
)
def test_published_parts_of_a_large_budget(part, optimum):
    """Parts of a pure epsilon of 17 for hhgq, votingage, within tract, within block group.

    With scale 1/10, so rho 100, the same parts of rho have these epsilons. The published ones
    stop a search a little below the optimum.
    """
    rho = 100 * Fraction(part) / 17
    assert 0 < epsilon_from_rho(rho, DELTA) - float(optimum) < 5e-8


def test_no_cost_is_no_epsilon():
    assert epsilon_from_rho(Fraction(0), DELTA) == 0
    assert epsilon_bun_steinke(Fraction(0), DELTA) == 0


def test_a_delta_too_small_for_a_float():
    tiny = Fraction(1, 10**400)
    simple = epsilon_bun_steinke(Fraction(1), tiny)
    assert simple == pytest.approx(1 + 2 * math.sqrt(400 * math.log(10)), rel=2e-9)
    assert simple - 1 < epsilon_from_rho(Fraction(1), tiny) < simple


@pytest.mark.parametrize("rho", [Fraction(1, 10**400), Fraction(1), Fraction(10**40)])
@pytest.mark.parametrize("delta", [Fraction(1, 10**400), 1 - Fraction(1, 10**400)])
def test_no_extreme_overflows_and_the_simple_formula_still_bounds(rho, delta):
    assert (
        0 <= epsilon_from_rho(rho, delta) <= epsilon_bun_steinke(rho, delta) * (1 + 1e-14) + 1e-40
    )
    assert Fraction(epsilon_bun_steinke(rho, delta)) > rho


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
def test_conversions_refuse(rho, delta, message):
    for convert in [epsilon_from_rho, epsilon_bun_steinke]:
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


def test_the_inverse_where_epsilon_is_below_rho():
    """At a delta near 1 an epsilon of 5 allows a rho of more than 5."""
    rho = rho_from_epsilon(Fraction(5), Fraction(99, 100))
    assert rho > 5
    assert epsilon_from_rho(rho, Fraction(99, 100)) <= 5
    assert epsilon_from_rho(rho + Fraction(1, 10**9), Fraction(99, 100)) > 5


def _digits(printed: str) -> int:
    return len(printed.split(".")[1])
