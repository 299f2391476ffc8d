"""The noisy door for sums of numeric values: clipped, of disjoint strata, with exact noise.

A sum is sum_j (clip(x_j, lower, upper) - center) over the records of a stratum, an integer. Its
noise is discrete, so budgets are exact although steps are chosen by floats: what a step clips to
depends on noisy answers and public numbers only.

Neighbors. `unbounded`: a record adds at most T = (upper - lower) / 2 to one sum. `bounded`: a
changed record moves one sum by at most 2 T, or two sums by at most T each, which costs half as
much. Sizes by which sums are divided are public, never counted here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from das.arrays import IntArray
from das.confidential import Confidential
from das.errors import BudgetError, SchemaError
from das.means.sums import Clipping, NoisySum
from das.mechanisms.entropy import NoiseKey, Places
from das.mechanisms.mechanism import Mechanism
from das.mechanisms.noise import add_noise

# A sum over 2^34 records, twice the people there are, then fits 64 bits with its sign and noise.
_MOST_RADIUS = 1 << 28


@dataclass(frozen=True, eq=False)
class StratumValues:
    """Values of a numeric column by stratum.

    Attributes:
      values: int64[n], in a public unit such as dollars or years.
      strata: int64[n], 0 <= stratum < n_strata.
      n_strata: Strata k, whether anybody is in them or not.

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
    labels: Sequence[str],
    statistic: str,
    key: NoiseKey,
) -> tuple[NoisySum, ...]:
    """Sum clipped values in every stratum and add noise.

    Args:
      truth: Values of k strata.
      clippings: k; public.
      mechanisms: k.
      labels: k distinct names of strata; with `statistic` they select the noise streams.
      statistic: Name of this release, such as "income, step 1"; never used twice under a key.
      key: Noise key.

    Law: the answers are independent, each the exact clipped sum + noise of its mechanism, given
    uniform bits.

    Raises:
      BudgetError: Lengths differ.
      SchemaError: A sum could exceed 64 bits.
    """
    data = truth.reveal()
    if not len(clippings) == len(mechanisms) == len(labels) == data.n_strata:
        raise BudgetError(statistic, "needs one clipping, mechanism and label per stratum")
    lower = np.array([clipping.lower for clipping in clippings], np.int64)
    upper = np.array([clipping.upper for clipping in clippings], np.int64)
    center = np.array([clipping.center for clipping in clippings], np.int64)
    most = max((clipping.radius for clipping in clippings), default=0)
    if most > _MOST_RADIUS:
        raise SchemaError(
            statistic,
            "clips to an interval that is too wide",
            got=most,
            want=f"a radius of at most {_MOST_RADIUS}",
            remedy="give the values in a coarser unit",
        )
    sums = np.zeros(data.n_strata, np.int64)
    clipped = np.clip(data.values, lower[data.strata], upper[data.strata]) - center[data.strata]
    np.add.at(sums, data.strata, clipped)
    answers = []
    for i, mechanism in enumerate(mechanisms):
        place = Places.of([labels[i]])
        noisy = add_noise(
            sums[i : i + 1, None], mechanism=mechanism, key=key, purpose=statistic, places=place
        )
        answers.append(NoisySum(clippings[i], mechanism, int(noisy[0, 0])))
    return tuple(answers)
