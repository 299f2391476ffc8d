"""Noisy measurements of sums of clipped numeric values, by disjoint strata, with exact noise.

A sum is sum_j (clip(x_j, lower, upper) - center) over the records of a stratum, an integer. Its
noise is discrete, so budgets are exact although clippings are chosen by floats: these depend on
noisy answers and public numbers only.

Neighbors. `unbounded`: a record adds at most T = (upper - lower) / 2 to one sum. `bounded`: a
changed record moves one sum by at most 2 T, or two sums by at most T each, which costs half as
much. Sizes by which sums are divided are public, never counted here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from das.arrays import IntArray, sums_at
from das.confidential import Confidential
from das.definition import Definition
from das.errors import BudgetError, SchemaError
from das.means.estimates import (
    Clipping,
    Column,
    MeanEstimates,
    NoisySum,
    Steps,
    Strata,
    clipped_noise,
)
from das.mechanisms.entropy import Position, Streams
from das.mechanisms.mechanism import Mechanism
from das.mechanisms.noise import add_noise_in_place


@dataclass(frozen=True, eq=False)
class StratumValues:
    """Values of a numeric column by stratum.

    Attributes:
      values: int64[n], in a public unit such as dollars or years.
      strata: int64[n], 0 <= stratum < n_strata.
      n_strata: Number of strata k, including empty ones.

    Raises:
      SchemaError: Lengths or numbers of strata do not fit.
    """

    values: IntArray
    strata: IntArray
    n_strata: int

    def __post_init__(self) -> None:
        fits = len(self.values) == len(self.strata) and (
            not len(self.strata) or (self.strata.min() >= 0 and self.strata.max() < self.n_strata)
        )
        if not fits or self.values.dtype != np.int64 or self.strata.dtype != np.int64:
            raise SchemaError(
                "values by stratum", "do not fit", want="int64 values and a stratum of each"
            )


def measure_sums(
    truth: Confidential[StratumValues],
    clippings: Sequence[Clipping],
    mechanisms: Sequence[Mechanism],
    *,
    streams: Streams,
    position: Position,
) -> tuple[NoisySum, ...]:
    """Sum clipped values in every stratum and add noise.

    Args:
      truth: Values of k strata.
      clippings: The clipping of each of the k strata; public.
      mechanisms: The noise of the sum of each of the k strata.
      streams: The noise streams of the statistic.
      position: Position of this step in the streams; each stratum is a row.

    Law: the answers are independent, each the exact clipped sum + noise of its mechanism, given
    uniform bits.

    Raises:
      BudgetError: Lengths differ.
    """
    data = truth.reveal()
    if not len(clippings) == len(mechanisms) == data.n_strata:
        raise BudgetError("measure sums", "needs one clipping and mechanism per stratum")
    lower = np.array([clipping.lower for clipping in clippings], np.int64)
    upper = np.array([clipping.upper for clipping in clippings], np.int64)
    center = np.array([clipping.center for clipping in clippings], np.int64)
    clipped = np.clip(data.values, lower[data.strata], upper[data.strata]) - center[data.strata]
    noisy = sums_at(data.strata, clipped, data.n_strata)[:, None]
    stream = streams.open(position, np.arange(data.n_strata))
    for i, mechanism in enumerate(mechanisms):
        add_noise_in_place(noisy, mechanism=mechanism, stream=stream, rows=[i])
    return tuple(map(NoisySum, clippings, mechanisms, noisy[:, 0].tolist()))


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

    The total cost is epsilon, since strata are disjoint (Proposition 8). `NoisySum.mean` divides by
    the public sizes. Under zCDP the noise is discrete Gaussian and the cost is rho. There is one
    step.

    Args:
      truth: Values of k strata.
      column: Public bounds of the means and spread of values.
      step: One step: its cost, epsilon or rho, and gamma of every stratum.
      strata: Names and public sizes.
      streams: Noise streams, used for nothing else.
      definition: The privacy definition of the cost.

    References:
      Rosenblatt, Stoyanovich & Musco, Equations 2 to 4 and Proposition 8, corrected to a symmetric
      interval.
    """
    clippings, mechanisms = clipped_noise(column, step, strata, definition)
    return measure_sums(truth, clippings, mechanisms, streams=streams, position=(0,))


def estimate_means(
    truth: Confidential[StratumValues],
    column: Column,
    steps: Steps,
    strata: Strata,
    streams: Streams,
) -> MeanEstimates:
    """Estimate the mean of a column in every stratum at total cost `steps.rho`.

    A step of CoinPress clips values to the current interval of the mean, widened by their spread.
    It adds noise to the sum, which narrows the interval. Every stratum uses the full budget, since
    each record is in one stratum. `das.means.estimates` has the formulas.

    Args:
      truth: Values of k strata.
      column: Public facts about the values.
      steps: Costs of the steps.
      strata: Names and public sizes.
      streams: Noise streams, used for nothing else.

    Law: every sum has independent exact noise (`measure_sums`); later steps depend on the data
    only through previous noisy sums.

    Raises:
      SchemaError, BudgetError: As in `estimates.refuse_unmeasurable`; none after the first step.

    References:
      Biswas, Dong, Kamath & Ullman, CoinPress, NeurIPS 2020: UVM and UVMRec in one dimension.
      Rosenblatt, Stoyanovich & Musco: Algorithms 1 to 3.
    """
    known = MeanEstimates.begin(column, strata)
    for number, cost in enumerate(steps.costs):
        clippings = known.clippings(column, steps, strata)
        sums = measure_sums(
            truth,
            clippings,
            [clipping.noise(Definition.ZCDP, cost, strata.neighbors) for clipping in clippings],
            streams=streams,
            position=(number,),
        )
        known = known.after(sums, column, steps, strata)
    return known
