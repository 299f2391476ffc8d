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


SCALES = [
    Fraction(1, 30),
    Fraction(1, 2),
    Fraction(1),
    Fraction(5),
    Fraction(1000, 7),
]
PRECISION = 200


@pytest.fixture
def _precise():
    before = flint.ctx.prec
    flint.ctx.prec = PRECISION
    yield
    flint.ctx.prec = before


@pytest.fixture(params=SCALES, ids=str)
def laplace(request, _precise):
    """The scale, P(X = k) for k >= 0 and the variance, from the defining sums."""
    scale = request.param
    reach = 100 * math.ceil(scale)
    exponents = [-k / scale for k in range(reach)]
    weights = [flint.arb(flint.fmpq(e.numerator, e.denominator)).exp() for e in exponents]
    total = weights[0] + 2 * sum(weights[1:], flint.arb(0))
    variance = sum((2 * k * k * w for k, w in enumerate(weights)), flint.arb(0)) / total
    return scale, [w / total for w in weights], variance


@pytest.fixture(params=SIGMA_SQ, ids=str)
def law(request, _precise):
    """sigma_sq, P(X = k) for k >= 0 and the variance, from the definition at 200 bits."""
    sigma_sq = request.param
    reach = 15 * math.isqrt(math.ceil(sigma_sq)) + 15
    exponents = [Fraction(-k * k) / (2 * sigma_sq) for k in range(reach)]
    weights = [flint.arb(flint.fmpq(e.numerator, e.denominator)).exp() for e in exponents]
    total = weights[0] + 2 * sum(weights[1:], flint.arb(0))
    variance = sum((2 * k * k * w for k, w in enumerate(weights)), flint.arb(0)) / total
    return sigma_sq, [w / total for w in weights], variance


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


def test_laplace_variance(laplace):
    scale, _, variance = laplace
    assert moments.laplace_variance(scale=scale) == pytest.approx(float(variance), rel=1e-12)


def test_laplace_cdf(laplace):
    scale, pmf, _ = laplace
    for k in (0, 1, 3, len(pmf) // 4):
        upper_tail = sum(pmf[k + 1 :], flint.arb(0))
        upper = moments.laplace_cdf(k, scale=scale)
        lower = moments.laplace_cdf(-k - 1, scale=scale)
        assert lower == pytest.approx(float(upper_tail), rel=1e-12, abs=1e-300)
        assert upper == pytest.approx(1 - float(upper_tail), rel=1e-14)


def test_laplace_quantile_is_the_least_that_covers(laplace):
    scale, pmf, _ = laplace
    for probability in (1e-6, 0.05, 0.5, 0.9, 0.975, 0.999999):
        k = moments.laplace_quantile(probability, scale=scale)
        assert moments.laplace_cdf(k, scale=scale) >= probability
        assert moments.laplace_cdf(k - 1, scale=scale) < probability
    assert moments.laplace_quantile(0.5, scale=scale) == 0


@pytest.mark.usefixtures("_precise")
def test_laplace_of_extreme_scales():
    """Against the closed forms in ball arithmetic, where a float 1 - a would lose all digits."""
    tiny = Fraction(1, 10**4)
    assert moments.laplace_variance(scale=tiny) == 0.0
    assert moments.laplace_cdf(-1, scale=tiny) == 0.0
    assert moments.laplace_cdf(0, scale=tiny) == 1.0
    for scale in (Fraction(10**9), Fraction(2**39), Fraction(10**9, 7)):
        inverse = 1 / scale
        fall = (-flint.arb(flint.fmpq(inverse.numerator, inverse.denominator))).exp()
        variance = 2 * fall / (1 - fall) ** 2
        assert moments.laplace_variance(scale=scale) == pytest.approx(float(variance), rel=1e-14)
        k = int(3 * scale)
        tail = fall**k / (1 + fall)
        assert moments.laplace_cdf(-k, scale=scale) == pytest.approx(float(tail), rel=1e-13)
        assert moments.laplace_quantile(float(tail), scale=scale) == pytest.approx(-k, rel=1e-12)


@pytest.mark.parametrize("probability", [0.0, 1.0, -0.5, math.nan])
def test_impossible_probabilities_are_refused(probability):
    with pytest.raises(BudgetError, match=f"got {probability}; expected 0 < p < 1"):
        moments.quantile(probability, sigma_sq=Fraction(1))
    with pytest.raises(BudgetError, match=f"got {probability}; expected 0 < p < 1"):
        moments.laplace_quantile(probability, scale=Fraction(1))
