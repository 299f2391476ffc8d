"""Records and noisy answers about them.

Records are columns of codes, with exact answers to product queries at any number of cells. Noisy
answers, and which levels were merged, are safe after the firewall.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from das.arrays import FloatArray, IntArray
from das.errors import SchemaError
from das.histograms import count_by_levels
from das.mechanisms.exponential import Selection
from das.mechanisms.mechanism import Mechanism
from das.queries.query import Query

Generator = np.random.Generator  # noqa: TID251 - what is drawn of a model is no noise of a release


@dataclass(frozen=True, eq=False)
class Domain:
    """Attributes and their numbers of levels.

    Attributes:
      names: d distinct names.
      sizes: d numbers of levels, 2 or more.

    Raises:
      SchemaError: A name repeats or a size is below 2.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(set(self.names)) != len(self.names) or len(self.names) != len(self.sizes):
            raise SchemaError("domain", "needs one size for each of its distinct attributes")
        if not self.sizes or min(self.sizes) < 2:
            raise SchemaError(
                "domain",
                "needs attributes of at least two levels",
                got=self.sizes,
                remedy="remove attributes of one level from the domain; they carry no information",
            )

    def positions(self, names: Sequence[str]) -> tuple[int, ...]:
        """Return the positions of attributes in `names` of the domain, numbered from 0.

        Raises:
          SchemaError: A name is not that of an attribute.
        """
        place = {name: i for i, name in enumerate(self.names)}
        unknown = [name for name in names if name not in place]
        if unknown:
            raise SchemaError("attributes", "are unknown", got=unknown, want=list(self.names))
        return tuple(place[name] for name in names)

    def only(self, positions: Sequence[int]) -> Domain:
        """Return the domain of the attributes at some positions, from 0."""
        return Domain(
            tuple(self.names[i] for i in positions), tuple(self.sizes[i] for i in positions)
        )


@dataclass(frozen=True, eq=False)
class Records:
    """n records.

    Attributes:
      domain: Attributes of the records.
      codes: int64[n, d]; codes[j, i] is the level of attribute i, 0 or more.

    Raises:
      SchemaError: A code is no level, or the shape does not fit. No code is quoted.
    """

    domain: Domain
    codes: IntArray

    def __post_init__(self) -> None:
        codes = self.codes
        fits = codes.ndim == 2 and codes.shape[1] == len(self.domain.sizes)
        if not fits or codes.dtype != np.int64:
            raise SchemaError("records", "need int64 codes, one column per attribute")
        if len(codes) and ((codes < 0) | (codes >= np.array(self.domain.sizes))).any():
            raise SchemaError("records", "hold codes that are no level of their attribute")

    def only(self, names: Sequence[str]) -> Records:
        """Return the records with some of their attributes.

        Raises:
          SchemaError: A name is not that of an attribute.
        """
        kept = self.domain.positions(names)
        return Records(self.domain.only(kept), np.ascontiguousarray(self.codes[:, kept]))

    def marginal(self, attributes: Sequence[int]) -> IntArray:
        """Count by the levels of some attributes, int64[n_i, ...] in the order given.

        Raises:
          SchemaError: The marginal has too many cells.
        """
        counts = count_by_levels(self.codes, self.domain.sizes, attributes)
        return counts.reshape([self.domain.sizes[i] for i in attributes])

    def answer(self, query: Query) -> IntArray:
        """Evaluate a product query exactly, int64[m].

        Only the marginal of the attributes that it does not sum out is formed.
        """
        if query.n_cells != math.prod(self.domain.sizes):
            raise SchemaError(f"query {query.name}", "is of another domain")
        table = self.marginal(query.kept)
        for axis, i in enumerate(query.kept):
            matrix = query.factors[i].matrix
            table = np.moveaxis(np.tensordot(matrix, table, axes=(1, axis)), 0, axis)
        return np.ascontiguousarray(table).reshape(-1)


@dataclass(frozen=True, eq=False)
class NoisyAnswer:
    """One query with its noise; safe after the firewall.

    Attributes:
      query: Query over the domain of the phase in which it was measured.
      mechanism: The mechanism that drew the noise.
      rho: Cost of the answer, exact.
      answers: int64[m], the noisy answers of the query.
    """

    query: Query
    mechanism: Mechanism
    rho: Fraction
    answers: IntArray


@dataclass(frozen=True, eq=False)
class Merging:
    """Map from the levels of each attribute to its merged levels; public.

    Attributes:
      new_level: Per attribute int64[n_i], the merged level of each level. Levels that stay come
        first in their order; the merged one, if any, is last.
      n_kept: Levels that stayed, per attribute.
    """

    new_level: tuple[IntArray, ...]
    n_kept: tuple[int, ...]

    def sizes(self) -> tuple[int, ...]:
        """Return the numbers of levels after merging."""
        return tuple(int(levels.max()) + 1 for levels in self.new_level)

    def only(self, positions: Sequence[int]) -> Merging:
        """Return the merging of the attributes at some positions, from 0."""
        return Merging(
            tuple(self.new_level[i] for i in positions), tuple(self.n_kept[i] for i in positions)
        )

    def recode(self, records: Records) -> Records:
        """Return the records with each level replaced by its merged level."""
        columns = [new[records.codes[:, i]] for i, new in enumerate(self.new_level)]
        return Records(Domain(records.domain.names, self.sizes()), np.stack(columns, axis=1))


@dataclass(frozen=True, eq=False)
class _OneWay:
    """The one-way answers and the merging, with which every model begins.

    Attributes:
      domain: Domain of the records.
      merging: Merging of rare levels.
      one_way: Phase 1, one answer per attribute, over `domain`.
    """

    domain: Domain
    merging: Merging
    one_way: tuple[NoisyAnswer, ...]

    @property
    def merged(self) -> Domain:
        """Return the merged domain, on which the next phase measures."""
        return Domain(self.domain.names, self.merging.sizes())


@dataclass(frozen=True, eq=False)
class Measured(_OneWay):
    """All measurements of a model of survey records.

    Attributes:
      residuals: Phase 2 over the merged domain: the total, one- and two-way residuals.
      again: Phase 3, residuals of some pairs once more.
    """

    residuals: tuple[NoisyAnswer, ...]
    again: tuple[NoisyAnswer, ...] = ()

    @property
    def rho(self) -> Fraction:
        """Return the exact cost of all measurements."""
        return sum_rho((*self.one_way, *self.residuals, *self.again))


@dataclass(frozen=True, eq=False)
class Selected:
    """One selection by the exponential mechanism; safe after the firewall.

    Attributes:
      attributes: Positions of the set that was selected.
      mechanism: The exponential mechanism, with its cost.
      n_candidates: Number of candidates, a public number. It includes the candidates whose model
        would be too large.
    """

    attributes: tuple[int, ...]
    mechanism: Selection
    n_candidates: int


@dataclass(frozen=True, eq=False)
class ChosenMarginals(_OneWay):
    """Marginals that were selected by looking at the records, and measured.

    Attributes:
      selections: Selections in the order in which they were made.
      marginals: Answers over the merged domain, in the order in which they were measured.
    """

    selections: tuple[Selected, ...]
    marginals: tuple[NoisyAnswer, ...]

    @property
    def rho(self) -> Fraction:
        """Return the exact cost of all measurements and selections."""
        selected = sum((each.mechanism.rho for each in self.selections), Fraction(0))
        return selected + sum_rho((*self.one_way, *self.marginals))


def sum_rho(answers: Iterable[NoisyAnswer]) -> Fraction:
    """Return the exact total rho of noisy answers."""
    return sum((answer.rho for answer in answers), Fraction(0))


def merged_counts(
    answer: NoisyAnswer, merging: Merging, attribute: int
) -> tuple[FloatArray, FloatArray]:
    """Sum the noisy counts of an attribute by merged level.

    Args:
      answer: The noisy one-way marginal of the attribute.
      merging: The merging of levels.
      attribute: Position of the attribute, from 0.

    Returns:
      float64[merged levels], the sums, and float64[merged levels], their noise variances.
    """
    new = merging.new_level[attribute]
    n_levels = merging.sizes()[attribute]
    weights = answer.answers.astype(np.float64)
    counts = np.bincount(new, weights=weights, minlength=n_levels).astype(np.float64)
    merged = np.bincount(new, minlength=n_levels).astype(np.float64)
    return counts, merged * float(answer.mechanism.continuous_variance)


def unmerge(codes: IntArray, merging: Merging, rng: Generator) -> IntArray:
    """Replace each merged level by one of its levels, drawn uniformly, int64[n, d].

    Args:
      codes: int64[n, d], merged levels of n records.
      merging: The merging of levels.
      rng: Generator of the draws.
    """
    out = np.empty_like(codes)
    for i, (new, n_kept) in enumerate(zip(merging.new_level, merging.n_kept, strict=True)):
        is_kept = codes[:, i] < n_kept
        out[is_kept, i] = np.flatnonzero(new < n_kept)[codes[is_kept, i]]
        if not is_kept.all():
            rest = np.flatnonzero(new == n_kept)
            out[~is_kept, i] = rng.choice(rest, int((~is_kept).sum()))
    return out
