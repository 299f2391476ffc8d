"""Which marginals an objective favors, on the domain of ResidualPlanner+, Section 6.2."""

from __future__ import annotations

import numpy as np
import pytest

from das.workload.fairness import explore_cell_variances
from das.workload.workload import AttributeWorkload, Weighting

ADULT = [
    AttributeWorkload.identity(f"a{i}", size)
    for i, size in enumerate((100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2))
]


@pytest.mark.parametrize(
    ("weighting", "least", "most", "sign"),
    [
        (Weighting.EQUAL, 2, 3, 1),
        (Weighting.SQUARE_ROOT, 10, 40, -1),
        (Weighting.CELL_SIZE, 300, 1000, -1),
    ],
)
def test_the_more_size_counts_the_more_large_marginals_are_favored(weighting, least, most, sign):
    """Equal weights: over twice the variance in large marginals; else orders of magnitude less."""
    found = explore_cell_variances(ADULT, 3, weighting)
    assert found.orders.tolist() == [0] + [1] * 14 + [2] * 91 + [3] * 364
    assert least <= found.variances.max() / found.variances.min() <= most
    trend = np.corrcoef(np.log(found.sizes), np.log(found.variances))[0, 1]
    assert sign * trend > 0.8


def test_twice_the_cost_halves_every_variance():
    once = explore_cell_variances(ADULT, 2, Weighting.EQUAL)
    twice = explore_cell_variances(ADULT, 2, Weighting.EQUAL, 2.0)
    np.testing.assert_allclose(once.variances, 2 * twice.variances)
