"""Means of strata from noisy sums: what each step clips to, what is known after it; no data.

The interval of a small stratum can come out wider than the one before. Both hold the mean, so
`intersect`, which costs nothing, goes on with what they share and keeps the last mean inside.

References:
  Biswas, Dong, Kamath & Ullman, CoinPress, NeurIPS 2020: UVM and UVMRec in one dimension.
  Rosenblatt, Stoyanovich & Musco: Algorithms 1 to 3. The weights of a mean of strata must sum to
  1; the factor 1/k printed in Algorithm 3 supposes that they sum to k.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np

from das.arrays import BoolArray, FloatArray
from das.definition import Definition
from das.errors import BudgetError, SchemaError
from das.means.sums import MOST_RADIUS, Clipping, NoisySum
from das.mechanisms.mechanism import Mechanism
from das.queries.sensitivity import Neighbors


@dataclass(frozen=True)
class Column:
    """What is public of a numeric column.

    Attributes:
      name: Its name.
      low: No stratum has a mean below it.
      high: No stratum has a mean above it.
      spread: Standard deviation of values within a stratum, about; too small a spread clips the
        tails and biases the mean.

    Raises:
      SchemaError: The interval is empty or the spread not positive.
    """

    name: str
    low: int
    high: int
    spread: float

    def __post_init__(self) -> None:
        if not self.low < self.high or not 0.0 < self.spread < math.inf:
            raise SchemaError(
                f"column {self.name}",
                "cannot be estimated",
                got=f"low {self.low}, high {self.high}, spread {self.spread}",
                want="low < high and a positive spread",
            )


@dataclass(frozen=True)
class Strata:
    """Disjoint groups of records, by public facts.

    Attributes:
      sizes: k names, in order, with public numbers of records. A wrong size n' in place of n biases
        a mean by (n / n' - 1) (mean - center), which the last step makes small.
      neighbors: Which data sets count as neighbors.
      size_sds: k standard deviations of the numbers of records about these sizes, such as those of
        a sample about its expectation; empty if the sizes are exact.

    Raises:
      SchemaError: There is no stratum, or one without records; deviations do not fit.
    """

    sizes: Mapping[str, int]
    neighbors: Neighbors
    size_sds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.size_sds and (len(self.size_sds) != len(self.sizes) or min(self.size_sds) < 0):
            raise SchemaError("strata", "need a deviation of each size, or none")
        if min(self.sizes.values(), default=0) < 1:
            raise SchemaError(
                "strata",
                "need a public size of at least 1 each",
                got=dict(list(self.sizes.items())[:3]) or "no stratum",
                remedy="pool small strata by their public sizes",
            )

    @property
    def names(self) -> list[str]:
        """Names of the strata."""
        return list(self.sizes)

    def shifts(self, sums: Sequence[NoisySum]) -> FloatArray:
        """Standard deviations of noisy means for sizes that are not exact, float64[k].

        A size n' in place of n moves a mean by (n / n' - 1) times its distance from the center.
        """
        if not self.size_sds:
            return np.zeros(len(self.sizes))
        sizes = self.sizes.values()
        return np.array(
            [
                abs(one.answer / size) * deviation / size
                for one, size, deviation in zip(sums, sizes, self.size_sds, strict=True)
            ]
        )


@dataclass(frozen=True)
class Steps:
    """Costs of the steps and how sure each is.

    Attributes:
      costs: rho of each step, their sum in total.
      failure: beta, 0 < beta < 1: shared by the intervals of all steps.
      intersect: Whether a step keeps to the interval before.
    """

    costs: tuple[Fraction, ...]
    failure: float = 0.1
    intersect: bool = True

    def __post_init__(self) -> None:
        if not self.costs or min(self.costs) <= 0 or not 0.0 < self.failure < 1.0:
            raise BudgetError("steps of a mean", "need positive costs and 0 < failure < 1")

    @classmethod
    def split(
        cls, rho: Fraction, n_steps: int, *, failure: float = 0.1, intersect: bool = True
    ) -> Steps:
        """Three quarters for the last step, the rest in equal shares for those before.

        >>> Steps.split(Fraction(1, 2), 3).costs
        (Fraction(1, 16), Fraction(1, 16), Fraction(3, 8))
        """
        if n_steps == 1:
            return cls((rho,), failure, intersect)
        before = rho / (4 * (n_steps - 1))
        return cls((*[before] * (n_steps - 1), 3 * rho / 4), failure, intersect)

    @property
    def rho(self) -> Fraction:
        """What all steps cost."""
        return sum(self.costs, Fraction(0))

    def failure_of(self, step: int) -> float:
        """Beta of one step: a quarter for the last, as much for all before together."""
        before = len(self.costs) - 1
        return self.failure / 4 if step == before else self.failure / (4 * before)


@dataclass(frozen=True, eq=False)
class Interval:
    """Where the means of strata lie, float64[k] each."""

    low: FloatArray
    high: FloatArray


def clipping_bound(size: int, most_mean: float, failure: float) -> float:
    """Where values of unit variance and a mean in [-R, R] are clipped, R + sqrt(ln(n / gamma)).

    Args:
      size: Records n >= 1.
      most_mean: R >= 0, in standard deviations.
      failure: gamma, 0 < gamma < 1: clipping is rare but with about this probability.
    """
    return most_mean + math.sqrt(math.log(size / failure))


def margin(spread: float, size: int, failure: float) -> float:
    """L = spread sqrt(2 ln(2 n / beta)): all n values lie so near to their mean but with beta."""
    return spread * math.sqrt(2.0 * math.log(2.0 * size / failure))


def half_width(spread: float, size: int, noise_sd: float, failure: float) -> float:
    """W = sqrt(2 (spread^2 / n + noise_sd^2) ln(2 / beta)): so near is the noisy mean."""
    return math.sqrt(2.0 * (spread**2 / size + noise_sd**2) * math.log(2.0 / failure))


@dataclass(frozen=True, eq=False)
class MeanEstimates:
    """Means of strata and how far they may be off, after some steps or before the first.

    Made of noisy sums and public numbers.

    Attributes:
      means: float64[k].
      noise_sd: float64[k], standard deviation of the noise of the last step.
      size_sd: float64[k], that of the last means for sizes that are not exact.
      interval: Holds the means of the distributions that values are taken to come from, with
        probability 1 - beta for each stratum.
      outside: bool[k], whether the last noisy mean lies outside of the interval before by more than
        three standard deviations of noise and sampling: a bound or the spread is wrong.
      sums: The noisy sums of every step so far.
    """

    means: FloatArray
    noise_sd: FloatArray
    size_sd: FloatArray
    interval: Interval
    outside: BoolArray
    sums: tuple[tuple[NoisySum, ...], ...] = ()

    @classmethod
    def begin(cls, column: Column, strata: Strata) -> MeanEstimates:
        """Before the first step: the public bounds."""
        k = len(strata.sizes)
        low, high = np.full(k, float(column.low)), np.full(k, float(column.high))
        return cls(
            (low + high) / 2, np.zeros(k), np.zeros(k), Interval(low, high), np.zeros(k, np.bool_)
        )

    def clippings(self, column: Column, steps: Steps, strata: Strata) -> list[Clipping]:
        """Return what the next step clips to, per stratum.

        Raises:
          SchemaError: The public bounds are too wide for a first step. A later step, whose bounds
            are noisy, never fails.
        """
        failure = steps.failure_of(len(self.sums))
        middle = (column.low + column.high) // 2
        limit = partial(Clipping.limited, middle=middle) if self.sums else Clipping.around
        return [
            limit(math.floor(low - around), math.ceil(high + around))
            for low, high, size in zip(
                self.interval.low, self.interval.high, strata.sizes.values(), strict=True
            )
            for around in [margin(column.spread, size, failure)]
        ]

    def after(
        self, sums: tuple[NoisySum, ...], column: Column, steps: Steps, strata: Strata
    ) -> MeanEstimates:
        """What is known after the noisy sums of the next step."""
        counts, failure = list(strata.sizes.values()), steps.failure_of(len(self.sums))
        low, high = self.interval.low, self.interval.high
        noise_sd = np.array([one.noise_sd(size) for one, size in zip(sums, counts, strict=True)])
        means = np.array([one.mean(size) for one, size in zip(sums, counts, strict=True)])
        size_sd = strata.shifts(sums)
        unsure = np.hypot(noise_sd, size_sd)
        width = np.array(
            [
                half_width(column.spread, size, deviation, failure)
                for size, deviation in zip(counts, unsure, strict=True)
            ]
        )
        sampling = np.hypot(unsure, column.spread / np.sqrt(counts))
        outside = (means < low - 3 * sampling) | (means > high + 3 * sampling)
        below, above = means - width, means + width
        if steps.intersect:
            below, above = np.clip(below, low, high), np.clip(above, low, high)
            means = np.clip(means, low, high)
        return MeanEstimates(
            means, noise_sd, size_sd, Interval(below, above), outside, (*self.sums, sums)
        )


def estimates_of(
    history: Sequence[tuple[NoisySum, ...]], column: Column, steps: Steps, strata: Strata
) -> MeanEstimates:
    """What noisy sums that were measured before say; the same as when they were measured."""
    known = MeanEstimates.begin(column, strata)
    for sums in history:
        known = known.after(sums, column, steps, strata)
    return known


def clipped_noise(
    column: Column, step: Steps, strata: Strata, definition: Definition
) -> tuple[list[Clipping], list[Mechanism]]:
    """Return what each stratum is clipped to and its noise; a function of public facts.

    Raises:
      SchemaError: The public bounds are too wide.
      BudgetError: The cost is too small for noise that can be drawn exactly.
    """
    [cost], failure = step.costs, step.failure
    middle = (column.low + column.high) / 2
    half = (column.high - column.low) / 2
    clippings = []
    for size in strata.sizes.values():
        radius = column.spread * clipping_bound(size, half / column.spread, failure)
        clippings.append(Clipping.around(math.floor(middle - radius), math.ceil(middle + radius)))
    return clippings, [each.noise(definition, cost, strata.neighbors) for each in clippings]


def refuse_unmeasurable(column: Column, steps: Steps, strata: Strata) -> None:
    """Refuse a mean of which some step could not be measured, from public facts alone.

    Raises:
      SchemaError: The first step clips to an interval that is too wide.
      BudgetError: A step costs too little for noise that can be drawn exactly, at the widest
        clipping that it may come to.
    """
    first = MeanEstimates.begin(column, strata).clippings(column, steps, strata)
    widest = Clipping(-MOST_RADIUS, MOST_RADIUS)
    for number, cost in enumerate(steps.costs):
        for clipping in [widest] if number else first:
            clipping.noise(Definition.ZCDP, cost, strata.neighbors)


def shrink(means: FloatArray, variances: FloatArray) -> FloatArray:
    """Means of strata, drawn together as far as their noise says; post-processing.

    With known variances v_i and the between-variance tau of DerSimonian and Laird, each goes to
    m + tau / (tau + v_i) (mean_i - m), m the mean weighted by 1 / (tau + v_i). It helps few, noisy
    strata and harms many that are well measured, for which one mean is a poor target.

    Args:
      means: float64[k].
      variances: float64[k], positive: noise and sampling.

    References:
      DerSimonian & Laird, Controlled Clinical Trials 7 (1986), 177-188.
    """
    precision = 1.0 / variances
    center = (precision @ means) / precision.sum()
    spread = precision @ (means - center) ** 2 - (len(means) - 1)
    scale = precision.sum() - (precision @ precision) / precision.sum()
    between = max(0.0, spread / scale) if scale > 0 else 0.0
    if between == 0.0:
        return np.full(len(means), center)
    weight = 1.0 / (between + variances)
    center = (weight @ means) / weight.sum()
    shrunk: FloatArray = center + between * weight * (means - center)
    return shrunk
