"""Ranges of a geolevel read piece by piece: families, what they are fitted to, what they keep.

A piece is some whole families whose answers are held at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from das.arrays import BoolArray, FloatArray, IntArray, ObjectArray
from das.errors import VerificationError
from das.queries.query import Query
from das.tree.model import LEAST_VARIANCE
from invariants.linear import LinearRow
from invariants.quarters import without_quarters
from jobs.pipeline.plan import Level, Plan
from jobs.pipeline.release.estimate import CONFIDENCE, LevelEstimator
from jobs.pipeline.release.hints import HintReader, hint_readers
from jobs.pipeline.release.implied import read_limits
from jobs.pipeline.release.prior import CellEstimates
from jobs.pipeline.release.problems import Constraints, Family, Support, Targets
from jobs.pipeline.release.support import read_support
from jobs.pipeline.storage.answers import DrawnAnswers, answers_reader, read_answers, read_drawn
from jobs.pipeline.storage.columns import texts
from jobs.pipeline.storage.dataset import Dataset, RangeReader
from jobs.pipeline.storage.geography import families, read_geography
from jobs.pipeline.storage.histograms import read_counts
from jobs.pipeline.storage.layout import ReleaseLayout
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
    plan: Plan,
    release: ReleaseLayout,
    batch: Batch,
    *,
    with_cells: bool = False,
    with_lazy: bool = True,
) -> Iterator[Piece]:
    """Read a range of whole families, piece by piece.

    Args:
      plan: The plan.
      release: Where geography, answers and the counts of the geolevel above lie.
      batch: The range.
      with_cells: Whether to estimate all cells.
      with_lazy: Whether answers of lazy queries are read; of the root they are drawn below its
        support, which is found without them.

    Raises:
      OutputError: The measurements, the invariants or the geolevel above are not complete.
    """
    level = plan.levels[batch.level]
    geography = read_geography(release, level.name, batch.low, batch.high)
    codes = texts(geography)
    support = (
        read_support(plan, release) if plan.support and not level.index and with_lazy else None
    )
    read = _families(plan, release, batch.level, texts(geography, "parent"), support)
    files = _Files.of(plan, release, level, with_lazy=with_lazy)
    for first, last in _cuts(read, whole_answers(level), len(level.lazy)):
        low, high = read[first].rows.start, read[last - 1].rows.stop
        part = geography.slice(low, high - low)
        piece = Batch(batch.level, str(codes[low]), str(codes[high - 1]), high - low)
        cells = None
        if with_cells:
            cells = CellEstimates(*files.estimator.cell_estimates(piece))
        whole = Piece(
            codes[low:high],
            tuple(family.from_row(low) for family in read[first:last]),
            _read_targets(files, piece, part),
            _read_constraints(files, release, piece, codes[low:high]),
            cells,
        )
        yield without_empty(whole, _known_empty(level, whole))


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


def _families(
    plan: Plan, release: ReleaseLayout, level: int, parents: ObjectArray, support: Support | None
) -> list[Family]:
    """The families of a range, with the counts of their parents, or the support of the root."""
    ranges = list(families(parents))
    if level == 0:
        return [Family("root", slice(start, stop), None, support) for start, stop in ranges]
    names = parents[[start for start, _ in ranges]]
    counts = read_counts(release, plan.levels[level - 1].name, names, plan.schema.size)
    return [
        Family(name, slice(start, stop), counts.slice(index, index + 1))
        for index, (name, (start, stop)) in enumerate(zip(names, ranges, strict=True))
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


@dataclass(frozen=True, eq=False)
class _Files:
    """What the pieces of a range are read from; opened once, and nothing is decoded twice.

    Attributes:
      plan: The plan.
      estimator: Of the estimates of its geounits.
      messages: Estimates from their subtrees, where those are the targets.
      own: Queries whose own noisy answers are targets: all where there are no messages, else those
        that are lazy below the root.
      measurements: Noisy answers of those that are not lazy here, if there are some.
      lazily: Of those that are.
      invariants: Their exact answers, if they have some.
      given: What was given for them, if an earlier release binds them.
    """

    plan: Plan
    estimator: LevelEstimator
    messages: RangeReader | None
    own: tuple[Query, ...]
    measurements: RangeReader | None
    lazily: RangeReader | None
    invariants: RangeReader | None
    given: RangeReader | None
    hints: Sequence[HintReader] = ()

    @classmethod
    def of(
        cls, plan: Plan, release: ReleaseLayout, level: Level, *, with_lazy: bool = True
    ) -> _Files:
        """Open what a geolevel needs.

        Raises:
          OutputError: The measurements, the invariants or the upward pass are not complete.
        """
        estimator = LevelEstimator(plan, release, (), CONFIDENCE)
        messages, measurements, lazily, invariants = None, None, None, None
        own = level.queries
        if plan.solving.targets == "full" and level is not plan.leaf:
            messages = estimator.reader(level.index)
            own = tuple(query for query in level.queries if query not in level.complete)
        if not with_lazy:
            own = tuple(query for query in own if query not in level.lazy)
        if {*own} - {*level.lazy}:
            measurements = answers_reader(Dataset.open(release.measurements(level.name)))
        if level.lazy and with_lazy:
            lazily = answers_reader(Dataset.open(release.lazy_measurements(level.name)))
        if level.published:
            invariants = answers_reader(Dataset.open(release.invariants(level.name)))
        given = answers_reader(Dataset.open(release.given(level.name))) if level.bound else None
        hints = hint_readers(plan, release, level.index)
        return cls(plan, estimator, messages, own, measurements, lazily, invariants, given, hints)


def _read_constraints(
    files: _Files, release: ReleaseLayout, batch: Batch, codes: ObjectArray
) -> Constraints:
    """Exact answers and limits of exactly these geounits of a range."""
    plan, level = files.plan, files.plan.levels[batch.level]
    exact: dict[Query | LinearRow, IntArray] = {}
    if files.invariants is not None:
        answers = read_answers(files.invariants, level.published, codes)
        exact.update(zip(level.published, answers, strict=True))
    if files.given is not None:
        answers = read_answers(files.given, level.bound, codes)
        exact.update(zip(level.bound, answers, strict=True))
    limits = None
    if plan.limits.is_implied(level.name):
        limits = read_limits(plan, release, batch, codes)
    sums = [exact[row] for row in level.exact_rows]
    return Constraints([exact[query] for query in level.kept], sums, limits)


def _read_targets(files: _Files, batch: Batch, geography: pa.Table) -> Targets:
    """Queries, answers and weights of a range.

    With `full` targets, those of the estimate from the whole subtree of each geounit; of leaves,
    which have no subtree, and with `own` targets, the noisy answers of the geolevel itself. Queries
    that are lazy below the root have their own answers everywhere.
    """
    level = files.plan.levels[batch.level]
    only = geography.column("only_child").to_numpy(zero_copy_only=False)
    row = np.cumsum(~only) - 1
    queries: list[Query] = []
    answers: list[FloatArray | IntArray | DrawnAnswers] = []
    weights: list[FloatArray] = []
    if files.messages is not None:
        subtree = files.estimator.targets(batch, files.messages)
        queries += subtree.queries
        answers += subtree.answers
        weights += [*subtree.weights.T]
    if files.own:
        codes, ends = (texts(geography, name)[~only] for name in ("geocode", "chain_end"))
        found = _read_own(files, level, codes)
        inverse = dict(zip(level.queries, _weights(files.plan, level, ends), strict=True))
        queries += files.own
        answers += [found[query] for query in files.own]
        weights += [inverse[query] for query in files.own]
    told = [one for reader in files.hints for one in reader.read(batch)]
    return Targets(queries, answers, weights, row, told)


def _read_own(
    files: _Files, level: Level, codes: ObjectArray
) -> dict[Query, IntArray | DrawnAnswers]:
    """The noisy answers of the geolevel itself that are targets."""
    found: dict[Query, IntArray | DrawnAnswers] = {}
    if files.measurements is not None:
        whole = [query for query in files.own if query not in level.lazy]
        read = read_answers(files.measurements, whole, codes, narrow=True)
        found.update(zip(whole, read, strict=True))
    if files.lazily is not None:
        found.update(zip(level.lazy, read_drawn(files.lazily, level.lazy, codes), strict=True))
    return found


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
