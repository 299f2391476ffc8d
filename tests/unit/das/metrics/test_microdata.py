"""Errors of microdata and what they do to groups, against counts by hand and by brute force."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from das.errors import SchemaError
from das.metrics.microdata import (
    demographic_parity_ratio,
    disparities,
    false_negative_rate_difference,
    shares,
)
from tests.builders.microdata import k_way_error


def test_errors_are_those_of_counting_rows():
    rng = np.random.default_rng(3)
    sizes = (2, 3, 4, 2)
    first = np.stack([rng.integers(0, size, 60) for size in sizes], axis=1)
    second = np.stack([rng.integers(0, size, 45) for size in sizes], axis=1)
    for k in (1, 2, 3, 4):
        distances = []
        for kept in itertools.combinations(range(4), k):
            a = Counter(tuple(row) for row in first[:, kept].tolist())
            b = Counter(tuple(row) for row in second[:, kept].tolist())
            distances.append(sum(abs(a[cell] / 60 - b[cell] / 45) for cell in a.keys() | b.keys()))
        assert k_way_error(first, second, sizes, k) == pytest.approx(np.mean(distances))
    assert k_way_error(first, first[::-1], sizes, 3) == 0.0
    nobody = np.zeros((0, 4), np.int64)
    assert k_way_error(first, nobody, sizes, 2) == pytest.approx(1.0)


def test_disparity_leaves_out_what_has_no_relative_error():
    truth = np.array([[10.0, 0.0], [4.0, np.nan]])
    released = np.array([[9.0, 5.0], [5.0, 1.0]])
    found = disparities(truth, released)
    assert np.nanmax(found) == 0.25
    assert np.isnan(found).tolist() == [[False, True], [False, True]]


def test_rates_of_groups_by_hand():
    groups = np.array([0, 0, 0, 0, 2, 2])
    predicted = np.array([True, True, False, True, True, False])
    truth = np.array([True, True, True, True, True, True])
    assert demographic_parity_ratio(predicted, groups) == pytest.approx(0.5 / 0.75)
    assert false_negative_rate_difference(truth, predicted, groups) == pytest.approx(0.25)
    assert math.isnan(demographic_parity_ratio(~predicted[:1], groups[:1]))
    assert math.isnan(false_negative_rate_difference(~truth, predicted, groups))
    # A group whose positive records are all found and one of which none is.
    assert false_negative_rate_difference(groups < 3, groups == 0, groups) == 1.0


@pytest.mark.parametrize(
    "make",
    [
        lambda: shares(np.zeros((2, 2), np.int64), (1 << 20, 1 << 20), (0, 1)),
        lambda: disparities(np.zeros((1, 2)), np.zeros((2, 1))),
        lambda: demographic_parity_ratio(np.ones(2, bool), np.zeros(3, np.int64)),
        lambda: false_negative_rate_difference(
            np.ones(2, bool), np.ones(3, bool), np.zeros(3, np.int64)
        ),
    ],
)
def test_bad_input_is_refused(make):
    with pytest.raises(SchemaError):
        make()
