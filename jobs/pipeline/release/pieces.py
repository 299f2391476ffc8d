"""Read a range of a geolevel in pieces: families with their targets and constraints.

A piece is some whole families whose answers are held in memory together. Only released files are
read.

Cross-product pseudo-measurements: units are solved before persons, and constrain them. So units are
also fitted to the noisy answers of persons. An estimate of the persons in households, with its
variance, is an answer about the sum of size x households. A household of an open size, such as 7 or
more, holds persons beyond its least size. Their mean number comes from the estimate at the root and
the units solved there. The number of one household is modeled as geometric with that mean, and the
mean as varying between geounits by a third. This is postprocessing of noisy answers, at no cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy.optimize import nnls

from das.arrays import BoolArray, FloatArray, IntArray, ObjectArray
from das.errors import VerificationError
from das.histograms import Histograms
from das.queries.query import Query
from das.tree.model import LEAST_VARIANCE
from invariants.between import weighted_sums
from invariants.quarters import without_quarters
from jobs.pipeline.plan import Hint, Level, Plan
from jobs.pipeline.release.estimate import subtree_estimates
from jobs.pipeline.release.level import LevelRange, LevelReader, read_support
from jobs.pipeline.release.problems import (
    AnswerEstimates,
    BatchConstraints,
    Family,
    PseudoMeasurement,
    Targets,
)
from jobs.pipeline.storage.answers import DrawnAnswers
from jobs.pipeline.storage.histograms import read_counts
from jobs.pipeline.tasks.batches import Batch, all_geounits

# Noisy numbers of a piece, except for one larger family: 32 MB as float64, of which a task holds a
# few copies while it assembles problems. Default, not measured.
_PIECE_NUMBERS = 4_000_000


@dataclass(frozen=True, eq=False)
class Piece:
    """Some families of a geolevel, with their answers.

    Attributes:
      codes: object[G] geocodes of the children, ascending.
      families: The families; their rows are positions in the piece.
      targets: The answers to which the counts are fitted.
      constraints: The constraints of the counts.
      estimates: By name of a partition query, estimates of its answers; None without priors.
    """

    codes: ObjectArray
    families: tuple[Family, ...]
    targets: Targets
    constraints: BatchConstraints
    estimates: Mapping[str, AnswerEstimates] | None


def read_pieces(
    reader: LevelReader, batch: Batch, *, with_estimates: bool = False, with_on_demand: bool = True
) -> Iterator[Piece]:
    """Read a range of whole families, piece by piece.

    Args:
      reader: Reader of the geolevel.
      batch: The range.
      with_estimates: Whether to estimate the answers to all partition queries.
      with_on_demand: Whether to read on-demand answers. The support of the root is found before
        they are drawn.

    Raises:
      OutputError: The measurements, the invariants or the geolevel above are not complete.
    """
    level, rows = reader.level, reader.rows(batch)
    hints = hint_readers(reader)
    has_support = with_on_demand and reader.plan.support and not level.index
    support = read_support(reader.plan, reader.release) if has_support else None
    names, edges = rows.parents[rows.starts], np.append(rows.starts, len(rows.codes))
    parents = reader.parents(names) if level.index else None
    live = 0 if parents is None else np.diff(parents.offsets)
    # Of each on-demand query a geounit has an answer per live cell at most.
    numbers = np.diff(edges) * (whole_answers(level) + len(level.on_demand) * live)
    for first, last in _cuts(numbers.tolist()):
        some = rows.slice(int(edges[first]), int(edges[last]))
        ranges = pairwise((edges[first : last + 1] - edges[first]).tolist())
        families = [
            Family("root", slice(*ends), None, support)
            if parents is None
            else Family(names[number], slice(*ends), parents.slice(number, number + 1))
            for number, ends in enumerate(ranges, first)
        ]
        exact = reader.exact(some.codes)
        piece = Piece(
            some.codes,
            tuple(families),
            _read_targets(reader, some, hints, with_on_demand=with_on_demand),
            BatchConstraints(
                [exact[query] for query in level.kept],
                [exact[row] for row in level.exact_rows],
                reader.limits(some.codes),
            ),
            reader.partitions(some) if with_estimates else None,
        )
        yield without_empty(level, piece)


def without_empty(level: Level, piece: Piece) -> Piece:
    """Return the piece without geounits that must be empty.

    A geounit is empty without living quarters, or if the release it is pinned to has no persons
    there. A family of empty geounits has an empty parent, and is left out.

    Raises:
      VerificationError: All children of a parent with persons must be empty; a defect of this
        program.
    """
    constraints, keep = piece.constraints, np.ones(len(piece.codes), np.bool_)
    limits = constraints.limits
    if limits is not None and limits.quarters is not None:
        keep &= ~without_quarters(limits.quarters)
    for query, answers in zip(level.kept, constraints.exact, strict=True):
        if query in level.bound:
            keep &= answers.any(axis=1)
    if keep.all():
        return piece
    for family in piece.families:
        if family.has_persons and not keep[family.rows].any():
            raise VerificationError(
                f"node {family.geocode}", "has persons, and none of its children may have any"
            )
    return _kept(piece, keep)


def of_families(piece: Piece, families: Sequence[Family]) -> Piece:
    """Return the piece with some of its families alone."""
    keep = np.zeros(len(piece.codes), np.bool_)
    for family in families:
        keep[family.rows] = True
    return _kept(piece, keep)


def _kept(piece: Piece, keep: BoolArray) -> Piece:
    """Return the piece with some geounits alone; a family without any is left out."""
    constraints, limits = piece.constraints, piece.constraints.limits
    ends = np.concatenate(([0], np.cumsum(keep)))
    families = []
    for family in piece.families:
        rows = slice(int(ends[family.rows.start]), int(ends[family.rows.stop]))
        if rows.start < rows.stop:
            families.append(replace(family, rows=rows))
    kept = np.flatnonzero(keep)
    targets, measured = piece.targets.take(kept)
    return Piece(
        piece.codes[kept],
        tuple(families),
        targets,
        BatchConstraints(
            [answers[kept] for answers in constraints.exact],
            [answers[kept] for answers in constraints.sums],
            None if limits is None else limits.take(kept),
        ),
        None
        if piece.estimates is None
        else {name: one.take(measured) for name, one in piece.estimates.items()},
    )


def whole_answers(level: Level) -> int:
    """Return the number of answers per geounit to queries that are not on demand, at least 1."""
    return max(1, sum(query.size for query in level.whole))


def _cuts(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Cut families into pieces [first, last), by the noisy numbers of their children."""
    first, size = 0, 0
    for index, number in enumerate(numbers):
        if index > first and size + number > _PIECE_NUMBERS:
            yield first, index
            first, size = index, 0
        size += number
    yield first, len(numbers)


def _read_targets(
    reader: LevelReader, rows: LevelRange, hints: Sequence[HintReader], *, with_on_demand: bool
) -> Targets:
    """Read the targets of a range.

    With `fit_to: tree` targets are estimates from the subtree of each geounit. At the leaves, and
    with `fit_to: level`, they are noisy answers of the geolevel. On-demand queries always use
    their answers.
    """
    level, noisy = reader.level, reader.level.queries
    queries: list[Query] = []
    answers: list[FloatArray | IntArray | DrawnAnswers] = []
    weights: list[FloatArray] = []
    if reader.plan.solving.fit_to == "tree" and not reader.is_leaf:
        subtree = reader.targets(rows)
        queries += subtree.queries
        answers += subtree.answers
        weights += [*subtree.weights.T]
        noisy = tuple(query for query in noisy if query not in level.complete)
    noisy = tuple(query for query in noisy if with_on_demand or query not in level.on_demand)
    if noisy:
        measured = ~rows.is_only
        found = reader.noisy(noisy, rows.codes[measured])
        inverse = _weights(reader.plan, level, rows.chain_end[measured])
        queries += noisy
        answers += [found[query] for query in noisy]
        weights += [inverse[level.queries.index(query)] for query in noisy]
    pseudo_measurements = [weighted for hint in hints for weighted in hint.read(rows)]
    return Targets(queries, answers, weights, np.cumsum(~rows.is_only) - 1, pseudo_measurements)


def _weights(plan: Plan, level: Level, chain_ends: ObjectArray) -> list[FloatArray]:
    """Return per query float64[M], inverse variances of geounits by the end of their chains.

    The noise of a chain is the noise of an ordinary geounit, scaled. The factor is the same for all
    queries of a stratum, unless chains use the shares of their last geolevel.
    """
    ordinary = plan.noise(level.index, level.index)
    ends = sorted(set(chain_ends))
    which = np.searchsorted(np.array(ends, np.str_), chain_ends.astype(np.str_))
    chains = [plan.noise(level.index, plan.level(end).index) for end in ends]
    weights = []
    for index, noisy in enumerate(ordinary):
        usual = noisy.mechanism.continuous_variance
        relative = [float(usual / one[index].mechanism.continuous_variance) for one in chains]
        # Without the bound, answers of a huge budget outweigh all else by more than floats resolve.
        weights.append(1.0 / max(float(usual), LEAST_VARIANCE) * np.array(relative)[which])
    return weights


# --- pseudo-measurements from later products ------------------------------------------------------


_LEAST_VARIANCE = 1 / 12  # variance of rounding to integers, for estimates that are nearly exact


@dataclass(frozen=True, eq=False)
class HintReader:
    """Reader of cross-product pseudo-measurements of one geolevel.

    Attributes:
      hint: The weighted sums of units that the later product measures.
      later: Reader of the geolevel of the later product.
      beyond: float64[t], for each type of persons the mean number beyond the least size in a unit
        of open size; NaN at the root, where no unit is solved yet.
    """

    hint: Hint
    later: LevelReader
    beyond: FloatArray

    def read(self, rows: LevelRange) -> list[PseudoMeasurement]:
        """Read the pseudo-measurements of geounits that are not only children."""
        hint, parts = self.hint, []
        for values, covariances, kind in subtree_estimates(self.later, rows, hint.query):
            weights = np.array([weights_of(hint, covariance) for covariance in covariances])
            parts.append((values @ hint.types.T @ hint.sums.T, weights[kind]))
        answers, weights = (np.concatenate(part) for part in zip(*parts, strict=True))
        is_known = np.isfinite(self.beyond) | ~hint.is_open.any(1)
        mean = np.where(hint.is_open.any(1) & is_known, self.beyond, 0.0)[:, None] * hint.is_open
        return [
            PseudoMeasurement(
                members @ (hint.least + mean),
                members @ mean,
                members @ (mean * (1 + mean)),
                answers[:, number],
                weights[:, number],
            )
            for number, members in enumerate(hint.sums)
            if is_known[members > 0].all()
        ]


def hint_readers(reader: LevelReader) -> list[HintReader]:
    """Open the pseudo-measurements of a geolevel; none for maxfit, which fits only partitions.

    Raises:
      OutputError: Estimates of a later product, or counts of the root, are not complete.
    """
    plan, level = reader.plan, reader.level.index
    readers = []
    for hint in () if plan.solving.method == "maxfit" else plan.hints:
        release = reader.release.product(hint.product)
        later, beyond = LevelReader(hint.plan, release, level), np.full(len(hint.least), np.nan)
        if level:
            root = LevelReader(hint.plan, release, 0)
            rows = root.rows(all_geounits(0))
            counts = read_counts(reader.release, plan.levels[0].name, rows.codes, plan.schema.size)
            beyond = _mean_beyond(hint, counts, subtree_estimates(root, rows, hint.query))
        readers.append(HintReader(hint, later, beyond))
    return readers


def _mean_beyond(
    hint: Hint,
    counts: Histograms,
    estimates: Iterable[tuple[FloatArray, FloatArray, IntArray]],
) -> FloatArray:
    """Return float64[t], mean persons beyond the least size in a unit of open size, at the root.

    Args:
      hint: Defines the t types of persons, and the least size of the units of each cell.
      counts: Solved counts of the units at the root.
      estimates: Estimates of persons at the root, as of `subtree_estimates`.
    """
    records = sum(values.sum(0) for values, _, _ in estimates) @ hint.types.T
    out = np.zeros(len(hint.least))
    for index, (least, is_open) in enumerate(zip(hint.least, hint.is_open, strict=True)):
        units = int(weighted_sums(is_open.astype(np.int64), counts).sum())
        rest = float(records[index]) - int(weighted_sums(least, counts).sum())
        out[index] = max(0.0, rest) / max(1, units)
    return out


def weights_of(hint: Hint, covariance: FloatArray) -> FloatArray:
    """Fit float64[d], weights of d sums of types that carry the information of an estimate.

    Weights are nonnegative and minimize the squared error of relative information, as in
    `das.tree.targets`. They are zero if the fit fails, since a pseudo-measurement is optional.

    Args:
      hint: Types and sums.
      covariance: float64[m, m], covariance of the answers to the query.
    """
    of_types = hint.types @ covariance @ hint.types.T
    root = np.linalg.cholesky(of_types + _LEAST_VARIANCE * np.eye(len(of_types)))
    seen = [root.T @ members for members in hint.sums.astype(np.float64)]
    columns = np.array([np.outer(column, column).ravel() for column in seen]).T
    scale = np.linalg.norm(columns, axis=0)
    try:
        found, _ = nnls(columns / scale, np.eye(len(of_types)).ravel())
    except RuntimeError:  # no convergence: units are solved without pseudo-measurements
        return np.zeros(len(hint.sums))
    return np.asarray(found / scale, np.float64)
