"""Read one geolevel of a release in a task: each dataset is opened once, range after range.

Datasets are noisy answers, invariants, counts of the geolevel above, and estimates; none is
confidential.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from das.arrays import BoolArray, IntArray, ObjectArray
from das.histograms import Histograms
from das.queries.query import Query
from das.tree.model import LEAST_VARIANCE, GeolevelTerms, precision
from das.tree.passes import Evidence, Kinds, Moments, gather_evidence, pass_down, pass_up, sum_below
from das.tree.targets import SubtreeTargets, subtree_targets
from invariants.facilities import groups_of
from invariants.linear import LinearRow
from invariants.quarters import without_quarters
from jobs.pipeline.plan import Plan, plan_terms
from jobs.pipeline.release.implied import BatchLimits, implied_limits, read_limits
from jobs.pipeline.release.problems import AnswerEstimates, Support
from jobs.pipeline.storage.answers import DrawnAnswers, answers_reader, read_answers, read_drawn
from jobs.pipeline.storage.dataset import Dataset, RangeReader
from jobs.pipeline.storage.estimates import read_moments
from jobs.pipeline.storage.geography import read_geography
from jobs.pipeline.storage.histograms import read_counts, sparse_arrays
from jobs.pipeline.storage.layout import EstimateLayout, ReleaseLayout
from jobs.pipeline.storage.place import Place
from jobs.pipeline.tasks.batches import Batch, cut_groups
from solvers.answers.sums import group_sums

_COLUMNS = ("geocode", "parent", "n_children", "only_child", "chain_end")


@dataclass(frozen=True, eq=False)
class LevelRange:
    """Geounits of one range of a geolevel, family by family.

    Attributes:
      level: Position of the geolevel.
      codes: str[G] geocodes, ascending.
      parents: str[G] geocodes of the parents.
      n_children: int64[G], number of children.
      is_only: bool[G], whether the geounit is an only child.
      chain_end: str[G], last geolevel of the chain of only children below the geounit.
    """

    level: int
    codes: ObjectArray
    parents: ObjectArray
    n_children: IntArray
    is_only: BoolArray
    chain_end: ObjectArray

    @cached_property
    def starts(self) -> IntArray:
        """Return int64[U], the first row of each of the U families."""
        first = np.ones(len(self.codes), np.bool_)
        first[1:] = self.parents[1:] != self.parents[:-1]
        return np.flatnonzero(first)

    def slice(self, start: int, stop: int) -> LevelRange:
        """Return the rows start..stop-1."""
        columns: list[Any] = [self.codes, self.parents, self.n_children, self.is_only]
        columns.append(self.chain_end)
        return LevelRange(self.level, *(column[start:stop] for column in columns))

    def pieces(self, most: int) -> list[tuple[int, int]]:
        """Cut rows into ranges of at most `most` geounits, or of one larger family."""
        return cut_groups(self.starts, len(self.codes), most)


# Noisy answers per measured query and exact ones per invariant; see `LevelReader.answers`.
RangeAnswers = tuple[list[IntArray], list[IntArray]]


class LevelReader:
    """Reader of one geolevel of a release. Ascending ranges decode each row group once.

    A task opens one reader per geolevel. Every method raises OutputError if a dataset is not
    complete or lacks a geounit.

    Attributes:
      plan: The plan.
      release: The release, or a replicate of it.
      level: The geolevel.
      is_leaf: Whether the geolevel is the leaf geolevel.
    """

    def __init__(self, plan: Plan, release: ReleaseLayout, level: int) -> None:
        self.plan = plan
        self.release = release
        self.level = plan.levels[level]
        self.is_leaf = self.level is plan.levels[-1]
        self._readers: dict[Place, RangeReader] = {}

    @cached_property
    def terms(self) -> GeolevelTerms:
        """Return the queries of the geolevel as small matrices."""
        return plan_terms(self.plan)[self.level.index]

    @cached_property
    def _subtree_queries(self) -> tuple[Query, ...]:
        """Return the queries of this and finer geolevels that have estimates here, once each."""
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
        """Read the counts of geounits of the geolevel above; `codes` are sorted."""
        above = self.plan.levels[self.level.index - 1].name
        return read_counts(self.release, above, codes, self.plan.schema.size)

    def limits(self, codes: ObjectArray) -> BatchLimits | None:
        """Read the implied constraints of exactly these geounits; None if there are none."""
        if not self.plan.limits.is_implied(self.level.name):
            return None
        stored = self._open(implied_limits(self.plan, self.release, self.level.name))
        return read_limits(self.plan, self.level, stored, codes)

    def noisy(
        self, queries: tuple[Query, ...], codes: ObjectArray
    ) -> dict[Query, IntArray | DrawnAnswers]:
        """Read noisy answers of M measured geounits: m answers each, or drawn on-demand answers."""
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
        """Read int64[G, m] per exact query or row: m exact answers of each of G geounits."""
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
        """Read the noisy and exact answers behind estimates, for exactly these geounits.

        Returns:
          Per measured query, integers[G', m], for geounits that are not only children; the dtype is
          the narrowest that fits, so sums need a wider one. Per invariant, int64[G, m].
        """
        exact: list[IntArray] = []
        if self.terms.exact:
            invariants = self._open(self.release.invariants(self.level.name))
            exact = read_answers(invariants, self.terms.exact, rows.codes)
        measured = self._open(self.release.measurements(self.level.name))
        codes = rows.codes[~rows.is_only]
        return read_answers(measured, self.terms.measured, codes, narrow=True), exact

    def has_type(self, codes: ObjectArray) -> BoolArray | None:
        """Find the types of cells that can be positive in geounits, as is publicly known.

        Structural zeros hold in all geounits. Facilities and living quarters that are counted at a
        coarser geolevel bind all geounits below. Only public counts are read.

        Returns:
          bool[G, t]; None if the terms have no types.
        """
        types, plan = self.terms.types, self.plan
        if types is None:
            return None
        has_type = np.repeat(plan.limits.possible_answers(types)[None], len(codes), axis=0)
        for stated in plan.limits.counted_before_solving:
            level = plan.levels[min(self.level.index, plan.level(stated.geolevel).index)]
            holders = codes
            if level is not self.level:
                holders = np.array([code[: level.digits] for code in codes], object)
            coarse, of_geounit = np.unique(holders.astype(np.str_), return_inverse=True)
            stored = self._open(implied_limits(plan, self.release, level.name))
            limits = read_limits(plan, level, stored, coarse.astype(object))
            if stated is plan.limits.quarters and limits.quarters is not None:
                found = ~without_quarters(limits.quarters)[:, None]
            elif plan.limits.facilities is not None and limits.leaves is not None:
                most = limits.leaves.leaves.most
                found = np.add.reduceat(most, limits.leaves.offsets[:-1]) > 0
                found = found[:, groups_of(types, plan.limits.facilities.query)]
            has_type &= found[of_geounit.reshape(-1)]
        return has_type

    # --- estimates -------------------------------------------------------------------------------

    @property
    def numbers(self) -> int:
        """Return how many numbers a task holds per geounit at most; at least 1.

        Leaves share covariances, unless each lacks other types of cells.
        """
        coordinates = self.terms.coordinates
        matrices = sum(size**2 for size in coordinates.sizes)
        if self.is_leaf:
            answers = sum(query.size for query in self.terms.measured)
            return max(1, answers + (0 if self.terms.types is None else matrices))
        return coordinates.size + matrices

    def _moments(self, dataset: Place, codes: ObjectArray, terms: GeolevelTerms | None) -> Moments:
        """Read estimates of exactly these geounits, restricted to the components of `terms`."""
        coordinates = self.terms.coordinates
        found = read_moments(self._open(dataset), coordinates, codes)
        if terms is None:
            return found
        values, matrices = (
            terms.coordinates.select(coordinates, parts) for parts in (found.values, found.matrices)
        )
        return Moments(values, matrices, found.kind)

    def subtree(self, rows: LevelRange, terms: GeolevelTerms | None = None) -> Moments:
        """Estimate geounits from the answers of their subtrees.

        Args:
          rows: The geounits.
          terms: Terms of the geolevel on some components; the estimates are restricted to these.
        """
        if not self.is_leaf:
            dataset = EstimateLayout.of(self.release).subtree(self.level.name)
            return self._moments(dataset, rows.codes, terms)
        terms = terms or self.terms
        answers, has_type = self.answers(rows), self.has_type(rows.codes)
        evidence = range_evidence(self.plan, terms, rows, answers, has_type)
        return pass_up(terms, evidence, None, rows.is_only)

    def above(self, rows: LevelRange, terms: GeolevelTerms | None = None) -> Moments | None:
        """Read estimates of the parents of whole families from all answers; None at the root."""
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
          above: Estimates of the parents, as returned by the method `above`.
          terms: Terms of the geolevel on some components; both estimates are restricted to these.
        """
        messages = self.subtree(rows, terms)
        if above is None:
            return messages
        below = sum_below(messages, rows.starts, rows.is_only, terms or self.terms)
        return pass_down(messages, below, above, rows.starts, rows.is_only)

    def targets(self, rows: LevelRange) -> SubtreeTargets:
        """Make targets from the subtrees of geounits that are not only children."""
        subtree = self.subtree(rows).take(~rows.is_only)
        return subtree_targets(self.terms, self._subtree_queries, subtree)

    def partitions(self, rows: LevelRange) -> dict[str, AnswerEstimates]:
        """Estimate the answers to partition queries in geounits that are not only children."""
        subtree = self.subtree(rows).take(~rows.is_only)
        coordinates, found = self.terms.coordinates, dict[str, AnswerEstimates]()
        for query in self._subtree_queries:
            if not query.is_partition:
                continue
            variances = coordinates.variances(query, subtree.matrices)
            is_known = variances < LEAST_VARIANCE
            mean = np.where(is_known, 0.0, variances).sum(1) / np.maximum(1, (~is_known).sum(1))
            mean[is_known.all(1)] = 1.0  # of no answer
            values = coordinates.answer(query, subtree.values)
            found[query.name] = AnswerEstimates(values, mean[subtree.kind], is_known[subtree.kind])
        return found


def range_evidence(
    plan: Plan,
    terms: GeolevelTerms,
    rows: LevelRange,
    answers: RangeAnswers,
    has_type: BoolArray | None,
) -> Evidence:
    """Gather the evidence of the answers of geounits that are not only children.

    Args:
      plan: The plan.
      terms: Terms of the geolevel, perhaps on some components only.
      rows: The geounits, G of which are not only children.
      answers: Their answers.
      has_type: bool[rows, t] from `LevelReader.has_type`.
    """
    measured, (noisy_answers, exact) = ~rows.is_only, answers
    ends = rows.chain_end[measured]
    names = sorted(set(ends), key=plan.spine.levels.index)
    position = {name: index for index, name in enumerate(names)}
    end = np.array([position[name] for name in ends], np.int64)
    measured_names = {query.name for query in terms.measured}
    precisions = [
        [
            precision(noisy.mechanism)
            for noisy in plan.noise(rows.level, plan.level(name).index)
            if noisy.query.name in measured_names
        ]
        for name in names
    ]
    by_end = np.array(precisions).reshape(len(names), len(terms.measured))
    kinds = Kinds(by_end, end)
    if has_type is not None:
        pairs = np.column_stack([end, has_type[measured]])
        distinct, kind = np.unique(pairs, axis=0, return_inverse=True)
        is_last = np.array(names)[distinct[:, 0]] == plan.leaf.name
        kinds = Kinds(by_end[distinct[:, 0]], kind.reshape(-1), distinct[:, 1:] > 0, is_last)
    return gather_evidence(
        terms,
        noisy=noisy_answers,
        exact=[part[measured] for part in exact],
        kinds=kinds,
        add_up=group_sums,
    )


def read_support(plan: Plan, release: ReleaseLayout) -> Support:
    """Read the published support of the root.

    Raises:
      OutputError: The support is not published.
    """
    dataset, query = Dataset.open(release.support(plan.levels[0].name)), plan.support[-1]
    rows = [dataset.read(part.low, part.high) for part in dataset.parts if part.rows]
    positions, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
    if rows:
        _, _, positions, counts = sparse_arrays(rows[0])
    cells = query.cells_of(positions)
    if plan.limits.zeros is not None:
        cells = cells[~plan.limits.zeros.holds(cells)]
    return Support(cells, (query, counts[None]))
