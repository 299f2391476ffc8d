"""Clipped means: one step, no narrowing; with Laplace noise under pure differential privacy.

References:
  Rosenblatt, Stoyanovich & Musco, Equations 2 to 4 and Proposition 8, with the symmetric interval
  that is meant there.
"""

from __future__ import annotations

from das.confidential import Confidential
from das.definition import Definition
from das.means.estimates import Column, Steps, Strata, clipped_noise
from das.means.measure import StratumValues, measure_sums
from das.means.sums import NoisySum
from das.mechanisms.entropy import Streams


def clipped_sums(
    truth: Confidential[StratumValues],
    column: Column,
    step: Steps,
    strata: Strata,
    streams: Streams,
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
      streams: Noise streams, used for nothing else.
      definition: What the cost is counted in.
    """
    clippings, mechanisms = clipped_noise(column, step, strata, definition)
    return measure_sums(truth, clippings, mechanisms, streams=streams, position=(0,))
