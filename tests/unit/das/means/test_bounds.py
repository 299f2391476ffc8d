"""Propositions 8 and 9 and Theorem 10, with the sizes of New York in 2018."""

from __future__ import annotations

import math

import numpy as np
import pytest

from das.errors import SchemaError
from das.means.bounds import (
    clipping_bound,
    error_bound,
    expected_log_sizes,
    moment_concentration,
    most_log_sizes,
    noise_scale,
    stratified_variance,
)

# Persons of the American Community Survey of New York in 2018 by race, public.
SIZES = (138474, 24024, 17030, 10964, 5646, 508, 244, 72, 5)
SHARES = [size / sum(SIZES) for size in SIZES]


def test_the_dirichlet_bound_at_the_sizes_of_new_york():
    n, k = sum(SIZES), len(SIZES)
    assert n == 196967
    assert most_log_sizes(k, n) == pytest.approx(89.942, abs=5e-4)
    values = {0.13: 40.002, 0.25662: 67.223, 0.3: 71.023, 1.0: 85.256, 3.0: 88.527}
    for concentration, value in values.items():
        assert expected_log_sizes(concentration, k, n) == pytest.approx(value, abs=1e-3)
    assert math.fsum(map(math.log, SIZES)) == pytest.approx(67.223, abs=5e-4)
    assert moment_concentration(SHARES) == pytest.approx(0.13012, abs=5e-6)


def test_the_dirichlet_bound_is_the_mean_of_draws():
    draws = np.random.default_rng(1).dirichlet(np.full(9, 1.0), 100_000)
    mean = np.log(draws).sum(1).mean() + 9 * math.log(1000)
    assert expected_log_sizes(1.0, 9, 1000) == pytest.approx(mean, abs=0.05)


def test_stratifying_costs_the_mean_of_everybody_about_the_root_of_the_strata():
    """2.77 for equal sizes where the root of k is 3, 2.49 for those of New York."""

    def ratio(sizes):
        plain = stratified_variance([sum(sizes)], 0.0, 0.05, 1.0)
        return math.sqrt(stratified_variance(sizes, 0.0, 0.05, 1.0) / plain)

    assert ratio([sum(SIZES) // 9] * 9) == pytest.approx(2.77, abs=0.01)
    assert ratio(SIZES) == pytest.approx(2.49, abs=0.01)


def test_the_variance_is_that_of_independent_noise():
    sizes, total = (10, 30), 40
    by_hand = sum((n / total) ** 2 * 2 * noise_scale(n, 1.0, 0.1, 0.5) ** 2 for n in sizes)
    assert stratified_variance(sizes, 1.0, 0.1, 0.5) == pytest.approx(by_hand)


def test_the_bound_of_proposition_nine_grows_with_the_root_of_strata_and_falls_with_records():
    one = error_bound(1, 10_000, 5.0, 0.05, 1.0)
    assert one == pytest.approx(-math.log(0.05) * clipping_bound(10_000, 5.0, 0.05) / 10_000)
    assert 2.8 < error_bound(9, 10_000, 5.0, 0.05, 1.0) / one < 3.0
    assert error_bound(1, 20_000, 5.0, 0.05, 1.0) < one


@pytest.mark.parametrize("shares", [[0.5, 0.5], [1.0], [0.5, 0.4], []])
def test_shares_without_a_concentration_are_refused(shares):
    with pytest.raises(SchemaError, match="shares of strata"):
        moment_concentration(shares)
