"""Confidence regions: geometry, and how often they hold the truth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from das.errors import SchemaError, SolverError
from das.inference.regions import ellipse

INFORMATION = np.array([[4.0, 1.0, 1.8], [1.0, 3.0, -1.0], [1.8, -1.0, 2.0]])
CENTER = np.array([1.0, -2.0, 7.0])


@pytest.mark.parametrize("parameters", [(0, 1), (2, 0), (1,), (0, 1, 2)], ids=str)
def test_regions_hold_the_truth_as_often_as_they_say(parameters):
    """Of normal estimates, to 5 standard errors; one of fewer degrees would not."""
    n, covariance = 40_000, np.linalg.inv(INFORMATION)
    estimates = np.random.default_rng(1).multivariate_normal(CENTER, covariance, n)
    region = ellipse(CENTER, INFORMATION, 0.9, parameters)
    assert np.allclose(region.radius**2, stats.chi2.ppf(0.9, len(parameters)))
    # The truth lies in the region of an estimate where the estimate lies in that of the truth.
    share = region.contains(estimates[:, list(parameters)]).mean()
    assert abs(share - 0.9) < 5 * (0.09 / n) ** 0.5
    fixed = np.linalg.inv(INFORMATION[np.ix_(parameters, parameters)])
    if len(parameters) < 3:  # power: others taken as known, the region is too small
        away = estimates[:, list(parameters)] - region.center
        inside = (away * np.linalg.solve(fixed, away.T).T).sum(axis=1) <= region.radius**2
        assert abs(inside.mean() - 0.9) > 5 * (0.09 / n) ** 0.5


def test_the_boundary_is_where_the_region_ends():
    region = ellipse(CENTER, INFORMATION, 0.95)
    points = region.boundary(50)
    assert np.allclose(points[0], points[-1])
    away = points - region.center
    assert region.contains(region.center + 0.999999 * away).all()
    assert not region.contains(region.center + 1.000001 * away).any()
    longest, shortest = np.linalg.norm(region.axes(), axis=1)
    assert np.allclose(region.axes()[0] @ region.axes()[1], 0)
    assert shortest - 1e-9 <= np.linalg.norm(away, axis=1).min()
    assert np.linalg.norm(away, axis=1).max() <= longest + 1e-9


def test_refusals():
    with pytest.raises(SchemaError, match="no confidence"):
        ellipse(CENTER, INFORMATION, 95.0)
    with pytest.raises(SchemaError, match="shapes do not fit"):
        ellipse(CENTER[:2], INFORMATION, 0.95)
    with pytest.raises(SchemaError, match="lacks parameters"):
        ellipse(CENTER, INFORMATION, 0.95, (0, 3))
    with pytest.raises(SchemaError, match="is not in the plane"):
        ellipse(CENTER, INFORMATION, 0.95, (0, 1, 2)).boundary(5)
    with pytest.raises(SolverError, match="not positive definite"):
        ellipse(CENTER, -INFORMATION, 0.95)
