"""Corrections are used only where the estimated error clearly falls."""

from __future__ import annotations

import numpy as np
import pytest

from das.tree.covariate import STEPS
from jobs.pipeline.release.covariate import PLAIN, SureEstimate
from jobs.pipeline.release.learned import LEARNED, improved

NAMES = ("total", "sex", "detailed")


def estimated(plain: list[float], learned: list[float], errors: list[float]) -> SureEstimate:
    """Mean errors of three marginals of 100 answers each."""
    sums = {
        way: np.rint(np.array(means) * 100 * STEPS).astype(np.int64)
        for way, means in ((PLAIN, plain), (LEARNED, learned))
    }
    squares = {PLAIN: np.zeros(3), LEARNED: (100 * np.array(errors)) ** 2}
    return SureEstimate(NAMES, np.full(3, 100), sums, squares)


@pytest.mark.parametrize(
    ("learned", "tried", "kept"),
    [
        ([6, 2, 0.5], {*NAMES}, {*NAMES}),
        ([6, 2.9, 0.5], {*NAMES}, {"total", "detailed"}),  # sex: by less than its error
        ([6, 3.5, 0.5], {*NAMES}, {"total", "detailed"}),
        ([6, 3.1, 0.5], {"total", "detailed"}, {"total", "detailed"}),
        ([6, 3.5, 0.5], {"total", "detailed"}, set()),  # sex is not corrected, and loses
        ([9, 3, 1], {*NAMES}, set()),
    ],
)
def test_only_clear_gains_are_kept(learned: list[float], tried: set[str], kept: set[str]) -> None:
    risks = estimated([8, 3, 1], learned, [0.5, 0.2, 0.1])
    assert improved(risks, frozenset(tried)) == kept
