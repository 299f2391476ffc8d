"""The exponential mechanism: exact decisions, the law of many draws, the cost by brute force."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chi2

from das.errors import BudgetError
from das.mechanisms.entropy import NoiseKey
from das.mechanisms.exponential import Selection
from tests.builders.streams import bits_at

SELECTION = Selection(Fraction(1, 2), 3)
SCORES = (0, 4, 9, -20, 9, 13)


class GivenBits:
    """Bits of a given number, then zeros; counts what was read."""

    def __init__(self, value: int, n: int) -> None:
        self.value, self.left, self.read = value, n, 0

    def bits(self, n: int) -> int:
        self.read += n
        taken = min(n, self.left)
        self.left -= taken
        top = self.value >> self.left
        self.value &= (1 << self.left) - 1
        return top << (n - taken)


def sums(selection, scores):
    """Running sums of probabilities, to 200 digits."""
    with localcontext() as context:
        context.prec = 200
        exponent = selection.exponent
        weights = [
            (Decimal(exponent.numerator * score) / Decimal(exponent.denominator)).exp()
            for score in scores
        ]
        total = sum(weights)
        return [sum(weights[: i + 1]) / total for i in range(len(weights))]


def probabilities(selection, scores):
    return np.diff([0.0, *map(float, sums(selection, scores))])


def test_a_uniform_number_next_to_a_boundary_is_decided_on_the_right_side():
    """Just below a running sum is its candidate, just above the next, however close."""
    for boundary, n_bits in itertools.product(range(5), [64, 96, 160]):
        at = sums(SELECTION, SCORES)[boundary]
        with localcontext() as context:
            context.prec = 200
            below = int(at * (1 << n_bits))
        # Bits after the given ones are zeros: the number is below the sum by less than 2^-n.
        assert SELECTION.choose(SCORES, GivenBits(below, n_bits)) == boundary
        assert SELECTION.choose(SCORES, GivenBits(below + 1, n_bits)) == boundary + 1


def test_undecided_numbers_read_further_bits():
    at = sums(SELECTION, SCORES)[2]
    with localcontext() as context:
        context.prec = 200
        source = GivenBits(int(at * (1 << 160)), 160)
    SELECTION.choose(SCORES, source)
    assert source.read > 160
    easy = GivenBits(1, 2)
    SELECTION.choose(SCORES, easy)
    assert easy.read == 64


def statistic(counts, expected):
    return float((np.square(counts - expected) / expected).sum())


def test_draws_have_the_stated_law_and_the_test_would_notice_another():
    """Chi-squared at a level of 10^-6 over 6,000 draws of one key.

    Two laws that selection is taken for by mistake are rejected by the same counts: that of
    monotonic scores, exp(epsilon score / sensitivity), and that of a sensitivity of 2.
    """
    n = 6000
    key = NoiseKey(bytes(range(32)))
    scores = (0, 4, 9, 2, 9, 13)
    draws = [SELECTION.choose(scores, bits_at(key, i)) for i in range(n)]
    counts = np.bincount(draws, minlength=len(scores))
    limit = chi2.isf(1e-6, len(scores) - 1)
    assert statistic(counts, n * probabilities(SELECTION, scores)) < limit
    for wrong in (Selection(Fraction(1), 3), Selection(Fraction(1, 2), 2)):
        expected = n * probabilities(wrong, scores)
        assert statistic(counts, expected) > 3 * limit
        # So far apart are the laws that counts of the wrong one would be noticed too.
        assert statistic(expected, n * probabilities(SELECTION, scores)) > 3 * limit


def test_neighbors_are_as_alike_as_the_cost_says():
    """Over all moves of scores by at most the sensitivity: bounded range and Renyi divergence."""
    selection = Selection(Fraction(3, 4), 2)
    scores = (0, 3, 5)
    at = probabilities(selection, scores)
    rho, epsilon = float(selection.rho), float(selection.epsilon)
    widest = 0.0
    for moves in itertools.product((-2, 0, 2), repeat=3):
        there = probabilities(selection, [s + m for s, m in zip(scores, moves, strict=True)])
        losses = np.log(at / there)
        widest = max(widest, float(losses.max() - losses.min()))
        for alpha in (1.001, 1.5, 2.0, 4.0, 16.0):
            moment = math.log(float((at**alpha * there ** (1 - alpha)).sum())) / (alpha - 1)
            assert moment <= rho * alpha * (1 + 1e-9) + 1e-12
    # Not monotonic: scores move both ways, and the range is reached.
    assert widest == pytest.approx(epsilon)


@pytest.mark.parametrize("rho", ["1/3", "1/1000000", "12345/7", "1/99999999999999"])
def test_a_cost_is_nearly_used_up_and_never_exceeded(rho):
    selection = Selection.costing(Fraction(rho), 1)
    assert Fraction(rho) * (1 - Fraction(1, 10**8)) < selection.rho <= Fraction(rho)


def test_one_candidate_is_chosen():
    assert SELECTION.choose([7], GivenBits(3, 2)) == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: Selection(Fraction(0), 1),
        lambda: Selection(0.5, 1),
        lambda: Selection(Fraction(1), 0),
        lambda: Selection.costing(Fraction(0), 1),
        lambda: SELECTION.choose([], GivenBits(0, 1)),
        lambda: SELECTION.choose([1.5], GivenBits(0, 1)),
    ],
)
def test_bad_input_is_refused(make):
    with pytest.raises(BudgetError):
        make()
