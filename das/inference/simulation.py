"""Noise as an analyst simulates it, to floating-point accuracy.

Nothing here makes a release. Draws come from a NumPy generator that the analyst seeds; the noise of
a release comes from `das.mechanisms.entropy` alone.
"""

from __future__ import annotations

import numpy as np

from das.arrays import FloatArray
from das.mechanisms.mechanism import Distribution

Generator = np.random.Generator  # noqa: TID251 - an analyst's own simulations


def draw_noise(
    distribution: Distribution, size: int | tuple[int, ...], generator: Generator
) -> FloatArray:
    """Draw independent noise for simulations, as whole numbers if the distribution is discrete.

    Law: the noise has the law of `distribution`, up to the 2^53 values of a uniform float. Do not
    use it for a release.
    """
    # The generator gives multiples of 2^-53. Continuous noise of probability 0 would be infinite.
    return distribution.quantiles(np.maximum(generator.random(size), 2.0**-54))
