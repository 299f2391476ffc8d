"""Noisy answers about records, and which levels were merged; safe after the firewall."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from das.arrays import FloatArray, IntArray
from das.mechanisms.exponential import Selection
from das.mechanisms.mechanism import Mechanism
from das.queries.query import Query
from das.synthesis.records import Domain

Generator = np.random.Generator  # noqa: TID251 - what is drawn of a model is no noise of a release


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
class _OneWay:
    """What every model is begun with.

    Attributes:
      domain: Of the records.
      merging: Rare levels.
      one_way: Phase 1, one answer per attribute, over `domain`.
    """

    domain: Domain
    merging: Merging
    one_way: tuple[NoisyAnswer, ...]

    @property
    def merged(self) -> Domain:
        """The domain of what is measured next."""
        return Domain(self.domain.names, self.merging.sizes())


@dataclass(frozen=True, eq=False)
class Measured(_OneWay):
    """Everything that was measured.

    Attributes:
      residuals: Phase 2 over the merged domain: the total, one- and two-way residuals.
      again: Phase 3, residuals of some pairs once more.
    """

    residuals: tuple[NoisyAnswer, ...]
    again: tuple[NoisyAnswer, ...] = ()

    @property
    def rho(self) -> Fraction:
        """What all of it cost."""
        parts = [answer.rho for answer in (*self.one_way, *self.residuals, *self.again)]
        return sum(parts, Fraction(0))


@dataclass(frozen=True, eq=False)
class Selected:
    """What was selected of how many candidates; safe after the firewall.

    Attributes:
      attributes: Positions of the set that was selected.
      mechanism: How, and what it cost.
      n_candidates: How many there were, by what is public; those whose model would be too large are
        counted, too.
    """

    attributes: tuple[int, ...]
    mechanism: Selection
    n_candidates: int


@dataclass(frozen=True, eq=False)
class ChosenMarginals(_OneWay):
    """Marginals that were selected by looking at the records, and measured.

    Attributes:
      selections: In the order in which they were made.
      marginals: Over the merged domain, in the order in which they were measured.
    """

    selections: tuple[Selected, ...]
    marginals: tuple[NoisyAnswer, ...]

    @property
    def rho(self) -> Fraction:
        """What all of it cost, selections included."""
        parts = [answer.rho for answer in (*self.one_way, *self.marginals)]
        return sum((each.mechanism.rho for each in self.selections), sum(parts, Fraction(0)))


def whole(domain: Domain) -> Merging:
    """The merging that leaves every level as it is."""
    return Merging(tuple(np.arange(size) for size in domain.sizes), domain.sizes)


def merged_counts(
    answer: NoisyAnswer, merging: Merging, attribute: int
) -> tuple[FloatArray, FloatArray]:
    """Noisy counts of an attribute in its merged levels, and the variance of each.

    Returns:
      float64[merged levels] twice.
    """
    new = merging.new_level[attribute]
    n_levels = merging.sizes()[attribute]
    weights = answer.answers.astype(np.float64)
    counts = np.bincount(new, weights=weights, minlength=n_levels).astype(np.float64)
    merged = np.bincount(new, minlength=n_levels).astype(np.float64)
    return counts, merged * float(answer.mechanism.continuous_variance)


def unmerge(codes: IntArray, merging: Merging, rng: Generator) -> IntArray:
    """Codes of the domain for merged ones, int64[n, d]; merged levels are equally likely."""
    out = np.empty_like(codes)
    for i, (new, n_kept) in enumerate(zip(merging.new_level, merging.n_kept, strict=True)):
        is_kept = codes[:, i] < n_kept
        out[is_kept, i] = np.flatnonzero(new < n_kept)[codes[is_kept, i]]
        if not is_kept.all():
            rest = np.flatnonzero(new == n_kept)
            out[~is_kept, i] = rng.choice(rest, int((~is_kept).sum()))
    return out
