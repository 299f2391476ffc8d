"""Ranges of a geolevel read piece by piece: families, what they are fitted to, what they keep.

A piece is some whole families whose answers are held at once.

Weighted sums of units as noisy answers of a later product tell them; reads the release alone.

A product that others are tied to is solved first, and what it says binds them. So it is fitted to
the noisy answers of both: an estimate of the persons in households, with its variance, is an answer
about the sum of size x households. Those of an open size hold more than its least; how many more in
the mean, the estimate of the root and the units solved there say. What one household differs from
that is taken to vary like a geometric number of that mean, and the mean itself from one geounit to
another by a third. Nothing is spent: noisy answers are measured, and what is made of them is free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy.optimize import nnls

from das.arrays import FloatArray, IntArray, ObjectArray
from das.errors import VerificationError
from das.histograms import Histograms
from das.queries.query import Query
from das.tree.model import LEAST_VARIANCE
from invariants.between import weighted_sums
from invariants.quarters import without_quarters
from jobs.pipeline.plan import Hint, Level, Plan
from jobs.pipeline.release.estimate import subtree_estimates
from jobs.pipeline.release.level import LevelRange, LevelReader
from jobs.pipeline.release.problems import (
    BatchConstraints,
    CellEstimates,
    Family,
    Targets,
    ToldSum,
)
from jobs.pipeline.storage.answers import DrawnAnswers
from jobs.pipeline.storage.histograms import read_counts
from jobs.pipeline.tasks.batches import Batch, all_geounits

# Noisy numbers of a piece, but for a family of more: 32 MB as float64, of which a task holds a few
# copies while it assembles problems.
_PIECE_NUMBERS = 4_000_000


@dataclass(frozen=True, eq=False)
class Piece:
    """Some families of a geolevel, with their answers.

    Attributes:
      codes: object[G] geocodes of their children, ascending.
      families: The families; rows are those of the piece.
      targets: What their counts are fitted to.
      constraints: What they keep.
      cells: Estimates of all cells, where a prior is learned or used.
    """

    codes: ObjectArray
    families: tuple[Family, ...]
    targets: Targets
    constraints: BatchConstraints
    cells: CellEstimates | None


def read_pieces(
    reader: LevelReader, batch: Batch, *, with_cells: bool = False, with_on_demand: bool = True
) -> Iterator[Piece]:
    """Read a range of whole families, piece by piece.

    Args:
      reader: Reads the geolevel.
      batch: The range.
      with_cells: Whether to estimate all cells.
      with_on_demand: Whether answers of on-demand queries are read; of the root they are drawn
        below its support, which is found without them.

    Raises:
      OutputError: The measurements, the invariants or the geolevel above are not complete.
    """
    level, rows = reader.level, reader.rows(batch)
    hints = hint_readers(reader)
    support = reader.support() if with_on_demand else None
    names, edges = rows.parents[rows.starts], np.append(rows.starts, len(rows.codes))
    parents = reader.parents(names) if level.index else None
    live = 0 if parents is None else np.diff(parents.offsets)
    # Of each on-demand query a geounit has an answer per live cell at most.
    numbers = np.diff(edges) * (whole_answers(level) + len(level.on_demand) * live)
    for first, last in _cuts(numbers.tolist()):
        some = rows.slice(int(edges[first]), int(edges[last]))
        own = pairwise((edges[first : last + 1] - edges[first]).tolist())
        families = [
            Family("root", slice(*ends), None, support)
            if parents is None
            else Family(names[number], slice(*ends), parents.slice(number, number + 1))
            for number, ends in enumerate(own, first)
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
            CellEstimates(*reader.cells(some)) if with_cells else None,
        )
        yield without_empty(level, piece)


def without_empty(level: Level, piece: Piece) -> Piece:
    """The piece without the geounits in which nobody can be.

    They have no living quarters, or nobody in the release that binds them. A family without any
    other has an empty parent, whose own geounits said so, and is left out.

    Raises:
      VerificationError: A parent has persons who can be in none of its children; a defect of
        this program.
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
    ends = np.concatenate(([0], np.cumsum(keep)))
    families = []
    for family in piece.families:
        rows = slice(int(ends[family.rows.start]), int(ends[family.rows.stop]))
        if rows.start < rows.stop:
            families.append(replace(family, rows=rows))
        elif family.has_persons:
            raise VerificationError(
                f"node {family.geocode}", "has persons, and none of its children may have any"
            )
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
        None if piece.cells is None else piece.cells.take(measured),
    )


def whole_answers(level: Level) -> int:
    """Answers of a geounit to the queries that are not on demand, at least 1."""
    return max(1, sum(query.size for query in level.whole))


def _cuts(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Cut families into pieces [first, last), by the noisy numbers of their children."""
    first, held = 0, 0
    for index, own in enumerate(numbers):
        if index > first and held + own > _PIECE_NUMBERS:
            yield first, index
            first, held = index, 0
        held += own
    yield first, len(numbers)


def _read_targets(
    reader: LevelReader, rows: LevelRange, hints: Sequence[HintReader], *, with_on_demand: bool
) -> Targets:
    """Queries, answers and weights of a range.

    With `full` targets, those of the estimate from the whole subtree of each geounit; of leaves,
    which have no subtree, and with `own` targets, the noisy answers of the geolevel itself. Queries
    that are on demand below the root have their own answers everywhere.
    """
    level, own = reader.level, reader.level.queries
    queries: list[Query] = []
    answers: list[FloatArray | IntArray | DrawnAnswers] = []
    weights: list[FloatArray] = []
    if reader.plan.solving.fit_to == "tree" and not reader.is_leaf:
        subtree = reader.targets(rows)
        queries += subtree.queries
        answers += subtree.answers
        weights += [*subtree.weights.T]
        own = tuple(query for query in own if query not in level.complete)
    own = tuple(query for query in own if with_on_demand or query not in level.on_demand)
    if own:
        measured = ~rows.is_only
        found = reader.noisy(own, rows.codes[measured])
        inverse = _weights(reader.plan, level, rows.chain_end[measured])
        queries += own
        answers += [found[query] for query in own]
        weights += [inverse[level.queries.index(query)] for query in own]
    told = [one for hint in hints for one in hint.read(rows)]
    return Targets(queries, answers, weights, np.cumsum(~rows.is_only) - 1, told)


def _weights(plan: Plan, level: Level, chain_ends: ObjectArray) -> list[FloatArray]:
    """Per query, float64[M] inverse variances of geounits whose chains end where they do.

    A chain's noise is that of an ordinary geounit, scaled: alike in every query of a stratum, but
    where chains are asked with the shares of their last geolevel.
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


# --- hints of later products ----------------------------------------------------------------------


_LEAST_VARIANCE = 1 / 12  # of what is all but exact: rounding alone has as much


@dataclass(frozen=True, eq=False)
class HintReader:
    """Reads what a hint says of ranges of a geolevel.

    Attributes:
      hint: The hint.
      later: Reads the geolevel of the later product.
      beyond: float64[t], what an open unit holds beyond its least, in the mean; NaN at the root,
        where no unit is solved yet.
    """

    hint: Hint
    later: LevelReader
    beyond: FloatArray

    def read(self, rows: LevelRange) -> list[ToldSum]:
        """What is told of the geounits of a range that are not only children."""
        hint, parts = self.hint, []
        for values, covariances, kind in subtree_estimates(self.later, rows, hint.query):
            weights = np.array([weights_of(hint, one) for one in covariances])
            parts.append((values @ hint.types.T @ hint.sums.T, weights[kind]))
        answers, weights = (np.concatenate(part) for part in zip(*parts, strict=True))
        is_known = np.isfinite(self.beyond) | ~hint.is_open.any(1)
        mean = np.where(hint.is_open.any(1) & is_known, self.beyond, 0.0)[:, None] * hint.is_open
        return [
            ToldSum(
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
    """Open what hints say of a geolevel; none under maxfit, which fits partitions alone.

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
    """float64[t]: what an open unit holds beyond its least, in the mean over the root."""
    records = sum(values.sum(0) for values, _, _ in estimates) @ hint.types.T
    out = np.zeros(len(hint.least))
    for one, (least, is_open) in enumerate(zip(hint.least, hint.is_open, strict=True)):
        units = int(weighted_sums(is_open.astype(np.int64), counts).sum())
        rest = float(records[one]) - int(weighted_sums(least, counts).sum())
        out[one] = max(0.0, rest) / max(1, units)
    return out


def weights_of(hint: Hint, covariance: FloatArray) -> FloatArray:
    """float64[d]: weights of sums of types that say together what an estimate of them says.

    The best nonnegative ones in least squares of relative information, as in `das.tree.targets`;
    zeros if they are not found, for what is only told may not make a run fail.

    Args:
      hint: Types and sums.
      covariance: float64[m, m], of the answers to the query.
    """
    of_types = hint.types @ covariance @ hint.types.T
    root = np.linalg.cholesky(of_types + _LEAST_VARIANCE * np.eye(len(of_types)))
    seen = [root.T @ members for members in hint.sums.astype(np.float64)]
    columns = np.array([np.outer(one, one).ravel() for one in seen]).T
    scale = np.linalg.norm(columns, axis=0)
    try:
        found, _ = nnls(columns / scale, np.eye(len(of_types)).ravel())
    except RuntimeError:  # it did not converge: units are solved without being told, as they may be
        return np.zeros(len(hint.sums))
    return np.asarray(found / scale, np.float64)
