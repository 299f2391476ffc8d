"""Clipped means: one step, no narrowing; with Laplace noise under pure differential privacy.

References:
  Rosenblatt, Stoyanovich & Musco, Equations 2 to 4 and Proposition 8, with the symmetric interval
  that is meant there.
"""

from __future__ import annotations

import math

from das.confidential import Confidential
from das.definition import Definition
from das.means.bounds import clipping_bound
from das.means.estimates import Column, Steps, Strata
from das.means.measure import StratumValues, measure_sums
from das.means.sums import Clipping, NoisySum
from das.mechanisms.entropy import NoiseKey


def clipped_sums(
    truth: Confidential[StratumValues],
    column: Column,
    step: Steps,
    strata: Strata,
    key: NoiseKey,
    *,
    definition: Definition = Definition.PURE,
) -> tuple[NoisySum, ...]:
    """Clip values to mean +- (R + spread sqrt(ln(n / gamma))) and add discrete Laplace noise.

    Costs epsilon, since strata are disjoint (Proposition 8). Divide by the public sizes
    (`NoisySum.mean`). Under zCDP the noise is discrete Gaussian, and the cost rho.

    Args:
      truth: Values of k strata.
      column: Public bounds of the means and spread of values.
      step: One step: its cost, epsilon or rho, and gamma of every stratum.
      strata: Names and public sizes.
      key: Noise key.
      definition: What the cost is counted in.
    """
    [cost], failure = step.costs, step.failure
    middle = (column.low + column.high) / 2
    half = (column.high - column.low) / 2
    clippings = []
    for size in strata.sizes.values():
        radius = column.spread * clipping_bound(size, half / column.spread, failure)
        clippings.append(Clipping.around(math.floor(middle - radius), math.ceil(middle + radius)))
    return measure_sums(
        truth,
        clippings,
        [clipping.noise(definition, cost, strata.neighbors) for clipping in clippings],
        labels=strata.names,
        statistic=f"clipped mean of {column.name}",
        key=key,
    )
