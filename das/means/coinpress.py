"""Coinpress: a mean by ever narrower clipping, of everybody or of disjoint strata at once.

A step clips to what the mean may be, widened by the spread of values, adds noise to the sum and
knows the mean better afterwards. All strata take their steps at the full budget, since each record
is in one of them.

What a step does with its noisy sums is `das.means.estimates`.

References:
  Biswas, Dong, Kamath & Ullman, CoinPress, NeurIPS 2020: UVM and UVMRec in one dimension.
  Rosenblatt, Stoyanovich & Musco: Algorithms 1 to 3.
"""

from __future__ import annotations

from das.confidential import Confidential
from das.definition import Definition
from das.means.estimates import Column, MeanEstimates, Steps, Strata
from das.means.measure import StratumValues, measure_sums
from das.mechanisms.entropy import Streams


def estimate_means(
    truth: Confidential[StratumValues],
    column: Column,
    steps: Steps,
    strata: Strata,
    streams: Streams,
) -> MeanEstimates:
    """Estimate the mean of a column in every stratum; all of it costs `steps.rho`.

    Args:
      truth: Values of k strata.
      column: What is public of them.
      steps: Costs.
      strata: Names and public sizes.
      streams: Noise streams, used for nothing else.

    Law: every sum has independent exact noise (`measure_sums`); later steps depend on the data
    only through it.

    Raises:
      SchemaError, BudgetError: As `estimates.refuse_unmeasurable`; none after the first
        step.
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
