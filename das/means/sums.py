"""Noisy sums of clipped values and what they were clipped to; safe after the firewall."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from das.definition import Definition
from das.errors import SchemaError
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
        """The narrowest that holds both ends and has a center that is an integer."""
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
        """The mean of `size` records, of which the noise has standard deviation `noise_sd`."""
        return self.clipping.center + self.answer / size

    def noise_sd(self, size: int) -> float:
        """Standard deviation of the noise of the mean."""
        return math.sqrt(self.mechanism.variance()) / size

    def cost(self, definition: Definition, neighbors: Neighbors) -> Fraction:
        """What the sums of all strata cost if each has such noise, exact."""
        moved = self.clipping.moved(type(self.mechanism), definition, neighbors)
        return self.mechanism.cost(definition, moved)
