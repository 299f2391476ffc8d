"""Estimate queries without bias, with intervals, in every geounit: up the tree and down again.

There is one Spark job per geolevel and direction; a task works on a range of whole families. The
driver gets descriptors of files only, and runs steps of a single task itself.

`AreaEstimator` estimates any set of blocks from the files of a release. It reads only the geounits
that the area cuts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from das.arrays import BoolArray, FloatArray, Geocodes, IntArray
from das.errors import InputError, SchemaError
from das.queries.query import Query, is_answered_by
from das.tree.area import CutChild, Share, estimate_share, share_of_family
from das.tree.coordinates import Coordinates
from das.tree.model import GeolevelTerms
from das.tree.passes import Moments, add_leaves, combine, pass_up, sum_below
from jobs.pipeline.plan import Plan, plan_terms, why_no_estimates, without_estimates
from jobs.pipeline.release.level import (
    LevelRange,
    LevelReader,
    RangeAnswers,
    range_evidence,
)
from jobs.pipeline.release.public_bounds import Bounds, PublicBounds
from jobs.pipeline.storage.dataset import LAST, Dataset, PartFile, PartWriter, is_published, publish
from jobs.pipeline.storage.estimates import (
    FORMAT,
    estimate_rows,
    largest_estimate,
    standard_error_sums,
    tables_schema,
    write_moments,
)
from jobs.pipeline.storage.layout import EstimateLayout, ReleaseLayout
from jobs.pipeline.storage.place import Place
from jobs.pipeline.tasks.batches import Batch, all_geounits, geounit_batches
from jobs.pipeline.tasks.executor import Tasks
from solvers.answers.sums import family_sums

T = TypeVar("T")

CONFIDENCE = 0.9  # of the intervals of a run
# Numbers in coordinates at once, so that intermediate arrays stay in the third-level cache. On the
# way down a block of 2,016 cells takes 32 microseconds; with twice as many 38, with half 42.
_CHUNK_NUMBERS = 1_000_000
_GROUP_ROWS = 4_096  # leaves of a row group of tables, about; default, not measured
_CHUNK_ANSWERS = 4_000_000  # answers of leaves held while they are summed; default, not measured


@dataclass(frozen=True, eq=False)
class Descended:
    """Result of a task on the way down the tree.

    Attributes:
      whole: File with estimates from all answers; None for leaves.
      tables: File with estimates of tables.
      errors: Per table float64[m], sums over geounits of the standard errors.
      largest: The largest absolute estimate.
    """

    whole: PartFile | None
    tables: PartFile
    errors: Sequence[FloatArray]
    largest: float


@dataclass(frozen=True, eq=False)
class LevelEstimator:
    """Task functions of the estimate stage, geolevel by geolevel.

    Attributes:
      plan: The plan.
      release: The release: holds measurements, receives estimates.
      tables: Queries of any kind to estimate in every geounit.
      confidence: Confidence of the intervals, between 0 and 1.
    """

    plan: Plan
    release: ReleaseLayout
    tables: tuple[Query, ...]
    confidence: float

    @property
    def terms(self) -> tuple[GeolevelTerms, ...]:
        """Return the queries of every geolevel as small matrices."""
        return plan_terms(self.plan)

    @property
    def coordinates(self) -> Coordinates:
        """Return the coordinates of the whole space."""
        return self.terms[0].coordinates

    @property
    def layout(self) -> EstimateLayout:
        """Return the layout of the estimates."""
        return EstimateLayout.of(self.release)

    @property
    def leaf(self) -> int:
        """Return the position of the leaf geolevel."""
        return self.plan.leaf.index

    def reader(self, level: int) -> LevelReader:
        """Open a geolevel, for one task."""
        return LevelReader(self.plan, self.release, level)

    def tables_at(self, level: int) -> tuple[Query, ...]:
        """List the tables that have estimates at a geolevel: all, unless queries are on demand."""
        terms = self.terms[level]  # one look at the release, not one per table
        return tuple(query for query in self.tables if terms.determines(query))

    def climb(self, batch: Batch) -> PartFile:
        """Write the messages of the parents of a range of families."""
        below, level = self.reader(batch.level), self.reader(batch.level - 1)
        children = below.rows(batch)
        names = children.parents[children.starts]
        parents = level.rows(Batch(level.level.index, str(names[0]), str(names[-1]), 0))
        answers, has_type = level.answers(parents), level.has_type(parents.codes)
        evidence = range_evidence(self.plan, level.terms, parents, answers, has_type)
        if below.is_leaf:
            sums = _sum_leaves(below, children)
        else:
            finer = below.subtree(children)
            sums = sum_below(finer, children.starts, children.is_only, below.terms)
        messages = pass_up(level.terms, evidence, sums, parents.is_only)
        dataset = self.layout.subtree(level.level.name)
        return write_moments(dataset, level.terms.coordinates, parents.codes, messages)

    def descend(self, batch: Batch) -> Descended:
        """Write the estimates and tables of a range of families."""
        level = self.reader(batch.level)
        rows, queries = level.rows(batch), self.tables_at(batch.level)
        schema = tables_schema(self.largest_above(batch.level))
        tables = PartWriter(self.layout.tables(level.level.name), schema)
        if level.is_leaf:
            errors, largest = _descend_leaves(level, rows, queries, tables, schema)
            return Descended(None, tables.close(), errors, largest)
        estimates = level.estimates(rows, level.above(rows))
        dataset = self.layout.whole(level.level.name)
        coordinates = level.terms.coordinates
        whole = write_moments(dataset, coordinates, rows.codes, estimates, single=True)
        written = estimate_rows(coordinates, queries, rows.codes, estimates, schema)
        tables.write_apart(written)
        errors, largest = standard_error_sums(written), largest_estimate(written)
        return Descended(whole, tables.close(), errors, largest)

    def largest_above(self, level: int) -> float:
        """Return the largest estimate of the geolevel above; infinity at the root or if unknown."""
        if not level:
            return math.inf
        above = Dataset.open(self.layout.tables(self.plan.levels[level - 1].name))
        return float(above.facts.get("largest_estimate", math.inf))


def _sum_leaves(level: LevelReader, children: LevelRange) -> Moments:
    """Sum answers over the leaves of each family with equal types, then estimate from the sums."""
    sums, has_type, firsts, sizes = [], [], [], []
    for start, stop in children.pieces(max(1, _CHUNK_ANSWERS // level.numbers)):
        piece = children.slice(start, stop)
        types = level.has_type(piece.codes)
        order, first = leaf_groups(piece, types)
        sums.append(sum_answers(piece, level.answers(piece), order, first))
        firsts.append(start + order[first])
        sizes.append(np.diff(np.append(first, len(order))))
        if types is not None:
            has_type.append(types[order[first]])
    rows = np.concatenate(firsts)
    noisy, exact = (
        [np.concatenate(parts) for parts in zip(*of_pieces, strict=True)]
        for of_pieces in zip(*sums, strict=True)
    )
    groups = LevelRange(
        level.level.index,
        children.codes[rows],
        children.parents[rows],
        children.n_children[rows],
        np.zeros(len(rows), np.bool_),
        np.full(len(rows), level.level.name, object),
    )
    of_groups = np.concatenate(has_type) if has_type else None
    evidence = range_evidence(level.plan, level.terms, groups, (noisy, exact), of_groups)
    measured = np.where(children.is_only[rows], 0, np.concatenate(sizes))
    return add_leaves(combine(level.terms, evidence, None), measured, groups.starts, level.terms)


def leaf_groups(children: LevelRange, has_type: BoolArray | None) -> tuple[IntArray, IntArray]:
    """Order the leaves of every family by the types that they can have.

    Args:
      children: Whole families of leaves, of G geounits.
      has_type: bool[G, t]; None for one group per family.

    Returns:
      int64[G], the order of the rows, and int64[H], the position in it where each group begins.
    """
    order = np.arange(len(children.codes))
    if has_type is None:
        return order, children.starts
    types = np.unique(has_type, axis=0, return_inverse=True)[1].reshape(-1)
    family = np.searchsorted(children.starts, order, side="right")
    order = np.lexsort((types, family))
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (np.diff(family[order]) != 0) | (np.diff(types[order]) != 0)
    return order, np.flatnonzero(is_first)


def _descend_leaves(
    level: LevelReader,
    rows: LevelRange,
    queries: Sequence[Query],
    writer: PartWriter,
    schema: pa.Schema,
) -> tuple[list[FloatArray], float]:
    """Write tables of leaves; return sums of standard errors per table and the largest estimate."""
    sums, largest = [np.zeros(query.size) for query in queries], 0.0
    if not queries:  # no component is touched, so there is nothing to estimate on
        return sums, largest
    terms = level.terms.restricted(level.terms.coordinates.touched_by(queries))
    above = level.above(rows, terms)
    # Noisy answers take few bytes each, and are held anyway.
    numbers = terms.coordinates.size + sum(query.size for query in queries)
    waiting: list[list[pa.Table]] = []
    for start, stop in rows.pieces(max(1, _CHUNK_NUMBERS // max(numbers, level.numbers // 4))):
        piece = rows.slice(start, stop)
        families = np.arange(*np.searchsorted(rows.starts, [start, stop]))
        estimates = level.estimates(piece, None if above is None else above.take(families), terms)
        tables = estimate_rows(terms.coordinates, queries, piece.codes, estimates, schema)
        sums = [a + b for a, b in zip(sums, standard_error_sums(tables), strict=True)]
        largest = max(largest, largest_estimate(tables))
        waiting.append(tables)
        if stop == len(rows.codes) or sum(len(group[0]) for group in waiting) >= _GROUP_ROWS:
            writer.write_apart(map(pa.concat_tables, zip(*waiting, strict=True)))
            waiting = []
    return sums, largest


def subtree_estimates(
    level: LevelReader, rows: LevelRange, query: Query
) -> Iterator[tuple[FloatArray, FloatArray, IntArray]]:
    """Estimate a query from the subtrees of geounits that are not only children, in chunks.

    Args:
      level: Reader of the geolevel.
      rows: The geounits.
      query: Any query of m answers that the subtrees determine.

    Yields:
      float64[G, m] estimates; float64[K, m, m] covariances by kind; int64[G], kind of each geounit.
    """
    terms = level.terms
    if level.is_leaf:
        terms = terms.restricted(terms.coordinates.touched_by([query]))
    for start, stop in rows.pieces(max(1, _CHUNK_NUMBERS // level.numbers)):
        piece = rows.slice(start, stop)
        subtree = level.subtree(piece, terms if level.is_leaf else None).take(~piece.is_only)
        covariances = terms.coordinates.covariances(query, query, subtree.matrices)
        yield terms.coordinates.answer(query, subtree.values), covariances, subtree.kind


def facts_of(
    estimator: LevelEstimator, geolevel: str, queries: Sequence[Query], seconds: float
) -> dict[str, Any]:
    """Return the facts of a dataset of estimates: geolevel, queries, confidence and seconds."""
    return estimator.plan.facts(
        geolevel=geolevel,
        format=FORMAT,
        confidence=estimator.confidence,
        queries=[
            {"query": q.name, "answers": q.size, "shape": list(q.shape), "labels": q.labels()}
            for q in queries
        ],
        seconds=seconds,
    )


def table_statistics(queries: Sequence[Query], parts: Sequence[Descended]) -> dict[str, Any]:
    """Return facts of the tables of a geolevel: largest estimate, sums of standard errors.

    Values have six digits, since the cut into tasks changes the last ones.
    """
    sums = [sum(column) for column in zip(*(part.errors for part in parts), strict=True)]
    return {
        "largest_estimate": float(f"{max(part.largest for part in parts):.6g}"),
        "standard_error_sums": {
            query.name: [round(float(f"{value:.6g}"), 4) for value in np.asarray(column).tolist()]
            for query, column in zip(queries, sums, strict=True)
        },
    }


def sum_answers(
    children: LevelRange, answers: RangeAnswers, order: IntArray, first: IntArray
) -> RangeAnswers:
    """Sum the answers of groups of leaves; 0 for a group of an only child, which is not measured.

    Args:
      children: Whole families of leaves.
      answers: Their answers.
      order: From `leaf_groups`.
      first: From `leaf_groups`.
    """
    is_measured = ~children.is_only
    has_answers = is_measured[order][first]
    before = np.concatenate(([0], np.cumsum(is_measured[order])))
    starts = before[first[has_answers]]
    position = np.cumsum(is_measured) - 1  # among the measured leaves
    rows = position[order[is_measured[order]]]
    is_sorted = bool((np.diff(rows) > 0).all())

    def add_up(part: IntArray) -> IntArray:
        sums = np.zeros((len(first), part.shape[1]), np.int64)
        sums[has_answers] = family_sums(part if is_sorted else part[rows], starts)
        return sums

    noisy, exact = answers
    measured_exact = [part[is_measured] for part in exact]
    return [*map(add_up, noisy)], [*map(add_up, measured_exact)]


@dataclass(frozen=True, eq=False)
class EstimateStage:
    """The estimate stage of a product.

    Attributes:
      estimator: The functions of the tasks.
      tasks: The runner of the tasks.
    """

    estimator: LevelEstimator
    tasks: Tasks

    def run(self) -> None:
        """Estimate every geolevel and publish the missing datasets.

        Raises:
          SchemaError: The measured queries group the levels in too many ways.
          OutputError: The measurements are not complete.
        """
        names = self.estimator.plan.spine.levels
        for level in range(len(names) - 2, -1, -1):
            self.climb(level)
        for level in range(len(names)):
            self.descend(level)

    def climb(self, level: int) -> None:
        """Publish the messages of one geolevel."""
        estimator = self.estimator
        geolevel = estimator.plan.levels[level].name
        dataset = estimator.layout.subtree(geolevel)
        if is_published(dataset):
            return
        started = time.monotonic()
        label = f"estimate {geolevel} from below"
        parts = self._run(label, level + 1, estimator.climb)
        self._publish(dataset, parts, level, started)

    def descend(self, level: int) -> None:
        """Publish the estimates and tables of one geolevel."""
        estimator, layout = self.estimator, self.estimator.layout
        geolevel = estimator.plan.levels[level].name
        if is_published(layout.tables(geolevel)):
            return
        started = time.monotonic()
        parts = self._run(f"estimate {geolevel}", level, estimator.descend)
        if level < estimator.leaf and not is_published(layout.whole(geolevel)):
            whole = [part.whole for part in parts if part.whole is not None]
            self._publish(layout.whole(geolevel), whole, level, started)
        tables = [part.tables for part in parts]
        statistics = table_statistics(estimator.tables_at(level), parts)
        self._publish(layout.tables(geolevel), tables, level, started, **statistics)

    def _publish(
        self, dataset: Place, parts: Sequence[PartFile], level: int, started: float, **more: object
    ) -> None:
        """Publish a dataset, with further facts."""
        estimator = self.estimator
        geolevel, queries = estimator.plan.levels[level].name, estimator.tables_at(level)
        facts = {**facts_of(estimator, geolevel, queries, time.monotonic() - started), **more}
        publish(dataset, parts, facts)

    def _run(self, label: str, level: int, task: Callable[[Batch], T]) -> list[T]:
        """Run a task function on all families of a geolevel."""
        estimator = self.estimator
        numbers = estimator.reader(level).numbers
        size = self.tasks.sizing.estimate_numbers
        largest, smallest = max(1, size.most // numbers), size.least // numbers
        batches = geounit_batches(
            estimator.release, estimator.plan.levels[level], self.tasks.batches, largest, smallest
        )
        if len(batches) == 1:
            return [task(batches[0])]
        return self.tasks.run(label, batches, task)


# --- areas ----------------------------------------------------------------------------------------


# Defaults, not measured: numbers read at once (80 MB); geounits read between two cut families, a
# tract or two; geounits whose estimates are read together, about a row group.
_WINDOW_NUMBERS = 10_000_000
_MOST_BETWEEN = 256
_MOST_AT_ONCE = 512


@dataclass(frozen=True, eq=False)
class AreaEstimator:
    """Estimator of queries in any area.

    Attributes:
      estimator: The finished estimate stage of a release.
      queries: Any queries.
      within: First and last geocode prefix of leaves that areas can contain. Both are prefixes of
        whole geounits of one geolevel. Other leaves are not read.
    """

    estimator: LevelEstimator
    queries: tuple[Query, ...]
    within: tuple[str, str] = ("", "")

    @cached_property
    def coordinates(self) -> Coordinates:
        """Return the coordinates of the components that the queries touch."""
        return self.estimator.coordinates.touched_by(self.queries)

    def _refuse_unknown(self, level: int) -> None:
        """Refuse queries without estimates at a geolevel, which on-demand queries can cause.

        Raises:
          SchemaError: A query does not follow from the completely measured queries.
        """
        plan = self.estimator.plan
        unknown = without_estimates(plan, self.queries)
        for query in self.queries:
            if plan.levels[level].name not in unknown.get(query.name, ()):
                continue
            complete = [one.name for one in plan.levels[level].complete]
            on_demand = sorted(plan.levels[level].on_demand, key=lambda one: one.size)
            enough = next((one.name for one in on_demand if is_answered_by(one, query)), None)
            why = why_no_estimates(plan)
            raise SchemaError(
                f"estimate, query {query.name}, geolevel {plan.levels[level].name}",
                "does not follow from the queries measured completely at this geolevel and above"
                + (f": {why}" if why else ""),
                got=f"follows from {enough}, which is on demand" if enough else None,
                want=f"a query that follows from {', '.join(complete)}" if complete else None,
                remedy="name another query; a run that does not list what it needs among "
                "privacy.on_demand_queries has estimates of it",
            )

    @cache  # noqa: B019 - an estimator lives as long as its command
    def geounits(self, level: int) -> LevelRange:
        """Read the geounits of a geolevel that lie within the prefixes of `within`."""
        batch, (low, high) = all_geounits(level), self.within
        if self.estimator.plan.spine.digits[level] >= len(low):
            batch = Batch(level, low, high + LAST, 0)
        return self._reader(level).rows(batch)

    @cache  # noqa: B019
    def _bounds(self, level: int) -> IntArray:
        """Return int64[U + 1], the first child of each of U parents, and the number of children."""
        rows = self.geounits(level)
        return np.append(rows.starts, len(rows.codes))

    @cached_property
    def _leaf_codes(self) -> Geocodes:
        """Return bytes[G], the sorted geocodes of the G leaves within the prefixes of `within`."""
        return self.geounits(self.estimator.leaf).codes.astype(np.bytes_)

    @cache  # noqa: B019
    def _reader(self, level: int) -> LevelReader:
        """Open a geolevel once; areas in ascending order of geocodes share row groups."""
        return self.estimator.reader(level)

    @cache  # noqa: B019
    def _terms(self, level: int) -> GeolevelTerms:
        """Return the terms of a geolevel on the components that the queries touch."""
        return self.estimator.terms[level].restricted(self.coordinates)

    def geounit(self, code: str) -> Moments:
        """Estimate a geounit of any geolevel.

        Raises:
          InputError: There is no such geounit.
          SchemaError: A query has no estimates at its geolevel.
        """
        level, spot = self._find(code)
        self._refuse_unknown(level)
        return self._on_spine(level, spot)

    def bounds(self, code: str) -> Bounds:
        """Return public bounds of the answers of the first query in a geounit of any geolevel.

        Raises:
          InputError: There is no such geounit.
        """
        name = self.estimator.plan.levels[self._find(code)[0]].name
        public = PublicBounds(self.estimator.plan, self.estimator.release, name)
        return public.of(self.queries[0], np.array([code], object))

    def _find(self, code: str) -> tuple[int, int]:
        """Return the geolevel of a geounit and its position there."""
        for level in range(self.estimator.leaf + 1):
            rows = self.geounits(level)
            spot = int(np.searchsorted(rows.codes, code))
            if spot < len(rows.codes) and rows.codes[spot] == code:
                return level, spot
        raise InputError("estimate", "has no such geounit", got=code)

    def blocks(self, codes: Sequence[str] | Geocodes) -> Moments:
        """Estimate the sum of a set of leaves.

        Args:
          codes: Geocodes of geounits of the last geolevel, in any order; repeated ones count once.

        Returns:
          The estimates of the sum over the set, as of one geounit, and their covariances.

        Raises:
          InputError: The set is empty, or a geounit does not exist.
          SchemaError: A query has no estimates at the last geolevel.
        """
        self._refuse_unknown(self.estimator.leaf)
        leaves = self._leaf_codes
        found = np.asarray(codes)
        if found.dtype.kind != "S":
            found = np.char.encode(found.astype(np.str_), "ascii", "replace")  # ? is in no geocode
        wanted = np.unique(found)
        spots = np.searchsorted(leaves, wanted)
        known = leaves[np.minimum(spots, len(leaves) - 1)] == wanted
        if not len(wanted) or not known.all():
            raise InputError(
                "estimate, area",
                "is not a set of geounits of the last geolevel",
                got=f"{len(wanted) - int(known.sum())} unknown of {len(wanted)}",
            )
        touched, whole = self._held(spots)
        level = max(index for index, held in enumerate(touched) if len(held) == 1)
        spot = int(touched[level][0])
        holder = self._on_spine(level, spot)
        if whole[level][0]:
            return holder
        shares: dict[int, Share] = {}
        for above in range(self.estimator.leaf - 1, level - 1, -1):
            cut, inside = touched[above][~whole[above]], touched[above + 1][whole[above + 1]]
            shares = self._shares(above, cut, inside, shares)
        return estimate_share(shares[spot], holder)

    def _held(self, spots: IntArray) -> tuple[list[IntArray], list[BoolArray]]:
        """Return per geolevel positions of geounits that touch the area, and which lie within it.

        Time grows with the size of the area, not of the nation.
        """
        touched, whole = [spots], [np.ones(len(spots), np.bool_)]
        for level in range(self.estimator.leaf, 0, -1):
            bounds = self._bounds(level)
            above = np.searchsorted(bounds, touched[0], side="right") - 1
            parents, family = np.unique(above, return_inverse=True)
            inside = np.bincount(family.reshape(-1), whole[0], len(parents))
            touched.insert(0, parents)
            whole.insert(0, inside == bounds[parents + 1] - bounds[parents])
        return touched, whole

    def _shares(
        self, level: int, cut_parents: IntArray, inside: IntArray, below: dict[int, Share]
    ) -> dict[int, Share]:
        """Compute the shares of cut geounits of a geolevel from the shares one geolevel down.

        Keys are positions of geounits. `inside` are sorted positions of children in the area.
        """
        children = self.geounits(level + 1)
        bounds = self._bounds(level + 1)
        reader, terms = self._reader(level + 1), self._terms(level + 1)
        shares = {}
        for parents in self._windows(cut_parents, bounds, level + 1):
            first = int(bounds[parents[0]])
            rows = children.slice(first, int(bounds[parents[-1] + 1]))
            messages = reader.subtree(rows, terms)
            for parent in parents.tolist():
                mine = np.arange(bounds[parent], bounds[parent + 1])
                if len(mine) == 1:  # what is cut in an only child is cut in its parent
                    shares[parent] = below[int(mine[0])]
                    continue
                family = messages.take(mine - first)
                sums = sum_below(
                    family, np.zeros(1, np.int64), np.zeros(len(mine), np.bool_), terms
                )
                cut = [
                    CutChild(
                        below[int(child)],
                        tuple(part[spot] for part in family.values),
                        tuple(part[family.kind[spot]] for part in family.matrices),
                    )
                    for spot, child in enumerate(mine)
                    if int(child) in below
                ]
                shares[parent] = share_of_family(
                    family, is_whole=np.isin(mine, inside, assume_unique=True), cut=cut, below=sums
                )
        return shares

    def _windows(self, parents: IntArray, bounds: IntArray, level: int) -> Iterator[IntArray]:
        """Yield runs of cut parents whose children are read together, with few children between."""
        most = max(1, _WINDOW_NUMBERS // self._reader(level).numbers)
        start = 0
        for stop in range(1, len(parents) + 1):
            last = stop == len(parents)
            if (
                last
                or bounds[parents[stop] + 1] - bounds[parents[start]] > most
                or bounds[parents[stop]] - bounds[parents[stop - 1] + 1] > _MOST_BETWEEN
            ):
                yield parents[start:stop]
                start = stop

    def _on_spine(self, level: int, spot: int) -> Moments:
        """Estimate one geounit from all answers; returns one row with one covariance."""
        estimator, rows = self.estimator, self.geounits(level)
        if level < estimator.leaf:
            size = self._reader(level).terms.coordinates.size
            most = max(1, min(_MOST_AT_ONCE, _WINDOW_NUMBERS // size))
            row = self._window(level, spot // most * most, most).take(np.array([spot % most]))
        else:
            family = np.flatnonzero(rows.parents == rows.parents[spot])
            siblings = rows.slice(int(family[0]), int(family[-1]) + 1)
            reader, terms = self._reader(level), self._terms(level)
            estimates = reader.estimates(siblings, reader.above(siblings, terms), terms)
            row = estimates.take(np.array([spot - int(family[0])]))
        matrices = tuple(part[row.kind] for part in row.matrices)
        return Moments(row.values, matrices, np.zeros(1, np.int64))

    @lru_cache(maxsize=8)  # noqa: B019 - areas in the order of their geocodes share them
    def _window(self, level: int, start: int, size: int) -> Moments:
        """Read estimates of consecutive geounits above the leaves, from all answers."""
        codes = self.geounits(level).codes[start : start + size]
        return self._reader(level).whole(codes, self._terms(level))
