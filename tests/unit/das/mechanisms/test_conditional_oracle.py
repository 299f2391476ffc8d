"""Tables drawn among those that keep all invariants, against all of them listed."""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from das.errors import BudgetError
from das.mechanisms import conditional
from das.mechanisms.conditional import conditional_table
from das.mechanisms.entropy import NoiseKey
from das.privacy.conditioning import calibrated, conditioned
from das.privacy.cost import Pure, ZeroConcentrated
from tests.builders.streams import bits_at

SCALE = Fraction(3, 2)
CASES = {
    "one total": (np.array([3, 0, 1]), np.array([[1, 1, 1]])),
    "two margins": (np.array([2, 1, 0, 3]), np.array([[1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 1, 1]])),
    "overlapping": (np.array([1, 2, 1, 1]), np.array([[1, 1, 1, 0], [0, 1, 1, 1]])),
    "weights": (np.array([1, 2, 0, 1]), np.array([[1, 2, 3, 1]])),
    "all exact": (np.array([4, 2]), np.array([[1, 0], [1, 1]])),
}


def law(table: np.ndarray, invariants: np.ndarray) -> dict[tuple[int, ...], float]:
    """Every table that keeps the invariants, with its probability."""
    most = int((invariants @ table).max())
    kept = invariants @ table
    found = {
        other: float(np.exp(-np.abs(np.array(other) - table).sum() / float(SCALE)))
        for other in itertools.product(range(most + 1), repeat=len(table))
        if (invariants @ np.array(other) == kept).all()
    }
    whole = sum(found.values())
    return {other: weight / whole for other, weight in found.items()}


@pytest.mark.parametrize("case", CASES)
def test_draws_have_the_law_of_noise_given_the_invariants(case):
    table, invariants = CASES[case]
    expected = law(table, invariants)
    bits, n = bits_at(NoiseKey.draw(), 0), 600
    seen = Counter(
        tuple(conditional_table(table, invariants, SCALE, bits).tolist()) for _ in range(n)
    )
    assert set(seen) <= set(expected)
    tables = sorted(expected, key=lambda other: expected[other])
    groups, rare = [], []
    for other in tables:  # those too rare for the test are one group
        (rare if expected[other] * n < 5 else groups).append([other])
    groups += [[one for (one,) in rare]] if rare else []
    counts = [sum(seen[one] for one in group) for group in groups]
    wanted = [n * sum(expected[one] for one in group) for group in groups]
    if len(groups) > 1:
        # One in a million of correct samplers fails this; a scale of 2 fails it always.
        assert stats.chisquare(counts, np.array(wanted) * n / sum(wanted)).pvalue > 1e-6


class Fixed:
    """Bits of one number, the first bit first, and zeros after it."""

    def __init__(self, bits: str) -> None:
        self._bits = bits

    def bits(self, n: int) -> int:
        taken, self._bits = self._bits[:n].ljust(n, "0"), self._bits[n:]
        return int(taken, 2)


def test_a_number_next_to_a_threshold_is_decided_by_more_digits():
    """Two tables: weights 1 and t^2 of 1 + t^2. A number next to the threshold needs many bits."""
    from decimal import Context, localcontext

    from das.rational import decimal_of

    table, invariants = np.array([0, 1]), np.array([[1, 1]])
    with localcontext(Context(prec=400)):
        t2 = (-2 / decimal_of(SCALE)).exp()
        number = int(t2 / (1 + t2) * 2**640)
    drawn = set()
    for offset in (-1, 0, 1, 2):
        # The total first, which is sure; then the last cell, whose smallest value is the rarer.
        source = Fixed("0" * 64 + f"{number + offset:0640b}")
        drawn.add((offset <= 0, *conditional_table(table, invariants, SCALE, source).tolist()))
    assert drawn == {(True, 1, 0), (False, 0, 1)}


def steps(one: np.ndarray, other: np.ndarray) -> int:
    return int(np.abs(one - other).sum())


@pytest.mark.parametrize("case", CASES)
def test_the_theorem_holds_for_every_pair_and_gamma_zero_does_not(case):
    """Neighbors have one record more or less, so epsilon is 1 / scale."""
    table, invariants = CASES[case]
    epsilon = Pure(1 / SCALE)
    laws = {other: law(np.array(other), invariants) for other in law(table, invariants)}
    for (x, one), (y, other) in itertools.permutations(laws.items(), 2):
        k = steps(np.array(x), np.array(y))
        largest = max(np.log(one[s] / other[s]) for s in one)
        assert largest <= float(conditioned(epsilon, k).epsilon) * (1 + 1e-12)


def test_limits_cost_more_than_the_noise():
    """So gamma = 0 would be a wrong claim for a table that may not be negative."""
    invariants, scale = np.array([[1, 1]]), float(SCALE)
    one, other = law(np.array([0, 6]), invariants), law(np.array([1, 5]), invariants)
    assert max(np.log(one[s] / other[s]) for s in one) > 2 / scale * 1.05


# --- the examples of the paper --------------------------------------------------------------------


def test_two_counts_of_a_fixed_sum_have_gamma_minus_a_half():
    """Noise of scale 2 / epsilon on both counts, given that it cancels: e^(-epsilon |u|)."""
    epsilon, u = 0.7, np.arange(-80, 81)
    given = np.exp(-np.abs(u) * epsilon / 2) * np.exp(-np.abs(-u) * epsilon / 2)
    given /= given.sum()
    ratio = np.log(given[1:] / given[:-1]).max()  # one count grows by 1, the other falls by 1
    # Vectors are neighbors if one entry differs; with a fixed sum the nearest differ in two.
    claimed = conditioned(Pure(Fraction(7, 10)), 2, Fraction(-1, 2)).epsilon
    assert ratio == pytest.approx(float(claimed)) == pytest.approx(epsilon)


def test_one_output_has_gamma_minus_one_and_no_invariants_have_gamma_zero():
    assert conditioned(Pure(Fraction(3)), 1, Fraction(-1)) == Pure(Fraction(0))
    table, invariants = CASES["all exact"]
    assert law(table, invariants) == {(4, 2): 1.0}
    assert conditioned(Pure(Fraction(3)), 1, Fraction(0)) == Pure(Fraction(3))


def test_a_target_is_met_at_the_distance_of_the_nearest():
    noise = calibrated(Pure(Fraction(1)), 2)
    assert conditioned(noise, 2) == Pure(Fraction(1))


# --- what it refuses ------------------------------------------------------------------------------


def test_zcdp_and_other_gammas_are_refused():
    with pytest.raises(BudgetError, match="gives no guarantee under zCDP"):
        conditioned(ZeroConcentrated(Fraction(1)), 1)
    for gamma in (Fraction(2), 0.5):
        with pytest.raises(BudgetError, match="gamma: must be an exact fraction"):
            conditioned(Pure(Fraction(1)), 1, gamma)


@pytest.mark.parametrize(
    ("table", "invariants", "message"),
    [
        ([1, 2], [[1, 0]], "is in no invariant.*keep the total too"),
        ([1, -2], [[1, 1]], "has a negative number"),
        ([1, 2, 3], [[1, 1]], "needs one column of invariants per cell"),
        ([10**6, 10**6], [[1, 1]], "is too large for exact sampling"),
    ],
)
def test_it_refuses_a_table(table, invariants, message):
    bits = bits_at(NoiseKey.draw(), 0)
    with pytest.raises(BudgetError, match=message):
        conditional_table(np.array(table), np.array(invariants), SCALE, bits)


def test_it_refuses_too_many_combinations_of_sums(monkeypatch):
    monkeypatch.setattr(conditional, "_MOST_STEPS", 495)
    with pytest.raises(BudgetError, match="too many combinations of sums"):
        conditional_table(
            np.array([6, 6, 6, 6]),
            np.array([[1, 2, 3, 4], [4, 3, 2, 1]]),
            SCALE,
            bits_at(NoiseKey.draw(), 0),
        )


def test_it_refuses_a_scale_that_is_not_exact():
    with pytest.raises(BudgetError, match="scale: must be a positive exact fraction"):
        conditional_table(np.array([1]), np.array([[1]]), 1.5, bits_at(NoiseKey.draw(), 0))


@pytest.mark.parametrize("x", [0, 1, 2, 3, 5, 40])
def test_weights_with_another_cell_are_the_sums_spelled_out(x):
    from decimal import Decimal

    rng = np.random.default_rng(1)
    powers = [(Decimal(-1) / 3 * k).exp() for k in range(90)]
    before = [Decimal(int(n)) for n in rng.integers(1, 99, 31)]
    found = conditional._with_cell(before, x, powers)
    for n, value in enumerate(found):
        spelled = sum(powers[abs(s - x)] * before[n - s] for s in range(n + 1))
        assert abs(value / spelled - 1) < Decimal("1e-24")  # 28 digits, some tens of operations


MARGINS = {
    "total": (np.zeros(4, int),),
    "one": (np.array([0, 0, 1, 1, 2, 2]),),
    "two": (np.array([0, 0, 1, 1, 2, 2]), np.array([0, 1, 0, 1, 0, 1])),
    "two, the other first": (np.array([0, 1, 0, 1, 0, 1]), np.array([0, 0, 1, 1, 2, 2])),
    "pairs": (np.array([0, 0, 1, 1, 2, 2, 3, 3]), np.array([0, 1, 2, 3, 0, 1, 2, 3])),
}


@pytest.mark.parametrize("case", MARGINS)
@pytest.mark.parametrize("records", [1, 30])
def test_no_table_takes_more_products_than_the_bound(case, records, monkeypatch):
    margins, rng = MARGINS[case], np.random.default_rng(2)
    rows, n = conditional.margin_rows(margins), len(margins[0])
    monkeypatch.setattr(conditional, "_MOST_STEPS", conditional.most_steps(margins, records))
    tables = [np.bincount(rng.integers(0, n, records), minlength=n) for _ in range(10)]
    tables += [records * np.eye(n, dtype=np.int64)[i] for i in range(n)]
    for table in tables:
        drawn = conditional_table(table.astype(np.int64), rows, SCALE, bits_at(NoiseKey.draw(), 0))
        assert (rows @ drawn == rows @ table).all()


def test_what_some_table_would_be_too_large_for_is_refused_without_any():
    from das.mechanisms.conditional import refuse_large

    square = (np.repeat(np.arange(5), 5), np.tile(np.arange(5), 5))
    refuse_large(square[:1], 600, SCALE)
    with pytest.raises(BudgetError, match="may be too large for exact sampling"):
        refuse_large(square, 600, SCALE)
    with pytest.raises(BudgetError, match="too small for decimals"):
        refuse_large(square[:1], 600, Fraction(1, 10_000))
