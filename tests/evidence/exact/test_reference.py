"""Reference samplers refuse what has no law, and take only named parameters."""

from fractions import Fraction

import pytest

from das.errors import BudgetError
from das.mechanisms.entropy import NoiseKey
from tests.builders.streams import bits_at
from tests.evidence import reference

BITS = bits_at(NoiseKey.draw(), 0)


@pytest.mark.parametrize(
    ("sampler", "parameters", "message"),
    [
        (reference.uniform_below, {"n": 0}, "got 0; expected n >= 1"),
        (reference.bernoulli, {"p": Fraction(3, 2)}, "not a probability; got 3/2"),
        (reference.bernoulli_exp, {"gamma": Fraction(-1, 2)}, "got -1/2"),
        (
            reference.geometric,
            {"scale": Fraction(0)},
            r"scale cannot be used; got Fraction\(0, 1\)",
        ),
        (reference.discrete_laplace, {"scale": Fraction(-1)}, "expected a positive Fraction"),
        (reference.discrete_gaussian, {"sigma_sq": Fraction(0)}, "sigma_sq cannot be used"),
        (reference.discrete_gaussian, {"sigma_sq": 0.5}, "got 0.5"),
    ],
)
def test_impossible_parameters_are_refused_with_their_value(sampler, parameters, message):
    with pytest.raises(BudgetError, match=message):
        sampler(**parameters, bits=BITS)


def test_parameters_cannot_be_swapped():
    with pytest.raises(TypeError):
        reference.discrete_gaussian(Fraction(1), BITS)


def test_tiny_sigma_sq_gives_zeros():
    draws = {reference.discrete_gaussian(sigma_sq=Fraction(1, 10**15), bits=BITS) for _ in range(9)}
    assert draws == {0}


def test_huge_sigma_sq_gives_large_draws():
    draws = [reference.discrete_gaussian(sigma_sq=Fraction(10**30), bits=BITS) for _ in range(20)]
    assert 10**13 < max(abs(x) for x in draws) < 10**17
