"""Ranges of a geolevel read piece by piece: families, what they are fitted to, what they keep.

A piece is some whole families whose answers are held at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from das.arrays import BoolArray, FloatArray, IntArray, ObjectArray
from das.errors import VerificationError
from das.queries.query import Query
from das.tree.model import LEAST_VARIANCE
from invariants.quarters import without_quarters
from jobs.pipeline.plan import Level, Plan
from jobs.pipeline.release.hints import HintReader, hint_readers
from jobs.pipeline.release.level import LevelRange, LevelReader
from jobs.pipeline.release.prior import CellEstimates
from jobs.pipeline.release.problems import Constraints, Family, Support, Targets
from jobs.pipeline.storage.answers import DrawnAnswers
from jobs.pipeline.tasks.batches import Batch

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
    constraints: Constraints
    cells: CellEstimates | None


def read_pieces(
    reader: LevelReader, batch: Batch, *, with_cells: bool = False, with_lazy: bool = True
) -> Iterator[Piece]:
    """Read a range of whole families, piece by piece.

    Args:
      reader: Reads the geolevel.
      batch: The range.
      with_cells: Whether to estimate all cells.
      with_lazy: Whether answers of lazy queries are read; of the root they are drawn below its
        support, which is found without them.

    Raises:
      OutputError: The measurements, the invariants or the geolevel above are not complete.
    """
    level, rows = reader.level, reader.rows(batch)
    families = _families(reader, rows, reader.support() if with_lazy else None)
    hints = hint_readers(reader)
    for first, last in _cuts(families, whole_answers(level), len(level.lazy)):
        low, high = families[first].rows.start, families[last - 1].rows.stop
        some = rows.slice(low, high)
        piece = Piece(
            some.codes,
            tuple(family.from_row(low) for family in families[first:last]),
            _read_targets(reader, some, hints, with_lazy=with_lazy),
            _read_constraints(reader, some),
            CellEstimates(*reader.cells(some)) if with_cells else None,
        )
        yield without_empty(piece, _known_empty(level, piece))


def _known_empty(level: Level, piece: Piece) -> BoolArray:
    """bool[G]: geounits without living quarters, or with nobody in the release that binds them."""
    empty = np.zeros(len(piece.codes), np.bool_)
    limits = piece.constraints.limits
    if limits is not None and limits.quarters is not None:
        empty |= without_quarters(limits.quarters)
    for query, answers in zip(level.kept, piece.constraints.exact, strict=True):
        if query in level.bound:
            empty |= ~answers.any(axis=1)
    return empty


def without_empty(piece: Piece, empty: BoolArray) -> Piece:
    """The piece without the geounits in which nobody can be.

    A family without any other has an empty parent, whose own geounits said so, and is left out.

    Args:
      piece: A piece.
      empty: bool[G], the geounits in which nobody can be.

    Raises:
      VerificationError: A parent has persons who can be in none of its children; a defect of
        this program.
    """
    keep = ~empty
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
    constraints, kept = piece.constraints, np.flatnonzero(keep)
    targets, measured = piece.targets.take(kept)
    limits = constraints.limits
    return Piece(
        piece.codes[kept],
        tuple(families),
        targets,
        Constraints(
            [answers[kept] for answers in constraints.exact],
            [answers[kept] for answers in constraints.sums],
            None if limits is None else limits.take(kept),
        ),
        None if piece.cells is None else piece.cells.take(measured),
    )


def whole_answers(level: Level) -> int:
    """Answers of a geounit to the queries that are not lazy, at least 1."""
    return max(1, sum(query.size for query in level.whole))


def _families(reader: LevelReader, rows: LevelRange, support: Support | None) -> list[Family]:
    """The families of a range, with the counts of their parents, or the support of the root."""
    starts = rows.starts.tolist()
    ranges = [slice(*edges) for edges in pairwise([*starts, len(rows.codes)])]
    if not reader.level.index:
        return [Family("root", own, None, support) for own in ranges]
    names = rows.parents[rows.starts]
    counts = reader.parents(names)
    return [
        Family(name, own, counts.slice(index, index + 1))
        for index, (name, own) in enumerate(zip(names, ranges, strict=True))
    ]


def _cuts(group: Sequence[Family], answers: int, lazy: int) -> Iterator[tuple[int, int]]:
    """Cut families into pieces [first, last), by the noisy numbers of their children.

    Args:
      group: The families of a range.
      answers: Answers of a geounit to the queries that are not lazy.
      lazy: Number of lazy queries, of each of which a geounit has an answer per live cell at most.
    """
    first, numbers = 0, 0
    for index, family in enumerate(group):
        live = len(family.parent.cells) if family.parent is not None else 0
        own = family.n_children * (answers + lazy * live)
        if index > first and numbers + own > _PIECE_NUMBERS:
            yield first, index
            first, numbers = index, 0
        numbers += own
    yield first, len(group)


def _read_constraints(reader: LevelReader, rows: LevelRange) -> Constraints:
    """Exact answers and limits of exactly these geounits."""
    level, exact = reader.level, reader.exact(rows.codes)
    sums = [exact[row] for row in level.exact_rows]
    return Constraints([exact[query] for query in level.kept], sums, reader.limits(rows.codes))


def _read_targets(
    reader: LevelReader, rows: LevelRange, hints: Sequence[HintReader], *, with_lazy: bool
) -> Targets:
    """Queries, answers and weights of a range.

    With `full` targets, those of the estimate from the whole subtree of each geounit; of leaves,
    which have no subtree, and with `own` targets, the noisy answers of the geolevel itself. Queries
    that are lazy below the root have their own answers everywhere.
    """
    level, own = reader.level, reader.level.queries
    queries: list[Query] = []
    answers: list[FloatArray | IntArray | DrawnAnswers] = []
    weights: list[FloatArray] = []
    if reader.plan.solving.targets == "full" and not reader.is_leaf:
        subtree = reader.targets(rows)
        queries += subtree.queries
        answers += subtree.answers
        weights += [*subtree.weights.T]
        own = tuple(query for query in own if query not in level.complete)
    own = tuple(query for query in own if with_lazy or query not in level.lazy)
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
