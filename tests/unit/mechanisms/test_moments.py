"""Probabilities and moments agree with their definitions to 1e-12."""

import math
from fractions import Fraction

import flint
import pytest

from das.errors import BudgetError
from das.mechanisms import moments

SIGMA_SQ = [
    Fraction(1, 30),
    Fraction(1, 4),
    Fraction(99, 100),
    Fraction(1),
    Fraction(101, 100),
    Fraction(2),
    Fraction(100),
    Fraction(4096),
    Fraction(12345),
]


@pytest.fixture(params=SIGMA_SQ, ids=str)
def law(request):
    """sigma_sq, P(X = k) for k >= 0 and the variance, from the definition at 200 bits."""
    sigma_sq = request.param
    before = flint.ctx.prec
    flint.ctx.prec = 200
    reach = 15 * math.isqrt(math.ceil(sigma_sq)) + 15
    exponents = [Fraction(-k * k) / (2 * sigma_sq) for k in range(reach)]
    weights = [flint.arb(flint.fmpq(e.numerator, e.denominator)).exp() for e in exponents]
    total = weights[0] + 2 * sum(weights[1:], flint.arb(0))
    variance = sum((2 * k * k * w for k, w in enumerate(weights)), flint.arb(0)) / total
    yield sigma_sq, [w / total for w in weights], variance
    flint.ctx.prec = before


def test_pmf(law):
    sigma_sq, pmf, _ = law
    for k in (0, 1, 2, 5, len(pmf) // 3):
        assert moments.pmf(k, sigma_sq=sigma_sq) == pytest.approx(float(pmf[k]), rel=1e-12)
        assert moments.pmf(-k, sigma_sq=sigma_sq) == moments.pmf(k, sigma_sq=sigma_sq)


def test_variance(law):
    sigma_sq, _, variance = law
    assert moments.variance(sigma_sq=sigma_sq) == pytest.approx(float(variance), rel=1e-12)


def test_cdf(law):
    sigma_sq, pmf, _ = law
    for k in (0, 1, 3, len(pmf) // 4):
        upper_tail = sum(pmf[k + 1 :], flint.arb(0))
        upper, lower = moments.cdf(k, sigma_sq=sigma_sq), moments.cdf(-k - 1, sigma_sq=sigma_sq)
        assert lower == pytest.approx(float(upper_tail), rel=1e-9, abs=1e-300)
        assert upper == pytest.approx(1 - float(upper_tail), rel=1e-14)


def test_quantile_is_the_least_that_covers(law):
    sigma_sq = law[0]
    for probability in (1e-6, 0.05, 0.5, 0.9, 0.975, 0.999999):
        k = moments.quantile(probability, sigma_sq=sigma_sq)
        assert moments.cdf(k, sigma_sq=sigma_sq) >= probability
        assert moments.cdf(k - 1, sigma_sq=sigma_sq) < probability


@pytest.mark.parametrize(
    "sigma_sq", [Fraction(1, 100), Fraction(1, 4), Fraction(1), Fraction(3, 2)]
)
def test_variance_is_less_than_sigma_sq(sigma_sq):
    assert moments.variance(sigma_sq=sigma_sq) < sigma_sq


def test_variance_of_extreme_scales():
    assert moments.variance(sigma_sq=Fraction(1, 10**15)) == 0.0
    assert moments.variance(sigma_sq=Fraction(10**12)) == 1e12


def test_both_ways_of_the_cdf_meet():
    """Just above and below the limit the cdf hardly changes with sigma_sq."""
    limit = moments.DIRECT_CDF_SIGMA**2
    for k in (-400, -64, -1, 0, 30):
        direct = moments.cdf(k, sigma_sq=Fraction(limit))
        smooth = moments.cdf(k, sigma_sq=Fraction(limit) + Fraction(1, 10**15))
        assert smooth == pytest.approx(direct, rel=1e-10, abs=1e-14)


def test_quantiles_of_large_scales_are_those_of_the_normal_law():
    assert moments.quantile(0.975, sigma_sq=Fraction(10**12)) == 1_959_964
    assert moments.quantile(0.025, sigma_sq=Fraction(10**12)) == -1_959_964


@pytest.mark.parametrize("probability", [0.0, 1.0, -0.5, math.nan])
def test_impossible_probabilities_are_refused(probability):
    with pytest.raises(BudgetError, match=f"got {probability}; expected 0 < p < 1"):
        moments.quantile(probability, sigma_sq=Fraction(1))


def test_impossible_scales_are_refused():
    for function in (moments.variance, moments.normalizer):
        with pytest.raises(BudgetError, match="must be positive; got -1"):
            function(sigma_sq=Fraction(-1))
