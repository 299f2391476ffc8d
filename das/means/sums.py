"""Noisy sums of clipped values and what they were clipped to; safe after the firewall."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from das.definition import Definition
from das.mechanisms.mechanism import Mechanism, Norm
from das.mechanisms.registry import choose_mechanism
from das.queries.sensitivity import Neighbors


@dataclass(frozen=True)
class Clipping:
    """What the values of a stratum are clipped to.

    Attributes:
      lower: Least value.
      upper: Largest value, lower + 2 T.
    """

    lower: int
    upper: int

    @classmethod
    def around(cls, lower: int, upper: int) -> Clipping:
        """The narrowest that holds both ends and has a center that is an integer."""
        return cls(lower, upper + (upper - lower) % 2)

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
