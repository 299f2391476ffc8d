"""Measures of differences, against their definitions by hand."""

from __future__ import annotations

import numpy as np
import pytest

from das.errors import SchemaError
from das.metrics.differences import measure_differences


def test_measures_follow_their_definitions() -> None:
    values = np.array([12.0, 9.0, 100.0, 3.0, 41.0])
    reference = np.array([10.0, 10.0, 100.0, 0.0, 40.0])
    found = measure_differences(values, reference)
    assert found.answers == 5
    assert found.mean == pytest.approx((2 - 1 + 0 + 3 + 1) / 5)
    assert found.mean_absolute == pytest.approx(7 / 5)
    assert found.root_mean_square == pytest.approx((15 / 5) ** 0.5)
    assert (found.quantile_90, found.largest) == (3, 3)
    assert found.variation == pytest.approx(100 * (15 / 5) ** 0.5 / 32)
    # The fourth has no percentage.
    assert found.mean_percent == pytest.approx((20 - 10 + 0 + 2.5) / 4)
    assert found.mean_absolute_percent == pytest.approx((20 + 10 + 0 + 2.5) / 4)
    assert found.large == 50


def test_empty_places_have_no_percentages() -> None:
    found = measure_differences(np.array([1.0, 0.0]), np.zeros(2))
    assert (found.mean_percent, found.mean_absolute_percent, found.large) == (None, None, None)
    assert found.variation is None
    with pytest.raises(SchemaError, match="need numbers of equal shape"):
        measure_differences(np.zeros(0), np.zeros(0))
