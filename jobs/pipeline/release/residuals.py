"""Test the noise of imported measurements against their stated variances.

True answers of children sum to the answer of their parent, so noisy answers differ from the sum by
noise alone. The sum of squared differences over their stated variances is chi-square, except for
the discreteness of the noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2

from das.arrays import FloatArray
from das.errors import VerificationError
from jobs.pipeline.plan import Plan
from jobs.pipeline.storage.answers import read_measured
from jobs.pipeline.storage.columns import texts
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.storage.geography import read_geography
from jobs.pipeline.storage.layout import ReleaseLayout

# Answers of one query at two geolevels that are held in memory: 320 MB of int64. Not measured.
_MOST_ANSWERS = 40_000_000
# False positive rate: one of a billion releases with the stated noise is refused. Not measured.
_LEAST_PROBABILITY = 1e-9


@dataclass(frozen=True)
class ResidualTest:
    """Chi-square test of differences between geounits and the sums of their children.

    Attributes:
      chi_square: Sum of squared differences over their variances.
      differences: Number of differences, the degrees of freedom.
      probability: Two-sided p-value under the stated noise, at most 1; an upper bound.
    """

    chi_square: float
    differences: int
    probability: float


def residual_test(plan: Plan, release: ReleaseLayout) -> ResidualTest:
    """Test the spread of imported noisy answers against their stated variances.

    Pairs of geolevels are disjoint, so differences are independent given the truth. A geounit
    counts if it and all its children are measured. Queries with more answers than fit in memory
    are left out. For integer noise, 1/2 is added to each difference for the lower tail, and
    subtracted for the upper tail, so that discrete noise of small variance passes.

    Args:
      plan: The plan.
      release: The release.

    Raises:
      OutputError: Measurements cannot be read.
      VerificationError: The spread has a p-value below 1e-9.
    """
    found = [*_differences(plan, release)]
    off = np.concatenate([np.zeros(0), *(np.abs(one) for one, _ in found)])
    variances = np.concatenate([np.zeros(0), *(variance for _, variance in found)])
    if not len(off):
        return ResidualTest(0.0, 0, 1.0)
    lower, upper = (((np.maximum(off + half, 0) ** 2) / variances).sum() for half in (0.5, -0.5))
    least = min(float(chi2.cdf(lower, len(off))), float(chi2.sf(upper, len(off))))
    test = ResidualTest(float((off**2 / variances).sum()), len(off), min(1.0, 2 * least))
    if test.probability < _LEAST_PROBABILITY:
        raise VerificationError(
            str(release.measurements(plan.levels[0].name).parent),
            "does not hold the stated noise: answers of geounits and of their children differ by "
            "too little or too much",
            got=f"a chi-square of {test.chi_square:.6g}",
            want=f"about {test.differences}, the number of differences",
        )
    return test


def _differences(plan: Plan, release: ReleaseLayout) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield differences and variances, float64[n] each, per query and pair of geolevels."""
    for last in range(len(plan.levels) - 1, 0, -2):
        upper, lower = plan.levels[last - 1], plan.levels[last]
        above, below = (Dataset.open(release.measurements(one.name)) for one in (upper, lower))
        geography = read_geography(release, lower.name, columns=("geocode", "parent"))
        codes, parents = texts(geography), texts(geography, "parent")
        names = {query.name for query in upper.queries} - plan.on_demand
        for query in lower.queries:
            if query.name not in names or query.size * len(codes) > _MOST_ANSWERS:
                continue
            upper_codes, answers, noise = read_measured(above, query.name, query.size)
            measured, children, of_children = read_measured(below, query.name, query.size)
            parent_of = parents[np.searchsorted(codes, measured)]
            listed = np.isin(parent_of, upper_codes)
            row = np.searchsorted(upper_codes, parent_of[listed])
            sums = np.zeros(answers.shape, np.int64)
            np.add.at(sums, row, children[listed])
            variances = np.array([one.variance() for one in noise])
            np.add.at(variances, row, np.array([one.variance() for one in of_children])[listed])
            families = parents[np.isin(parents, upper_codes)]
            n_upper = len(upper_codes)
            of_all = np.bincount(np.searchsorted(upper_codes, families), minlength=n_upper)
            of_measured = np.bincount(row, minlength=n_upper)
            whole = (of_measured == of_all) & (of_measured > 0)
            yield (
                (answers - sums)[whole].ravel().astype(float),
                np.repeat(variances[whole], query.size),
            )
