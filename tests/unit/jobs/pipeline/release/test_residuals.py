"""Noise that was made elsewhere is as large as it is stated, or is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from das.errors import VerificationError
from jobs.pipeline.release.verify import ResidualTest, residual_test
from tests.builders import two_families as two

# Two counties have 1 + 4 answers each. A query costs 10^-6 / 6, so with a sensitivity of 2 its
# variance is 6 x 10^6, and that of a county less its two blocks 18 x 10^6.
PLAN = two.plan(budget=replace(two.plan().budget, total=Fraction(1, 10**6)))


def residuals_of(folder: Path, **noise: Mapping[str, int]) -> ResidualTest:
    """Measurements with some noise in every answer of a query, by geolevel."""
    release = two.release(folder)
    for geolevel in ("county", "block"):
        two.write_noisy(release, PLAN, geolevel, noise=noise.get(geolevel))
    return residual_test(PLAN, release)


def test_differences_are_weighed_by_the_variances_of_parents_and_children(tmp_path):
    found = residuals_of(tmp_path, county={"total": 4000, "detailed": 4000})
    assert found.differences == 10
    assert found.chi_square == pytest.approx(10 * 16 / 18)
    assert found.probability > 0.1


@pytest.mark.parametrize("blocks", [0, 60_000], ids=["too little", "too much"])
def test_noise_of_another_size_than_is_stated_is_refused(tmp_path, blocks):
    with pytest.raises(VerificationError, match="does not hold the stated noise"):
        residuals_of(tmp_path, block={"detailed": blocks})
