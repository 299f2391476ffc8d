"""Means of strata from noisy sums: the clipping of each step and the estimates after it; no data.

The interval of a small stratum can be wider than in the previous step. Both intervals contain the
mean. So `intersect`, which costs no budget, continues with their intersection and keeps the last
mean inside.

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
from das.mechanisms.mechanism import Mechanism, Norm
from das.mechanisms.registry import choose_mechanism
from das.queries.sensitivity import Neighbors

# A sum over 2^34 records, twice the world population, then fits 64 bits with its sign and noise.
MOST_RADIUS = 1 << 28


@dataclass(frozen=True)
class Clipping:
    """The interval to which the values of a stratum are clipped.

    Attributes:
      lower: Least value after clipping.
      upper: Largest value, lower + 2 T.

    Raises:
      SchemaError: T is not positive, or so large that a sum could exceed 64 bits.
    """

    lower: int
    upper: int

    def __post_init__(self) -> None:
        if not 0 < self.radius <= MOST_RADIUS:
            raise SchemaError(
                "clipping",
                "has a radius that sums cannot be measured with",
                got=self.radius,
                want=f"1 to {MOST_RADIUS}",
                remedy="give the values in a coarser unit",
            )

    @classmethod
    def around(cls, lower: int, upper: int) -> Clipping:
        """Return the narrowest clipping that contains both ends and has an integer center.

        Args:
          lower: Lower end of the interval to contain.
          upper: Upper end of the interval.
        """
        return cls(lower, upper + (upper - lower) % 2)

    @classmethod
    def limited(cls, lower: int, upper: int, middle: int) -> Clipping:
        """Return the clipping around an interval, limited so that sums can always be measured.

        Its radius, and the distance of its center from the public middle, are at most
        `MOST_RADIUS`. The interval depends on noisy answers; with these limits no answer can make a
        step fail.

        Args:
          lower: Lower end of the interval.
          upper: Upper end of the interval.
          middle: Middle of the public bounds of the column.

        >>> Clipping.limited(-(10**20), 10**20, middle=0).radius == MOST_RADIUS
        True
        """
        wide = max(lower + 2, upper + (upper - lower) % 2)
        radius = min((wide - lower) // 2, MOST_RADIUS)
        center = min(max((lower + wide) // 2, middle - MOST_RADIUS), middle + MOST_RADIUS)
        return cls(center - radius, center + radius)

    @property
    def center(self) -> int:
        """Return the center, which is subtracted from every value."""
        return (self.lower + self.upper) // 2

    @property
    def radius(self) -> int:
        """Return T, the largest contribution of one record to a sum."""
        return (self.upper - self.lower) // 2

    def sensitivity(self, neighbors: Neighbors) -> int:
        """Return the sensitivity of a sum: T, or 2 T if a record is changed."""
        return self.radius * (2 if neighbors is Neighbors.BOUNDED else 1)

    def noise(self, definition: Definition, cost: Fraction, neighbors: Neighbors) -> Mechanism:
        """Return noise of the default mechanism with which the sums of all strata cost `cost`."""
        mechanism = choose_mechanism(definition)
        return mechanism.costing(definition, cost, self.in_norm(mechanism, definition, neighbors))

    def in_norm(
        self, mechanism: type[Mechanism], definition: Definition, neighbors: Neighbors
    ) -> Fraction:
        """Return the sensitivity in the norm that a mechanism is charged by; squared for L2."""
        power = 1 if mechanism.norms[definition] is Norm.L1 else 2
        return Fraction(self.sensitivity(neighbors)) ** power


@dataclass(frozen=True)
class NoisySum:
    """The noisy sum of one stratum; safe after the firewall.

    Attributes:
      clipping: The clipping of the values; its center was subtracted from each value.
      mechanism: The mechanism that drew the noise.
      answer: The sum plus noise.
    """

    clipping: Clipping
    mechanism: Mechanism
    answer: int

    def mean(self, size: int) -> float:
        """Return the mean of `size` records; its noise has standard deviation `noise_sd`."""
        return self.clipping.center + self.answer / size

    def noise_sd(self, size: int) -> float:
        """Return the standard deviation of the noise of the mean of `size` records."""
        return math.sqrt(self.mechanism.variance()) / size

    def cost(self, definition: Definition, neighbors: Neighbors) -> Fraction:
        """Return the exact cost of the sums of all strata if all have the noise of this sum."""
        sensitivity = self.clipping.in_norm(type(self.mechanism), definition, neighbors)
        return self.mechanism.cost(definition, sensitivity)


@dataclass(frozen=True)
class Column:
    """Public facts about a numeric column.

    Attributes:
      name: Name of the column.
      low: Lower bound on the means of strata.
      high: Upper bound on the means of strata.
      spread: Approximate standard deviation of values within a stratum. A too small value clips
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
    """Disjoint groups of records with public sizes.

    Attributes:
      sizes: k names, in order, with public numbers of records. A wrong size n' in place of n biases
        a mean by (n / n' - 1) (mean - center), which is small after the last step.
      neighbors: The neighboring relation.
      size_sds: k standard deviations of the errors of the sizes, such as sampling errors; empty if
        the sizes are exact.

    Raises:
      SchemaError: There is no stratum, or one without records; deviations do not fit.
    """

    sizes: Mapping[str, int]
    neighbors: Neighbors
    size_sds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.size_sds and (len(self.size_sds) != len(self.sizes) or min(self.size_sds) < 0):
            raise SchemaError("strata", "need one standard deviation per public size, or none")
        if min(self.sizes.values(), default=0) < 1:
            raise SchemaError(
                "strata",
                "need a public size of at least 1 each",
                got=dict(list(self.sizes.items())[:3]) or "no stratum",
                remedy="pool small strata by their public sizes",
            )

    @property
    def names(self) -> list[str]:
        """Return the names of the strata."""
        return list(self.sizes)

    def shifts(self, sums: Sequence[NoisySum]) -> FloatArray:
        """Return float64[k], standard deviations of noisy means from inexact sizes.

        A size n' in place of n moves a mean by (n / n' - 1) times its distance from the center.
        """
        if not self.size_sds:
            return np.zeros(len(self.sizes))
        sizes = np.array(list(self.sizes.values()))
        shifts = np.abs(np.array([s.answer for s in sums]) / sizes) * self.size_sds / sizes
        return np.asarray(shifts, np.float64)


@dataclass(frozen=True)
class Steps:
    """Costs and failure probability of the steps of an estimate.

    Attributes:
      costs: Exact cost of each step: rho, or epsilon under pure differential privacy.
      failure: beta, the failure probability of the intervals of all steps, 0 < beta < 1.
      intersect: Whether each interval is intersected with the previous one.
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
        """Split rho: three quarters to the last step, the rest equally to the previous steps.

        Args:
          rho: The cost of all steps.
          n_steps: Number of steps.
          failure: beta, the failure probability of the intervals of all steps.
          intersect: Whether each interval is cut to the previous one.

        >>> Steps.split(Fraction(1, 2), 3).costs
        (Fraction(1, 16), Fraction(1, 16), Fraction(3, 8))
        """
        if n_steps == 1:
            return cls((rho,), failure, intersect)
        before = rho / (4 * (n_steps - 1))
        return cls((*[before] * (n_steps - 1), 3 * rho / 4), failure, intersect)

    @property
    def rho(self) -> Fraction:
        """Sum the costs of all steps."""
        return sum(self.costs, Fraction(0))

    def failure_of(self, step: int) -> float:
        """Return beta of one step: a quarter for the last, a quarter for all others together."""
        before = len(self.costs) - 1
        return self.failure / 4 if step == before else self.failure / (4 * before)


def margin(spread: float, size: int, failure: float) -> float:
    """Return L = spread sqrt(2 ln(2 n / beta)), the largest |value - mean| with prob. 1 - beta.

    Args:
      spread: Standard deviation of the values within a stratum, an upper bound.
      size: n, the public number of records of the stratum.
      failure: beta, the probability that some value is farther away.
    """
    return spread * math.sqrt(2.0 * math.log(2.0 * size / failure))


def half_width(spread: float, size: int, noise_sd: float, failure: float) -> float:
    """Return W = sqrt(2 (spread^2 / n + noise_sd^2) ln(2 / beta)), the error of a noisy mean.

    Args:
      spread: Standard deviation of the values within a stratum, an upper bound.
      size: n, the public number of records of the stratum.
      noise_sd: Standard deviation of the noise of the mean.
      failure: beta, the probability that the error is larger.
    """
    return math.sqrt(2.0 * (spread**2 / size + noise_sd**2) * math.log(2.0 / failure))


@dataclass(frozen=True, eq=False)
class MeanEstimates:
    """Estimated means of strata with intervals, after some steps or before the first.

    A function of noisy sums and public numbers.

    Attributes:
      means: float64[k], the estimated mean of each of k strata.
      noise_sd: float64[k], standard deviation of the noise of the last step.
      size_sd: float64[k], standard deviation of the last means from inexact sizes.
      low: float64[k], lower ends of intervals that contain the mean of the distribution of values
        with probability 1 - beta for each stratum.
      high: float64[k], upper ends.
      outside: bool[k], whether the last noisy mean lies outside the previous interval by more than
        three standard deviations of noise and sampling: a bound or the spread is wrong.
      sums: The noisy sums of every step so far.
    """

    means: FloatArray
    noise_sd: FloatArray
    size_sd: FloatArray
    low: FloatArray
    high: FloatArray
    outside: BoolArray
    sums: tuple[tuple[NoisySum, ...], ...] = ()

    @classmethod
    def begin(cls, column: Column, strata: Strata) -> MeanEstimates:
        """Return the estimates before the first step, from the public bounds."""
        k = len(strata.sizes)
        low, high = np.full(k, float(column.low)), np.full(k, float(column.high))
        return cls((low + high) / 2, np.zeros(k), np.zeros(k), low, high, np.zeros(k, np.bool_))

    def clippings(self, column: Column, steps: Steps, strata: Strata) -> list[Clipping]:
        """Return the clippings of the next step, per stratum.

        Raises:
          SchemaError: The public bounds are too wide for the first step. Later steps never fail.
        """
        failure = steps.failure_of(len(self.sums))
        middle = (column.low + column.high) // 2
        limit = partial(Clipping.limited, middle=middle) if self.sums else Clipping.around
        return [
            limit(math.floor(low - around), math.ceil(high + around))
            for low, high, size in zip(self.low, self.high, strata.sizes.values(), strict=True)
            for around in [margin(column.spread, size, failure)]
        ]

    def after(
        self, sums: tuple[NoisySum, ...], column: Column, steps: Steps, strata: Strata
    ) -> MeanEstimates:
        """Return the estimates after the noisy sums of the next step.

        Args:
          sums: The noisy sum of each stratum from the next step.
          column: The public bounds and the spread of the values.
          steps: Costs and failure probabilities of all steps.
          strata: The strata and their public sizes.
        """
        counts, failure = list(strata.sizes.values()), steps.failure_of(len(self.sums))
        noise_sd = np.array(list(map(NoisySum.noise_sd, sums, counts)))
        means = np.array(list(map(NoisySum.mean, sums, counts)))
        size_sd = strata.shifts(sums)
        unsure = np.hypot(noise_sd, size_sd)
        width = np.array(
            [
                half_width(column.spread, *known, failure)
                for known in zip(counts, unsure, strict=True)
            ]
        )
        sampling = np.hypot(unsure, column.spread / np.sqrt(counts))
        outside = (means < self.low - 3 * sampling) | (means > self.high + 3 * sampling)
        below, above = means - width, means + width
        if steps.intersect:
            below, above, means = (
                np.clip(values, self.low, self.high) for values in (below, above, means)
            )
        return MeanEstimates(means, noise_sd, size_sd, below, above, outside, (*self.sums, sums))


def estimates_of(
    history: Sequence[tuple[NoisySum, ...]], column: Column, steps: Steps, strata: Strata
) -> MeanEstimates:
    """Recompute the estimates from the noisy sums of an earlier measurement.

    Args:
      history: Per step, the noisy sum of each stratum.
      column: The public bounds and the spread of the values.
      steps: Costs and failure probabilities of all steps.
      strata: The strata and their public sizes.
    """
    known = MeanEstimates.begin(column, strata)
    for sums in history:
        known = known.after(sums, column, steps, strata)
    return known


def clipped_noise(
    column: Column, step: Steps, strata: Strata, definition: Definition
) -> tuple[list[Clipping], list[Mechanism]]:
    """Return the clipping and the noise of each stratum; a function of public facts.

    Values of unit variance and a mean in [-R, R] are clipped at R + sqrt(ln(n / gamma)). Some value
    is cut with probability about gamma, the `failure` of the step.

    Args:
      column: The public bounds and the spread of the values.
      step: Exactly one step: its cost and failure probability.
      strata: The strata and their public sizes.
      definition: The privacy definition that the cost is stated in.

    Raises:
      SchemaError: The public bounds are too wide.
      BudgetError: The cost is too small for noise that can be drawn exactly.
    """
    [cost], failure = step.costs, step.failure
    middle = (column.low + column.high) / 2
    half = (column.high - column.low) / 2
    clippings = []
    for size in strata.sizes.values():
        radius = column.spread * (half / column.spread + math.sqrt(math.log(size / failure)))
        clippings.append(Clipping.around(math.floor(middle - radius), math.ceil(middle + radius)))
    return clippings, [each.noise(definition, cost, strata.neighbors) for each in clippings]


def refuse_unmeasurable(column: Column, steps: Steps, strata: Strata) -> None:
    """Refuse a mean if some step may be impossible to measure; uses public facts only.

    Raises:
      SchemaError: The clipping of the first step is too wide.
      BudgetError: At the widest possible clipping, the cost of a step is too small for noise that
        can be drawn exactly.
    """
    first = MeanEstimates.begin(column, strata).clippings(column, steps, strata)
    widest = Clipping(-MOST_RADIUS, MOST_RADIUS)
    for number, cost in enumerate(steps.costs):
        for clipping in [widest] if number else first:
            clipping.noise(Definition.ZCDP, cost, strata.neighbors)


def shrink(means: FloatArray, variances: FloatArray) -> FloatArray:
    """Shrink means of strata toward their common mean; post-processing.

    With known variances v_i and the between-variance tau of DerSimonian and Laird, each becomes
    m + tau / (tau + v_i) (mean_i - m), m the mean weighted by 1 / (tau + v_i). Shrinkage helps if
    strata are few and noisy. It harms many well-measured strata without a common mean.

    Args:
      means: float64[k], the estimated mean of each of k strata.
      variances: float64[k], positive: noise plus sampling.

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
    return np.asarray(center + between * weight * (means - center))
