"""Noisy answers about records, and which levels were merged; safe after the firewall."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from das.arrays import IntArray
from das.mechanisms.mechanism import Mechanism
from das.queries.query import Query
from das.synthesis.records import Domain


@dataclass(frozen=True, eq=False)
class NoisyAnswer:
    """One query with its noise; safe after the firewall.

    Attributes:
      query: Over the domain of its phase.
      mechanism: The noise.
      rho: Its part of the cost, exact.
      answers: int64[m].
    """

    query: Query
    mechanism: Mechanism
    rho: Fraction
    answers: IntArray


@dataclass(frozen=True, eq=False)
class Merging:
    """Which levels of each attribute became one; public.

    Attributes:
      new_level: Per attribute int64[n_i], the merged level of each level. Levels that stay come
        first in their order; the merged one, if any, is last.
      n_kept: Levels that stayed, per attribute.
    """

    new_level: tuple[IntArray, ...]
    n_kept: tuple[int, ...]

    def sizes(self) -> tuple[int, ...]:
        """Levels after merging."""
        return tuple(int(levels.max()) + 1 for levels in self.new_level)


@dataclass(frozen=True, eq=False)
class Measured:
    """Everything that was measured.

    Attributes:
      domain: Of the records.
      merging: Rare levels.
      one_way: Phase 1, one answer per attribute, over `domain`.
      residuals: Phase 2 over the merged domain: the total, one- and two-way residuals.
      again: Phase 3, residuals of some pairs once more.
    """

    domain: Domain
    merging: Merging
    one_way: tuple[NoisyAnswer, ...]
    residuals: tuple[NoisyAnswer, ...]
    again: tuple[NoisyAnswer, ...] = ()

    @property
    def merged(self) -> Domain:
        """The domain of phase 2."""
        return Domain(self.domain.names, self.merging.sizes())

    @property
    def rho(self) -> Fraction:
        """What all of it cost."""
        parts = [answer.rho for answer in (*self.one_way, *self.residuals, *self.again)]
        return sum(parts, Fraction(0))
