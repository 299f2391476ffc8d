"""The reference samplers have exactly the laws their docstrings state."""

import math
from fractions import Fraction
from functools import cache, partial

import pytest

from tests.evidence import reference
from tests.evidence.exact.decision_tree import (
    Decisions,
    follow,
    gaussian_probability,
    laplace_probability,
)

REACH = 80  # magnitudes beyond have a probability below 1e-20 at the scales used here


def geometric_probability(k, scale):
    ratio = math.exp(-1 / scale)
    return (1 - ratio) * ratio**k


@pytest.fixture
def _proven_primitives(monkeypatch):
    """Replace the primitives, whose laws are proven bit by bit, by single decisions."""
    monkeypatch.setattr(reference, "uniform_below", lambda *, n, bits: bits.choose([1 / n] * n))
    monkeypatch.setattr(
        reference, "bernoulli_exp", lambda *, gamma, bits: bits.happens(math.exp(-gamma))
    )


@cache
def geometric_chances(scale):
    return [geometric_probability(k, scale) for k in range(REACH)]


@cache
def laplace_chances(scale):
    probability = laplace_probability(scale)
    return [probability(k) for k in range(-REACH, REACH + 1)]


@pytest.fixture
def _proven_geometric(monkeypatch):
    monkeypatch.setattr(
        reference, "geometric", lambda *, scale, bits: bits.choose(geometric_chances(scale))
    )


@pytest.fixture
def _proven_laplace(monkeypatch, _proven_primitives):
    monkeypatch.setattr(
        reference,
        "discrete_laplace",
        lambda *, scale, bits: bits.choose(laplace_chances(scale)) - REACH,
    )


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 12])
def test_uniform_below_bit_by_bit(n):
    law = follow(partial(reference.uniform_below, n=n), replays=400)
    assert set(law.mass) == set(range(n))
    assert law.unresolved < 0.02
    law.check(lambda _: 1 / n)


@pytest.mark.parametrize("p", [Fraction(0), Fraction(1, 3), Fraction(5, 8), Fraction(1)])
def test_bernoulli_bit_by_bit(p):
    law = follow(partial(reference.bernoulli, p=p), replays=400)
    assert law.unresolved < 0.02
    law.check(lambda outcome: float(p if outcome else 1 - p))


@pytest.mark.parametrize("gamma", [Fraction(0), Fraction(1, 3), Fraction(1), Fraction(7, 3)])
def test_bernoulli_exp_bit_by_bit(gamma):
    law = follow(partial(reference.bernoulli_exp, gamma=gamma), replays=10_000)
    assert law.unresolved < 0.03
    law.check(lambda outcome: math.exp(-gamma) if outcome else 1 - math.exp(-gamma))


def test_an_error_of_one_trial_is_found():
    def skips_a_trial(bits: Decisions) -> bool:
        trial = 1
        while reference.bernoulli(p=Fraction(1, 2) / (trial + 1), bits=bits):
            trial += 1
        return trial % 2 == 1

    law = follow(skips_a_trial, replays=2000)
    with pytest.raises(AssertionError, match="proven"):
        law.check(lambda outcome: math.exp(-0.5) if outcome else 1 - math.exp(-0.5))


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(1), Fraction(5, 3), Fraction(4)])
@pytest.mark.usefixtures("_proven_primitives")
def test_geometric(scale):
    law = follow(partial(reference.geometric, scale=scale), replays=20_000)
    assert law.unresolved < 0.003
    law.check(lambda k: geometric_probability(k, scale))
    with pytest.raises(AssertionError, match="proven"):
        law.check(lambda k: geometric_probability(k, scale * Fraction(103, 100)))


def test_geometric_bit_by_bit():
    """The whole sampler from bits alone; most of the mass is resolved at this depth."""
    scale = Fraction(2)
    law = follow(partial(reference.geometric, scale=scale), replays=10_000)
    assert law.unresolved < 0.1
    law.check(lambda k: geometric_probability(k, scale))


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(1), Fraction(5, 3)])
@pytest.mark.usefixtures("_proven_geometric")
def test_discrete_laplace(scale):
    law = follow(partial(reference.discrete_laplace, scale=scale), replays=10_000)
    assert law.unresolved < 0.001
    law.check(laplace_probability(scale))


@pytest.mark.parametrize("sigma_sq", [Fraction(1, 4), Fraction(3, 7), Fraction(1), Fraction(9, 2)])
@pytest.mark.usefixtures("_proven_laplace")
def test_discrete_gaussian(sigma_sq):
    law = follow(partial(reference.discrete_gaussian, sigma_sq=sigma_sq), replays=2000)
    assert law.unresolved < 0.2
    law.check(gaussian_probability(sigma_sq))


@pytest.mark.parametrize("sigma_sq", [Fraction(1, 4), Fraction(3, 7), Fraction(1), Fraction(9, 2)])
@pytest.mark.usefixtures("_proven_laplace")
def test_one_attempt_of_discrete_gaussian(sigma_sq):
    """One attempt is two decisions, a candidate and its acceptance; nothing is left open."""
    law = follow(
        partial(reference.discrete_gaussian, sigma_sq=sigma_sq), replays=1000, most_decisions=2
    )
    law.first_attempt().check(gaussian_probability(sigma_sq))


@pytest.mark.usefixtures("_proven_laplace")
def test_another_parameter_is_found():
    sigma_sq = Fraction(1_000_001, 1_000_000)
    law = follow(
        partial(reference.discrete_gaussian, sigma_sq=sigma_sq), replays=1000, most_decisions=2
    )
    with pytest.raises(AssertionError, match="proven"):
        law.first_attempt().check(gaussian_probability(Fraction(1)))


def test_discrete_gaussian_bit_by_bit():
    """The whole sampler from bits alone; half of the mass is resolved at this depth."""
    sigma_sq = Fraction(1, 4)
    law = follow(partial(reference.discrete_gaussian, sigma_sq=sigma_sq), replays=10_000)
    assert law.unresolved < 0.56
    law.check(gaussian_probability(sigma_sq))
