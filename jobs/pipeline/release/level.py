"""What a task reads of one geolevel of a release: each dataset opened once, range after range.

Noisy answers, invariants, counts of the geolevel above and estimates alone; nothing confidential.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from das.arrays import BoolArray, FloatArray, IntArray, ObjectArray
from das.histograms import Histograms
from das.queries.query import Query, parse_query
from das.tree.model import GeolevelTerms, precision
from das.tree.passes import Evidence, Moments, gather_evidence, pass_down, pass_up, sum_below
from das.tree.targets import SubtreeTargets, subtree_targets
from invariants.linear import LinearRow
from jobs.pipeline.plan import Plan, plan_terms
from jobs.pipeline.release.implied import BatchLimits, read_limits
from jobs.pipeline.release.problems import Support
from jobs.pipeline.release.support import read_support
from jobs.pipeline.storage.answers import DrawnAnswers, answers_reader, read_answers, read_drawn
from jobs.pipeline.storage.dataset import Dataset, RangeReader
from jobs.pipeline.storage.estimates import read_moments
from jobs.pipeline.storage.geography import read_geography
from jobs.pipeline.storage.histograms import read_counts
from jobs.pipeline.storage.layout import EstimateLayout, ReleaseLayout
from jobs.pipeline.storage.place import Place
from jobs.pipeline.tasks.batches import Batch, cut_groups
from solvers.answers.sums import group_sums

_COLUMNS = ("geocode", "parent", "n_children", "only_child", "chain_end")


@dataclass(frozen=True, eq=False)
class LevelRange:
    """Geounits of one range of a geolevel, families one after the other.

    Attributes:
      level: Position of the geolevel.
      codes: str[G] geocodes, ascending.
      parents: str[G] geocodes of their parents.
      n_children: int64[G].
      is_only: bool[G].
      chain_end: str[G], names of geolevels.
    """

    level: int
    codes: ObjectArray
    parents: ObjectArray
    n_children: IntArray
    is_only: BoolArray
    chain_end: ObjectArray

    @cached_property
    def starts(self) -> IntArray:
        """int64[U]: the first row of every family."""
        first = np.ones(len(self.codes), np.bool_)
        first[1:] = self.parents[1:] != self.parents[:-1]
        return np.flatnonzero(first)

    def slice(self, start: int, stop: int) -> LevelRange:
        """Return the rows start..stop-1."""
        return LevelRange(
            self.level,
            self.codes[start:stop],
            self.parents[start:stop],
            self.n_children[start:stop],
            self.is_only[start:stop],
            self.chain_end[start:stop],
        )

    def pieces(self, most: int) -> list[tuple[int, int]]:
        """Cut rows into ranges of at most so many geounits, or one family if that is larger."""
        return cut_groups(self.starts, len(self.codes), most)


@dataclass(frozen=True, eq=False)
class RangeAnswers:
    """Answers of a range.

    Attributes:
      noisy: Per measured query, integers[G', m], of the geounits that are not only children; of as
        few bytes as hold them, so sums need wider ones.
      exact: Per invariant, int64[G, m].
    """

    noisy: list[IntArray]
    exact: list[IntArray]


class LevelReader:
    """Reads one geolevel of a release. Ranges that ascend decode each row group once.

    A task makes one for each geolevel it reads, and hands it to what computes with it. Every
    method raises OutputError where a dataset is not complete, or lacks a geounit.

    Attributes:
      plan: The plan.
      release: The release, or a replicate of it.
      level: The geolevel.
      is_leaf: Whether it is the last one.
    """

    def __init__(self, plan: Plan, release: ReleaseLayout, level: int) -> None:
        self.plan = plan
        self.release = release
        self.level = plan.levels[level]
        self.is_leaf = self.level is plan.levels[-1]
        self._readers: dict[Place, RangeReader] = {}

    @cached_property
    def terms(self) -> GeolevelTerms:
        """Queries of the geolevel as small matrices."""
        return plan_terms(self.plan)[self.level.index]

    @cached_property
    def _subtree_queries(self) -> tuple[Query, ...]:
        """Queries of the geolevel and of all below it that have estimates here, each once."""
        below = plan_terms(self.plan)[self.level.index :]
        named = {query.name: query for terms in below for query in terms.measured}
        return tuple(query for query in named.values() if self.terms.determines(query))

    def _open(self, dataset: Place) -> RangeReader:
        if dataset not in self._readers:
            self._readers[dataset] = answers_reader(Dataset.open(dataset))
        return self._readers[dataset]

    def rows(self, batch: Batch) -> LevelRange:
        """Read the geography of a range."""
        table = read_geography(self.release, self.level.name, batch.low, batch.high, _COLUMNS)
        columns = (column.to_numpy(zero_copy_only=False) for column in table.columns)
        return LevelRange(self.level.index, *columns)

    def parents(self, codes: ObjectArray) -> Histograms:
        """Read the counts of some geounits of the geolevel above, sorted."""
        above = self.plan.levels[self.level.index - 1].name
        return read_counts(self.release, above, codes, self.plan.schema.size)

    def support(self) -> Support | None:
        """Read the cells of the root that may be live; None below the root, or without support."""
        is_known = self.plan.support and not self.level.index
        return read_support(self.plan, self.release) if is_known else None

    def limits(self, codes: ObjectArray) -> BatchLimits | None:
        """Read the limits of exactly these geounits; None where nothing is implied."""
        if not self.plan.limits.is_implied(self.level.name):
            return None
        piece = Batch(self.level.index, str(codes[0]), str(codes[-1]), len(codes))
        return read_limits(self.plan, self.release, piece, codes)

    def noisy(
        self, queries: tuple[Query, ...], codes: ObjectArray
    ) -> dict[Query, IntArray | DrawnAnswers]:
        """Read noisy answers of measured geounits, integers[M, m], or those that were drawn."""
        found: dict[Query, IntArray | DrawnAnswers] = {}
        whole = [query for query in queries if query not in self.level.on_demand]
        if whole:
            measured = self._open(self.release.measurements(self.level.name))
            found.update(zip(whole, read_answers(measured, whole, codes, narrow=True), strict=True))
        on_demand = [query for query in queries if query in self.level.on_demand]
        if on_demand:
            drawn = self._open(self.release.lazy_measurements(self.level.name))
            found.update(zip(on_demand, read_drawn(drawn, on_demand, codes), strict=True))
        return found

    def exact(self, codes: ObjectArray) -> dict[Query | LinearRow, IntArray]:
        """Read the answers that counts must have, int64[G, m]: of the data, or a release before."""
        level, release = self.level, self.release
        found: dict[Query | LinearRow, IntArray] = {}
        for folder, queries in (
            (release.invariants, level.published),
            (release.given, level.bound),
        ):
            if queries:
                answers = read_answers(self._open(folder(level.name)), queries, codes)
                found.update(zip(queries, answers, strict=True))
        return found

    def answers(self, rows: LevelRange) -> RangeAnswers:
        """Read all answers that estimates are made of, of exactly these geounits."""
        exact: list[IntArray] = []
        if self.terms.exact:
            invariants = self._open(self.release.invariants(self.level.name))
            exact = read_answers(invariants, self.terms.exact, rows.codes)
        measured = self._open(self.release.measurements(self.level.name))
        codes = rows.codes[~rows.is_only]
        return RangeAnswers(read_answers(measured, self.terms.measured, codes, narrow=True), exact)

    # --- estimates -------------------------------------------------------------------------------

    @property
    def numbers(self) -> int:
        """Numbers held per geounit, at least 1: all queries may be on demand."""
        if self.is_leaf:
            return max(1, sum(query.size for query in self.terms.measured))
        coordinates = self.terms.coordinates
        return coordinates.size + sum(size**2 for size in coordinates.sizes)

    def _moments(self, dataset: Place, codes: ObjectArray, terms: GeolevelTerms | None) -> Moments:
        """Read estimates of exactly these geounits, on the components of `terms` if given."""
        coordinates = self.terms.coordinates
        found = read_moments(self._open(dataset), coordinates, codes)
        if terms is None:
            return found
        values, matrices = (
            terms.coordinates.select(coordinates, parts) for parts in (found.values, found.matrices)
        )
        return Moments(values, matrices, found.kind)

    def subtree(self, rows: LevelRange, terms: GeolevelTerms | None = None) -> Moments:
        """Estimate geounits from their own subtrees: messages, or of leaves their own answers.

        Args:
          rows: The geounits.
          terms: Of the geolevel on some components, which are then those of the estimates.
        """
        if not self.is_leaf:
            dataset = EstimateLayout.of(self.release).subtree(self.level.name)
            return self._moments(dataset, rows.codes, terms)
        asked = terms or self.terms
        evidence = range_evidence(self.plan, asked, rows, self.answers(rows))
        return pass_up(asked, evidence, None, rows.is_only)

    def above(self, rows: LevelRange, terms: GeolevelTerms | None = None) -> Moments | None:
        """Read estimates of the parents of whole families from all answers; None of the root."""
        if not self.level.index:
            return None
        name = self.plan.levels[self.level.index - 1].name
        dataset = EstimateLayout.of(self.release).whole(name)
        return self._moments(dataset, rows.parents[rows.starts], terms)

    def whole(self, codes: ObjectArray, terms: GeolevelTerms) -> Moments:
        """Read estimates of geounits above the leaves from all answers, on some components."""
        return self._moments(EstimateLayout.of(self.release).whole(self.level.name), codes, terms)

    def estimates(
        self, rows: LevelRange, above: Moments | None, terms: GeolevelTerms | None = None
    ) -> Moments:
        """Estimate whole families from all answers.

        Args:
          rows: The families.
          above: Estimates of their parents, as of `above`.
          terms: Of the geolevel on some components, which are those of both estimates.
        """
        messages = self.subtree(rows, terms)
        if above is None:
            return messages
        below = sum_below(messages, rows.starts, rows.is_only, (terms or self.terms).shared)
        return pass_down(messages, below, above, rows.starts, rows.is_only)

    def targets(self, rows: LevelRange) -> SubtreeTargets:
        """Make targets of what the subtrees of geounits that are not only children say."""
        subtree = self.subtree(rows).take(~rows.is_only)
        return subtree_targets(self.terms, self._subtree_queries, subtree)

    def cells(self, rows: LevelRange) -> tuple[FloatArray, FloatArray]:
        """Estimate all cells of the geounits of a range that are not only children.

        Returns:
          float64[G, n] from each geounit's subtree, and float64[G], the mean variance of a cell.
        """
        subtree = self.subtree(rows).take(~rows.is_only)
        cells, coordinates = parse_query(self.plan.schema, "detailed"), self.terms.coordinates
        variances = coordinates.variances(cells, subtree.matrices).mean(1)
        return coordinates.answer(cells, subtree.values), variances[subtree.kind]


def range_evidence(
    plan: Plan, terms: GeolevelTerms, rows: LevelRange, answers: RangeAnswers
) -> Evidence:
    """Gather what the geounits of a range that are not only children say themselves."""
    measured = ~rows.is_only
    ends = rows.chain_end[measured]
    names = sorted(set(ends), key=plan.spine.levels.index)
    position = {name: index for index, name in enumerate(names)}
    asked = {query.name for query in terms.measured}
    precisions = [
        [
            precision(noisy.mechanism)
            for noisy in plan.noise(rows.level, plan.level(name).index)
            if noisy.query.name in asked
        ]
        for name in names
    ]
    return gather_evidence(
        terms,
        noisy=answers.noisy,
        exact=[part[measured] for part in answers.exact],
        precisions=np.array(precisions).reshape(len(names), len(terms.measured)),
        kind=np.array([position[end] for end in ends], np.int64),
        add_up=group_sums,
    )
