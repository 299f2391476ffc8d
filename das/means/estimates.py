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
from das.mechanisms.mechanism import Mechanism, Norm
from das.mechanisms.registry import choose_mechanism
from das.queries.sensitivity import Neighbors

# A sum over 2^34 records, twice the people there are, then fits 64 bits with its sign and noise.
MOST_RADIUS = 1 << 28


@dataclass(frozen=True)
class Clipping:
    """What the values of a stratum are clipped to.

    Attributes:
      lower: Least value.
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
        """Return the narrowest clipping that holds both ends and has an integer center."""
        return cls(lower, upper + (upper - lower) % 2)

    @classmethod
    def limited(cls, lower: int, upper: int, middle: int) -> Clipping:
        """Return the clipping around an interval, cut and moved to where sums can be measured.

        Its radius is at most `MOST_RADIUS`, and so is the distance of its center from the public
        middle. What a step clips to depends on noisy answers; with this none can make it fail.

        >>> Clipping.limited(-(10**20), 10**20, middle=0).radius == MOST_RADIUS
        True
        """
        wide = max(lower + 2, upper + (upper - lower) % 2)
        radius = min((wide - lower) // 2, MOST_RADIUS)
        center = min(max((lower + wide) // 2, middle - MOST_RADIUS), middle + MOST_RADIUS)
        return cls(center - radius, center + radius)

    @property
    def center(self) -> int:
        """The middle, taken off every value."""
        return (self.lower + self.upper) // 2

    @property
    def radius(self) -> int:
        """T, the most that one record adds to a sum."""
        return (self.upper - self.lower) // 2

    def sensitivity(self, neighbors: Neighbors) -> int:
        """The most that a record moves the sum of its stratum: T, or 2 T where it is changed."""
        return self.radius * (2 if neighbors is Neighbors.BOUNDED else 1)

    def noise(self, definition: Definition, cost: Fraction, neighbors: Neighbors) -> Mechanism:
        """The noise, the default of the definition, with which the sums of all strata cost this."""
        mechanism = choose_mechanism(definition)
        return mechanism.costing(definition, cost, self.moved(mechanism, definition, neighbors))

    def moved(
        self, mechanism: type[Mechanism], definition: Definition, neighbors: Neighbors
    ) -> Fraction:
        """The sensitivity as the cost of a mechanism has it: squared where that is of L2."""
        power = 1 if mechanism.norms[definition] is Norm.L1 else 2
        return Fraction(self.sensitivity(neighbors)) ** power


@dataclass(frozen=True)
class NoisySum:
    """The noisy sum of one stratum; safe after the firewall.

    Attributes:
      clipping: What values were clipped to; its center was taken off each.
      mechanism: The noise.
      answer: Sum and noise.
    """

    clipping: Clipping
    mechanism: Mechanism
    answer: int

    def mean(self, size: int) -> float:
        """Return the mean of `size` records; its noise has standard deviation `noise_sd`."""
        return self.clipping.center + self.answer / size

    def noise_sd(self, size: int) -> float:
        """Standard deviation of the noise of the mean."""
        return math.sqrt(self.mechanism.variance()) / size

    def cost(self, definition: Definition, neighbors: Neighbors) -> Fraction:
        """Return what the sums of all strata cost if each has such noise, exact."""
        moved = self.clipping.moved(type(self.mechanism), definition, neighbors)
        return self.mechanism.cost(definition, moved)


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
        sizes = np.array(list(self.sizes.values()))
        shifts = np.abs(np.array([one.answer for one in sums]) / sizes) * self.size_sds / sizes
        return np.asarray(shifts, np.float64)


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
        """Give three quarters to the last step, the rest in equal shares to those before.

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
        """Return beta of one step: a quarter for the last, as much for all before together."""
        before = len(self.costs) - 1
        return self.failure / 4 if step == before else self.failure / (4 * before)


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
      low: float64[k], lower ends of intervals that hold the means of the distributions that values
        are taken to come from, with probability 1 - beta for each stratum.
      high: float64[k], their upper ends.
      outside: bool[k], whether the last noisy mean lies outside of the interval before by more than
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
        """Return what is known before the first step: the public bounds."""
        k = len(strata.sizes)
        low, high = np.full(k, float(column.low)), np.full(k, float(column.high))
        return cls((low + high) / 2, np.zeros(k), np.zeros(k), low, high, np.zeros(k, np.bool_))

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
            for low, high, size in zip(self.low, self.high, strata.sizes.values(), strict=True)
            for around in [margin(column.spread, size, failure)]
        ]

    def after(
        self, sums: tuple[NoisySum, ...], column: Column, steps: Steps, strata: Strata
    ) -> MeanEstimates:
        """Return what is known after the noisy sums of the next step."""
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
    """Return what noisy sums of an earlier measurement say, the same as when they were measured."""
    known = MeanEstimates.begin(column, strata)
    for sums in history:
        known = known.after(sums, column, steps, strata)
    return known


def clipped_noise(
    column: Column, step: Steps, strata: Strata, definition: Definition
) -> tuple[list[Clipping], list[Mechanism]]:
    """Return what each stratum is clipped to and its noise; a function of public facts.

    Values of unit variance and a mean in [-R, R] are clipped at R + sqrt(ln(n / gamma)), which is
    rare but with a probability of about gamma, the `failure` of the step.

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
    """Draw means of strata together as far as their noise says; post-processing.

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
