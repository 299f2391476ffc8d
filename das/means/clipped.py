"""Clipped means with Laplace noise, under pure differential privacy: one step, no narrowing.

References:
  Rosenblatt, Stoyanovich & Musco, Equations 2 to 4 and Proposition 8, with the symmetric interval
  that is meant there.
"""

from __future__ import annotations

import math
from fractions import Fraction

from das.confidential import Confidential
from das.definition import Definition
from das.means.bounds import clipping_bound
from das.means.estimates import Column, Strata
from das.means.measure import StratumValues, measure_sums
from das.means.sums import Clipping, NoisySum
from das.mechanisms.entropy import NoiseKey


def clipped_sums(
    truth: Confidential[StratumValues],
    column: Column,
    epsilon: Fraction,
    strata: Strata,
    key: NoiseKey,
    *,
    failure: float = 0.05,
) -> tuple[NoisySum, ...]:
    """Clip values to mean +- (R + spread sqrt(ln(n / gamma))) and add discrete Laplace noise.

    Costs epsilon, since strata are disjoint (Proposition 8). Divide by the public sizes
    (`NoisySum.mean`).

    Args:
      truth: Values of k strata.
      column: Public bounds of the means and spread of values.
      epsilon: Pure cost of each stratum and of all.
      strata: Names and public sizes.
      key: Noise key.
      failure: gamma of every stratum.
    """
    middle = (column.low + column.high) / 2
    half = (column.high - column.low) / 2
    clippings = []
    for size in strata.sizes.values():
        radius = column.spread * clipping_bound(size, half / column.spread, failure)
        clippings.append(Clipping.around(math.floor(middle - radius), math.ceil(middle + radius)))
    return measure_sums(
        truth,
        clippings,
        [clipping.noise(Definition.PURE, epsilon, strata.neighbors) for clipping in clippings],
        labels=strata.names,
        statistic=f"clipped mean of {column.name}",
        key=key,
    )
