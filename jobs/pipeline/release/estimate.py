"""Estimate: unbiased estimates and intervals of every geounit, up the tree and down again.

One Spark job per geolevel and direction; a task works on a range of whole families. Nothing but
descriptors of files reaches the driver, which itself does the steps that are one small task.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from das.arrays import FloatArray, IntArray
from das.queries.query import Query, parse_query
from das.tree.coordinates import Coordinates
from das.tree.model import GeolevelTerms
from das.tree.passes import Moments, add_leaves, combine, pass_down, pass_up, sum_below
from das.tree.targets import SubtreeTargets, subtree_targets
from jobs.pipeline.plan import Plan, plan_terms
from jobs.pipeline.release.evidence import (
    AnswersReader,
    LevelRange,
    RangeAnswers,
    range_evidence,
    select_moments,
)
from jobs.pipeline.storage.dataset import (
    Dataset,
    PartFile,
    PartWriter,
    RangeReader,
    is_published,
    publish,
)
from jobs.pipeline.storage.estimates import (
    FORMAT,
    estimate_rows,
    largest_estimate,
    read_moments,
    standard_error_sums,
    tables_schema,
    write_moments,
)
from jobs.pipeline.storage.layout import EstimateLayout, ReleaseLayout
from jobs.pipeline.storage.place import Place
from jobs.pipeline.tasks.batches import Batch, geounit_batches
from jobs.pipeline.tasks.executor import Tasks
from solvers.answers.sums import family_sums

T = TypeVar("T")

CONFIDENCE = 0.9  # of the intervals of a run
# Numbers in coordinates at once: what is made of them on the way stays in a third-level cache. On
# the way down a block of 2,016 cells takes 32 microseconds, with twice as many 38, with half 42.
_CHUNK_NUMBERS = 1_000_000
_GROUP_ROWS = 4_096  # leaves of a row group of tables, about
_CHUNK_ANSWERS = 4_000_000  # of leaves, read before they are added up


@dataclass(frozen=True, eq=False)
class Descended:
    """What a task of the way down wrote.

    Attributes:
      whole: Estimates from all answers; None of leaves.
      tables: Estimates of tables.
      errors: Sums over its geounits of the standard errors, float64[m] per table.
      largest: The largest absolute estimate.
    """

    whole: PartFile | None
    tables: PartFile
    errors: Sequence[FloatArray]
    largest: float


@dataclass(frozen=True, eq=False)
class LevelEstimator:
    """What a task does at one geolevel.

    Attributes:
      plan: The plan.
      release: Where measurements lie and estimates go.
      tables: Queries of any kind to estimate in every geounit.
      confidence: Of the intervals.
    """

    plan: Plan
    release: ReleaseLayout
    tables: tuple[Query, ...]
    confidence: float

    @cached_property
    def terms(self) -> tuple[GeolevelTerms, ...]:
        """Queries of every geolevel."""
        return plan_terms(self.plan)

    @cached_property
    def coordinates(self) -> Coordinates:
        """Coordinates of the whole space."""
        return self.terms[0].coordinates

    @property
    def layout(self) -> EstimateLayout:
        """Where estimates go."""
        return EstimateLayout.of(self.release)

    @property
    def leaf(self) -> int:
        """Position of the last geolevel."""
        return self.plan.leaf.index

    def tables_at(self, level: int) -> tuple[Query, ...]:
        """Tables that have estimates at a geolevel: all, unless some queries are lazy."""
        return tuple(query for query in self.tables if self.terms[level].determines(query))

    def numbers(self, level: int) -> int:
        """Numbers held per geounit of a geolevel, at least 1: all its queries may be lazy."""
        if level == self.leaf:
            return max(1, sum(query.size for query in self.terms[level].measured))
        return self.coordinates.size + sum(size**2 for size in self.coordinates.sizes)

    # --- up --------------------------------------------------------------------------------------

    def climb(self, batch: Batch) -> PartFile:
        """Write the messages of the parents of a range of families."""
        children = self._range(batch)
        names = children.parents[children.starts]
        above = batch.level - 1
        parents = self._range(Batch(above, str(names[0]), str(names[-1]), 0))
        answers = self.answers(parents)
        terms = self.terms[above]
        evidence = range_evidence(self.plan, terms, parents, answers)
        messages = pass_up(terms, evidence, self._below(children), parents.is_only)
        dataset = self.layout.subtree(self.plan.levels[above].name)
        return write_moments(dataset, self.coordinates, parents.codes, messages)

    def _below(self, children: LevelRange) -> Moments:
        """Sums over families and their precisions."""
        level = children.level
        shared = self.terms[level].shared
        if level < self.leaf:
            return sum_below(self._messages(children), children.starts, children.is_only, shared)
        return self._sum_leaves(self.terms[level], children)

    def _sum_leaves(self, terms: GeolevelTerms, children: LevelRange) -> Moments:
        """Sums over families of leaves: answers are added before they are estimated."""
        starts = children.starts
        passes = children.is_only[starts]
        answers = self.answers_reader(self.leaf)
        sums = [
            sum_answers(piece, answers.read(piece))
            for start, stop in children.pieces(max(1, _CHUNK_ANSWERS // self.numbers(self.leaf)))
            for piece in [children.slice(start, stop)]
        ]
        noisy = [np.concatenate(parts) for parts in zip(*(s.noisy for s in sums), strict=True)]
        exact = [np.concatenate(parts) for parts in zip(*(s.exact for s in sums), strict=True)]
        alike = LevelRange(
            self.leaf,
            children.codes[starts],
            children.parents[starts],
            children.n_children[starts],
            np.zeros(len(starts), np.bool_),
            np.full(len(starts), self.plan.leaf.name, object),
        )
        evidence = range_evidence(self.plan, terms, alike, RangeAnswers(noisy, exact))
        sizes = np.diff(np.append(starts, len(children.codes)))
        return add_leaves(combine(terms, evidence, None), np.where(passes, 0, sizes), terms.shared)

    # --- down ------------------------------------------------------------------------------------

    def descend(self, batch: Batch) -> Descended:
        """Write the estimates and tables of a range of families."""
        geolevel = self.plan.levels[batch.level].name
        rows = self._range(batch)
        schema = tables_schema(self.largest_above(batch.level))
        tables = PartWriter(self.layout.tables(geolevel), schema)
        if batch.level == self.leaf:
            errors, largest = self._descend_leaves(rows, tables, schema)
            return Descended(None, tables.close(), errors, largest)
        messages = self._messages(rows)
        estimates = messages
        if batch.level:
            above = self._whole(rows)
            below = sum_below(messages, rows.starts, rows.is_only, self.terms[batch.level].shared)
            estimates = pass_down(messages, below, above, rows.starts, rows.is_only)
        dataset = self.layout.whole(geolevel)
        whole = write_moments(dataset, self.coordinates, rows.codes, estimates, single=True)
        asked = self.tables_at(batch.level)
        written = estimate_rows(self.coordinates, asked, rows.codes, estimates, schema)
        tables.write_apart(written)
        errors, largest = standard_error_sums(written), largest_estimate(written)
        return Descended(whole, tables.close(), errors, largest)

    def largest_above(self, level: int) -> float:
        """The largest estimate of the geolevel above; infinite where nobody said."""
        if not level:
            return math.inf
        above = Dataset.open(self.layout.tables(self.plan.levels[level - 1].name))
        return float(above.facts.get("largest_estimate", math.inf))

    def _descend_leaves(
        self, rows: LevelRange, writer: PartWriter, schema: pa.Schema
    ) -> tuple[list[FloatArray], float]:
        """Sums of the standard errors of each table, and the largest estimate."""
        asked = self.tables_at(self.leaf)
        sums, largest = [np.zeros(query.size) for query in asked], 0.0
        if not asked:  # no component is touched, so there is nothing to estimate on
            return sums, largest
        terms = self.leaf_terms(self.coordinates.touched_by(asked))
        answers = self.answers_reader(self.leaf)
        above = self.above_leaves(terms, rows)
        # Answers that are only added up are of a few bytes, and held anyway.
        held = terms.coordinates.size + sum(query.size for query in asked)
        numbers = max(held, self.numbers(self.leaf) // 4)
        starts = rows.starts
        waiting: list[list[pa.Table]] = []
        for start, stop in rows.pieces(max(1, _CHUNK_NUMBERS // numbers)):
            piece = rows.slice(start, stop)
            families = np.arange(*np.searchsorted(starts, [start, stop]))
            estimates = self.leaf_estimates(
                terms,
                piece,
                answers.read(piece),
                None if above is None else above.take(families),
            )
            tables = estimate_rows(terms.coordinates, asked, piece.codes, estimates, schema)
            sums = [one + more for one, more in zip(sums, standard_error_sums(tables), strict=True)]
            largest = max(largest, largest_estimate(tables))
            waiting.append(tables)
            if stop == len(rows.codes) or sum(len(held[0]) for held in waiting) >= _GROUP_ROWS:
                writer.write_apart(map(pa.concat_tables, zip(*waiting, strict=True)))
                waiting = []
        return sums, largest

    def leaf_terms(self, part: Coordinates) -> GeolevelTerms:
        """Queries of leaves on some components."""
        return self.terms[self.leaf].restricted(part)

    def above_leaves(self, terms: GeolevelTerms, rows: LevelRange) -> Moments | None:
        """Estimates of the parents of families of leaves, on the components of `terms`."""
        if self.leaf == 0:
            return None
        return select_moments(terms.coordinates, self.coordinates, self._whole(rows))

    def leaf_estimates(
        self, terms: GeolevelTerms, rows: LevelRange, answers: RangeAnswers, above: Moments | None
    ) -> Moments:
        """Estimates of whole families of leaves from all answers, on the components of `terms`.

        `above` are those of their parents, on the same components; None of a root.
        """
        messages = self.leaf_messages(terms, rows, answers)
        if above is None:
            return messages
        below = sum_below(messages, rows.starts, rows.is_only, terms.shared)
        return pass_down(messages, below, above, rows.starts, rows.is_only)

    def leaf_messages(
        self, terms: GeolevelTerms, rows: LevelRange, answers: RangeAnswers
    ) -> Moments:
        """Estimates of leaves from their own answers, on the components of `terms`."""
        evidence = range_evidence(self.plan, terms, rows, answers)
        return pass_up(terms, evidence, None, rows.is_only)

    # --- targets of the node problems ------------------------------------------------------------

    def target_queries(self, level: int) -> tuple[Query, ...]:
        """Queries of a geolevel and of all below it that have estimates there, each once."""
        named = {q.name: q for terms in self.terms[level:] for q in terms.measured}
        return tuple(q for q in named.values() if self.terms[level].determines(q))

    def targets(self, batch: Batch, messages: RangeReader | None = None) -> SubtreeTargets:
        """Subtree targets of the geounits of a range that are not only children.

        Args:
          batch: The range.
          messages: Reads the messages of its geolevel, for who asks piece by piece.

        Raises:
          OutputError: The upward pass has not been made.
        """
        rows = self._range(batch)
        read = messages or self.reader(batch.level)
        subtree = read_moments(read, self.coordinates, rows.codes).take(~rows.is_only)
        return subtree_targets(self.terms[batch.level], self.target_queries(batch.level), subtree)

    def subtree_estimates(
        self, batch: Batch, query: Query, messages: RangeReader | None
    ) -> Iterator[tuple[FloatArray, FloatArray, IntArray]]:
        """Estimates of a query from the subtrees of geounits that are not only children.

        Args:
          batch: The range, read piece by piece.
          query: Any query of m answers that is determined.
          messages: Reads the messages of its geolevel; None at the leaves, which have none.

        Yields:
          Of some geounits float64[G, m]; by kind float64[K, m, m], their covariances; int64[G].
        """
        rows = self._range(batch)
        coordinates, answers = self.coordinates, self.answers_reader(batch.level)
        terms = self.leaf_terms(coordinates.touched_by([query]))
        if messages is None:
            coordinates = terms.coordinates
        for start, stop in rows.pieces(max(1, _CHUNK_NUMBERS // self.numbers(batch.level))):
            piece = rows.slice(start, stop)
            if messages is not None:
                found = read_moments(messages, coordinates, piece.codes)
            else:
                found = self.leaf_messages(terms, piece, answers.read(piece))
            subtree = found.take(~piece.is_only)
            covariances = coordinates.covariances(query, query, subtree.matrices)
            yield coordinates.answer(query, subtree.values), covariances, subtree.kind

    def cell_estimates(self, batch: Batch) -> tuple[FloatArray, FloatArray]:
        """Estimates of all cells of the geounits of a range that are not only children.

        Returns:
          float64[G, n] from each geounit's subtree, and float64[G], the mean variance of a cell.
        """
        rows = self._range(batch)
        if batch.level == self.leaf:
            messages = self.leaf_messages(self.terms[self.leaf], rows, self.answers(rows))
        else:
            messages = self._messages(rows)
        measured = messages.take(~rows.is_only)
        cells = parse_query(self.plan.schema, "detailed")
        variances = self.coordinates.variances(cells, measured.matrices).mean(1)
        return self.coordinates.answer(cells, measured.values), variances[measured.kind]

    # --- reading ---------------------------------------------------------------------------------

    def _range(self, batch: Batch) -> LevelRange:
        return LevelRange.read(self.release, self.plan.levels[batch.level].name, batch)

    def answers_reader(self, level: int) -> AnswersReader:
        """What reads the answers of a geolevel, in ranges that ascend."""
        return AnswersReader.of(self.release, self.plan.levels[level].name, self.terms[level])

    def answers(self, rows: LevelRange) -> RangeAnswers:
        """Answers of whole families of a geolevel."""
        return self.answers_reader(rows.level).read(rows)

    def reader(self, level: int) -> RangeReader:
        """What reads the messages of a geolevel."""
        return RangeReader(Dataset.open(self.layout.subtree(self.plan.levels[level].name)))

    def _messages(self, rows: LevelRange) -> Moments:
        return read_moments(self.reader(rows.level), self.coordinates, rows.codes)

    def _whole(self, rows: LevelRange) -> Moments:
        """Estimates of the parents of families."""
        dataset = self.layout.whole(self.plan.levels[rows.level - 1].name)
        return read_moments(Dataset.open(dataset), self.coordinates, rows.parents[rows.starts])


def facts_of(
    estimator: LevelEstimator, geolevel: str, asked: Sequence[Query], seconds: float
) -> dict[str, Any]:
    """Facts of a dataset of estimates: of what, of which queries, and what it took."""
    return {
        "geolevel": geolevel,
        "configuration_digest": estimator.plan.digest,
        "not_for_release": estimator.plan.not_for_release,
        "format": FORMAT,
        "confidence": estimator.confidence,
        "queries": [
            {"query": q.name, "answers": q.size, "shape": list(q.shape), "labels": q.labels()}
            for q in asked
        ],
        "seconds": seconds,
    }


def said_of_tables(asked: Sequence[Query], parts: Sequence[Descended]) -> dict[str, Any]:
    """Facts of the tables of a geolevel: the largest estimate, and sums of standard errors.

    Six digits: how tasks are cut changes the last ones, and those of what is exact.
    """
    sums = [sum(column) for column in zip(*(part.errors for part in parts), strict=True)]
    return {
        "largest_estimate": float(f"{max(part.largest for part in parts):.6g}"),
        "standard_error_sums": {
            query.name: [round(float(f"{value:.6g}"), 4) for value in np.asarray(column).tolist()]
            for query, column in zip(asked, sums, strict=True)
        },
    }


def sum_answers(children: LevelRange, answers: RangeAnswers) -> RangeAnswers:
    """Add up the answers of whole families, zero for those without a measured leaf."""
    passes = children.is_only[children.starts]
    before = np.concatenate(([0], np.cumsum(~children.is_only)))
    measured = before[children.starts[~passes]]

    def add_up(part: IntArray) -> IntArray:
        sums = np.zeros((len(passes), part.shape[1]), np.int64)
        sums[~passes] = family_sums(part, measured)
        return sums

    exact = [part[~children.is_only] for part in answers.exact]
    return RangeAnswers([*map(add_up, answers.noisy)], [*map(add_up, exact)])


@dataclass(frozen=True, eq=False)
class EstimateStage:
    """The stage, with all it works on.

    Attributes:
      estimator: What the tasks do.
      tasks: What runs its steps.
    """

    estimator: LevelEstimator
    tasks: Tasks

    def run(self) -> None:
        """Estimate every geolevel and publish what is not published yet.

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
        said = said_of_tables(estimator.tables_at(level), parts)
        self._publish(layout.tables(geolevel), tables, level, started, said)

    def _publish(
        self,
        dataset: Place,
        parts: Sequence[PartFile],
        level: int,
        started: float,
        said: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Publish a dataset; `said` are facts of its own."""
        estimator = self.estimator
        geolevel, asked = estimator.plan.levels[level].name, estimator.tables_at(level)
        facts = {**facts_of(estimator, geolevel, asked, time.monotonic() - started), **said}
        publish(dataset, parts, facts)

    def _run(self, label: str, level: int, task: Callable[[Batch], T]) -> list[T]:
        """Do a step on all families of a geolevel."""
        estimator = self.estimator
        numbers = estimator.numbers(level)
        size = self.tasks.sizing.estimate_numbers
        largest, smallest = max(1, size.most // numbers), size.least // numbers
        batches = geounit_batches(
            estimator.release, estimator.plan.levels[level], self.tasks.batches, largest, smallest
        )
        if len(batches) == 1:
            return [task(batches[0])]
        return self.tasks.run(label, batches, task)
