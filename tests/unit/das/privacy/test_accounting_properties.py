"""Conversions: valid claims, rounded up, monotone, and inverse to each other."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from das.privacy.accounting import epsilon_bun_steinke, epsilon_from_rho, rho_from_epsilon

# From 10^-12 to 10^6, and from 10^-30 to 1/2.
RHOS = st.builds(
    lambda m, e: Fraction(m, 1000) * Fraction(10) ** e, st.integers(1000, 9999), st.integers(-12, 5)
)
DELTAS = st.builds(
    lambda m, e: Fraction(m, 10) * Fraction(10) ** e, st.integers(10, 50), st.integers(-30, -1)
)


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def _exact_epsilon(rho: Fraction, delta: Fraction) -> Decimal:
    """The minimum over alpha in 80-digit arithmetic, by golden section in ln(alpha - 1)."""
    with localcontext() as context:
        context.prec = 80
        r, log_delta = _decimal(rho), _decimal(delta).ln()

        def epsilon(t: Decimal) -> Decimal:
            a = t.exp()
            return (1 + a) * r + ((1 + a) * (a / (1 + a)).ln() - a.ln() - log_delta) / a

        low, high = Decimal(-45), Decimal(45)
        ratio = (Decimal(5).sqrt() - 1) / 2
        for _ in range(120):
            first, second = high - ratio * (high - low), low + ratio * (high - low)
            if epsilon(first) < epsilon(second):
                high = second
            else:
                low = first
        return epsilon((low + high) / 2)


@settings(max_examples=25)
@given(RHOS, DELTAS)
def test_the_optimum_is_claimed_rounded_up(rho, delta):
    """Up to the next float, and no further."""
    exact = max(Decimal(0), _exact_epsilon(rho, delta))
    with localcontext() as context:
        context.prec = 80
        claimed = Decimal(epsilon_from_rho(rho, delta))
        assert exact * (1 - Decimal("1e-40")) <= claimed
        assert claimed <= exact * (1 + Decimal("3e-16")) + Decimal("1e-25")


@given(RHOS, DELTAS)
def test_the_simple_formula_is_rounded_up(rho, delta):
    with localcontext() as context:
        context.prec = 60
        r = _decimal(rho)
        exact = r + 2 * (-r * _decimal(delta).ln()).sqrt()
        claimed = Decimal(epsilon_bun_steinke(rho, delta))
        assert exact <= claimed <= exact * (1 + Decimal("3e-16"))


@given(RHOS, DELTAS)
def test_the_optimum_is_never_worse_than_the_simple_formula(rho, delta):
    assert epsilon_from_rho(rho, delta) <= epsilon_bun_steinke(rho, delta)


@given(RHOS, DELTAS, st.integers(1, 1000), st.sampled_from([epsilon_from_rho, epsilon_bun_steinke]))
def test_more_budget_costs_more_and_a_smaller_delta_too(rho, delta, percent, convert):
    more = rho * (1 + Fraction(percent, 100))
    less = delta / (1 + Fraction(percent, 100))
    least = convert(rho, delta)
    for other in (convert(more, delta), convert(rho, less)):
        assert other > least or other == least == 0  # a small enough rho is hidden by delta


@given(
    st.builds(Fraction, st.integers(1, 4000), st.sampled_from([10, 100])),
    st.builds(Fraction, st.just(1), st.sampled_from([10**3, 10**6, 10**10, 10**20])),
)
def test_the_inverse_is_the_largest_rho_that_fits(epsilon, delta):
    unit = Fraction(1, 10**9)
    rho = rho_from_epsilon(epsilon, delta)
    assert (rho / unit).denominator == 1
    assert Fraction(epsilon_from_rho(rho, delta)) <= epsilon
    assert Fraction(epsilon_from_rho(rho + unit, delta)) > epsilon


@given(RHOS, DELTAS)
def test_going_there_and_back_loses_next_to_nothing(rho, delta):
    epsilon = Fraction(epsilon_from_rho(rho, delta))
    if epsilon <= Fraction(1, 100) or delta > Fraction(1, 1000):
        return
    back = rho_from_epsilon(epsilon, delta)
    assert rho * (1 - Fraction(1, 10**7)) - Fraction(2, 10**9) <= back
    assert back <= rho * (1 + Fraction(1, 10**7)) + Fraction(1, 10**9)
