"""The table samplers have exactly the stated laws, on the common path and on the rare ones.

With words of a few bits, undecided draws are common, so the decision tree covers their settlement.
With words of 63 bits, the thresholds and the settlement are compared with ball arithmetic (Arb).
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial

import flint
import numpy as np
import pytest

from das.mechanisms import wide
from das.mechanisms.certified import Bounds, Weights, exp_bounds
from das.mechanisms.gaussian import WIDE_SIGMA_SQ, DiscreteGaussian
from das.mechanisms.laplace import DiscreteLaplace
from das.mechanisms.table import (
    SamplingTable,
    build_table,
    gaussian_table,
    laplace_table,
)
from das.mechanisms.wide import MOST_TABLE_SCALE, WideSampler
from tests.evidence.exact.decision_tree import follow, gaussian_probability, laplace_probability

SIGMA_SQ = [
    Fraction(1, 100),
    Fraction(1, 4),
    Fraction(3, 7),
    Fraction(1),
    Fraction(100),
    Fraction(12345, 7),
]
SMALL_SIGMA_SQ = [Fraction(1, 4), Fraction(3, 7), Fraction(1), Fraction(9, 2)]
SCALES = [Fraction(1, 40), Fraction(1, 2), Fraction(1), Fraction(50, 3), Fraction(255)]
SMALL_SCALES = [Fraction(1, 3), Fraction(1, 2), Fraction(5, 3), Fraction(4)]


@pytest.fixture
def _remembered(monkeypatch):
    """Compute each bound once: the tree replays the same settlements many times."""
    monkeypatch.setattr(Weights, "cumulative_bounds", cache(Weights.cumulative_bounds))
    monkeypatch.setattr(wide, "exp_bounds", cache(exp_bounds))


@pytest.fixture
def _precise():
    before = flint.ctx.prec
    flint.ctx.prec = 400
    yield
    flint.ctx.prec = before


def arb_exp(exponent: Fraction) -> flint.arb:
    return flint.arb(flint.fmpq(exponent.numerator, exponent.denominator)).exp()


def arb_gaussian_cdf(sigma_sq: Fraction, length: int, sides: int = 2) -> list[flint.arb]:
    """Return F(k) for k < length, by the defining sum and a bound of its tail."""
    weights = [arb_exp(Fraction(-k * k) / (2 * sigma_sq)) for k in range(length + 1)]
    k = length
    while weights[-1] > flint.arb(2) ** -380:
        k += 1
        weights.append(arb_exp(Fraction(-k * k) / (2 * sigma_sq)))
    tail = weights[-1] / (1 - arb_exp(Fraction(-2 * k - 1) / (2 * sigma_sq)))
    cumulative = [weights[0]]
    for weight in weights[1:]:
        cumulative.append(cumulative[-1] + sides * weight)
    total = cumulative[-1] + flint.arb(0).union(sides * tail)
    return [c / total for c in cumulative]


def arb_laplace_cdf(scale: Fraction, length: int, sides: int = 2) -> list[flint.arb]:
    """Return F(k) for k < length, by the sum of the geometric series."""
    fall = arb_exp(-1 / scale)
    share = 2 / (1 + fall) if sides == 2 else flint.arb(1)
    return [1 - share * arb_exp(-(k + 1) / scale) for k in range(length)]


@dataclass(frozen=True)
class Case:
    """A law: how the package makes its table, and F by ball arithmetic."""

    name: str
    table: Callable[..., SamplingTable]
    parameter: Fraction
    arb_cdf: Callable[..., list[flint.arb]]
    sides: int

    def cdf(self, length: int) -> list[flint.arb]:
        return self.arb_cdf(self.parameter, length, sides=self.sides)


CASES = [
    Case(name, table, parameter, cdf, sides)
    for name, table, parameters, cdf, sides in (
        ("gaussian", gaussian_table, SIGMA_SQ, arb_gaussian_cdf, 2),
        (
            "half gaussian",
            partial(gaussian_table, is_two_sided=False),
            SIGMA_SQ,
            arb_gaussian_cdf,
            1,
        ),
        ("laplace", laplace_table, SCALES, arb_laplace_cdf, 2),
        ("half laplace", partial(laplace_table, is_two_sided=False), SCALES, arb_laplace_cdf, 1),
    )
    for parameter in parameters
]


def arb_floor(value: flint.arb) -> int:
    floor = value.floor().unique_fmpz()
    assert floor is not None
    return int(floor)


class Scripted:
    """Hands out the bits of one number, first the leading one."""

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.left = size

    def bits(self, n: int) -> int:
        self.left -= n
        assert self.left >= 0
        return (self.number >> self.left) & ((1 << n) - 1)


@pytest.mark.usefixtures("_remembered")
def test_gaussian_table():
    for word_bits, sigma_sq in itertools.product([1, 3, 5], SMALL_SIGMA_SQ):
        law = follow(gaussian_table(sigma_sq, word_bits).draw, replays=1500)
        assert law.unresolved < 0.05
        law.check(gaussian_probability(sigma_sq))


@pytest.mark.parametrize("sigma_sq", SMALL_SIGMA_SQ)
@pytest.mark.usefixtures("_remembered")
def test_half_gaussian_table(sigma_sq):
    law = follow(gaussian_table(sigma_sq, 3, is_two_sided=False).draw_magnitude, replays=1500)
    assert law.unresolved < 0.05
    law.check(gaussian_probability(sigma_sq, least=0))


@pytest.mark.usefixtures("_remembered")
def test_laplace_table():
    for word_bits, scale in itertools.product([1, 3, 5], SMALL_SCALES):
        law = follow(laplace_table(scale, word_bits).draw, replays=1500)
        assert law.unresolved < 0.05
        law.check(laplace_probability(scale))


@pytest.mark.parametrize("scale", SMALL_SCALES)
@pytest.mark.usefixtures("_remembered")
def test_half_laplace_table(scale):
    law = follow(laplace_table(scale, 3, is_two_sided=False).draw_magnitude, replays=1500)
    assert law.unresolved < 0.05
    law.check(laplace_probability(scale, least=0))


@pytest.mark.parametrize(("sigma_sq", "rest_bits"), [(Fraction(6), 1), (Fraction(40, 3), 2)])
@pytest.mark.usefixtures("_remembered")
def test_wide_gaussian(monkeypatch, sigma_sq, rest_bits):
    monkeypatch.setattr(wide, "COMPARED_BITS", 2)
    table = gaussian_table(sigma_sq / 4**rest_bits, 4, is_two_sided=False)
    law = follow(
        WideSampler(Fraction(0), 1 / (2 * sigma_sq), rest_bits, table).draw, replays=30_000
    )
    assert law.unresolved < 0.35
    law.check(gaussian_probability(sigma_sq))


@pytest.mark.parametrize(("scale", "rest_bits"), [(Fraction(3), 1), (Fraction(20, 3), 2)])
@pytest.mark.usefixtures("_remembered")
def test_wide_laplace(monkeypatch, scale, rest_bits):
    monkeypatch.setattr(wide, "COMPARED_BITS", 2)
    table = laplace_table(scale / 2**rest_bits, 4, is_two_sided=False)
    law = follow(WideSampler(1 / scale, Fraction(0), rest_bits, table).draw, replays=30_000)
    assert law.unresolved < 0.35
    law.check(laplace_probability(scale))
    with pytest.raises(AssertionError, match="proven"):
        law.check(laplace_probability(scale * 3))


def one_attempt(monkeypatch, linear, quadratic, rest_bits, half_line):
    """With table and comparison as single decisions, the accepted mass is the law to 1e-12."""
    chances = [half_line(k) for k in range(100)]

    class HalfLine:
        def draw_magnitude(self, bits):
            return bits.choose(chances)

    monkeypatch.setattr(
        wide,
        "_uniform_is_below_exp",
        lambda gamma, bits: bits.happens(math.exp(-gamma)),
    )
    sampler = WideSampler(linear, quadratic, rest_bits, HalfLine())
    return follow(sampler.draw, replays=8000, most_decisions=4).first_attempt()


def test_one_attempt_of_wide_gaussian(monkeypatch):
    sigma_sq, rest_bits = Fraction(40, 3), 2
    half_line = gaussian_probability(sigma_sq / 4**rest_bits, least=0)
    law = one_attempt(monkeypatch, Fraction(0), 1 / (2 * sigma_sq), rest_bits, half_line)
    law.check(gaussian_probability(sigma_sq))
    with pytest.raises(AssertionError, match="proven"):
        law.check(gaussian_probability(sigma_sq + Fraction(1, 10**6)))


@pytest.mark.parametrize("scale", [Fraction(7), Fraction(20, 3)])
def test_one_attempt_of_wide_laplace(monkeypatch, scale):
    rest_bits = 2
    half_line = laplace_probability(scale / 2**rest_bits, least=0)
    law = one_attempt(monkeypatch, 1 / scale, Fraction(0), rest_bits, half_line)
    law.check(laplace_probability(scale))
    with pytest.raises(AssertionError, match="proven"):
        law.check(laplace_probability(scale + Fraction(1, 10**6)))


def test_every_sigma_sq_has_a_sampler_of_its_law():
    """A table of the law itself, or tables whose exponent and rejection add up to its exponent."""
    for exponent in range(-2, 13):
        for sigma_sq in (Fraction(10) ** exponent, Fraction(10) ** exponent * Fraction(10, 7)):
            sampler = DiscreteGaussian(sigma_sq).sampler()
            assert isinstance(sampler, WideSampler) == (sigma_sq > WIDE_SIGMA_SQ)
            exponents_agree(sampler, lambda k, s=sigma_sq: Fraction(k * k) / (2 * s))


@pytest.mark.parametrize(
    "scale",
    [
        Fraction(1, 100),
        Fraction(1, 2),
        Fraction(255),
        MOST_TABLE_SCALE,
        MOST_TABLE_SCALE + Fraction(1, 9),
        Fraction(10**6),
        Fraction(10**9),
    ],
    ids=str,
)
def test_every_scale_has_a_sampler_of_its_law(scale):
    sampler = DiscreteLaplace(scale).sampler()
    assert isinstance(sampler, WideSampler) == (scale > MOST_TABLE_SCALE)
    exponents_agree(sampler, lambda k: k / scale)


def exponents_agree(sampler, exponent):
    """Check e(w J + R) = e_table(J) + gamma for many J and R, w = 1 if there is only a table."""
    if isinstance(sampler, SamplingTable):
        assert sampler.weights.is_two_sided
        assert all(sampler.weights.exponent(k) == exponent(k) for k in (0, 1, 2, 7, 1000))
        return
    assert not sampler.table.weights.is_two_sided
    width = 1 << sampler.rest_bits
    for leading in (0, 1, 5, 3000):
        for rest in (0, 1, width // 2, width - 1):
            gamma = rest * (sampler.linear + sampler.quadratic * (2 * width * leading + rest))
            there = exponent(width * leading + rest)
            assert sampler.table.weights.exponent(leading) + gamma == there


@pytest.mark.usefixtures("_remembered")
def test_rare_paths_are_reached():
    """Words of three bits leave draws open, and one draw exceeds every magnitude of the table."""
    table = gaussian_table(Fraction(1), 3)
    law = follow(table.draw, replays=1500)
    assert max(abs(k) for k in law.mass) >= len(table.thresholds)


@pytest.mark.usefixtures("_remembered")
def test_lookup_agrees_with_draw():
    """The vectorised lookup gives each word what the scalar definition gives its bits."""
    for word_bits, case in itertools.product([1, 3, 5, 63], CASES):
        table = case.table(case.parameter, word_bits)
        chosen = table.thresholds[:: max(1, len(table.thresholds) // 100)]
        near = [int(t) + d for t in [*chosen, table.thresholds[-1]] for d in (-1, 0, 1)]
        prefixes = sorted({p for p in near if 0 <= p < 1 << word_bits})
        words = [(s << 63) | (p << (63 - word_bits)) for s in (0, 1) for p in prefixes]
        values, undecided = table.lookup(np.array(words, np.uint64))
        tail = 0x9E3779B97F4A7C15
        assert undecided.size == 2 * len(
            {p for p in prefixes if p in set(table.thresholds.tolist())}
        )
        assert undecided.size >= 2 * len(set(chosen.tolist()))
        for i, word in enumerate(words):
            found = table.resolve(word, Scripted(tail, 64)) if i in undecided else values[i]
            stream = Scripted((word >> (63 - word_bits)) << 64 | tail, 65 + word_bits)
            assert found == table.draw(stream)


@pytest.mark.usefixtures("_precise")
def test_thresholds_are_the_true_floors():
    for case in CASES:
        thresholds = case.table(case.parameter).thresholds.tolist()
        cdf = case.cdf(len(thresholds))
        floors = [arb_floor(f * flint.arb(2) ** 63) for f in cdf[: len(thresholds)]]
        assert thresholds == floors
        assert thresholds[-1] == 2**63 - 1
        assert thresholds.index(2**63 - 1) == len(thresholds) - 1


@pytest.mark.usefixtures("_precise", "_remembered")
def test_numbers_next_to_a_threshold_are_settled_correctly():
    """U is placed a third of 2^-64 .. 2^-200 below and above F(k); the 300-bit number decides the draw."""
    for case in CASES:
        table = case.table(case.parameter)
        size = 300
        cdf = case.cdf(len(table.thresholds) + 1200)
        last = len(table.thresholds) - 1
        n_cases = 0
        for k in sorted({0, 1, 2, 5, last // 2, last, last + 6}):
            for distance in (64, 70, 130, 200):
                for side in (-1, 1):
                    position = cdf[k] + side * flint.arb(2) ** -distance / 3
                    if not 0 < position < 1 - flint.arb(2) ** -280:
                        continue
                    number = arb_floor(position * flint.arb(2) ** size)
                    expected = k if side < 0 else k + 1
                    while side > 0 and cdf[expected] * flint.arb(2) ** size < number:
                        expected += 1
                    while (
                        side < 0 and expected and cdf[expected - 1] * flint.arb(2) ** size > number
                    ):
                        expected -= 1
                    assert table.draw_magnitude(Scripted(number, size)) == expected
                    n_cases += 1
        assert n_cases >= 12


@pytest.mark.usefixtures("_precise")
def test_exp_bounds_enclose_exp_closely():
    for gamma in [Fraction(1, 10**20), Fraction(1, 3), Fraction(1), Fraction(71, 2), Fraction(90)]:
        for precision in (8, 63, 91, 300):
            low, high = exp_bounds(gamma, precision)
            exact = arb_exp(-gamma) * flint.arb(2) ** precision
            assert flint.arb(low) <= exact <= flint.arb(high)
            assert high - low <= 2


@pytest.mark.parametrize(
    ("law", "parameter", "arb_cdf"),
    [
        (Weights.gaussian, Fraction(3, 7), arb_gaussian_cdf),
        (Weights.gaussian, Fraction(12345, 7), arb_gaussian_cdf),
        (Weights.laplace, Fraction(3, 7), arb_laplace_cdf),
        (Weights.laplace, Fraction(255), arb_laplace_cdf),
    ],
)
@pytest.mark.usefixtures("_precise")
def test_cumulative_bounds_enclose_the_law_closely(law, parameter, arb_cdf):
    for is_two_sided in [True, False]:
        weights = law(parameter, is_two_sided=is_two_sided)
        for precision in (20, 95, 150):
            bounds = weights.cumulative_bounds(precision)
            cdf = arb_cdf(parameter, len(bounds.low), sides=2 if is_two_sided else 1)
            for low, high, f in zip(bounds.low, bounds.high, cdf, strict=False):
                assert flint.arb(low) <= f * flint.arb(2) ** precision <= flint.arb(high)
                assert high - low <= 2
            assert bounds.low == sorted(bounds.low)
            assert bounds.high == sorted(bounds.high)


@pytest.mark.parametrize(
    ("law", "parameter", "exponent"),
    [
        (Weights.gaussian, Fraction(12345, 7), lambda k, s: Fraction(k * k) / (2 * s)),
        (Weights.laplace, Fraction(61, 3), lambda k, s: k / s),
    ],
)
@pytest.mark.usefixtures("_precise")
def test_unnormalised_masses_are_rounded_outward(law, parameter, exponent):
    """Before any guard bit is dropped, each mass and the mass of the tail are enclosed."""
    for is_two_sided, inner in itertools.product([True, False], [12, 40, 90]):
        last = 60
        low, high, beyond = law(parameter, is_two_sided=is_two_sided)._masses(last, inner)
        sides = 2 if is_two_sided else 1
        unit = flint.arb(2) ** inner
        exact = unit
        for k in range(last + 1):
            if k:
                exact += sides * arb_exp(-exponent(k, parameter)) * unit
            assert flint.arb(low[k]) <= exact <= flint.arb(high[k])
        tail = sum((arb_exp(-exponent(k, parameter)) for k in range(last + 1, 1500)), flint.arb(0))
        assert flint.arb(beyond) >= sides * tail * unit


@pytest.mark.parametrize("last", [1, 2, 4])
@pytest.mark.usefixtures("_precise")
def test_bounds_hold_however_early_the_sum_stops(monkeypatch, last):
    """Where the sum stops decides how close the bounds are, never whether they hold."""
    monkeypatch.setattr(Weights, "last_above", lambda *_: last)
    sigma_sq = Fraction(3, 2)
    bounds = Weights.gaussian(sigma_sq).cumulative_bounds(60)
    assert len(bounds.low) == len(bounds.high) == last + 1
    cdf = arb_gaussian_cdf(sigma_sq, last + 1)
    for low, high, f in zip(bounds.low, bounds.high, cdf, strict=False):
        assert flint.arb(low) <= f * flint.arb(2) ** 60 <= flint.arb(high)


class Loose:
    """A law whose bounds are some 2^-70 wide until they are asked for at a high precision."""

    def __init__(self, weights):
        self.weights = weights

    def cumulative_bounds(self, precision):
        bounds = self.weights.cumulative_bounds(precision)
        if precision > 180:
            return bounds
        slack = 1 << (precision - 70)
        return Bounds([b - slack for b in bounds.low], [b + slack for b in bounds.high])


@pytest.mark.parametrize("sigma_sq", [Fraction(3, 7), Fraction(100)])
@pytest.mark.usefixtures("_precise")
def test_wide_bounds_delay_a_settlement_and_do_not_change_it(sigma_sq):
    table = gaussian_table(sigma_sq)
    loose = replace(table, weights=Loose(table.weights))
    for k, exact in enumerate(arb_gaussian_cdf(sigma_sq, 3)[:3]):
        for distance in (71, 72, 75, 90):
            for side in (-1, 1):
                position = exact + side * flint.arb(2) ** -distance
                number = arb_floor(position * flint.arb(2) ** 300)
                expected = k if side < 0 else k + 1
                assert loose.draw_magnitude(Scripted(number, 300)) == expected


@pytest.mark.parametrize("is_loose", [False, True])
@pytest.mark.parametrize("gamma", [Fraction(1, 1000), Fraction(1, 3), Fraction(2)])
@pytest.mark.usefixtures("_precise")
def test_comparison_with_exp_next_to_its_value(monkeypatch, gamma, is_loose):
    def loose_bounds(gamma, precision):
        slack = 1 << (precision - 6) if precision < 100 else 0
        low, high = exp_bounds(gamma, precision)
        return low - slack, high + slack

    if is_loose:
        monkeypatch.setattr(wide, "exp_bounds", loose_bounds)
    for distance in (2, 8, 9, 16, 17, 60, 200):
        for side in (-1, 1):
            position = arb_exp(-gamma) + side * flint.arb(2) ** -distance
            number = arb_floor(position * flint.arb(2) ** 300)
            if 0 <= number < 1 << 300:
                is_below = wide._uniform_is_below_exp(gamma, Scripted(number, 300))
                assert is_below == (side < 0)


@pytest.mark.usefixtures("_remembered")
def test_a_wrong_threshold_is_found():
    """The tree has the power to see one threshold wrong by one part in 32."""
    table = gaussian_table(Fraction(1), 5)
    shifted = build_table(table.weights, 5, where="test")
    thresholds = shifted.thresholds.copy()
    thresholds[0] += 1
    object.__setattr__(shifted, "thresholds", thresholds)
    law = follow(shifted.draw, replays=1500)
    with pytest.raises(AssertionError, match="proven"):
        law.check(gaussian_probability(Fraction(1)))
