"""Coinpress and clipped means: constants of the papers, exact costs, strata, bad input."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from das.confidential import Confidential
from das.definition import Definition
from das.errors import BudgetError, SchemaError
from das.means.estimates import (
    MOST_RADIUS,
    Clipping,
    Column,
    MeanEstimates,
    NoisySum,
    Steps,
    Strata,
    half_width,
    margin,
    refuse_unmeasurable,
    shrink,
)
from das.means.measure import StratumValues, clipped_sums, estimate_means, measure_sums
from das.mechanisms.entropy import NoiseKey, Streams
from das.queries.sensitivity import Neighbors

UNIT = 10**6  # of the integer columns: micro standard deviations, so that rounding does not show
BOUNDED, UNBOUNDED = Neighbors.BOUNDED, Neighbors.UNBOUNDED


def streams(number: int) -> Streams:
    return Streams(NoiseKey(number.to_bytes(32, "big")))


def strata_of(values, groups, n_strata) -> Confidential[StratumValues]:
    data = StratumValues(np.asarray(values, np.int64), np.asarray(groups, np.int64), n_strata)
    return Confidential(data)


def one_stratum(values) -> Confidential[StratumValues]:
    return strata_of(values, np.zeros(len(values), np.int64), 1)


# L, Delta, standard deviation of noise and half width of both steps, from the formulas of the
# papers: n, R, then step 1 and step 2, rho (1/8, 3/8), beta 0.1, sigma 1, start [-R, R].
PAPER = [
    (1000, 100, (4.751796, 0.209504, 0.419007, 1.243963), (4.751796, 0.011992, 0.013847, 0.102198)),
    (1000, 3, (4.751796, 0.015504, 0.031007, 0.131111), (4.751796, 0.009766, 0.011277, 0.099391)),
    (100, 3, (4.239622, 0.144792, 0.289585, 0.906967), (4.239622, 0.102932, 0.118855, 0.459833)),
    (10, 3, (3.656395, 1.331279, 2.662558, 7.937674), (3.656395, 2.318814, 2.677535, 7.981705)),
]


@pytest.mark.parametrize(("n", "most", "first", "second"), PAPER)
def test_steps_have_the_constants_of_the_paper(n, most, first, second):
    column = Column("x", -most * UNIT, most * UNIT, UNIT)
    steps = Steps.split(Fraction(1, 2), 2, intersect=False)
    assert steps.costs == (Fraction(1, 8), Fraction(3, 8))
    assert steps.rho == Fraction(1, 2)
    result = estimate_means(
        one_stratum(np.zeros(n)), column, steps, Strata({"all": n}, BOUNDED), streams(1)
    )
    for number, (wide, delta, noise, width) in enumerate((first, second)):
        failure = steps.failure_of(number)
        assert margin(UNIT, n, failure) / UNIT == pytest.approx(wide, abs=1e-6)
        total = result.sums[number][0]
        swing = total.clipping.sensitivity(BOUNDED) / UNIT / n
        assert swing == pytest.approx(delta, abs=1e-5)
        # The parameter of the discrete Gaussian, not its variance, is what the paper's N has.
        parameter = math.sqrt(total.mechanism.parameter) / UNIT / n
        assert parameter == pytest.approx(noise, abs=1e-5)
        assert half_width(UNIT, n, parameter * UNIT, failure) / UNIT == pytest.approx(
            width, abs=1e-5
        )


def test_the_interval_of_a_small_stratum_never_grows_where_intervals_are_intersected():
    column = Column("x", -3 * UNIT, 3 * UNIT, UNIT)
    strata = Strata({"all": 10}, BOUNDED)
    for intersect in (False, True):
        steps = Steps.split(Fraction(1, 2), 3, intersect=intersect)
        result = estimate_means(one_stratum(np.zeros(10)), column, steps, strata, streams(2))
        width = result.high[0] - result.low[0]
        assert bool(width <= 6 * UNIT) is intersect
        if intersect:
            assert -3 * UNIT <= result.means[0] <= 3 * UNIT


@pytest.mark.parametrize("neighbors", [BOUNDED, UNBOUNDED])
def test_no_pair_of_neighbors_costs_more_than_the_steps(neighbors):
    """Brute force over all pairs of values and strata, in fractions."""
    clippings = [Clipping.around(-3, 4), Clipping.around(0, 2), Clipping.around(-1, 6)]
    rho = Fraction(1, 7)
    sigmas = [clipping.noise(Definition.ZCDP, rho, neighbors).sigma_sq for clipping in clippings]

    def entry(stratum: int, value: int) -> list[int]:
        clipping = clippings[stratum]
        out = [0, 0, 0]
        out[stratum] = max(clipping.lower, min(clipping.upper, value)) - clipping.center
        return out

    places = list(itertools.product(range(3), range(-9, 10)))
    entries = [entry(*place) for place in places]
    pairs = itertools.product(entries, entries if neighbors is BOUNDED else [[0, 0, 0]])
    worst = max(
        sum(Fraction((a - b) ** 2) / (2 * s) for a, b, s in zip(one, other, sigmas, strict=True))
        for one, other in pairs
    )
    assert worst == rho


def test_a_clipping_has_an_integer_center():
    for lower, upper in itertools.product(range(-4, 1), range(1, 6)):
        clipping = Clipping.around(lower, upper)
        assert clipping.lower == lower
        assert clipping.upper in {upper, upper + 1}
        assert (
            clipping.upper - clipping.center == clipping.center - clipping.lower == clipping.radius
        )


def test_sums_are_exact_beneath_their_noise():
    values = np.array([5, -40, 7, 100, 3])
    truth = strata_of(values, [0, 0, 1, 1, 1], 3)
    clippings = [Clipping(-10, 10), Clipping(0, 20), Clipping(0, 2)]
    mechanisms = [
        clipping.noise(Definition.ZCDP, Fraction(10**9), UNBOUNDED) for clipping in clippings
    ]
    sums = measure_sums(truth, clippings, mechanisms, streams=streams(3), position=(0,))
    # At such a cost the noise is zero: sigma^2 = T^2 / (2 10^9).
    assert [total.answer for total in sums] == [5 - 10, (7 - 10) + (20 - 10) + (3 - 10), 0]
    assert sums[0].mean(2) == -2.5
    assert sums[1].mean(3) == 10.0


def test_noise_has_the_stated_spread():
    """Power: a noise of half the spread would fail with probability 1 - 10^-9."""
    column = Column("x", -3000, 3000, 1000.0)
    steps = Steps((Fraction(1, 2),))
    strata = Strata({str(i): 50 for i in range(400)}, BOUNDED)
    values = np.zeros(400 * 50)
    truth = strata_of(values, np.repeat(np.arange(400), 50), 400)
    result = estimate_means(truth, column, steps, strata, streams(4))
    scaled = result.means / result.noise_sd
    assert 0.85 < np.std(scaled) < 1.15
    assert abs(np.mean(scaled)) < 0.25
    assert not result.outside.any()


def test_a_true_mean_out_of_bounds_shows_in_noisy_answers():
    column = Column("x", -1000, 1000, 1000.0)
    truth = one_stratum(np.full(5000, 3000))
    result = estimate_means(
        truth, column, Steps.split(Fraction(1, 2), 2), Strata({"all": 5000}, BOUNDED), streams(5)
    )
    assert result.outside[0]


def test_strata_of_known_means_are_estimated_near_them():
    column = Column("x", 0, 100, 10.0)
    truth = strata_of(np.repeat([20, 80], 5000), np.repeat([0, 1], 5000), 2)
    strata = Strata({"a": 5000, "b": 5000}, UNBOUNDED)
    result = estimate_means(truth, column, Steps.split(Fraction(1, 2), 2), strata, streams(6))
    assert result.means == pytest.approx([20, 80], abs=1)
    assert (0 < result.noise_sd).all()
    assert (result.noise_sd < 1).all()


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Strata({"a": 0}, BOUNDED), SchemaError),
        (lambda: Strata({}, BOUNDED), SchemaError),
        (lambda: Column("x", 5, 5, 1.0), SchemaError),
        (lambda: Column("x", 0, 5, 0.0), SchemaError),
        (lambda: Column("x", 0, 5, math.inf), SchemaError),
        (lambda: Steps(()), BudgetError),
        (lambda: Steps((Fraction(0),)), BudgetError),
        (lambda: Steps((Fraction(1),), failure=1.0), BudgetError),
        (lambda: strata_of([1, 2], [0, 2], 2), SchemaError),
        (lambda: strata_of([1], [0, 1], 2), SchemaError),
    ],
)
def test_bad_input_is_refused(make, error):
    with pytest.raises(error):
        make()


def test_values_in_too_fine_a_unit_are_refused_and_in_a_coarser_one_estimated():
    strata, steps = Strata({"a": 1}, BOUNDED), Steps((Fraction(1),))
    with pytest.raises(SchemaError, match="coarser unit"):
        estimate_means(one_stratum([1]), Column("x", 0, 1 << 40, 1.0), steps, strata, streams(7))
    coarser = Column("x", 0, 1 << 20, 1.0)
    assert len(estimate_means(one_stratum([1]), coarser, steps, strata, streams(7)).means) == 1


def test_a_later_step_is_refused_before_the_first_or_never():
    """Once noise was drawn, an error would spend the part and publish nothing."""
    column, strata = Column("x", 0, 100, 10.0), Strata({"a": 5}, BOUNDED)
    least = Fraction(1, 10**18)
    with pytest.raises(BudgetError, match="sigma_sq cannot be used"):
        refuse_unmeasurable(column, Steps((Fraction(1), least)), strata)
    steps = Steps((least, Fraction(1)), intersect=False)
    begun = MeanEstimates.begin(column, strata)
    (first,) = begun.clippings(column, steps, strata)
    noisy = NoisySum(first, first.noise(Definition.ZCDP, least, BOUNDED), 0)
    (second,) = begun.after((noisy,), column, steps, strata).clippings(column, steps, strata)
    assert second.radius == MOST_RADIUS


def test_a_stratum_of_nobody_is_refused_and_pooled_with_another_estimated():
    with pytest.raises(SchemaError, match="pool small strata"):
        Strata({"a": 5, "b": 0}, BOUNDED)
    pooled = Strata({"a or b": 5}, BOUNDED)
    column = Column("x", 0, 100, 10.0)
    result = estimate_means(
        one_stratum([50] * 5), column, Steps((Fraction(9),)), pooled, streams(7)
    )
    assert 0 <= result.means[0] <= 100


def test_a_stratum_of_one_record_is_estimated_within_public_bounds():
    column = Column("x", 0, 100, 10.0)
    result = estimate_means(
        one_stratum([50]),
        column,
        Steps.split(Fraction(1, 2), 2),
        Strata({"a": 1}, BOUNDED),
        streams(8),
    )
    assert 0 <= result.means[0] <= 100


@pytest.mark.parametrize("neighbors", [BOUNDED, UNBOUNDED])
def test_clipped_means_have_the_scale_of_the_paper(neighbors):
    column = Column("x", -5 * UNIT, 5 * UNIT, UNIT)
    sums = clipped_sums(
        one_stratum(np.zeros(1000)),
        column,
        Steps((Fraction(1, 2),), failure=0.05),
        Strata({"all": 1000}, neighbors),
        streams(9),
    )
    scale = float(sums[0].mechanism.parameter) / UNIT / 1000
    bound = 5.0 + math.sqrt(math.log(1000 / 0.05))
    expected = 2.0 * bound / (1000 * 0.5) / (1 if neighbors is BOUNDED else 2)
    assert scale == pytest.approx(expected, rel=1e-6)


def test_shrinking_goes_all_the_way_where_noise_explains_everything_and_nowhere_without_noise():
    means = np.array([1.0, 1.2, 0.9, 1.1])
    assert shrink(means, np.full(4, 1.0)) == pytest.approx(np.full(4, means.mean()))
    apart = np.array([0.0, 100.0, 200.0])
    assert shrink(apart, np.full(3, 1e-9)) == pytest.approx(apart, abs=1e-6)


def test_shrinking_by_hand():
    """DerSimonian and Laird with variances 1 and 1 and 4: Q = 20.444, tau^2 = 11.069."""
    means, variances = np.array([0.0, 6.0, 9.0]), np.array([1.0, 1.0, 4.0])
    precision = 1 / variances
    center = (precision @ means) / 2.25
    between = (precision @ (means - center) ** 2 - 2) / (2.25 - (precision @ precision) / 2.25)
    weights = 1 / (between + variances)
    middle = (weights @ means) / weights.sum()
    expected = [
        middle + between / (between + v) * (m - middle)
        for m, v in zip(means, variances, strict=True)
    ]
    assert shrink(means, variances) == pytest.approx(expected)
    assert min(abs(shrink(means, variances) - middle)) < min(abs(means - middle))
